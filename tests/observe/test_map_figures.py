"""How large maps are: counted in slices, on the primaries alone."""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest
from tests.runtime.http.test_http_door import asked, door_of, values
from tests.runtime.in_process.test_embedded import cluster, run
from tests.runtime.test_zone_verify import ROWS, zoned, zoned_members

from holdfast.core.model.member_status import MapFigure, MemberCount
from holdfast.observe import map_figures
from holdfast.observe.map_figures import SharedCounts, counting_maps
from holdfast.runtime.in_process.embedded import Member


def counted(member: Member) -> tuple[MemberCount, int]:
    """What there is, and in how many slices it was counted."""
    work, slices = counting_maps(member._node.member), 1
    while True:
        try:
            next(work)
        except StopIteration as over:
            return over.value, slices
        slices += 1


@pytest.mark.rule("observe/F-1")
def test_all_members_together_have_all_entries_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_figures, "COPIES", 5)

    async def story() -> None:
        async with cluster(2) as members:
            await members[0].map("m").put_all(dict.fromkeys(range(300), "value"))
            await members[0].map("n").set("k", "v" * 100)
            await members[0].map("n").set("k", "v" * 200)
            found = [counted(member) for member in members]
            maps: dict[str, list[MapFigure]] = {}
            for count, slices in found:
                assert slices > 5
                for name, figure in count.maps.items():
                    maps.setdefault(name, []).append(figure)
            assert sum(figure.entries for figure in maps["m"]) == 300
            assert sum(figure.updates for figure in maps["m"]) == 300
            # A key of 8 bytes, and a value with type, length and 5 letters.
            assert sum(figure.bytes for figure in maps["m"]) == 300 * (8 + 8 + 5)
            assert sum(figure.entries for figure in maps["n"]) == 1
            assert sum(figure.updates for figure in maps["n"]) == 2
            assert sum(count.primary for count, _ in found) == 301
            assert all(count.all == 301 for count, _ in found), "one backup: each holds everything"

    run(story())


def test_a_map_in_a_zone_is_counted_where_it_is_led() -> None:
    async def story() -> None:
        async with zoned_members() as members:
            await zoned(members)
            figures = [
                count.maps["orders"] for member in members if "orders" in (count := counted(member)[0]).maps
            ]
            assert len(figures) > 1, "several members lead some of it"
            assert sum(figure.entries for figure in figures) == len(ROWS)
            assert sum(figure.updates for figure in figures) == len(ROWS)
            assert sum(figure.bytes for figure in figures) == pytest.approx(
                len(ROWS) * (8 + 8 + 9.8), rel=0.1
            )
            counts = [counted(member)[0] for member in members]
            assert sum(count.primary for count in counts) == len(ROWS)
            assert sum(count.all for count in counts) == 3 * len(ROWS)
            # Members are scraped one after the other, and a group may change its leader in between: on a busy machine
            # a first look can miss or double a partition.
            for _ in range(20):
                scraped = [values((await asked(door_of(member), "/metrics"))[1]) for member in members]
                # A member that leads nothing reports no map.
                entries = sum(page.get("holdfast_map_entries", {}).get(("orders",), 0) for page in scraped)
                if entries == len(ROWS):
                    break
            assert entries == len(ROWS)

    run(story())


@pytest.mark.rule("observe/F-2")
def test_all_who_ask_share_counts_and_are_answered_one_by_one() -> None:
    """However many ask, a turn of the loop has one slice of one count, or one answer."""
    turns: list[Callable[[], None]] = []
    counts: list[MemberCount] = []
    told: list[tuple[int, int]] = []

    def count() -> Generator[None, None, MemberCount]:
        counts.append(made := MemberCount(primary=len(counts)))
        yield
        yield
        return made

    shared = SharedCounts(count)

    def ask(number: int) -> None:
        shared.ask(lambda count: told.append((number, count.primary)), turns.append)

    def run() -> int:
        rounds = 0
        while turns:
            assert len(turns) == 1
            before = len(told)
            turns.pop()()
            assert len(told) - before <= 1
            rounds += 1
        return rounds

    ask(0)
    for number in range(1, 101):
        ask(number)
    assert run() > 100
    assert len(counts) == 2
    assert told == [(0, 0), *((number, 1) for number in range(1, 101))], "no count that had begun before"
    ask(101)
    run()
    assert told[-1] == (101, 2)


def test_a_count_that_fails_does_not_end_all_others() -> None:
    turns: list[Callable[[], None]] = []
    fails = [True]

    def count() -> Generator[None, None, MemberCount]:
        if fails.pop():
            raise ValueError("broken")
        return MemberCount()
        yield

    shared = SharedCounts(count)
    told: list[MemberCount] = []
    with pytest.raises(ValueError, match="broken"):
        shared.ask(told.append, turns.append)
    fails.append(False)
    shared.ask(told.append, turns.append)
    assert len(told) == 1
