"""What an audit on Spark says of its findings. How copies are compared: tests/client/test_verify.py."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from holdfast.client.verification import Finding
from holdfast.spark.pipeline.audit import ARROW, FINDINGS, KEYS, AuditResult, Sum, _table
from holdfast.spark.pipeline.loose_copies import key_finding

EQUAL = Finding(3, "m", "owner", "backup", 1, "equal", 5, 5, 4, 4, True, 2, 2, "aa", "aa")
NOT_KEPT = Finding(3, "m", "owner", "other", 2, "equal", 5, 0, 4, 0, False, 2, 0, "aa", "0" * 16)
DIFFERS = Finding(4, "m", "owner", "backup", 1, "differs", 5, 5, 4, 3, True, 2, 2, "aa", "bb")


def test_an_audit_is_sound_when_every_copy_is_equal() -> None:
    result = AuditResult([EQUAL, NOT_KEPT], 2, 0.1)
    assert result.sound
    assert (result.copies, result.not_kept, result.entries) == (1, 1, 4)


def test_an_audit_names_what_differs() -> None:
    result = AuditResult([EQUAL, DIFFERS], 2, 0.1)
    assert not result.sound
    assert result.count("differs") == 1
    assert "1 differs" in str(result)
    assert "partition=4" in str(result)


def test_findings_travel_as_columns() -> None:
    table = _table([EQUAL, DIFFERS])
    assert table.schema == ARROW
    assert [Finding(**row) for row in table.to_pylist()] == [EQUAL, DIFFERS]
    assert FINDINGS.rows(table) == [EQUAL, DIFFERS]


def test_keys_travel_as_columns() -> None:
    rows = [key_finding(1, "m", b"\xff\x00", where, value) for where, value in (("a", b"x"), ("b", None))]
    assert KEYS.rows(KEYS.table(rows)) == rows
    assert [(row.held, row.value_bytes, bool(row.digest)) for row in rows] == [
        (True, 1, True),
        (False, 0, False),
    ]


def test_sums_say_the_same_as_the_findings() -> None:
    gathered = AuditResult([EQUAL, NOT_KEPT, DIFFERS], 2, 0.1)
    on_spark = AuditResult([DIFFERS], 2, 0.1, sums=gathered.totals())
    assert set(on_spark.sums) == {
        Sum("equal", True, 1, 4),
        Sum("equal", False, 1, 0),
        Sum("differs", True, 1, 3),
    }
    for result in (gathered, on_spark):
        assert (result.copies, result.not_kept, result.entries, result.sound, result.differs) == (
            2,
            1,
            4,
            False,
            True,
        )
    assert AuditResult([], 2, 0.1).sound
