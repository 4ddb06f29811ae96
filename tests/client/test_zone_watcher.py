"""The following of zones through members that go, lag, or have forgotten what came between."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec

from holdfast.actions.metastore_keys import KeyChanges, ScanKeys
from holdfast.actions.operator_action import OperatorAction
from holdfast.actions.registry import read_action
from holdfast.actions.show_zones import ShowLeaders
from holdfast.client.blocking import Client
from holdfast.client.connection import Broken
from holdfast.client.zone_watcher import PATIENCE, ZonesGap, ZonesWatched, ZoneWatcher
from holdfast.core.model.metastore_answers import KeyAnswer, KeysFound
from holdfast.core.model.zone_answers import KnownLeaders
from holdfast.core.zones.descriptors import ZoneDescriptor, ZoneSettings
from holdfast.core.zones.zone_keys import encoded, zone_key
from holdfast.errors import NotReady, Refused, Unsupported
from holdfast.wire import own


class Members:
    """Two members, as a client sees them."""

    def __init__(self) -> None:
        self.keys: dict[str, KeyAnswer] = {}
        self.changes: list[KeyAnswer] = []
        self.revision = 10
        self.compacted = 0
        self.fails = {"a": "", "b": ""}
        """What each answers instead; `gone`: it does not."""
        self.looks = 0

    def put(self, zone: int, name: str) -> None:
        self.revision += 1
        key = zone_key(zone, "descriptor").decode()
        value = encoded(ZoneDescriptor(zone, ZoneSettings(name, partitions=1))).decode()
        self.keys[key] = KeyAnswer(key, value, self.revision, 5)
        self.changes.append(self.keys[key])

    # -- what is used of a client

    def table(self) -> Any:
        if set(self.fails.values()) == {"gone"}:
            raise NotReady("nobody answers")
        return SimpleNamespace(members=dict.fromkeys(self.fails, SimpleNamespace(address="here")))

    def to(self, member: str) -> Any:
        if self.fails[member] == "gone":
            raise Broken("it is gone")

        def ask(question: own.Act, kind: object) -> own.Acted:
            query = read_action(question.action, question.fields)
            answer = self.answer(query, self.fails[member])
            if isinstance(answer, Refused):
                return own.Acted(
                    1, own.Fate.REJECTED, str(answer), msgspec.Raw(b"\xc0"), type(answer).__name__
                )
            return own.Acted(1, own.Fate.DONE, "", msgspec.Raw(msgspec.msgpack.encode(answer)))

        return SimpleNamespace(next_number=lambda: 1, ask=ask)

    def answer(self, question: OperatorAction, failed: str) -> object:
        if failed:
            return {"NotReady": NotReady, "Unsupported": Unsupported}[failed]("it is so")
        if isinstance(question, ShowLeaders):
            return KnownLeaders("node", {}, [], [])
        if isinstance(question, ScanKeys):
            # In two parts, to be put together.
            keys = sorted(key for key in self.keys if key > question.after)
            return KeysFound([self.keys[key] for key in keys[:1]], self.revision, more=len(keys) > 1)
        assert isinstance(question, KeyChanges)
        assert question.after is not None
        if question.after < self.compacted:
            return Refused("forgotten")
        if question.after > self.revision:
            return NotReady("not here yet")
        return KeysFound([one for one in self.changes if one.revision > question.after], self.revision)


def watched(members: Members, *deeds: Any) -> list[Any]:
    """What is told while these deeds are done, one after each look."""
    left = list(deeds)

    def pause(seconds: float) -> None:
        if left:
            left.pop(0)()

    watcher = ZoneWatcher(cast("Client", members), pause)
    told = list(watcher.events(lambda: not left))
    return [
        event if isinstance(event, ZonesWatched | ZonesGap) else (event.kind.value, event.zone)
        for event in told
    ]


def idle() -> None:
    """Nothing happens."""


def test_changes_are_told_once_whichever_member_answers() -> None:
    members = Members()
    members.put(1, "x")
    members.put(2, "y")
    told = watched(
        members,
        lambda: members.put(3, "z"),
        lambda: members.fails.update(a="gone"),
        lambda: members.put(4, "new"),
        lambda: members.fails.update(a="NotReady"),
        lambda: members.put(1, "other"),
        lambda: members.fails.update(a="Unsupported"),
        lambda: members.put(1, "third"),
        idle,
        idle,
    )
    assert told == [
        ZonesWatched(("x", "y"), 12),
        ("zone created", "z"),
        ("zone created", "new"),
        ("zone renamed", "other"),
        ("zone renamed", "third"),
    ]


def test_where_no_metastore_is_nothing_is_watched() -> None:
    members = Members()
    members.fails.update(a="Unsupported", b="Unsupported")
    assert watched(members, idle, idle) == []


def test_it_waits_for_members_and_for_a_metastore_that_answers() -> None:
    members = Members()
    members.fails.update(a="gone", b="gone")
    told = watched(
        members, lambda: members.fails.update(a="NotReady"), lambda: members.fails.update(b=""), idle, idle
    )
    assert told == [ZonesWatched((), 10)]


def test_what_was_forgotten_meanwhile_is_a_gap_and_what_is_known_goes_on() -> None:
    members = Members()
    members.put(1, "x")

    def forget() -> None:
        members.put(2, "y")
        members.compacted = members.revision

    told = watched(members, forget, lambda: members.put(3, "z"), idle, idle)
    assert told[0] == ZonesWatched(("x",), 11)
    assert isinstance(told[1], ZonesGap)
    assert told[2:] == [ZonesWatched(("x", "y"), 12), ("zone created", "z")]


def test_a_metastore_with_another_past_is_begun_anew() -> None:
    members = Members()
    members.put(1, "x")

    def reset() -> None:
        members.revision = 3
        members.keys.clear()
        members.changes.clear()

    told = watched(members, reset, *[idle] * PATIENCE, lambda: members.put(2, "y"), idle, idle)
    assert told[0] == ZonesWatched(("x",), 11)
    assert isinstance(told[1], ZonesGap)
    assert told[2:] == [ZonesWatched((), 3), ("zone created", "y")]
