"""What connection_log say reaches the log as one line, and not too often."""

from __future__ import annotations

import logging

import pytest

from holdfast.runtime.doors.connection_log import ConnectionLog
from holdfast.runtime.logs.limited_lines import LINES, PERIOD_S, quoted


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_what_is_said_is_one_line_with_an_end() -> None:
    assert quoted("anna") == "anna"
    assert quoted("a\nCRITICAL holdfast: all is lost\r\x1b[2J\u2028") == (
        "a\\nCRITICAL holdfast: all is lost\\r\\x1b[2J\\u2028"
    )
    assert quoted("x" * 500, 10) == "x" * 10 + "... (500 characters)"
    assert quoted("ü 漢") == "ü 漢"


def test_the_log_hears_of_a_few_and_of_how_many_more(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    connection_log = ConnectionLog(clock)
    with caplog.at_level(logging.WARNING, "holdfast"):
        for number in range(1000):
            connection_log.report("knocks", "%s knocks", f"nobody\n{number}")
        connection_log.report("calls", "%s calls", "somebody else")
        assert len(caplog.messages) == LINES + 1
        assert caplog.messages[0] == "nobody\\n0 knocks"
        clock.now_s += PERIOD_S
        connection_log.report("knocks", "%s knocks", "again")
    assert caplog.messages[-2:] == [f"knocks: {1000 - LINES} more in the last 10 s", "again knocks"]
    assert connection_log.counts == {"knocks": 1001, "calls": 1}


def test_an_error_of_ours_is_told_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    connection_log = ConnectionLog()
    try:
        raise ZeroDivisionError("ours")
    except ZeroDivisionError as error:
        connection_log.report("faults", "a fault: %s", error, level=logging.ERROR, error=error)
    assert "test_connection_log.py" in caplog.text
