"""One client connection of the Hazelcast protocol: bytes in, responses out.

Pure: it gets received bytes and calls `send` and `close`. Input never makes it raise; at worst, invalid input closes
its own connection.

Before authentication a message is limited to `limits.auth_frame_bytes`, and only authentication is parsed: everything
else is expensive for the member and free for an attacker (see also server/D-4 and `server.quota`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from io import BytesIO

from holdfast.config import INTERNAL, LimitSettings
from holdfast.core.model.forwarded_frames import OutgoingFrames
from holdfast.core.model.operations import MAP_NAME_MAX
from holdfast.core.model.zone_batches import ZoneBatchDone
from holdfast.errors import InvariantBroken, ProtocolError, TooLarge
from holdfast.server.access import call_rejection
from holdfast.server.audit_events import AuditEvent, AuditKind
from holdfast.server.fast_path import FastPath, ServedMaps
from holdfast.server.flow import NO_MEMORY_EVENT, NO_MEMORY_FOR_INPUT, REQUEST_UNITS, SLICE_BYTES, Flow, Work
from holdfast.server.grid import Grid
from holdfast.server.hazelcast import (
    authentication,
    iteration,
    maps,
    near_caches,
    objects,
    partitions,
    processor_requests,
    reference_lane,
    transactional_maps,
)
from holdfast.server.hazelcast import cluster_views as views
from holdfast.server.hazelcast import entry_events as listeners
from holdfast.server.hazelcast import schema_requests as schemas
from holdfast.server.hazelcast.collections import (
    counter_requests,
    list_requests,
    lock_requests,
    multimap_requests,
    queue_requests,
    replicated_maps,
    ringbuffer_requests,
    set_requests,
    topic_requests,
    transactional_requests,
)
from holdfast.server.hazelcast.conversation import Conversation, RequestKind
from holdfast.server.hazelcast.cp import atomic_requests, session_requests, synchronizer_requests
from holdfast.server.hazelcast.forwarded_requests import ForwardedRequests, unknown_response
from holdfast.server.hazelcast.fragments import Fragments, RequestTooLarge
from holdfast.server.hazelcast.frame_parser import DATA_AT
from holdfast.server.hazelcast.keyed_requests import is_for_lane
from holdfast.server.hazelcast.lane_tally import LaneTally
from holdfast.server.hazelcast.names import name_of
from holdfast.server.hazelcast.reference_lane import LaneCode, Served
from holdfast.server.hazelcast.zone_entry_sink import ZoneEntrySink, ZoneMap
from holdfast.server.session_client import SessionClient, uuid_text
from holdfast.wire.hazelcast.hazelcast_frames import (
    FRAME,
    REQUEST,
    RESPONSE,
    UNFRAGMENTED,
    Scan,
    Skip,
    backup_event,
    expecting,
    message,
    messages_in,
    response,
)
from holdfast.wire.hazelcast.layouts import Call, RequestLayout
from holdfast.wire.hazelcast.refusals import (
    ACCESS_CONTROL,
    AGAIN,
    BAD_ARGUMENT,
    NOT_AUTHENTICATED,
    UNSUPPORTED,
    CallRefused,
)

_MOST_NAMES = 1000
"""Maps that the data lane serves by name: a shared list for all connections, or one per connection with others."""
NEVER = -1
"""No request was handled by the grid since the lane served last."""
_GATHERED_MAX = 8 * 1024
"""Bytes of responses that are kept back while the next request of a buffer is handled."""
_LONG_BYTES = SLICE_BYTES // 64
"""A message from this size on is handled in slices."""


def _hear(talk: Conversation, call: Call) -> None:
    talk.send(maps.nothing(call, None))


def _backup_listener(talk: Conversation, call: Call) -> None:
    """Clients offer to collect acknowledgements of backups. Unless that is configured, no event is sent."""

    def heard(correlation: int) -> None:
        talk.send(message([backup_event(call.kind + 2, call.correlation, correlation)]))

    def listen() -> Callable[[], None]:
        if not talk.client_acks:
            return _nothing_to_undo
        talk.collects_acks = True
        return talk.grid.watch_acks(talk.client, talk.callback("what a backup holds", heard))

    registration = talk.register(listen)
    talk.send(message([response(call.kind + 1, call.correlation, registration)]))


def _nothing_to_undo() -> None:
    return None


_COLLECTIONS = {
    **queue_requests.MESSAGES,
    **list_requests.MESSAGES,
    **set_requests.MESSAGES,
    **ringbuffer_requests.MESSAGES,
    **topic_requests.MESSAGES,
    **replicated_maps.MESSAGES,
    **counter_requests.MESSAGES,
    **multimap_requests.MESSAGES,
}
_CP = {**atomic_requests.MESSAGES, **synchronizer_requests.MESSAGES, **session_requests.MESSAGES}
_SERVICES_OF_STRUCTURES = frozenset(
    kind >> 16 for kind in (*_COLLECTIONS, *transactional_requests.MESSAGES, *_CP)
)
_ITEM_LISTENERS = {
    **queue_requests.LISTENERS,
    **list_requests.LISTENERS,
    **set_requests.LISTENERS,
    **topic_requests.LISTENERS,
    **replicated_maps.LISTENERS,
    **multimap_requests.LISTENERS,
}
MESSAGES: dict[int, RequestKind] = {
    **authentication.MESSAGES,
    **views.MESSAGES,
    **objects.MESSAGES,
    **schemas.MESSAGES,
    **maps.MESSAGES,
    **processor_requests.MESSAGES,
    **lock_requests.MESSAGES,
    **iteration.MESSAGES,
    **listeners.MESSAGES,
    **near_caches.MESSAGES,
    **partitions.MESSAGES,
    **transactional_maps.MESSAGES,
    **transactional_requests.MESSAGES,
    **_COLLECTIONS,
    **_ITEM_LISTENERS,
    **_CP,
    0x000B00: RequestKind(RequestLayout("|"), _hear),
    0x000C00: RequestKind(RequestLayout("|"), _hear),
    0x000F00: RequestKind(RequestLayout("|"), _backup_listener),
}
"""Supported kinds of requests; all others get "unsupported"."""
_REJECTED_BY_LEAVERS = frozenset(
    {
        **objects.MESSAGES,
        **schemas.MESSAGES,
        **maps.MESSAGES,
        **processor_requests.MESSAGES,
        **lock_requests.MESSAGES,
        **iteration.MESSAGES,
        **_COLLECTIONS,
        **_CP,
        transactional_maps.BEGIN: None,
    }
) - {objects.ADD_LISTENER, objects.REMOVE_LISTENER}
"""All that reads or changes something, but not what ends a transaction that has begun (routing/R-17)."""
LEAVING = "this member is about to leave the cluster; the request was not applied"


class HazelcastSession:
    """One connection of a Hazelcast client, after its initial `CP2`.

    `send` queues bytes; `close` ends the connection after they are written, and gets a reason for the log.
    """

    def __init__(
        self,
        grid: Grid,
        send: Callable[[bytes], None],
        close: Callable[[str], None],
        *,
        limits: LimitSettings | None = None,
        client_acks: bool = False,
        flow: Flow | None = None,
        admit: Callable[[bool], str] = lambda operates: "",
        lane_code: LaneCode = reference_lane,
        peer: str = "",
        tally: LaneTally | None = None,
        served_maps: ServedMaps | None = None,
    ) -> None:
        """`client_acks`: clients may collect acknowledgements themselves. `flow`: limits of work in progress.
        `admit`: the reason why there is no place for an authenticated client. `lane_code`: the data lane,
        plain or compiled. `peer`: the client's address. `tally`: counts what the lane serves. `served_maps`:
        shared by all connections.
        """
        self._send = send
        self._grid = grid
        self._served_maps = served_maps or ServedMaps(grid.lane_access)
        self._lane = grid.lane
        self._serve_lane = lane_code.serve_entries
        self._tally = tally
        self._limits = limits or LimitSettings()
        self._longest = (self._limits.key_bytes + DATA_AT, self._limits.value_bytes + DATA_AT)
        self._flow = flow or Flow()
        self._talk = Conversation(
            grid,
            send,
            close,
            client_acks=client_acks,
            flow=self._flow,
            answer_bytes=self._limits.answer_bytes,
            admit=lambda: admit(False),
            peer=peer,
        )
        self._names: dict[bytes, Served] = {}
        """Maps for the data lane: none before authentication, then the shared ones or the connection's own."""
        self._access = grid.lane_access
        self._access_seen = self._access.changes
        """State of `_access` at which `_names` and `_zone_maps` were right."""
        self._zone_maps: dict[bytes, ZoneMap] = {}
        self._unsealed = bytearray()
        self._sink = lane_code.PrimarySink(
            self._lane, self._talk.out, self._unsealed, tally, None, self._served_maps.forwards
        )
        self._forwarded = ForwardedRequests(
            self._talk, MESSAGES, self._served_maps.forwards, tally, self._answer
        )
        self._held: BytesIO | None = None
        """An incomplete message. It grows in place, because joining 16 MB at its end would take 12 ms."""
        self._unseen = b""
        """Its end that was not scanned: part of a frame header, or more after too many frames."""
        self._many = False
        """Whether it has too many frames for one turn."""
        self._whole = b""
        """A complete message whose end `_scan` has found already."""
        self._rest = (b"", 0)
        """Input that was not handled because the session had to stop (`flow`), with its offset."""
        self._scan = Scan()
        self._fragments = Fragments(self._limits.frame_bytes)
        self._skip: Skip | None = None
        """Skips the rest of a message that is too large."""
        self._asked = NEVER  # The step of the latest request that the lane did not serve.
        self._buffers = 0
        self._buffers_seen = -1
        self._heard_ns = 0

    def receive(self, data: bytes) -> None:
        talk = self._talk
        self._buffers += 1
        flow = self._flow
        flow.spent = 0
        if (
            self._held is not None
            or self._skip is not None
            or not talk.authenticated
            or talk.gone
            or flow.rest
            or flow.works
        ):
            self._receive_piece(data)
            return
        room = flow.left
        if room < 0:
            self._rest, flow.rest = (data, 0), True
            return
        if not is_for_lane(data, 0):
            self._go_on_from(data, 0)
            return
        self._end_requests()
        if self._access.changes != self._access_seen:
            self._look_maps_up_again()
        at = self._serve_lane(data, 0, self._sink, self._names, self._longest, room)
        if self._sink.departing:
            self.forward(self._sink.departing)
        if self._unsealed or at < len(data):
            self._go_on_from(data, at)
        elif (out := talk.out) and not talk.gone:
            whole = bytes(out)
            out.clear()
            self._send(whole)

    def fast_path(self) -> FastPath | None:
        talk, flow = self._talk, self._flow
        if (
            self._held is not None
            or self._skip is not None
            or not talk.authenticated
            or talk.gone
            or flow.rest
            or flow.works
            or self._asked == self._lane.steps.number
        ):
            return None
        access = self._access
        if not self._names and talk.rights.everything:
            self._names = self._served_maps.now()
        return FastPath(
            self._lane,
            self._names,
            self._longest,
            flow,
            access,
            self._access_seen,
            talk.collects_acks,
            self._served_maps.forwards,
        )

    def served(self, data: bytes, at: int, out: bytes, unsealed: bytes) -> None:
        self._buffers += 1
        self._talk.out += out
        self._unsealed += unsealed
        self._go_on_from(data, at)

    def _go_on_from(self, data: bytes, at: int) -> None:
        talk = self._talk
        talk.busy = True
        try:
            self._seal()
            if at < len(data) and self._zone_maps:
                at = self._serve_zones(data, at)
            if at < len(data) and not self._halts(data, at):
                self._serve(data, at)
        finally:
            talk.busy = False
        talk.flush()

    def resume(self) -> None:
        """One slice of work, or waiting input."""
        talk, flow = self._talk, self._flow
        if talk.gone:
            return
        flow.spent = 0
        if flow.works:
            proving = talk.authenticating
            talk.busy = True
            try:
                flow.step()
            finally:
                talk.busy = False
                self._asked = self._lane.steps.number
            talk.flush()
            if proving and not talk.authenticating and not talk.gone:
                flow.rest = bool(self._rest[0])
        elif flow.rest:
            (data, at), self._rest, flow.rest = self._rest, (b"", 0), False
            self.receive(data[at:])
            self._forget_whole()

    def _forget_whole(self) -> None:
        if not self._flow.rest:
            self._whole = b""

    def _halts(self, data: bytes, at: int) -> bool:
        """Whether the session must stop here; then it keeps the rest for `resume`."""
        talk, flow = self._talk, self._flow
        if len(talk.out) > _GATHERED_MAX:
            talk.flush()
        if flow.must_halt or flow.left < len(talk.out):
            self._rest, flow.rest = (data, at), True
        return flow.rest

    def _receive_piece(self, data: bytes) -> None:
        """Handle input before authentication, or during an incomplete message."""
        talk, flow = self._talk, self._flow
        if talk.gone:
            return
        if talk.authenticating:
            self._wait(data)
            return
        if flow.halted:
            rest, at = self._rest
            self._rest, flow.rest = (rest[at:] + data, 0), True
            return
        if self._skip is not None:
            data = self._step_over(data, self._skip)
        elif self._held is not None and (data := self._gathered(data, self._held)) and talk.authenticated:
            if self._many:  # Joining it and scanning its last frames was enough work for one turn.
                self._rest, flow.rest = (data, 0), True
                return
            self.receive(data)
            self._forget_whole()
            return
        if data and not talk.gone:
            talk.busy = True
            try:
                self._serve(data, 0)
            finally:
                talk.busy = False
            talk.flush()

    def _step_over(self, data: bytes, skip: Skip) -> bytes:
        """Skip a message that is too large; returns what follows it."""
        flow = self._flow
        try:
            end = skip.over(data, 0)
        except ProtocolError as broken:
            self._talk.close(f"the client broke the protocol: {broken}")
            return b""
        if end >= 0:
            self._skip = None
            return data[end:]
        if skip.at < len(data):
            self._rest, flow.rest = (data, skip.at), True
        return b""

    def _gathered(self, data: bytes, held: BytesIO) -> bytes:
        try:
            return self._gather(data, held)
        except MemoryError:
            self._end_without_memory()
            return b""

    def _end_without_memory(self) -> None:
        self._grid.report_client_event(NO_MEMORY_EVENT, "a client was closed: %s", NO_MEMORY_FOR_INPUT)
        self._talk.close(NO_MEMORY_FOR_INPUT)

    def _gather(self, data: bytes, held: BytesIO) -> bytes:
        """Scan the incomplete message; returns it with all input if its end, or an error, is found.

        Raises MemoryError.
        """
        flow, scan = self._flow, self._scan
        held.write(data)
        flow.coming += len(data)
        size = flow.coming - self._fragments.held
        self._unseen += data
        limit = self._limits.frame_bytes if self._talk.authenticated else self._limits.auth_frame_bytes
        base = size - len(self._unseen)
        try:
            if size < scan.need or scan.look(self._unseen, limit, base) < 0:
                self._unseen = self._unseen[max(0, scan.at - base) :]
                flow.rest = scan.tired
                self._many = self._many or scan.tired
                return b""
        except (ProtocolError, TooLarge):
            pass  # The caller's next scan meets the error again, and reports it.
        self._whole = held.getvalue()
        self._let_go()
        return self._whole

    def _let_go(self) -> None:
        self._held = None
        self._unseen = b""
        self._flow.coming = self._fragments.held

    def closed(self) -> None:
        """The connection has ended: end listeners, and drop later responses."""
        self._talk.end()
        self._fragments = Fragments(self._limits.frame_bytes)
        self._let_go()
        self._rest, self._whole = (b"", 0), b""

    @property
    def admitted(self) -> bool:
        return self._talk.authenticated

    def client(self) -> SessionClient:
        talk = self._talk
        name = talk.client_name or uuid_text(talk.client)
        return SessionClient("hazelcast", talk.rights.user, name, len(talk.transactions), talk.client_type)

    @property
    def coming(self) -> int:
        """Bytes of incomplete messages and of waiting input."""
        return self._flow.coming + len(self._rest[0])

    @property
    def unanswered(self) -> bool:
        """Whether the client waits for a response, or has sent a part of a request."""
        flow = self._flow
        return bool(self._talk.waits or flow.held or flow.expected or flow.halted or self._held)

    def silent_ns(self) -> int:
        """Time since the last input, if called regularly.

        Input counts as received at the first call after it, so that the data lane need not read the clock.
        """
        now_ns = self._grid.now_ns()
        if self._buffers != self._buffers_seen:
            self._buffers_seen = self._buffers
            self._heard_ns = now_ns
        return now_ns - self._heard_ns

    # -- the data lane

    def _look_maps_up_again(self) -> None:
        """A map was closed or has moved: the session decides again which ones the lane serves."""
        self._access_seen = self._access.changes
        self._names, self._zone_maps = {}, {}

    def _end_requests(self) -> None:
        """End the step of this turn's earlier requests before the lane serves, not later: then no event is handled
        while a read buffer is open. Without that the lane's responses would come first if one acknowledgement
        completed both. Requests of other sessions share the step until then: fifty clients that offer items to queues
        cause one message to a backup, not fifty.
        """
        if self._asked != NEVER:
            asked, self._asked = self._asked, NEVER
            self._lane.steps.end(asked)

    def _serve_entries(self, data: bytes, at: int) -> int:
        self._end_requests()
        if self._access.changes != self._access_seen:
            self._look_maps_up_again()
        at = self._serve_lane(data, at, self._sink, self._names, self._longest, self._flow.left)
        if self._sink.departing:
            self.forward(self._sink.departing)
        self._seal()
        if at < len(data) and self._zone_maps:
            at = self._serve_zones(data, at)
        return at

    def _serve_zones(self, data: bytes, at: int) -> int:
        grid, flow = self._grid, self._flow
        while flow.left >= 0:
            came = at
            sink = ZoneEntrySink(data, at, self._talk.out, grid)
            at = self._serve_lane(data, at, sink, self._zone_maps, self._longest, flow.left)
            batch = sink.close(at)
            if batch is not None:
                flow.held += sink.size
                grid.zone_batch(batch, partial(self._settle_zone, sink))
            if at == came:
                break
        return at

    def _settle_zone(self, sink: ZoneEntrySink, done: ZoneBatchDone) -> None:
        """A zone batch has finished. Requests that were not executed here are handled by the session."""
        talk = self._talk
        self._flow.held -= sink.size
        assert self._flow.held >= 0, "each batch is settled once"
        if talk.gone:
            return
        talk.out += b"".join(sink.responses(done))
        if done.failed or done.unconfirmed is not None:
            refused, again = sink.rest(done)
            talk.out += b"".join(refused)
            for start, end in again:
                if not talk.gone:
                    self._answer(sink.data, start, end)
        if not talk.busy:
            talk.flush()

    def forward(self, departing: list[OutgoingFrames]) -> None:
        self._forwarded.send(departing)

    def _seal(self) -> None:
        if not self._unsealed:
            return
        if self._lane.settle():
            self._talk.out += self._unsealed
            self._unsealed.clear()
        else:
            answers = bytes(self._unsealed)
            self._unsealed.clear()
            self._flow.held += len(answers)
            tally = self._tally
            if tally is None:
                told = partial(self._settle, answers, None, 0)
            else:
                told = partial(self._settle, answers, tally.take_writes(), self._grid.now_ns())
            if self._talk.collects_acks:
                correlations = [RESPONSE.unpack_from(answer)[3] for answer in messages_in(answers)]
                self._lane.close_batch_for(told, self._talk.client, correlations)
            else:
                self._lane.close_batch(told)

    def _settle(self, answers: bytes, taken: list[int] | None, began_ns: int, safe: bool) -> None:
        """The batch is safe on every sync backup, or its outcome will never be known. `taken`: its writes, counted."""
        talk = self._talk
        if taken is not None and self._tally is not None:
            self._tally.settle(taken, self._grid.now_ns() - began_ns, safe)
        self._flow.held -= len(answers)
        assert self._flow.held >= 0, "each batch is settled once"
        if talk.gone:
            return
        if safe and talk.collects_acks and self._lane.acks:
            for answer in messages_in(answers):
                talk.out += expecting(answer, self._lane.acks)
        elif safe:
            talk.out += answers
        else:
            self._say_unknown(answers, self._lane.unknown_because)
        if not talk.busy:
            talk.flush()

    def unknown(self, answers: bytes) -> None:
        """The outcome of writes that were served without this session will never be known."""
        talk = self._talk
        if not talk.gone:
            self._say_unknown(answers, self._lane.unknown_because)
            if not talk.busy:
                talk.flush()

    def _say_unknown(self, answers: bytes, why: str) -> None:
        for answer in messages_in(answers):
            self._talk.out += unknown_response(answer, why)

    # -- all other requests

    def _serve(self, data: bytes, at: int) -> None:
        talk, scan, flow = self._talk, self._scan, self._flow
        if data is not self._whole or at:
            scan.begin(at)
        self._whole = b""
        try:
            while at < len(data):
                limit = self._limits.frame_bytes if talk.authenticated else self._limits.auth_frame_bytes
                end = scan.look(data, limit)
                if end < 0:
                    break
                self._answer(data, at, end)
                if talk.gone:
                    return
                at = end
                if talk.authenticating:
                    self._wait(data[at:])
                    return
                if talk.authenticated and not flow.must_halt and is_for_lane(data, end):
                    at = self._serve_entries(data, end)
                scan.begin(at)
                if at < len(data) and self._halts(data, at):
                    return
        except TooLarge as broken:
            self._refuse_large(data, at, str(broken))
            return
        except ProtocolError as broken:
            talk.close(f"the client broke the protocol: {broken}")
            return
        try:
            self._hold(data, at)
        except MemoryError:
            self._end_without_memory()

    def _wait(self, data: bytes) -> None:
        rest = self._rest[0] + data
        if len(rest) > self._limits.auth_frame_bytes:
            self._talk.close("the client sent too much before authentication")
            return
        self._rest = (rest, 0)

    def _permit(self, call: Call) -> None:
        """Raises CallRefused; audited."""
        talk = self._talk
        why = call_rejection(talk.rights, call)
        if why:
            what = name_of(call.kind)
            talk.grid.audit(AuditEvent(AuditKind.REFUSED, talk.rights.user, talk.peer, what, why))
            raise CallRefused(ACCESS_CONTROL, why)

    def _hold(self, data: bytes, at: int) -> None:
        flow, scan = self._flow, self._scan
        held = data[at:]
        scan.move(at)
        self._held = BytesIO() if held else None
        if self._held is not None:
            self._held.write(held)
        self._unseen = held[scan.at :] if scan.at < len(held) else b""
        flow.coming = len(held) + self._fragments.held
        flow.rest = self._many = bool(held) and scan.tired

    def _answer(self, data: bytes, start: int, end: int) -> None:
        talk = self._talk
        if FRAME.unpack_from(data, start)[1] & UNFRAGMENTED != UNFRAGMENTED:
            self._take_fragment(data, start, end)
            return
        kind, correlation = REQUEST.unpack_from(data, start)[2:4]
        known_kind = MESSAGES.get(kind)
        if not talk.authenticated and kind not in authentication.MESSAGES:
            talk.reject(correlation, NOT_AUTHENTICATED, f"authenticate before {name_of(kind)}")
            talk.close(f"{name_of(kind)} without authentication")
            return
        talk.handed_over = False
        self._flow.spent += REQUEST_UNITS
        try:
            if known_kind is None:
                raise CallRefused(UNSUPPORTED, f"{name_of(kind)} is not supported by Holdfast")
            if self._access.leaving and kind in _REJECTED_BY_LEAVERS:
                raise CallRefused(AGAIN, LEAVING)
            if end - start >= _LONG_BYTES:
                self._flow.begin(self._answer_slowly(known_kind, data, start, end))
                return
            call = known_kind.layout.decode(data, start, end)
            self._permit(call)
            self._remember(call)
            known_kind.handler(talk, call)
        except CallRefused as refused:
            talk.reject(correlation, refused.code, str(refused))
        except TooLarge as broken:
            talk.reject(correlation, BAD_ARGUMENT, f"{name_of(kind)} was not applied: {broken}")
        except ProtocolError as broken:
            if talk.handed_over:
                raise InvariantBroken(f"{name_of(kind)}: {broken}") from broken
            raise
        except Exception as error:  # noqa: BLE001  (see `Conversation.handle_error`)
            talk.handle_error(name_of(kind), correlation, error)
        finally:
            # Not before: the request may have ended an earlier step.
            self._asked = self._lane.steps.number

    def _take_fragment(self, data: bytes, start: int, end: int) -> None:
        """See server/N-4."""
        if not self._talk.authenticated:
            raise ProtocolError("a fragment before authentication")
        try:
            whole = self._fragments.take(data, start, self._scan.last, end)
        except RequestTooLarge as broken:
            _, _, kind, correlation, _ = REQUEST.unpack_from(broken.head)
            self._say_too_large(kind, correlation, str(broken))
            return
        except MemoryError:
            self._end_without_memory()
            return
        if whole is not None:
            self._answer(whole, 0, len(whole))

    def _answer_slowly(self, message: RequestKind, data: bytes, start: int, end: int) -> Work:
        talk = self._talk
        kind, correlation = REQUEST.unpack_from(data, start)[2:4]
        try:
            call = yield from message.layout.decoding(data, start, end)
            self._permit(call)
            self._remember(call)
            message.handler(talk, call)
        except CallRefused as refused:
            talk.reject(correlation, refused.code, str(refused))
        except TooLarge as broken:
            talk.reject(correlation, BAD_ARGUMENT, f"{name_of(kind)} was not applied: {broken}")
        except ProtocolError as broken:
            if talk.handed_over:
                raise InvariantBroken(f"{name_of(kind)}: {broken}") from broken
            talk.close(f"the client broke the protocol: {broken}")
        except Exception as error:  # noqa: BLE001  (see `Conversation.handle_error`)
            talk.handle_error(name_of(kind), correlation, error)

    def _remember(self, call: Call) -> None:
        name, grid = call.name, self._talk.grid
        if (
            not 0 < len(name) <= MAP_NAME_MAX
            or name.startswith(INTERNAL)
            or call.kind >> 16 in _SERVICES_OF_STRUCTURES
        ):
            return
        reads_only = self._talk.rights.reads_only(name)
        if reads_only is None:
            return
        if not grid.zone_of(name):
            if len(self._names) >= _MOST_NAMES and self._names is self._served_maps.now():
                self._names = {}
            if len(self._names) < _MOST_NAMES and not self._access.is_closed(name):
                self._names[name.encode()] = (name,) if reads_only else name
        elif len(self._zone_maps) < _MOST_NAMES:
            entries = grid.zone_entries(name)
            if entries is not None:
                local, ttl_ms, max_idle_ms = grid.zone_map(name)
                served = ZoneMap(name, entries, local, ttl_ms, max_idle_ms, reads_only)
                self._zone_maps[name.encode()] = served

    def _say_too_large(self, kind: int, correlation: int, reason: str) -> None:
        limit = f"limits.frame_bytes = {self._limits.frame_bytes}"
        talk = self._talk
        talk.reject(correlation, BAD_ARGUMENT, f"{name_of(kind)} was not applied: {reason} ({limit})")
        talk.grid.report_client_event(
            "requests refused: too large",
            "%s of a client was refused, because it is larger than %s",
            name_of(kind),
            limit,
        )

    def _refuse_large(self, data: bytes, at: int, reason: str) -> None:
        """Reject a message that is too large, and skip the rest of it, since the connection has other requests. An
        unauthenticated client is disconnected.
        """
        talk = self._talk
        _, flags, kind, correlation, _ = REQUEST.unpack_from(data, at)
        if flags & UNFRAGMENTED != UNFRAGMENTED:
            talk.close(f"a fragment of a request: {reason}")
            return
        if not talk.authenticated:
            talk.reject(correlation, NOT_AUTHENTICATED, reason)
            talk.close(reason)
            return
        self._say_too_large(kind, correlation, reason)
        # Do not scan frames twice; there may be millions.
        begin = max(at, self._scan.at)
        self._skip = Skip()
        rest = self._step_over(data[begin:], self._skip)
        if rest and not talk.gone:
            self._serve(rest, 0)


__all__ = ["MESSAGES", "HazelcastSession"]
