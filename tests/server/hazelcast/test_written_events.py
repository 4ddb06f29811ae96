"""Listeners and near caches get the same bytes from the compiled lane, which hands over the events of a buffer
together, as from the reference, which makes an event of each write.
"""

from __future__ import annotations

import random
import struct
from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.sampled_cases import sampled
from tests.server.hazelcast.test_lane_ways import (
    BEN,
    COMPILED_CODE,
    EVICT,
    KEYS,
    KNOWN,
    LONGEST,
    PUT,
    PUT_IF_ABSENT,
    REMOVE,
    REPLACE,
    SET,
    TABLE,
    VALUES,
    batch,
    needs_compiler,
    request,
)

from holdfast.config import MapSettings, PartitionSettings, Settings
from holdfast.core.effects import Notify, Send
from holdfast.core.events import ListenerAdded, SubscriptionEnded
from holdfast.core.journal.log import Log
from holdfast.core.messages import Events, Subscribe
from holdfast.core.model.ids import MemberId
from holdfast.core.model.operations import EntryEvent, EventKind
from holdfast.core.model.partition_table import Assignment
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.store.entry_mapping import NewEntries
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.streams.entry_listeners import EntryListeners
from holdfast.engine.callers import Callers
from holdfast.server.hazelcast import entry_events, near_caches, reference_lane
from holdfast.server.hazelcast.reference_lane import LaneCode
from holdfast.wire.hazelcast.hazelcast_frames import messages_in

UUID = "0000000a-0000-000b-0000-00000000000c"
CAL = MemberId("cal")
EVERY_KIND = 0xFFF
PUT_ALL = 0x012C00


class Member:
    """A lane with listeners of this member's clients and of another member, as far as what they are sent."""

    def __init__(self, code: LaneCode, entries: NewEntries, *, together: bool) -> None:
        """`together`: near caches get several invalidations in one event."""
        self.code, self.out = code, Outbox()
        self.out.now_ns = 1
        rows = [Assignment(1, (MemberId(UUID), BEN))] * 3
        membership: Any = SimpleNamespace(members=lambda: [SimpleNamespace(uuid=BEN)])
        self.listeners = EntryListeners(MemberId(UUID), self.out, membership, rows)
        chosen = Settings(
            partitions=PartitionSettings(count=3), maps={"default": MapSettings(backups=1, changes_bytes=999)}
        )
        self.lane = Lane(MemberId(UUID), chosen, self.out, Log(self.out, on=False), self.listeners)
        self.lane.attach(rows)
        self.lane.serving[0] = self.lane.leading[0] = PartitionCopy(0, 7, entries=entries)
        self.callers = Callers(self.put, self.put)
        self.turns: list[Callable[[], None]] = []
        self.sent: dict[int, list[bytes]] = defaultdict(list)
        """By correlation id of the registration."""
        self.forwarded: dict[str, list[EntryEvent]] = defaultdict(list)
        self.ends: dict[int, Callable[[], None]] = {}
        self.grid = SimpleNamespace(
            partition_count=3,
            cluster_id="cluster",
            member_uuid=UUID,
            batch_invalidations=together,
            listen=self.callers.listen,
            debounce=self.debounce,
            local_copies=SimpleNamespace(led=lambda name, partition: None),
        )
        self.talk: Any = SimpleNamespace(
            grid=self.grid, callback=lambda what, tell: tell, register=lambda begin: begin(), send=self.send
        )

    def put(self, event: Any) -> None:
        if isinstance(event, ListenerAdded):
            self.listeners.add(
                event.token,
                event.map,
                event.key,
                local_only=event.local_only,
                invalidations=event.invalidations,
            )
        else:
            assert isinstance(event, SubscriptionEnded)
            self.listeners.remove(event.token)

    def debounce(self, callback: Callable[[], None]) -> Any:
        return SimpleNamespace(request=lambda: self.turns.append(callback), end=lambda: None)

    def send(self, data: bytes) -> None:
        for message in messages_in(data):
            self.sent[struct.unpack_from("<q", message, 10)[0]].append(message)

    def listen(self, correlation: int, *, near: bool, key: bytes | None, values: bool, flags: int) -> None:
        call: Any = SimpleNamespace(
            kind=0x013F00 if near else 0x011900, correlation=correlation, name="m", key=key, predicate=b"",
            flags=flags, include_value=values, local_only=bool(correlation % 2),
        )  # fmt: skip
        if near:
            self.ends[correlation] = near_caches.Invalidations(self.talk, call).listen()
            return
        registered: list[Callable[[], None]] = []
        words = {**vars(self.talk), "register": lambda begin: registered.append(begin()) or bytes(17)}
        talk = SimpleNamespace(**words)
        entry_events._add(talk, call)  # type: ignore[arg-type]
        self.ends[correlation] = registered[0]

    def serve(self, data: bytes) -> None:
        out, unsealed = bytearray(), bytearray()
        sink = self.code.PrimarySink(self.lane, out, unsealed)
        assert self.code.serve_entries(data, 0, sink, KNOWN, LONGEST, 1 << 30) == len(data)
        self.lane.close_batch(lambda known: None)

    def end_turn(self) -> None:
        self.lane.flush()
        self.listeners.flush()
        for effect in self.out.take():
            if isinstance(effect, Notify):
                self.callers.deliver(effect)
            elif isinstance(effect, Send) and isinstance(effect.message, Events):
                self.forwarded[effect.to] += effect.message.events
        turns, self.turns = self.turns, []
        for callback in dict.fromkeys(turns):
            callback()
        self.out.now_ns += 2_000_000


