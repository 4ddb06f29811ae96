"""Who hears of changes: each registration once, here and on other members, while it wants to."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.core.telling import Around, gone

from holdfast.config import Settings
from holdfast.core.effects import Notify, Send
from holdfast.core.journal.log import Log
from holdfast.core.messages import Events, Subscribe
from holdfast.core.model.ids import MemberId, Token
from holdfast.core.model.notices import ViewInstalled
from holdfast.core.model.operations import EntryEvent, EventKind
from holdfast.core.model.partition_table import Assignment
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.streams.entry_listeners import EntryListeners

ME, BEN, CAL = (MemberId(name) for name in ("me", "ben", "cal"))


def event(key: bytes | None = b"k", name: str = "m") -> EntryEvent:
    return EntryEvent(EventKind.ADDED, name, BEN, key, b"v")


class Ear:
    """The listeners of one member of three."""

    def __init__(self) -> None:
        self.out = Outbox()
        self.rows = [Assignment(1, (BEN,))]
        self.listeners = EntryListeners(ME, self.out, Around(ME, BEN, CAL), self.rows)  # type: ignore[arg-type]
        self.lane = Lane(ME, Settings(), self.out, Log(self.out, on=False), self.listeners)
        self.names: dict[Token, str] = {}
        self.heard: dict[str, list[EntryEvent]] = {}

    def add(
        self,
        who: str,
        *,
        name: str = "m",
        key: bytes | None = None,
        local_only: bool = False,
        invalidations: bool = False,
    ) -> Callable[[], None]:
        token = Token(len(self.names))
        self.names[token] = who
        self.heard[who] = []
        self.listeners.add(token, name, key, local_only=local_only, invalidations=invalidations)
        return lambda: self.listeners.remove(token)

    def hear(self) -> None:
        """Take what was notified since."""
        rest = []
        for effect in self.out.take():
            if isinstance(effect, Notify):
                assert isinstance(effect.what, EntryEvent)
                self.heard[self.names[effect.token]].append(effect.what)
            else:
                rest.append(effect)
        self.out.effects.extend(rest)

    def happens(self, one: EntryEvent) -> None:
        self.lane.heard(one)

    def sent(self) -> list[tuple[MemberId, object]]:
        self.listeners.flush()
        return [(effect.to, effect.message) for effect in self.out.take() if isinstance(effect, Send)]


def test_a_wide_listener_subscribes_with_the_others_and_the_last_ends_it() -> None:
    ear = Ear()
    first = ear.add("first")
    assert ear.sent() == [(BEN, Subscribe("m", True)), (CAL, Subscribe("m", True))]
    second = ear.add("second")
    assert ear.sent() == [], "once"
    first()
    assert ear.sent() == []
    second()
    assert ear.sent() == [(BEN, Subscribe("m", False)), (CAL, Subscribe("m", False))]
    second()
    assert ear.sent() == [], "and that once"


def test_who_listens_here_alone_asks_nobody_and_hears_nothing_of_others() -> None:
    ear = Ear()
    end = ear.add("here", local_only=True)
    assert ear.sent() == []
    ear.listeners.on_events(Events([event()]))
    ear.hear()
    assert ear.heard == {"here": []}
    ear.happens(event())
    ear.hear()
    assert ear.heard == {"here": [event()]}
    assert ear.listeners.wide == []
    end()
    assert ear.sent() == []


def test_listeners_end_with_their_map_here_and_elsewhere() -> None:
    ear = Ear()
    ear.add("wide")
    ear.add("here", local_only=True)
    ear.add("near", local_only=True, invalidations=True)
    ear.add("other map", name="n", local_only=True)
    ear.sent()
    ear.listeners.destroy("m")
    destroyed = Events([EntryEvent(EventKind.DESTROYED, "m", ME)])
    unsubscribed = Subscribe("m", False)
    assert ear.sent() == [(BEN, destroyed), (CAL, destroyed), (BEN, unsubscribed), (CAL, unsubscribed)]
    ear.happens(event())
    ear.happens(event(name="n"))
    ear.hear()
    assert {who: len(heard) for who, heard in ear.heard.items()} == {
        "wide": 0, "here": 0, "near": 1, "other map": 1,
    }, "what a near cache holds may still be old"  # fmt: skip
    ear.add("anew", local_only=True)
    ear.happens(event())
    ear.hear()
    assert len(ear.heard["anew"]) == 1
    ear.listeners.on_events(Events([EntryEvent(EventKind.DESTROYED, "m", BEN)]))
    ear.happens(event())
    ear.hear()
    assert len(ear.heard["anew"]) == 1, "another member says so"


@pytest.mark.parametrize("elsewhere", [True, False])
def test_each_hears_of_the_keys_that_it_wants(*, elsewhere: bool) -> None:
    ear = Ear()
    ear.add("all")
    ear.add("one", key=b"k")
    ear.add("another", key=b"x")
    ear.add("other map", name="n")
    for one in (event(), event(None)):
        if elsewhere:
            ear.listeners.on_events(Events([one]))
        else:
            ear.happens(one)
    ear.hear()
    assert ear.heard == {
        "all": [event(), event(None)],
        "one": [event(), event(None)],
        "another": [event(None)],
        "other map": [],
    }


def test_subscribers_hear_of_a_step_in_one_message_each() -> None:
    ear = Ear()
    ear.listeners.on_subscribe(CAL, Subscribe("m", True))
    ear.listeners.on_subscribe(BEN, Subscribe("m", True))
    ear.happens(event())
    ear.happens(EntryEvent(EventKind.CLEAR_ALL, "m", ME, count=3))
    ear.happens(event(name="n"))
    assert ear.listeners.leftovers == {"events not sent": 2}
    told = Events([event(), EntryEvent(EventKind.CLEAR_ALL, "m", ME, count=3)])
    assert ear.sent() == [(BEN, told), (CAL, told)]
    assert ear.listeners.leftovers == {"events not sent": 0}
    ear.listeners.on_subscribe(BEN, Subscribe("m", False))
    ear.happens(event())
    assert ear.sent() == [(CAL, Events([event()]))]


def test_the_lane_knows_how_many_want_to_hear_of_a_map() -> None:
    ear = Ear()
    assert ear.lane.listening == {}
    end = ear.add("here", local_only=True)
    ear.listeners.on_subscribe(BEN, Subscribe("m", True))
    ear.listeners.on_subscribe(BEN, Subscribe("m", True))
    assert ear.lane.listening == {"m": 2}
    end()
    assert ear.lane.listening == {"m": 1}
    assert ear.listeners.subscribed_maps == ["m"]
    ear.listeners.on_subscribe(BEN, Subscribe("m", False))
    assert ear.lane.listening == {}
    assert ear.listeners.subscribed_maps == []


def test_members_that_go_are_forgotten_and_those_that_come_are_asked() -> None:
    ear = Ear()
    ear.add("wide")
    ear.add("here", name="n", local_only=True)
    ear.listeners.on_subscribe(BEN, Subscribe("m", True))
    ear.listeners.on_subscribe(CAL, Subscribe("m", True))
    ear.sent()
    dan = MemberId("dan")
    ear.listeners.on_view(ViewInstalled(None, None, True, frozenset({BEN}), frozenset({dan})))
    assert ear.sent() == [(dan, Subscribe("m", True))]
    assert ear.listeners.subscribers("m") == {CAL}
    assert ear.lane.listening == {"m": 2, "n": 1}
    ear.listeners.on_view(gone(CAL))
    assert (ear.listeners.subscribers("m"), ear.lane.listening) == (set(), {"m": 1, "n": 1})


def test_each_registration_ends_alone() -> None:
    ear = Ear()
    end = ear.add("first")
    ear.add("after")
    ear.happens(event())
    end()
    ear.happens(event())
    ear.hear()
    assert {who: len(heard) for who, heard in ear.heard.items()} == {"first": 1, "after": 2}


def test_only_near_caches_hear_that_all_of_a_partition_has_changed() -> None:
    ear = Ear()
    ear.add("entries")
    ear.add("near cache", invalidations=True)
    changed = EntryEvent(EventKind.INVALIDATED, "m", ME)
    ear.listeners.hear(changed)
    ear.listeners.hear(event())
    ear.hear()
    assert ear.heard == {"entries": [event()], "near cache": [changed, event()]}


# -- near caches of maps in zones


def of_zone(key: bytes | None = b"k") -> EntryEvent:
    kind = EventKind.UPDATED if key is not None else EventKind.INVALIDATED
    return EntryEvent(kind, "m", ME, key, sequence=1, term=1, group="7.0")


@pytest.mark.rule("streams/E-1")
def test_a_leader_relays_changes_to_the_owner_of_their_partition_alone() -> None:
    ear = Ear()
    for member in (BEN, CAL):
        ear.listeners.on_subscribe(member, Subscribe("m", True, relayed=True))
    assert ear.lane.listening == {"m": 2}
    ear.happens(of_zone())
    assert ear.sent() == [(BEN, Events([of_zone()]))]
    ear.rows[0] = Assignment(2, (CAL,))
    ear.happens(of_zone())
    assert ear.sent() == [(CAL, Events([of_zone()]))]
    ear.happens(event())
    assert ear.sent() == [], "a primary is the owner itself"
    ear.happens(of_zone(None))
    assert [to for to, _ in ear.sent()] == [BEN, CAL], "it may be of any partition"
    ear.rows[0] = Assignment(3, (ME,))
    ear.happens(of_zone())
    ear.rows[0] = Assignment()
    ear.happens(of_zone())
    assert ear.sent() == []
    ear.rows[0] = Assignment(4, (BEN,))
    ear.listeners.on_subscribe(BEN, Subscribe("m", True))
    ear.happens(of_zone())
    assert ear.sent() == [(BEN, Events([of_zone()]))], "once, with two subscriptions"
    for relayed in (True, False):
        ear.listeners.on_subscribe(BEN, Subscribe("m", False, relayed=relayed))
    ear.happens(of_zone())
    assert ear.sent() == []
    ear.listeners.on_view(gone(CAL))
    assert ear.lane.listening == {}


@pytest.mark.rule("streams/E-1")
def test_a_near_cache_hears_of_zones_through_this_member() -> None:
    ear = Ear()
    end = ear.add("near", local_only=True, invalidations=True)
    ear.add("here", local_only=True)
    relayed = Subscribe("m", True, relayed=True)
    assert ear.sent() == [(BEN, relayed), (CAL, relayed)]
    second = ear.add("second", local_only=True, invalidations=True)
    assert ear.sent() == []
    ear.listeners.on_events(Events([of_zone(), of_zone(None), event()]))
    ear.hear()
    assert ear.heard == {"near": [of_zone(), of_zone(None)], "here": [], "second": ear.heard["near"]}
    dan = MemberId("dan")
    ear.listeners.on_view(ViewInstalled(None, None, True, frozenset(), frozenset({dan})))
    assert ear.sent() == [(dan, relayed)]
    end()
    assert ear.sent() == []
    second()
    ended = Subscribe("m", False, relayed=True)
    assert ear.sent() == [(BEN, ended), (CAL, ended)]


def test_a_map_is_invalidated_for_clients_of_this_member() -> None:
    ear = Ear()
    ear.add("near", local_only=True, invalidations=True)
    ear.add("here", local_only=True)
    ear.sent()
    ear.listeners.invalidate("m")
    ear.listeners.invalidate("n")
    ear.hear()
    assert ear.heard == {"near": [EntryEvent(EventKind.INVALIDATED, "m", ME)], "here": []}
