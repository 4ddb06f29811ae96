"""The judge of near caches: numbers that rise, and entries that are those of the map."""

from __future__ import annotations

from holdfast_lab.check.cached_entries import Kept, Numbering, judge_kept

KEPT = [Kept("a", "1", 2_000_000_000), Kept("b", "2", 0), Kept("c", "3", 0)]


def test_numbers_of_one_partition_rise() -> None:
    numbering = Numbering("n")
    for partition, history, number in [(0, b"h", 1), (0, b"h", 2), (1, b"h", 1), (0, b"h", 9), (0, b"i", 1)]:
        numbering.on_invalidation(partition, history, number)
    assert numbering.problems == []
    numbering.on_invalidation(0, b"i", 1)
    numbering.on_invalidation(1, b"h", 0)
    assert numbering.problems == [
        "near cache n: partition 0: invalidation 1 follows 1",
        "near cache n: partition 1: invalidation 0 follows 1",
    ]


def test_after_all_was_cleared_no_number_is_known() -> None:
    numbering = Numbering("n")
    numbering.on_invalidation(0, b"h", 5)
    numbering.on_clear()
    numbering.on_invalidation(0, b"h", 5)
    assert numbering.problems == []


def test_an_entry_that_is_kept_is_that_of_the_map() -> None:
    assert judge_kept("n", KEPT, {"a": "1", "b": "2", "c": "3"}) == []
    assert judge_kept("n", KEPT, {}) == [], "the run did not come to rest"
    assert judge_kept("n", KEPT, {"a": "9", "b": None, "c": "3"}) == [
        "near cache n: a is 1 for ever, read at 2.000000 s; the map has 9",
        "near cache n: b is 2 for ever, read at 0.000000 s; the map has None",
    ]