def requests(draw: random.Random) -> bytes:
    found = b""
    for number in range(draw.randrange(1, 8)):
        kind = draw.choice([SET, SET, SET, PUT, REMOVE, REMOVE, REPLACE, PUT_IF_ABSENT, EVICT])
        name = draw.choice(["m", "m", "m", "alone"])
        word = draw.choice([0, 0, 0, 0, 7])
        if draw.random() < 0.1:
            entries = [(key, draw.choice(VALUES), word) for key in draw.sample(KEYS, 3)]
            found += batch(PUT_ALL, name, entries, partition=0)
            continue
        found += request(
            kind, name, draw.choice(KEYS), draw.choice(VALUES), partition=0,
            ttl_ms=draw.choice([-1, -1, -1, 0, 1, 60_000]), word=word, number=number,
        )  # fmt: skip
    return found


@needs_compiler
@pytest.mark.parametrize("seed", sampled(range(40), 3))
def test_the_same_bytes_are_sent(seed: int) -> None:
    draw = random.Random(seed)
    pair = [
        Member(reference_lane, dict, together=seed % 4 > 0),
        Member(COMPILED_CODE, TABLE, together=seed % 4 > 0),
    ]
    for step in range(250):
        data = requests(draw)
        listener = {
            "near": draw.random() < 0.4,
            "key": draw.choice([None, None, None, *KEYS]),
            "values": draw.random() < 0.5,
            "flags": draw.choice([EVERY_KIND, EVERY_KIND, 1, 6]),
        }
        chance, ending, subscriber = draw.random(), draw.random(), draw.choice([BEN, CAL])
        wanted = draw.random() < 0.5
        event = EntryEvent(draw.choice([EventKind.CLEAR_ALL, EventKind.INVALIDATED]), "m", UUID, sequence=3)
        for member in pair:
            if chance < 0.05 and len(member.ends) < 6:
                member.listen(step, **listener)  # type: ignore[arg-type]
            elif chance < 0.08 and member.ends:
                member.ends.pop(sorted(member.ends)[int(ending * len(member.ends))])()
            elif chance < 0.1:
                member.listeners.hear(event)
            elif chance < 0.12:
                member.listeners.on_subscribe(subscriber, Subscribe("m", wanted))
            member.serve(data)
            if chance > 0.6:
                member.end_turn()
        assert pair[0].sent == pair[1].sent
        assert pair[0].forwarded == pair[1].forwarded
    assert sum(map(len, pair[1].sent.values())) > 100


@needs_compiler
def test_listeners_of_a_map_get_the_events_of_a_step_in_one_delivery() -> None:
    member = Member(COMPILED_CODE, TABLE, together=True)
    member.listen(1, near=False, key=None, values=False, flags=EVERY_KIND)
    member.listen(2, near=True, key=None, values=False, flags=0)
    member.serve(request(SET, "m", KEYS[3], VALUES[0], partition=0, ttl_ms=-1, word=0, number=1))
    member.end_turn()
    whole = b"".join(
        request(SET, "m", key, VALUES[1], partition=0, ttl_ms=-1, word=0, number=1) for key in KEYS
    )
    for _ in range(3):
        member.serve(whole)
    assert len([effect for effect in member.out.effects if isinstance(effect, Notify)]) == 2
    member.end_turn()
    assert len(member.sent[1]) == 2 + 3 * len(KEYS), "with the response to the registration"
