"""The audit log: what is in the file, what is left out, and when it is begun anew."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.runtime.logs.audit_log import LINES_MAX, LINES_OF_OTHERS, PERIOD_S, AuditLog
from holdfast.server.audit_events import SHOWN_MAX, AuditEvent, AuditKind

OLDER = 2


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def refused(number: int = 0) -> AuditEvent:
    return AuditEvent(AuditKind.REFUSED, "ada", "10.0.0.1", "Map.get", f"no rule {number}")


def test_a_line_says_who_from_where_and_what(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    log = AuditLog(path, 1 << 20, OLDER, "m1")
    log.write(refused())
    log.write(AuditEvent(AuditKind.LOGIN, "a\nname {}", "10.0.0.1"))
    log.close()
    first, second = lines(path)
    time = str(first.pop("time"))
    assert time.endswith("+00:00")
    assert first == {
        "member": "m1",
        "event": "refused",
        "user": "ada",
        "address": "10.0.0.1",
        "what": "Map.get",
        "detail": "no rule 0",
    }
    assert second["user"] == "a\nname {}"


def test_no_reader_sees_more_lines_than_there_are(tmp_path: Path) -> None:
    """Neither one to whom other characters end a line, too, nor a terminal."""
    path = tmp_path / "audit"
    log = AuditLog(path, 1 << 20, OLDER, "m1")
    name = 'eve\u2028\x85\x0b{"event":"login","user":"root"}\u2029\x9b2J\u202e\x7f'
    log.write(AuditEvent(AuditKind.LOGIN_FAILED, name, "10.0.0.1"))
    log.close()
    content = path.read_text(encoding="utf-8")
    assert len(content.splitlines()) == 1
    assert content.isascii()
    assert lines(path)[0]["user"] == name


def test_after_a_disk_that_was_full_lines_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first write after it begins anew, whatever part of the one before is there."""
    path = tmp_path / "audit"
    log = AuditLog(path, 1 << 20, OLDER, "m1")
    write = os.write

    def fills(file: int, view: memoryview) -> int:
        if path.stat().st_size:
            raise OSError(errno.ENOSPC, "no space left")
        return write(file, view[:10])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fills)
        log.write(refused(1))
        log._file._thread.submit(lambda: None).result()
    log.write(refused(2))
    log.close()
    begun, *rest = [line for line in path.read_text(encoding="utf-8").splitlines() if line]
    assert len(begun) == 10
    assert [json.loads(line)["detail"] for line in rest] == ["no rule 2"]


def test_what_comes_too_fast_is_counted(tmp_path: Path) -> None:
    now = 0.0
    path = tmp_path / "audit"
    log = AuditLog(path, 1 << 30, OLDER, "m1", lambda: now)
    for number in range(3 * LINES_OF_OTHERS):
        log.write(refused(number))
    log.write(AuditEvent(AuditKind.ORDER, "root", "10.0.0.2", "Order", "LEAVE"))
    now += PERIOD_S
    log.write(refused())
    log.close()
    found = lines(path)
    assert [line["event"] for line in found].count("refused") == LINES_OF_OTHERS + 1
    assert [line["event"] for line in found].count("order") == 1, "refusals hide no order"
    (left_out,) = [line for line in found if line["event"] == "records dropped"]
    assert (left_out["what"], left_out["count"]) == ("refused", 2 * LINES_OF_OTHERS)


def test_nobody_hides_what_others_do_behind_the_same(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    log = AuditLog(path, 1 << 30, OLDER, "m1", lambda: 0.0)
    for number in range(LINES_MAX[AuditKind.ORDER] + 1):
        log.write(AuditEvent(AuditKind.ORDER, "eve", "10.0.0.2", "put-key", f"put-key {number}"))
    log.write(AuditEvent(AuditKind.ORDER, "root", "10.0.0.1", "Order", "END"))
    for number in range(2 * LINES_OF_OTHERS):
        log.write(AuditEvent(AuditKind.LOGIN_FAILED, f"name {number}", "10.0.0.2"))
    log.close()
    found = lines(path)
    assert [line["detail"] for line in found if line.get("user") == "root"] == ["END"]
    assert [line["event"] for line in found].count("login failed") == LINES_OF_OTHERS
    assert {line["what"]: line["count"] for line in found if line["event"] == "records dropped"} == {
        "login failed": LINES_OF_OTHERS,
        "order": 1,
    }


def test_fields_have_an_end(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    log = AuditLog(path, 1 << 20, OLDER, "m1")
    log.write(AuditEvent(AuditKind.LOGIN_FAILED, "x" * 100_000, "10.0.0.1"))
    log.close()
    assert len(str(lines(path)[0]["user"])) < SHOWN_MAX + 10


def test_a_large_file_is_begun_anew(tmp_path: Path) -> None:
    now = 0.0
    path = tmp_path / "audit"
    for _ in range(40):
        log = AuditLog(path, 2000, OLDER, "m1", lambda: now)
        for number in range(10):
            log.write(refused(number))
        log.close()
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == ["audit", *(f"audit.{number}" for number in range(1, OLDER + 1))]
    assert all(each.stat().st_size <= 2000 + 2000 for each in tmp_path.iterdir())
    assert all(lines(each) for each in tmp_path.iterdir())


def test_a_file_that_somebody_has_renamed_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    log = AuditLog(path, 1 << 20, OLDER, "m1")
    path.rename(tmp_path / "old")
    log.write(refused())
    log.close()
    assert len(lines(path)) == 1


def test_a_file_that_cannot_be_written_is_said_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"security\.audit_file: cannot write"):
        AuditLog(tmp_path / "nowhere" / "audit", 1 << 20, OLDER, "m1")
