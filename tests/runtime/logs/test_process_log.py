"""The log: each event one line, whatever is said in it; in text or JSON; in a file that does not grow for ever."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.config import load
from holdfast.errors import ConfigError
from holdfast.runtime.logs.line_file import LineFile
from holdfast.runtime.logs.process_log import FIELDS, JsonLines, TextLines, begin_log

HOSTILE = (
    'eve\u2028\x85\x0b\r\n2026-01-01 00:00:00 CRITICAL forged {"level":"ERROR"}\u2029\x9b2J\u202e\x7f\ud800'
)


def record(message: str, *said: object, fields: object = None, error: bool = False) -> logging.LogRecord:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        trace = sys.exc_info() if error else None
    made = logging.LogRecord("holdfast", logging.WARNING, __file__, 1, message, said, trace)
    setattr(made, FIELDS, fields)
    return made


@pytest.mark.parametrize("formatter", [TextLines(), JsonLines("m1")])
def test_what_is_said_cannot_end_a_line(formatter: logging.Formatter) -> None:
    line = formatter.format(record("a client said %s", HOSTILE, fields={"said": HOSTILE, HOSTILE: 1}))
    assert len(line.splitlines()) == 1
    assert all(one.isprintable() for one in line)


@given(said=st.text(), name=st.text(), value=st.text() | st.integers() | st.lists(st.text()))
def test_any_text_is_one_line_of_json_and_comes_out_as_it_was(said: str, name: str, value: object) -> None:
    line = JsonLines("m1").format(record("%s", said, fields={name: value}))
    assert line.isascii()
    assert len(line.splitlines()) == 1
    told = json.loads(line)
    assert told["message"] == said
    assert value in told.values()
    assert told["level"] == "WARNING", "no field takes the place of ours"


def test_a_traceback_is_in_one_object_or_in_lines_that_pass_for_no_other() -> None:
    told = json.loads(JsonLines("").format(record("it failed", error=True)))
    assert "ValueError" in told["traceback"]
    assert "member" not in told
    first, *more = TextLines().format(record("it failed", error=True)).splitlines()
    assert first.endswith("WARNING it failed")
    assert more
    assert all(line.startswith("  | ") for line in more)


def test_a_file_is_begun_anew_and_so_many_older_ones_stay(tmp_path: Path) -> None:
    for kept in (0, 1, 3):
        folder = tmp_path / str(kept)
        folder.mkdir()
        for number in range(40):
            lines = LineFile(folder / "log", size_max=100, kept=kept, name="test", lost=lambda error: None)
            lines.add(b"%040d\n" % number)
            lines.close()
        names = sorted(each.name for each in folder.iterdir())
        assert names == ["log", *(f"log.{number}" for number in range(1, kept + 1))]
        assert (folder / "log").read_bytes().split()[-1] == b"%040d" % 39
        assert all(each.stat().st_size <= 100 for each in folder.iterdir())


PROGRAM = """
import logging, sys
from holdfast.config import load
from holdfast.runtime.logs.process_log import begin_log

begin_log(load(None, {}, {"log.file": sys.argv[1], "log.level": sys.argv[2], "log.format": "json"}).log, "m1")
logging.getLogger("holdfast").info("heard %s", "once")
logging.getLogger("holdfast").warning("heard %s", "twice")
"""


@pytest.mark.parametrize(
    ("level", "said"), [("info", ["heard once", "heard twice"]), ("warning", ["heard twice"])]
)
def test_everything_is_in_the_file_when_the_process_has_ended(
    tmp_path: Path, level: str, said: list[str]
) -> None:
    path = tmp_path / "member.log"
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path), level], capture_output=True, text=True, check=True
    )
    assert ran.stdout == ran.stderr == ""
    told = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [line["message"] for line in told] == said
    assert {line["member"] for line in told} == {"m1"}
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_cannot_be_written_is_said_before_anything_starts(tmp_path: Path) -> None:
    settings = load(None, {}, {"log.file": str(tmp_path / "nowhere" / "log")})
    with pytest.raises(ConfigError, match=r"log\.file: cannot write"):
        begin_log(settings.log)
