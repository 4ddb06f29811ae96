"""The latest events of the cluster as one member saw them, in words and with times; shown by the console.

- observe/E-1: At most `KEPT` events are kept. A reader that is slower gets the number of events that it missed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, Literal

import msgspec

from holdfast.core.member import Member
from holdfast.core.model.ids import MemberId
from holdfast.core.model.migration import NONE, Migration
from holdfast.core.model.partition_events import Kind, Loss, News
from holdfast.core.model.views import MemberInfo, Room

KEPT: Final = 12_000
Level = Literal["info", "warning", "error"]


class ClusterEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    number: int
    at_ms: int
    """Unix time when this member learned of it."""
    kind: str
    text: str
    level: Level = "info"
    partition: int | None = None
    took_ms: int = 0
    source: str = ""
    target: str = ""
    replica: int | None = None


class ClusterEvents:
    def __init__(self, told: Callable[[], None] = lambda: None, kept: int = KEPT) -> None:
        self._told = told
        self._kept: deque[ClusterEvent] = deque(maxlen=kept)
        self._names: dict[str, str] = {}
        self._members: dict[MemberId, MemberInfo] = {}
        self._leaving: frozenset[MemberId] = frozenset()
        self._suspects: frozenset[MemberId] = frozenset()
        self._short: dict[MemberId, Room] = {}
        self._full: frozenset[str] = frozenset()
        self._state = ""
        self._master = ""
        self.number = 0
        """Number of the latest event; the first has 1."""

    def since(self, number: int, most: int = KEPT) -> tuple[list[ClusterEvent], int]:
        """Up to `most` events after this number, and how many of them were dropped already (observe/E-1)."""
        first = self.number - len(self._kept)
        missed = max(0, first - number)
        begin = max(0, number - first)
        return [self._kept[at] for at in range(begin, min(len(self._kept), begin + most))], missed

    def add(
        self,
        at_ms: int,
        kind: str,
        text: str,
        level: Level = "info",
        *,
        target: str = "",
        source: str = "",
        partition: int | None = None,
        replica: int | None = None,
        took_ms: int = 0,
    ) -> None:
        self.number += 1
        self._kept.append(
            ClusterEvent(self.number, at_ms, kind, text, level, partition, took_ms, source, target, replica)
        )

    def look(self, at_ms: int, member: Member) -> None:
        before = self.number
        picture = member.picture
        left = self._leaving.union(picture.view.left if picture.view is not None else ())
        self._look_at_members(at_ms, {info.uuid: info for info in picture.members()}, left)
        self._leaving = frozenset(picture.departing)
        suspects = frozenset(picture.suspects(picture.now_ns))
        for uuid in sorted(suspects - self._suspects):
            self.add(
                at_ms,
                "suspected",
                f"{self.name(uuid)} is suspected: no heartbeats",
                "warning",
                target=self.name(uuid),
            )
        for uuid in sorted(self._suspects - suspects):
            if uuid in self._members:
                self.add(at_ms, "heard", f"{self.name(uuid)} responds again", target=self.name(uuid))
        self._suspects = suspects
        self._look_at_cluster(at_ms, picture.cluster_state.value, picture.master or "")
        self._look_at_room(at_ms, picture.short_of_memory, picture.full_disks.values())
        if self.number != before:
            self._told()

    def _look_at_members(
        self, at_ms: int, members: dict[MemberId, MemberInfo], left: AbstractSet[MemberId]
    ) -> None:
        """`left`: members that asked to leave, now or by the latest view: they left in order if they are
        gone. Only the view names a member that asked and left between two looks.
        """
        for uuid, info in members.items():
            if uuid not in self._members:
                self._names[uuid] = info.name
                what = "is here" if not self._members else "has joined"
                lite = ", without data" if info.lite else ""
                self.add(at_ms, "joined", f"{info.name} {what}{lite}", target=info.name)
        for uuid in [uuid for uuid in self._members if uuid not in members]:
            drained = uuid in left
            how = "has left" if drained else "is gone without leaving"
            self.add(
                at_ms,
                "left" if drained else "gone",
                f"{self.name(uuid)} {how}",
                "info" if drained else "error",
                target=self.name(uuid),
            )
        self._members = members
        if len(self._names) > KEPT:
            self._names = {uuid: info.name for uuid, info in members.items()}

    def _look_at_cluster(self, at_ms: int, state: str, master: str) -> None:
        if self._state and state != self._state:
            self.add(at_ms, "state", f"the cluster is {state}", "info" if state == "active" else "warning")
        if master and master != self._master:
            self.add(at_ms, "master", f"{self.name(master)} is the master", target=self.name(master))
        self._state, self._master = state, master

    def _look_at_room(self, at_ms: int, short: Mapping[MemberId, Room], full: Iterable[str]) -> None:
        for uuid in sorted({*short, *self._short}):
            now, was = short.get(uuid, Room.PLENTY), self._short.get(uuid, Room.PLENTY)
            if now is not was:
                words = {Room.PLENTY: "has free memory again", Room.LITTLE: "is low on memory"}
                name = self.name(uuid)
                self.add(
                    at_ms,
                    "memory",
                    f"{name} {words.get(now, 'has no free memory')}",
                    "info" if now is Room.PLENTY else "warning",
                    target=name,
                )
        self._short = dict(short)
        now_full = frozenset(full)
        for name in sorted(now_full - self._full):
            self.add(at_ms, "disk", f"the disk of {name} is full", "error", target=name)
        for name in sorted(self._full - now_full):
            self.add(at_ms, "disk", f"the disk of {name} has space again", target=name)
        self._full = now_full

    def heard(self, at_ms: int, news: News) -> None:
        match news.kind:
            case Kind.STARTED:
                self.add(at_ms, "rebalance", f"a rebalance started: {news.planned} migrations planned")
            case Kind.FINISHED:
                left = f", {news.remaining} planned again" if news.remaining else ""
                failed = f", {news.failed} failed" if news.failed else ""
                self.add(
                    at_ms,
                    "rebalanced",
                    f"the rebalance finished: {news.completed} of {news.planned} done{failed}{left}",
                    "warning" if news.failed else "info",
                    took_ms=news.elapsed_ms,
                )
            case Kind.LOST:
                assert news.loss is not None, "it says what is lost"
                self.add(at_ms, "lost", lost(news.loss), "error", partition=news.loss.partition)
            case Kind.COMPLETED | Kind.FAILED:
                assert news.migration is not None, "it says which"
                done = news.kind is Kind.COMPLETED
                moved = news.migration
                self.add(
                    at_ms,
                    "migrated" if done else "failed",
                    ("" if done else "FAILED: ") + self.moved(moved),
                    "info" if done else "warning",
                    source="" if moved.source is None else self.name(moved.source),
                    target=self.name(moved.destination),
                    partition=moved.partition,
                    replica=moved.destination_new,
                    took_ms=news.took_ms,
                )
        self._told()

    def moved(self, moved: Migration) -> str:
        text = f"partition {moved.partition} replica {moved.destination_new}"
        if moved.source is not None:
            text += f" from {self.name(moved.source)}"
        text += f" to {self.name(moved.destination)}"
        if moved.destination_current != NONE:
            text += f", which was replica {moved.destination_current}"
        return text

    def name(self, uuid: str) -> str:
        return self._names.get(uuid, uuid[:8])


def lost(loss: Loss) -> str:
    maps = f"entries are lost of {', '.join(loss.maps)}" if loss.maps else "no entry is lost"
    if not loss.all_lost:
        return f"partition {loss.partition} has lost its owner: a backup has taken over; {maps}"
    if loss.begun_anew:
        return f"partition {loss.partition} has lost every copy, and continues empty; {maps}"
    return f"partition {loss.partition} has lost every copy, and waits for one to return"
