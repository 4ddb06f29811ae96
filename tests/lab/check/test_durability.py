"""The durability ledger must find what it is there to find, and nothing else."""

from holdfast_lab.check.durability import Read, Write, judge_final, judge_reads


def ok(key: str, value: str | None, start: int, end: int) -> Write:
    return Write(key, value, start, end, "ok")


def test_the_last_acknowledged_write_is_there() -> None:
    assert judge_final([ok("k", "a", 0, 1), ok("k", "b", 2, 3)], {"k": "b"}) == []


def test_an_acknowledged_write_that_an_earlier_one_survives_is_lost() -> None:
    problems = judge_final([ok("k", "a", 0, 1), ok("k", "b", 2, 3)], {"k": "a"})
    assert len(problems) == 1
    assert "acknowledged b" in problems[0]


def test_an_acknowledged_write_to_an_absent_key_is_lost() -> None:
    assert judge_final([ok("k", "a", 0, 1)], {"k": None})
    assert judge_final([ok("k", "a", 0, 1)], {})


def test_writes_at_the_same_time_may_end_in_either_order() -> None:
    history = [ok("k", "a", 0, 5), ok("k", "b", 1, 4)]
    assert judge_final(history, {"k": "a"}) == []
    assert judge_final(history, {"k": "b"}) == []


def test_an_unknown_write_may_come_late_or_never() -> None:
    history = [Write("k", "a", 0), ok("k", "b", 10, 11)]
    assert judge_final(history, {"k": "a"}) == []
    assert judge_final(history, {"k": "b"}) == []


def test_a_refused_write_must_not_be_there() -> None:
    history = [ok("k", "a", 0, 1), Write("k", "b", 2, 3, "refused")]
    assert judge_final(history, {"k": "b"})


def test_a_removal_explains_absence_only_when_it_came_late_enough() -> None:
    assert judge_final([ok("k", "a", 0, 1), ok("k", None, 2, 3)], {"k": None}) == []
    assert judge_final([ok("k", None, 0, 1), ok("k", "a", 2, 3)], {"k": None})


def test_a_value_that_nobody_wrote_is_found() -> None:
    assert judge_final([ok("k", "a", 0, 1)], {"k": "z"})


def test_reads_of_the_future_of_strangers_and_of_refused_writes_are_found() -> None:
    writes = [ok("k", "a", 5, 6), Write("k", "b", 0, 1, "refused")]
    assert judge_reads(writes, [Read("k", "a", 5, 7)]) == []
    assert judge_reads(writes, [Read("k", "a", 1, 2)])
    assert judge_reads(writes, [Read("k", "b", 1, 2)])
    assert judge_reads(writes, [Read("k", "c", 1, 2)])
    assert judge_reads(writes, [Read("j", "a", 6, 7)])
