"""The client's ledger: what may be read after which answers."""

from __future__ import annotations

from holdfast_lab.processes.hazelcast_writer import KeyRecord, Writer


class Grid:
    """A map in memory, which fails on demand: before or after the write has taken effect."""

    def __init__(self) -> None:
        self.entries: dict[int, int] = {}
        self.fail_at: dict[int, bool] = {}
        """Value -> whether it is stored all the same."""

    def set(self, key: int, value: int) -> None:
        if self.fail_at.get(value, True):
            self.entries[key] = value
        if value in self.fail_at:
            raise OSError("connection lost")

    def get(self, key: int) -> int | None:
        return self.entries.get(key)


def wrong(writer: Writer, grid: Grid) -> list[int]:
    return [key for key, record in enumerate(writer.keys) if not record.may_be(grid.entries.get(key))]


def run(grid: Grid, steps: int = 400) -> Writer:
    writer = Writer(grid, (OSError,))
    for number in range(steps):
        writer.step(number)
    return writer


def test_an_honest_grid_loses_nothing() -> None:
    grid = Grid()
    writer = run(grid)
    assert wrong(writer, grid) == []
    assert writer.progress.acknowledged == 300
    assert writer.progress.read == 100
    assert writer.progress.wrong_reads == 0


def test_an_unanswered_write_may_be_there_or_not() -> None:
    grid = Grid()
    grid.fail_at = dict.fromkeys(range(10, 290, 7), True) | dict.fromkeys(range(11, 290, 7), False)
    writer = run(grid)
    assert writer.progress.unknown > 50
    assert wrong(writer, grid) == []
    assert writer.progress.wrong_reads == 0


def test_a_key_is_left_alone_after_an_unanswered_write() -> None:
    grid = Grid()
    grid.fail_at = {1: False}
    writer = run(grid)
    assert writer.keys[0] == KeyRecord(acknowledged=0, unknown=1)


def test_a_lost_and_an_old_value_are_found() -> None:
    grid = Grid()
    writer = run(grid)
    del grid.entries[3]
    grid.entries[4] -= 1
    assert wrong(writer, grid) == [3, 4]


def test_reads_of_wrong_values_are_counted() -> None:
    grid = Grid()
    writer = Writer(grid, (OSError,))
    writer.step(0)
    grid.entries.clear()
    writer.step(3)
    assert writer.progress.wrong_reads == 1


def test_the_longest_wait_is_remembered_and_the_period_is_not() -> None:
    writer = run(Grid())
    assert 0 < writer.progress.pause_ms <= writer.progress.longest_pause_ms
