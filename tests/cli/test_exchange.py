"""`holdfast cluster exchange`: the answers of several members become one list."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.actions.show_exchanges import (
    ExchangesSeen,
    PartitionExchangeState,
    PhaseDurations,
    ShowExchanges,
    TopologyExchangeState,
)
from holdfast.cli.exchange import Exchanges, change_in_words, merged, ms_in_words, of_partition
from holdfast.cli.rendering import show

NOTHING = PhaseDurations(0, 0, 0, 0)


def topology(major: int, **more: object) -> TopologyExchangeState:
    plain = {
        "major": major,
        "age_ms": 1000,
        "joined": [],
        "restarted": [],
        "left": [],
        "gone": [],
        "state": "active",
        "master": "one",
        "first": False,
        "exchanges": {},
        "longest": NOTHING,
        "lasted_ms": 0.0,
    }
    return TopologyExchangeState(**(plain | more))  # type: ignore[arg-type]


def exchange(minor: int, age_ms: int, phase: str = "done") -> PartitionExchangeState:
    return PartitionExchangeState(5, minor, age_ms, "move", "two", PhaseDurations(1.5, 20, 3, 0), phase)


def seen(*topologies: TopologyExchangeState, **more: object) -> ExchangesSeen:
    plain: dict[str, object] = {"topologies": list(topologies), "partition": [], "open": 0, "dropped": 0}
    return ExchangesSeen(**(plain | more))  # type: ignore[arg-type]


def test_members_add_up_to_one_line_for_a_topology() -> None:
    one = topology(
        4,
        age_ms=900,
        gone=["three"],
        exchanges={"failover": 2},
        longest=PhaseDurations(0, 40, 9, 0),
        lasted_ms=60.0,
    )
    two = topology(
        4,
        gone=["three"],
        exchanges={"failover": 1, "move": 3},
        longest=PhaseDurations(7, 30, 10, 1),
        lasted_ms=55.0,
    )
    [line] = merged({"one": seen(one), "two": seen(two)}, last=20)
    assert line.exchanges == {"failover": 3, "move": 3}
    assert msgspec.structs.astuple(line.longest) == (7, 40, 10, 1)
    assert (line.lasted_ms, line.age_ms, line.gone) == (60.0, 1000, ["three"])
    assert line.members == ["one", "two"]


def test_member_that_has_just_joined_does_not_say_what_changed() -> None:
    new = topology(3, first=True, joined=["one", "two", "three"])
    old = topology(3, joined=["three"])
    for found in ({"one": seen(old), "three": seen(new)}, {"a": seen(new), "b": seen(old)}):
        [line] = merged(found, last=20)
        assert change_in_words(line) == "three joined"
    [alone] = merged({"three": seen(new)}, last=20)
    assert change_in_words(alone) == "first one known here: one, two, three"


def test_last_topologies_are_shown_oldest_first() -> None:
    found = {"one": seen(topology(1), topology(2), topology(3)), "two": seen(topology(3), topology(4))}
    assert [line.major for line in merged(found, last=2)] == [3, 4]
    assert [line.major for line in merged(found, last=9)] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"left": ["two"]}, "two left"),
        ({"gone": ["two", "four"], "joined": ["five"]}, "five joined; two, four gone"),
        ({"restarted": ["two"]}, "two restarted"),
        ({"state": "frozen"}, "settings, or the state: frozen"),
    ],
)
def test_change_in_words(changed: dict[str, object], words: str) -> None:
    assert change_in_words(topology(2, **changed)) == words


def test_exchanges_of_a_partition_are_in_the_order_of_topologies() -> None:
    found = {
        "one": seen(partition=[exchange(7, 10), exchange(9, 5)]),
        "two": seen(partition=[exchange(8, 7), exchange(9, 9, "superseded")]),
    }
    shown = of_partition(found, last=3)
    assert [(one.minor, one.member) for one in shown] == [(8, "two"), (9, "two"), (9, "one")]


def test_text_has_a_line_for_each_and_names_what_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    answer = Exchanges(
        at_ms=1_700_000_000_000,
        topologies=merged({"one": seen(topology(2, joined=["two"]), topology(3, left=["two"]))}, last=5),
        partition=None,
        exchanges=[],
        open={"one": 4},
        dropped={"one": 3},
        unreachable_members=["two: not there"],
    )
    show(answer)
    text = capsys.readouterr().out
    assert "two joined" in text
    assert "two left" in text
    assert "one: 4 partitions wait until it serves them" in text
    assert list(answer.notes()) == ["not asked: two: not there"], "a topology counts dropped exchanges, too"
    assert answer.exit_status == 4

    of_one = msgspec.structs.replace(
        answer, partition=7, exchanges=of_partition({"one": seen(partition=[exchange(9, 5)])}, last=1)
    )
    show(of_one)
    text = capsys.readouterr().out
    assert "5.9" in text
    assert "1.5ms" in text
    assert "20ms" in text
    assert "one has forgotten 3 older exchanges of its partitions" in list(of_one.notes())
    none = msgspec.structs.replace(of_one, exchanges=[], open={}, unreachable_members=[], dropped={})
    show(none)
    assert "no member that is here remembers an exchange of partition 7" in capsys.readouterr().out
    assert none.exit_status == 0


def test_short_times_have_a_decimal() -> None:
    assert [ms_in_words(ms) for ms in (0, 0.04, 9.94, 10, 1500)] == [
        "0.0ms",
        "0.0ms",
        "9.9ms",
        "10ms",
        "1.5s",
    ]


def test_partition_that_does_not_exist_is_refused() -> None:
    assert ShowExchanges(6).problem(7) == ""
    assert ShowExchanges().problem(7) == ""
    assert ShowExchanges(7).problem(7) == "there is no partition 7: they are 0 to 6"
