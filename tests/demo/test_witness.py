"""The client whose writes are noted: what it notes, and what its history says of what is read later."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.demo.witness import KEYS, UNDER_WAY, History, Noted, Witness, name_of, text_of

MAP, OTHER = "one", "other"


class Future:
    """An answer that somebody gives later."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.callback: Callable[[Any], None] = lambda answer: None

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self.callback = callback

    def give(self, error: Exception | None = None) -> None:
        self.error = error
        self.callback(self)

    def result(self) -> None:
        if self.error is not None:
            raise self.error


class Map:
    """Takes writes, and answers when it is told to."""

    def __init__(self) -> None:
        self.answers: list[Future] = []
        self.held: dict[int, str | None] = {}

    def set(self, key: int, value: str) -> Future:
        self.held[key] = value
        self.answers.append(Future())
        return self.answers[-1]

    def delete(self, key: int) -> Future:
        self.held[key] = None
        self.answers.append(Future())
        return self.answers[-1]


def found_in(grid_map: Map) -> dict[str, str]:
    return {str(key): name_of(value) for key, value in grid_map.held.items() if value is not None}


def test_what_was_answered_and_what_was_not_is_noted() -> None:
    grid_map = Map()
    witness = Witness({MAP: grid_map}, 1000, random.Random(1))
    for _ in range(3):
        witness.step()
    grid_map.answers[0].give()
    grid_map.answers[1].give(TimeoutError())
    noted = witness.end(patience_s=0.0)
    assert [ended is not None for *_, ended in noted] == [True, False, False]
    assert all(name == MAP and 0 <= key < KEYS for name, key, *_ in noted)
    assert next(number for *_, number, _, _ in noted if number is not None) == 1001
    assert (witness.progress.acknowledged, witness.progress.unknown) == (1, 2)


def test_no_more_than_so_many_are_under_way() -> None:
    grid_map = Map()
    witness = Witness({MAP: grid_map}, 0, random.Random(1))
    for _ in range(UNDER_WAY):
        witness.step()
    late = threading.Thread(target=witness.step)
    late.start()
    grid_map.answers[0].give()
    late.join()
    assert len(grid_map.answers) == UNDER_WAY + 1


def written(keys: range, *, map_name: str = MAP, first: int = 1, ended: int | None = 20) -> list[Noted]:
    return [(map_name, key, first + key, 10, ended) for key in keys]


@pytest.mark.parametrize("size", [1, 500])
def test_nothing_is_wrong_with_what_was_written(size: int) -> None:
    history = History(MAP)
    history.add([*written(range(size)), *written(range(size), map_name=OTHER, first=9000)])
    assert history.acknowledged == size
    assert history.judge({str(key): str(1 + key) for key in range(size)}, 30) == []


def test_what_is_lost_torn_or_invented_is_found_once() -> None:
    history = History(MAP)
    history.add(written(range(4)))
    torn = text_of(4)[:-1]
    found = {"0": "1", "1": "7", "3": name_of(torn), "99": "5"}
    problems = history.judge(found, 30)
    assert len(problems) == 4
    assert history.judge(found, 40) == []


def test_what_was_read_after_one_cut_must_be_there_after_the_next() -> None:
    history = History(MAP)
    history.add(written(range(2), ended=None))
    assert history.judge({"0": "1"}, 30) == []
    assert history.unknown == 2
    assert len(history.judge({}, 40)) == 1
    # Nobody has answered the other one: that it was not there was seen, so it must not come any more.
    assert len(history.judge({"1": "2"}, 50)) == 1


def test_a_removal_that_was_answered_is_not_undone() -> None:
    history = History(MAP)
    history.add([(MAP, 1, 5, 10, 20), (MAP, 1, None, 30, 40)])
    assert len(history.judge({"1": "5"}, 50)) == 1
    history = History(MAP)
    history.add([(MAP, 1, 5, 10, 20), (MAP, 1, None, 30, None)])
    assert history.judge({"1": "5"}, 50) == []


def test_a_whole_run_against_a_map_that_keeps_everything() -> None:
    grid_map = Map()
    witness = Witness({MAP: grid_map}, 0, random.Random(7))
    for number in range(2000):
        witness.step()
        grid_map.answers[number].give()
    history = History(MAP)
    history.add(witness.end())
    assert history.acknowledged == 2000
    assert history.judge(found_in(grid_map), 1 << 62) == []
    key = next(key for key, value in grid_map.held.items() if value is not None)
    del grid_map.held[key]
    assert len(history.judge(found_in(grid_map), 1 << 62)) == 1
