"""Which phase an operation counts for, and what is measured of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_lab.processes.latency import (
    CRASH,
    MOVEMENT,
    PROCESSES,
    REST,
    Log,
    Operation,
    Phases,
    Span,
    Summary,
    judge,
)

SPANS = [
    Span(MOVEMENT, 10, 20, "join m4"),
    Span(PROCESSES, 8, 11, "start m4"),
    Span(MOVEMENT, 12, 13, "join m5"),
    Span(CRASH, 15, 16, "kill m1"),
    Span(MOVEMENT, 30, 40, "drain m2"),
]


@pytest.mark.parametrize(
    ("begin", "end", "phase", "what"),
    [
        (1, 7.9, REST, ""),
        (7, 8, PROCESSES, "start m4"),
        (9, 10.5, MOVEMENT, "join m4"),
        (18, 19, MOVEMENT, "join m4"),
        (14, 14.9, MOVEMENT, "join m4"),
        (14, 17, CRASH, "kill m1"),
        (1, 50, CRASH, "kill m1"),
        (16.5, 29, MOVEMENT, "join m4"),
        (20.5, 29, REST, ""),
        (40, 41, MOVEMENT, "drain m2"),
        (41, 99, REST, ""),
    ],
)
def test_an_operation_counts_for_the_gravest_span_that_it_touches(
    begin: float, end: float, phase: str, what: str
) -> None:
    found, span = Phases(SPANS).find(begin, end)
    assert (found, span.what if span is not None else "") == (phase, what)


def filled(operations: list[Operation]) -> Log:
    log = Log()
    for operation in operations:
        log.add(operation)
    return log


def test_quantiles_are_of_what_was_measured() -> None:
    summary = Summary.of([number / 1000 for number in range(1000, -1, -1)], errors=3)
    assert (summary.operations, summary.errors) == (1001, 3)
    assert (summary.p50_ms, summary.p99_ms, summary.p999_ms, summary.max_ms) == (500, 990, 999, 1000)


def test_a_run_is_judged_by_phase_and_map() -> None:
    rest = [Operation(1 + n / 1000, 0.001, True, True, n % 2) for n in range(200)]
    moving = [Operation(30 + n / 1000, 0.004, False, True, n % 2) for n in range(199)]
    slow = Operation(35, 0.3, True, False, 1)
    crash = Operation(14.5, 5.0, False, False, 0)
    judged = judge([filled(rest), filled([*moving, slow, crash])], ["one", "two"], SPANS)
    assert judged.ratio == pytest.approx(4)
    assert judged.longest_pause_ms == pytest.approx(300), "the crash is not counted"
    assert judged.errors == 1
    assert judged.phases[CRASH].errors == 1
    assert judged.phases[MOVEMENT].operations == 200
    assert judged.maps["two"][MOVEMENT].max_ms == pytest.approx(300)
    assert judged.maps["one"][MOVEMENT].max_ms == pytest.approx(4)
    assert judged.slowest[0]["what"] == "drain m2"
    assert judged.slowest[0]["ms"] == 300
    assert all(one["phase"] != CRASH for one in judged.slowest)
    assert judged.as_dict()["p99_ratio"] == 4


def test_nothing_measured_is_no_division_by_nothing() -> None:
    judged = judge([], ["one"], [])
    assert judged.ratio == 0
    assert judged.longest_pause_ms == 0


def test_a_log_survives_its_file(tmp_path: Path) -> None:
    operations = [Operation(n / 7, n / 1000, n % 2 == 0, n % 3 == 0, n % 5) for n in range(100)]
    filled(operations).save(tmp_path / "log")
    assert list(Log.load(tmp_path / "log")) == operations
    (tmp_path / "log").write_bytes((tmp_path / "log").read_bytes()[:-1])
    with pytest.raises(EOFError):
        Log.load(tmp_path / "log")
