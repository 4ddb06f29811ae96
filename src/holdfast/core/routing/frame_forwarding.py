"""Requests for other members, forwarded as clients sent them, many in one message (`core.model.forwarded_frames`).

The data lane puts a request into the `OutgoingFrames` of its partition's owner (`away`), without an object for each. At
the end of the turn, and before any other request of these connections, the frames leave as one message. The owner
serves them with its own data lane, and answers with the bytes for the clients.

- routing/R-14: The owner executes a forwarded frame at once or not at all. It skips what must wait, or what it must not
  do now (a lock, a full disk, a partition that has moved). Nothing of a skipped request was done; the session of the
  client then executes it like any other, through `router`.
- routing/R-15: A write in a forwarded frame has an id, as any forwarded request has (routing/R-2). If its owner leaves
  the view before it answers, it is executed again with this id, in doubt (routing/R-4).
- routing/R-16: After a request is skipped, the owner skips all later ones for the same partition from the same member
  until that member has learned of it. So requests for a key stay in order. Example: member 1 forwards a=1, which waits
  for a lock, and then a=2, when the lock has been released. If 2 were stored first, a would be 1 in the end.

routing/R-3 and routing/R-6 hold for frames as for requests. With routing/R-8, frames are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from hashlib import blake2b

from holdfast.config import Settings
from holdfast.core.messages import ForwardFrames, FramesAnswer
from holdfast.core.model.forwarded_frames import (
    ForwardedDone,
    ForwardedPart,
    FrameServer,
    OutgoingFrames,
    ServedPart,
)
from holdfast.core.model.ids import MILLISECOND, SECOND, MemberId, Token
from holdfast.core.model.levels import FORWARDS_FRAMES
from holdfast.core.model.open_operations import OpenOperation
from holdfast.core.model.partition_table import Assignment
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.routing.backup_reads import Neighbours
from holdfast.core.routing.gatherings import LATE_NS
from holdfast.core.routing.pending import REQUEST_BYTES
from holdfast.core.routing.router import Router
from holdfast.core.routing.slow_requests import ANSWER, LOOKED_AT

EXPECTED_SHARE = 128
"""The response to a forwarded request is estimated as this fraction of `limits.output_buffer_bytes`."""


class _Sent:
    """One message and what it must still be answered."""

    __slots__ = ("deadline_ns", "first", "open", "owner", "size", "taken")

    def __init__(
        self, owner: MemberId, taken: list[tuple[Token, ForwardedPart]], first: int, deadline_ns: int
    ) -> None:
        self.owner = owner
        self.taken = taken
        self.first = first
        self.deadline_ns = deadline_ns
        self.open = set(range(len(taken)))
        """Parts without an answer."""

    def ids_of(self, place: int, prefix: bytes) -> tuple[bytes, int] | None:
        before = sum(part.count for _, part in self.taken[:place])
        return (prefix, self.first + before) if self.first else None


class _Fences:
    """Partitions with skipped requests of one member, which has not learned of all of them yet (routing/R-16)."""

    __slots__ = ("open", "told")

    def __init__(self) -> None:
        self.told = 0
        """Answers sent to the member."""
        self.open: dict[int, tuple[int, set[int]]] = {}
        """By ticket: the number of its last answer (0: that has not left), and partitions."""

    def partitions(self, heard: int) -> set[int]:
        """The fenced ones, if the member has received the answers up to this number."""
        for ticket, (number, _) in list(self.open.items()):
            if 0 < number <= heard:
                del self.open[ticket]
        return set().union(*(partitions for _, partitions in self.open.values()))

    def add(self, ticket: int, partitions: set[int]) -> None:
        self.open[ticket] = (0, partitions)

    def tell(self, ticket: int) -> None:
        """The last answer to this message leaves."""
        if ticket in self.open:
            self.open[ticket] = (self.told, self.open[ticket][1])


class FrameForwarding:
    def __init__(
        self,
        me: MemberId,
        settings: Settings,
        out: Outbox,
        rows: list[Assignment],
        router: Router,
        lane: Lane,
        neighbours: Neighbours,
    ) -> None:
        self._me = me
        self._settings = settings
        self._out = out
        self._rows = rows
        self._router = router
        self._waiting = router.waiting
        self._lane = lane
        self._neighbours = neighbours
        self._timeout_ns = settings.limits.call_timeout_ms * MILLISECOND
        self._prefix = _prefix_of(me)
        chosen = settings.replication
        self._retries = chosen.unknown_writes == "retry" and chosen.request_ids > 0
        self._server: FrameServer | None = None
        self.away: list[OutgoingFrames | None] = [None] * settings.partitions.count
        """By partition: where its requests go; None: execute them here, or through the router."""
        self.expected_bytes = settings.limits.output_buffer_bytes // EXPECTED_SHARE
        self._owners: dict[MemberId, OutgoingFrames] = {}
        self._sent: dict[int, _Sent] = {}
        self._heard: dict[MemberId, int] = {}
        """Number of the last answer of each owner."""
        self._fences: dict[MemberId, _Fences] = {}

    def serve_with(self, server: FrameServer) -> None:
        """Without it this member cannot serve frames, and forwards none."""
        self._server = server

    # -- which requests leave as frames

    def stays(self, name: str) -> bool:
        """Whether requests for this map do not leave as frames: backups here may answer them (routing/R-5)."""
        return self._settings.map(name).read_backups

    def look(self, partition: int) -> None:
        """The partition's assignment has changed."""
        self.away[partition] = self._away(partition) if self._forwards() else None

    def look_at_all(self) -> None:
        """The view has changed, or what is rejected now."""
        forwards = self._forwards()
        for partition in range(len(self.away)):
            self.away[partition] = self._away(partition) if forwards else None

    def _forwards(self) -> bool:
        return (
            self._server is not None
            and self._out.does(FORWARDS_FRAMES)
            and not self._router.refusals.restricts
            and not self._router.access.leaving
        )

    def _away(self, partition: int) -> OutgoingFrames | None:
        owner = self._rows[partition].owner
        if owner is None or owner == self._me or not self._neighbours.is_member(owner):
            return None
        found = self._owners.get(owner)
        if found is None:
            found = self._owners[owner] = OutgoingFrames(owner)
        return found

    # -- requests of sessions

    def take(self, parts: list[tuple[Token, ForwardedPart]]) -> None:
        """The session of each part gets a `ForwardedDone`."""
        by_owner: dict[MemberId, list[tuple[Token, ForwardedPart]]] = {}
        for token, part in parts:
            size = REQUEST_BYTES * part.count + len(part.frames)
            if not self._neighbours.is_member(part.owner) or not self._waiting.enter(size, part.count):
                # The router parks them, or rejects them (routing/R-6).
                self._out.complete(token, ForwardedDone(again=range(part.count)))
            else:
                by_owner.setdefault(part.owner, []).append((token, part))
        for owner, taken in by_owner.items():
            self._send(owner, taken)

    def _send(self, owner: MemberId, taken: list[tuple[Token, ForwardedPart]]) -> None:
        count = sum(part.count for _, part in taken)
        first = self._waiting.number(count) if self._retries else 0
        ticket = self._waiting.ticket()
        self._sent[ticket] = _Sent(owner, taken, first, self._out.now_ns + self._timeout_ns)
        frames = [(part.count, part.frames) for _, part in taken]
        self._out.send(owner, ForwardFrames(ticket, first, frames, self._heard.get(owner, 0)))
        self._waiting.look_in(LATE_NS)

    def on_answer(self, sender: MemberId, message: FramesAnswer) -> None:
        self._heard[sender] = max(message.number, self._heard.get(sender, 0))
        sent = self._sent.get(message.ticket)
        if sent is None or sent.owner != sender:
            return
        for place, answers, withheld, skipped in message.parts:
            if place in sent.open:
                known = not message.unknown
                done = ForwardedDone(
                    answers + withheld if known else answers,
                    b"" if known else withheld,
                    skipped,
                    message.unknown,
                )
                self._end(sent, place, done)
        if not sent.open:
            del self._sent[message.ticket]

    def _end(self, sent: _Sent, place: int, done: ForwardedDone) -> None:
        sent.open.remove(place)
        token, part = sent.taken[place]
        self._waiting.leave(REQUEST_BYTES * part.count + len(part.frames), part.count)
        self._out.complete(token, done)

    def members_gone(self, gone: set[MemberId]) -> None:
        """routing/R-15."""
        for ticket, sent in list(self._sent.items()):
            if sent.owner in gone:
                del self._sent[ticket]
                why = f"member {sent.owner} left before it answered"
                for place in sorted(sent.open):
                    part = sent.taken[place][1]
                    ids = sent.ids_of(place, self._prefix)
                    again = ForwardedDone(again=range(part.count), why=why, doubtful=True, ids=ids)
                    self._end(sent, place, again)
        for member in gone:
            self._owners.pop(member, None)
            self._heard.pop(member, None)

    def askers_gone(self, gone: set[MemberId]) -> None:
        for member in gone:
            self._fences.pop(member, None)

    def on_timer(self) -> None:
        """End parts that have waited too long for an answer (routing/R-3)."""
        now_ns = self._out.now_ns
        for ticket, sent in list(self._sent.items()):
            if sent.deadline_ns > now_ns:
                break
            del self._sent[ticket]
            why = f"member {sent.owner} did not answer for {self._timeout_ns // SECOND} s"
            for place in sorted(sent.open):
                self._end(sent, place, ForwardedDone(why=why, failed=True))
        if self._sent:
            self._waiting.look_in(LATE_NS)

    def open_since(self, before_ns: int) -> Iterator[OpenOperation]:
        looked = 0
        for ticket, sent in self._sent.items():
            since_ns = sent.deadline_ns - self._timeout_ns
            if since_ns > before_ns or looked >= LOOKED_AT:
                return
            looked += len(sent.open)
            for place in sorted(sent.open):
                part = sent.taken[place][1]
                places = self._server.places(part.frames) if self._server is not None else {}
                mark = (f"forwarded frames {ticket}", place)
                yield OpenOperation(mark, "forwarded", part.count, places, since_ns, ANSWER, (sent.owner,))

    # -- requests of other members

    def on_frames(self, sender: MemberId, message: ForwardFrames) -> None:
        """See routing/R-14."""
        server = self._server
        fences = self._fences.get(sender)
        if fences is None:
            fences = self._fences[sender] = _Fences()
        if server is None or self._lane.backlog.crowded or self._router.is_unread(sender):
            # All are skipped, so that none overtakes another.
            skipped = [ServedPart(b"", b"", list(range(count))) for count, _ in message.parts]
            self._answer(sender, fences, message.ticket, list(enumerate(skipped)))
            return
        fenced = fences.partitions(message.heard)
        before = len(fenced)
        ids = (_prefix_of(sender), message.first) if message.first else None
        served = list(enumerate(server.serve(message.parts, ids, fenced)))
        if len(fenced) > before:
            fences.add(message.ticket, fenced)
        at_once = [each for each in served if not each[1].withheld]
        later = [each for each in served if each[1].withheld]
        if at_once:
            self._answer(sender, fences, message.ticket, at_once, last=not later)
        if later:
            self._lane.close_batch(partial(self._settle, sender, fences, message.ticket, later))

    def _settle(
        self, sender: MemberId, fences: _Fences, ticket: int, served: list[tuple[int, ServedPart]], safe: bool
    ) -> None:
        unknown = "" if safe else self._lane.unknown_because or "its backups did not answer"
        self._answer(sender, fences, ticket, served, unknown)

    def _answer(
        self,
        sender: MemberId,
        fences: _Fences,
        ticket: int,
        served: list[tuple[int, ServedPart]],
        unknown: str = "",
        *,
        last: bool = True,
    ) -> None:
        fences.told += 1
        if last:
            fences.tell(ticket)
        parts = [(place, part.answers, part.withheld, part.skipped) for place, part in served]
        self._out.send(sender, FramesAnswer(ticket, fences.told, parts, unknown))

    @property
    def leftovers(self) -> dict[str, int]:
        return {"forwarded frames": len(self._sent)}


def _prefix_of(member: MemberId) -> bytes:
    return blake2b(member.encode(), digest_size=16).digest()
