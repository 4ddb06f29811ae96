"""Warnings for the on-call operator, logged by every member, so that any member's log shows them.

`look` reports changes since the previous look: suspected members and their return, a lost or regained
majority, lost partitions, full disks, members short of memory. A change that reverts between two looks is not
reported. Joins and departures are logged with the view (`core.membership.membership`); the master logs losses
where it declares them (`core.partition_table.event_log`).
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.effects import Note
from holdfast.core.member_view import MemberView
from holdfast.core.model.ids import MemberId
from holdfast.core.model.partition_events import Kind
from holdfast.core.model.views import Room
from holdfast.core.partition_table.event_log import loss_notes

SUSPECTED = "member suspected: it is removed if a majority suspects it"
HEARD_AGAIN = "member responds again"
MINORITY = (
    "no majority: waiting for silent members to return; nothing can be decided, and partitions that need them are not "
    "served"
)
MAJORITY = "majority restored"
DISK_FULL = "disk full: writes to journalled maps of that member are refused"
DISK_FREE = "disk has space again"
MEMORY_SHORT = "member is low on memory: writes that store entries are refused where it holds a copy"
MEMORY_FREE = "member has memory again"


class Alarms:
    def __init__(self, picture: MemberView) -> None:
        self._picture = picture
        self._suspects: dict[MemberId, str] = {}
        self._minority = False
        self._full: dict[MemberId, str] = {}
        self._short: dict[MemberId, str] = {}
        self._news = picture.last_news

    def look(self) -> list[Note]:
        return [*self._silence(), *self._majority(), *self._losses(), *self._room()]

    def _silence(self) -> list[Note]:
        picture = self._picture
        # A member that has left receives no heartbeats any more, so silence means nothing to it.
        names = {info.uuid: info.name for info in picture.members()} if picture.admitted else {}
        silent = {uuid: names[uuid] for uuid in picture.suspects(picture.now_ns) if uuid in names}
        notes = [
            Note(SUSPECTED, {"name": name, "reason": picture.suspicion_reason(uuid)}, "warning")
            for uuid, name in silent.items()
            if uuid not in self._suspects
        ]
        # A member that was removed is not heard again: the view without it has been logged.
        notes += [
            Note(HEARD_AGAIN, {"name": name}, "warning")
            for uuid, name in self._suspects.items()
            if uuid not in silent and uuid in names
        ]
        self._suspects = silent
        return notes

    def _majority(self) -> list[Note]:
        alone = not self._picture.hears_majority
        if alone is self._minority:
            return []
        self._minority = alone
        if alone:
            silent = sorted(self._suspects.values())
            fields = {"silent": silent, "members": len(self._picture.members())}
            return [Note(MINORITY, {**fields, "advice": self._picture.silence_problem()}, "error")]
        return [Note(MAJORITY, {}, "warning")]

    def _losses(self) -> list[Note]:
        picture = self._picture
        if picture.last_news == self._news:
            return []
        news, _ = picture.news_since(self._news)
        self._news = picture.last_news
        losses = [one.loss for one in news if one.kind is Kind.LOST and one.loss is not None]
        return [] if picture.is_master else loss_notes(losses)

    def _room(self) -> list[Note]:
        picture = self._picture
        full = dict(picture.full_disks)
        short = {
            info.uuid: info.name
            for info in picture.members()
            if picture.short_of_memory.get(info.uuid, Room.PLENTY) is not Room.PLENTY
            and info.uuid != picture.me
        }
        notes = [
            Note(DISK_FULL, {"name": name}, "error" if uuid == picture.me else "warning")
            for uuid, name in _new(full, self._full)
        ]
        notes += [Note(DISK_FREE, {"name": name}, "warning") for _, name in _new(self._full, full)]
        notes += [Note(MEMORY_SHORT, {"name": name}, "warning") for _, name in _new(short, self._short)]
        notes += [Note(MEMORY_FREE, {"name": name}, "warning") for _, name in _new(self._short, short)]
        self._full, self._short = full, short
        return notes


def _new(now: Mapping[MemberId, str], before: Mapping[MemberId, str]) -> list[tuple[MemberId, str]]:
    return sorted((uuid, name) for uuid, name in now.items() if uuid not in before)
