"""Closes sessions of CP groups whose clients have sent no heartbeat for their time to live.

- raft_partition/S-1: The primary or leader of a group's partition alone remembers when it has heard of a session, and
  proposes to close it; whether that is done is decided with all other steps. A new leader has heard of none, and waits
  a whole time to live from when it begins. So a session may live longer without heartbeats, and never shorter.

- raft_partition/S-2: The time in which this member did not run does not count. Heartbeats of that time may still be in
  its sockets. Example: its host stops for 20 s. The first thing that it does then is a sweep.

Example: member 1 leads, is cut off, and has heard of session 5 for the last time 20 s ago. Member 2 leads since then,
and gets the heartbeats. A step that member 1 proposes is never applied, because it leads no more. Its router does not
send it to member 2 either (`Within.here`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, Protocol

from holdfast.config import CP_PREFIX
from holdfast.core.cp.cp_entries import SessionEntry, decode_entry
from holdfast.core.cp.holdings_index import HoldingsIndex
from holdfast.core.cp.session_steps import is_open
from holdfast.core.model.cp import (
    SESSIONS_CLOSED,
    CpStep,
    CpStepKind,
    cp_request,
    decode_cp_step,
    group_of_map,
    session_key,
)
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.operations import Outcome, Request
from holdfast.core.outbox import Outbox
from holdfast.core.raft_partition.map_homes import MapHomes
from holdfast.core.routing.pending import Within
from holdfast.core.store.derived_index import index_of
from holdfast.core.store.partition_copy import PartitionCopy

GAP_MAX_NS: Final = 1000 * MILLISECOND
"""So much of the time between two sweeps counts; there are about two in a second (raft_partition/S-2)."""
LOOKED_MAX = 2000
"""Sessions that are looked at in one sweep."""


class LedGroupCopy(Protocol):
    """See `copy_lookup.FoundCopy`."""

    @property
    def copy(self) -> PartitionCopy: ...

    @property
    def term(self) -> int: ...


class LedGroups(Protocol):
    """See `copy_lookup.CopyLookup`."""

    def led_everywhere(self) -> Iterable[tuple[str, PartitionCopy]]: ...

    def led(self, name: str, partition: int) -> LedGroupCopy | None: ...


class _LedGroup:
    __slots__ = ("closing", "heard", "left", "term")

    def __init__(self, term: int) -> None:
        self.term = term
        """In which this member leads the group's partition."""
        self.heard: dict[int, int] = {}
        """When each session was heard of last, or found."""
        self.left: Iterator[int] = iter(())
        """Sessions that this round still has to look at."""
        self.closing = False
        """A step that closes sessions is under way."""


class SessionExpiry:
    """An `OutcomeReceiver`."""

    def __init__(self, out: Outbox, homes: MapHomes, partition_count: int) -> None:
        self._out = out
        self._copies: LedGroups | None = None
        self._partition_count = partition_count
        self._homes = homes
        self._led: dict[str, _LedGroup] = {}
        """By map."""
        self._tickets: dict[int, _LedGroup] = {}
        self._ticket = 0
        self._ran_ns = 0
        """Time in which this member has run, until the last sweep,"""
        self._swept_ns = out.now_ns
        """which was at this time."""

    @property
    def _now_ns(self) -> int:
        return self._ran_ns + min(self._out.now_ns - self._swept_ns, GAP_MAX_NS)

    def attach(self, copies: LedGroups) -> None:
        self._copies = copies

    def on_heartbeat(self, request: Request) -> None:
        """This member decides the heartbeat of a session. That of another client does not count (cp/S-4)."""
        group = self._led.get(request.map)
        if group is None:
            return
        assert self._copies is not None, "it is attached before the first request"
        step = decode_cp_step(request.value)
        led = self._copies.led(request.map, request.partitions[0])
        held = led.copy.maps.get(request.map) if led is not None else None
        if held is not None and is_open(held.state.entries, step):
            group.heard[step.session] = self._now_ns

    def answered(self, ticket: int, outcome: Outcome) -> None:
        """A step that was not done is proposed again in a later sweep."""
        self._tickets.pop(ticket).closing = False

    def sweep(self) -> None:
        self._ran_ns, self._swept_ns = self._now_ns, self._out.now_ns
        found = dict(self._find())
        self._led = {
            name: group
            for name, group in self._led.items()
            if name in found and found[name].term == group.term
        }
        for name, copy in found.items():
            group = self._led.setdefault(name, _LedGroup(copy.term))
            if not group.closing and (ended := self._ended(name, copy, group)):
                self._close(name, ended, group)

    def _find(self) -> Iterator[tuple[str, LedGroupCopy]]:
        """The maps of groups that are led here."""
        assert self._copies is not None, "it is attached before the first sweep"
        for _, copy in self._copies.led_everywhere():
            for name in copy.maps:
                if name.startswith(CP_PREFIX) and (led := self._copies.led(name, copy.partition)) is not None:
                    yield name, led

    def _ended(self, name: str, copy: LedGroupCopy, group: _LedGroup) -> list[int]:
        held = copy.copy.maps.get(name)
        if held is None:
            return []
        state, now_ns = held.state, self._ran_ns
        sessions = list(islice(group.left, LOOKED_MAX))
        if not sessions:
            known = index_of(state, HoldingsIndex).sessions
            group.heard = {session: at_ns for session, at_ns in group.heard.items() if session in known}
            group.left = iter(list(known))
            sessions = list(islice(group.left, LOOKED_MAX))
        ended: list[int] = []
        for session in sessions:
            stored = state.entries.get(session_key(session))
            if stored is None:
                continue
            entry = decode_entry(SessionEntry, stored)
            heard_ns = group.heard.setdefault(session, now_ns)
            if (entry.closing or now_ns - heard_ns >= entry.ttl_ms * MILLISECOND) and len(
                ended
            ) < SESSIONS_CLOSED:
                ended.append(session)
        return ended

    def _close(self, name: str, sessions: list[int], group: _LedGroup) -> None:
        self._ticket += 1
        self._tickets[self._ticket] = group
        group.closing = True
        step = CpStep(CpStepKind.CLOSE_SESSIONS, sessions=sessions)
        request = cp_request(group_of_map(name), self._partition_count, step)
        self._homes.submit(request, Within(self, self._ticket, here=True))
