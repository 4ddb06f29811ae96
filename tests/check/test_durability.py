"""The durability ledger must find what it is there to find, and nothing else."""

from holdfast.check.durability import OUTLIVES, Read, Touch, Write, judge_final, judge_reads


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


def short(key: str, value: str, start: int, end: int, ttl: int, outcome: str = "ok") -> Write:
    return Write(key, value, start, end, outcome, ttl)


LONG = 10 * OUTLIVES


def test_an_entry_may_be_absent_only_when_its_time_is_over() -> None:
    history = [ok("k", "a", 0, 1), short("k", "b", 2, 3, ttl=100)]
    assert judge_final(history, {"k": None}, now=102) == []
    assert judge_final(history, {"k": None}, now=101)
    assert judge_final(history, {"k": "b"}, now=102) == []
    assert judge_final(history, {"k": "a"}, now=LONG), "what it overwrote does not come back"


def test_a_write_for_ever_after_it_is_not_excused() -> None:
    history = [short("k", "a", 0, 1, ttl=100), ok("k", "b", 2, 3)]
    assert judge_final(history, {"k": None}, now=LONG)
    at_the_same_time = [short("k", "a", 0, 5, ttl=100), ok("k", "b", 2, 3)]
    assert judge_final(at_the_same_time, {"k": None}, now=LONG) == []


def test_a_short_write_of_unknown_fate_may_come_late_and_end() -> None:
    history = [Write("k", "a", 0, ttl=100), ok("k", "b", 10, 11)]
    assert judge_final(history, {"k": None}, now=100) == []
    refused = [Write("k", "a", 0, 1, "refused", 100), ok("k", "b", 10, 11)]
    assert judge_final(refused, {"k": None}, now=LONG)


def test_a_value_that_outlives_its_time_is_found() -> None:
    history = [short("k", "a", 0, 1, ttl=100)]
    assert judge_final(history, {"k": "a"}, now=101 + OUTLIVES) == []
    assert judge_final(history, {"k": "a"}, now=102 + OUTLIVES)
    assert judge_final([ok("k", "a", 0, 1)], {"k": "a"}, now=LONG) == []


def test_a_value_that_outlives_a_new_time_to_live_is_found() -> None:
    history = [short("k", "a", 0, 1, ttl=100)]
    touched = [Touch("k", 1000, 2, 3, "ok")]
    assert judge_final(history, {"k": "a"}, touched, now=1003 + OUTLIVES) == []
    assert judge_final(history, {"k": "a"}, touched, now=1004 + OUTLIVES)
    assert judge_final(history, {"k": "a"}, [Touch("k", 1000, 2)], now=LONG) == [], (
        "that may come at any time"
    )
    before = [Touch("k", 1000, -9, -8, "ok")]
    assert judge_final(history, {"k": "a"}, before, now=102 + OUTLIVES)


def test_a_read_of_a_value_that_outlives_its_time_is_found() -> None:
    history = [short("k", "a", 0, 1, ttl=100)]
    assert judge_reads(history, [Read("k", "a", 101 + OUTLIVES, LONG)]) == []
    late = [Read("k", "a", 102 + OUTLIVES, LONG)]
    assert judge_reads(history, late)
    assert judge_reads(history, late, [Touch("k", 100, 2, 3, "refused")])
    assert judge_reads(history, late, [Touch("k", 1000, 2, 3, "ok")]) == []


def test_a_new_time_to_live_excuses_the_value_that_it_found() -> None:
    history = [ok("k", "a", 0, 1)]
    assert judge_final(history, {"k": None}, [Touch("k", 100, 2, 3, "ok")], now=102) == []
    assert judge_final(history, {"k": None}, [Touch("k", 100, 2, 3, "ok")], now=101)
    assert judge_final(history, {"k": None}, [Touch("k", 100, 2, 3, "refused")], now=LONG)
    assert judge_final(history, {"k": None}, [Touch("other", 100, 2, 3, "ok")], now=LONG)
    later = [*history, ok("k", "b", 4, 5)]
    assert judge_final(later, {"k": None}, [Touch("k", 100, 2, 3, "ok")], now=LONG)
