"""The client at a fixed rate: what it remembers of answers that come when they like."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast_lab.processes import paced
from holdfast_lab.processes.hazelcast_writer import KeyRecord
from holdfast_lab.processes.paced import Keys, Pacer


class Answer:
    """Stands for the client's future."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[Answer], None]] = []
        self.value: int | None = None
        self.error: Exception | None = None

    def add_done_callback(self, callback: Callable[[Answer], None]) -> None:
        self.callbacks.append(callback)

    def result(self) -> int | None:
        if self.error is not None:
            raise self.error
        return self.value

    def come(self, value: int | None = None, error: Exception | None = None) -> None:
        self.value, self.error = value, error
        for callback in self.callbacks:
            callback(self)


class Grid:
    """A map whose answers wait for the test."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int, Answer]] = []

    def set(self, key: int, value: int) -> Answer:
        self.asked.append(("set", key, value, answer := Answer()))
        return answer

    def get(self, key: int) -> Answer:
        self.asked.append(("get", key, 0, answer := Answer()))
        return answer


@pytest.fixture
def few_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paced, "KEYS", 2)


def pacer(tmp_path: Path) -> tuple[Pacer, Grid]:
    grid = Grid()
    return Pacer([Keys(0, grid, "m", tmp_path / "ledger")], seed=1), grid


@pytest.mark.usefixtures("few_keys")
def test_no_key_has_two_operations_under_way(tmp_path: Path) -> None:
    client, grid = pacer(tmp_path)
    for number in range(4):
        client.send(number, due_s=0.0)
    assert sorted(key for _, key, _, _ in grid.asked) == [0, 1]
    assert (client.under_way, client.skipped) == (2, 2)
    for *_, answer in list(grid.asked):
        answer.come(None)
    client.send(4, due_s=0.0)
    assert client.under_way == 1
    assert len(client.log) == 2


@pytest.mark.usefixtures("few_keys")
def test_what_was_answered_is_known_and_what_was_not_is_unknown(tmp_path: Path) -> None:
    client, grid = pacer(tmp_path)
    client.send(0, due_s=0.0)
    client.send(2, due_s=0.0)
    (_, first, value, answer), (_, second, lost, unanswered) = grid.asked
    answer.come(None)
    unanswered.come(error=OSError("connection lost"))
    client.end()
    ledger = json.loads((tmp_path / "ledger").read_text())
    assert ledger[first] == [value, 0]
    assert ledger[second] == [0, lost]
    assert [operation.done for operation in client.log] == [True, False]
    assert client.progress.unknown == 1


@pytest.mark.usefixtures("few_keys")
def test_a_key_whose_write_was_not_answered_is_written_no_more(tmp_path: Path) -> None:
    client, _ = pacer(tmp_path)
    keys = client.maps[0]
    keys.records[0] = KeyRecord(acknowledged=3, unknown=4)
    dice = random.Random(1)
    assert {keys.pick(dice, to_write=True) for _ in range(50)} <= {1, None}
    assert 0 in {keys.pick(dice, to_write=False) for _ in range(50)}


@pytest.mark.usefixtures("few_keys")
@pytest.mark.parametrize(("found", "wrong"), [(3, 0), (4, 0), (2, 1), (None, 1)])
def test_a_wrong_read_is_counted(tmp_path: Path, found: int | None, wrong: int) -> None:
    client, grid = pacer(tmp_path)
    client.maps[0].records[:] = [KeyRecord(acknowledged=3, unknown=4)] * 2
    client.send(1, due_s=0.0)
    grid.asked[0][3].come(found)
    assert client.progress.wrong_reads == wrong
