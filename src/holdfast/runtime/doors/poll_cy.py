"""Client connections in an epoll set of their own: the loop watches the set, and one call serves all ready sockets.

Example: 50 clients have each sent 20 pipelined requests. Here one call of `ready` reads each socket once (up to 256
KB), passes the whole buffer to the data lane, which appends its responses to one shared buffer, and at the end sends
each client its part: per client one system call in and one out, and no callback of the loop.

A connection uses this shortcut (`server.door.ClientConnection.fast_path`) while it is authenticated, its client reads
its responses, and its session has no unfinished work. Anything else, such as a request that the lane does not know,
goes to the connection in the order of arrival; for it a `Wire` is an ordinary transport.

One source, used as plain Python and compiled; compiled code makes the system calls itself.

- runtime/P-1: A connection gets one bounded read per call, however much has arrived, so that the others have their
  turn; epoll reports the rest again. A connection that stores large values first gets one short read.
- runtime/P-2: Events of a closed descriptor are ignored, even if epoll reported them before: the number may belong to
  the next connection.
- runtime/P-3: Large responses are sent immediately, one by one, and large values from where they are stored. Gathered,
  they would need new memory from the system in each call, which costs more than the responses.
- runtime/P-4: A response to a write leaves when the batch that its read buffer has joined is safe, and not before. The
  buffers of a call that have joined the same batch share its callback.
- runtime/P-5: When the time for clients in this turn of the loop is over, no further connection is read, because a read
  costs time, too: 256 of 256 KB take 20 ms, and several times as long to decrypt. The next call begins with those
  that this one had no time for.

With TLS the bytes of a read are decrypted first and those of a response are encrypted last (`tls_records`). The rest is
the same, except that large values are neither received directly into their final buffer nor sent from where they are.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from select import EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, epoll
from ssl import SSLError
from typing import Any, Protocol

from holdfast.core.model.forwarded_frames import OutgoingFrames
from holdfast.core.routing.lane_access import LaneAccess
from holdfast.core.store import uncompiled as cython
from holdfast.runtime.doors.system_calls import (
    READY_BYTES,
    new_value,
    ready_fd,
    ready_kinds,
    receive,
    receive_value,
    send,
    send_pieces,
    taken,
    wait,
    whole_value,
)
from holdfast.runtime.doors.tls_records import Problem, TlsRecords, broken
from holdfast.server.door import CHECK_BYTES, COUNTED_BYTES, ClientConnection, Door
from holdfast.server.flow import Flow
from holdfast.server.grid import EntryLane
from holdfast.server.hazelcast.frame_parser import APART_BYTES, TYPE_BYTES, value_to_come
from holdfast.server.hazelcast.reference_lane import Bulk, LaneCode, Served

READ_BYTES = cython.declare(cython.int, 256 * 1024)
"""Most bytes read from one connection per call."""
LARGE_BYTES = cython.declare(cython.Py_ssize_t, APART_BYTES)
"""Responses from this size on are sent immediately (runtime/P-3), and values may be received separately."""
OFTEN_BYTES = cython.declare(cython.Py_ssize_t, CHECK_BYTES)
"""The door is notified after this many bytes within a call."""
GLANCE_BYTES = cython.declare(cython.int, 4 * 1024)
"""The first read from a connection that stores large values; so much of a value is copied."""
GLANCES = cython.declare(cython.int, 16)
"""Reads after a large value that begin with a short one."""
SHARED_BYTES = cython.declare(cython.Py_ssize_t, TYPE_BYTES)
"""Bytes that belong to both head and value when a value is received separately."""
PIECE_BYTES = cython.declare(cython.int, 16 * 1024)
"""Shorter unsent pieces are joined up to this size."""
HELD_BYTES = cython.declare(cython.int, 64 * 1024)
"""A longer piece is cut once more than half of it has been sent."""
MOST = cython.declare(cython.int, 256)
"""Most connections served per call."""
IN = cython.declare(cython.uint, EPOLLIN)
OUT = cython.declare(cython.uint, EPOLLOUT)
BROKEN = cython.declare(cython.uint, EPOLLERR | EPOLLHUP)
LATER = cython.declare(cython.Py_ssize_t, -errno.EAGAIN)
INTERRUPTED = cython.declare(cython.Py_ssize_t, -errno.EINTR)


class Soon(Protocol):
    def call_soon(self, deed: Callable[[], object], /) -> object: ...


@cython.cclass
class Wire:
    """A client's socket, as a `server.door.Transport`."""

    fd: cython.int
    poll: Poll
    connection: ClientConnection
    reading: cython.bint
    closing: cython.bint
    told: cython.bint
    took: cython.bint
    waits: cython.bint
    watched: cython.uint
    high: cython.Py_ssize_t
    unsent: list[bytes | bytearray]
    sent: cython.Py_ssize_t
    left: cython.Py_ssize_t
    begin: cython.Py_ssize_t
    end: cython.Py_ssize_t
    fast_path: cython.bint
    lane: EntryLane
    names: dict[bytes, Served]
    longest: tuple[int, int]
    flow: Flow
    most: cython.Py_ssize_t
    access: LaneAccess
    access_seen: cython.Py_ssize_t
    collects_acks: cython.bint
    glances: cython.int
    head: bytes
    value: Any
    value_bytes: cython.Py_ssize_t
    filled: cython.Py_ssize_t
    records: Any

    def __init__(self, poll: Poll, fd: int, connection: ClientConnection, records: TlsRecords | None) -> None:
        self.records: Any = records
        """Its TLS, or None. Queued pieces are encrypted already."""
        self.poll = poll
        self.fd = fd
        self.connection = connection
        self.reading = True
        self.closing = False
        self.told = False
        """Whether the connection was paused, because its client does not read."""
        self.took = False
        """Whether the lane has received bytes that the connection does not know of."""
        self.waits = False
        """Whether responses of this connection wait in `Poll._out`,"""
        self.begin = self.end = 0
        """between these offsets."""
        self.watched = IN
        self.high = 0
        """Unsent bytes above which the connection must pause."""
        self.unsent = []
        """Unsent pieces, none of them empty; the first `sent` bytes of the first are sent."""
        self.sent = 0
        self.left = 0
        self.fast_path = False
        """Whether the next buffer may go to the data lane."""
        self.collects_acks = False
        """Whether the client waits for backups itself."""
        self.glances = 0
        """Remaining reads that begin with a short one."""
        self.head = b""
        """Head of a message whose value is received separately,"""
        self.value: Any = None
        """buffer of that value, or None,"""
        self.value_bytes = 0
        """its final length,"""
        self.filled = 0
        """and the bytes received, which the flow counts as `coming`."""

    # -- as a transport

    def write(self, data: bytes) -> None:
        if self.waits:
            self.poll.send_answers(self)
        if self.fd < 0:
            return
        if self.records is None:
            self.write_raw(data)
        elif not self.closing:
            # Nothing may follow the `close_notify`.
            self.write_sealed(data)

    @cython.cfunc
    def write_sealed(self, data: Any) -> cython.void:
        """`data`: bytes, or a list of pieces."""
        sealed: bytes = b""
        try:
            sealed = self.records.seal(b"".join(data) if type(data) is list else data)
        except (SSLError, MemoryError) as error:
            self.poll.report(self, broken(error))
            self.lose(0)
            return
        self.write_raw(sealed)

    @cython.cfunc
    def write_raw(self, data: bytes) -> cython.void:
        size: cython.Py_ssize_t = len(data)
        gone: cython.Py_ssize_t = 0
        if not self.unsent:
            gone = send(self.fd, data, 0, size)
            if not self.goes_on(gone):
                return
            gone = max(gone, 0)
        if gone < size:
            self.keep(data[gone:] if gone else data)

    def keep(self, data: bytes) -> None:
        self._add(data)
        self._kept()

    @cython.cfunc
    def keep_pieces(self, pieces: list[bytes | bytearray], gone: cython.Py_ssize_t) -> cython.void:
        """Queue these pieces without their first `gone` bytes. Nothing else may be queued."""
        for piece in pieces:
            self._add(piece)
        self._drop(gone)
        self._kept()

    @cython.cfunc
    def _add(self, data: bytes | bytearray) -> cython.void:
        self.left += len(data)
        unsent = self.unsent
        last: Any = unsent[len(unsent) - 1] if unsent else None
        if len(data) >= PIECE_BYTES:
            unsent.append(data)
        elif type(last) is bytearray and len(last) < PIECE_BYTES:
            last += data
        else:
            unsent.append(bytearray(data))

    @cython.cfunc
    def _drop(self, gone: cython.Py_ssize_t) -> cython.void:
        unsent = self.unsent
        number: cython.Py_ssize_t = 0
        self.left -= gone
        self.sent += gone
        while number < len(unsent) and self.sent >= len(unsent[number]):
            self.sent -= len(unsent[number])
            number += 1
        if number:
            del unsent[:number]
        if unsent and self.sent > HELD_BYTES and self.sent > len(unsent[0]) // 2:
            unsent[0] = unsent[0][self.sent :]
            self.sent = 0

    @cython.cfunc
    def _kept(self) -> cython.void:
        self.watch()
        if not self.told and self.get_write_buffer_size() > self.high:
            self.told = True
            self.connection.pause_writing()

    def push(self) -> None:
        gone: cython.Py_ssize_t = send_pieces(self.fd, self.unsent, self.sent)
        if not self.goes_on(gone) or gone < 0:
            return
        self._drop(gone)
        if not self.unsent:
            if self.closing:
                self.lose(0)
                return
            self.watch()
        if self.told and self.left <= self.high // 4:
            self.told = False
            self.connection.resume_writing()

    def close(self) -> None:
        if self.closing:
            return
        if self.waits:
            self.poll.send_answers(self)
        if self.records is not None and self.fd >= 0:
            self.write_raw(self.records.farewell())
        self.closing = True
        self.reading = False
        self.drop_value()
        if self.fd >= 0:
            if self.unsent:
                self.watch()
            else:
                self.lose(0)

    def abort(self) -> None:
        self.closing = True
        self.reading = False
        self.waits = False
        if self.fd >= 0:
            self.lose(0)

    def is_closing(self) -> bool:
        return bool(self.closing)

    def pause_reading(self) -> None:
        self.reading = False
        self.fast_path = False

    def resume_reading(self) -> None:
        self.fast_path = False
        if not self.reading and not self.closing:
            self.reading = True
            self.watch()

    def get_write_buffer_size(self) -> int:
        return self.left + (self.end - self.begin if self.waits else 0)

    def set_write_buffer_limits(self, high: int) -> None:
        self.high = high

    def heard(self) -> bool:
        """Whether the lane has received anything since the last call."""
        took = bool(self.took)
        self.took = False
        return took

    # -- the rest

    @cython.cfunc
    def goes_on(self, gone: cython.Py_ssize_t) -> cython.bint:
        """Whether the connection survives this result of a `send`; if not, it is closed."""
        if gone < 0 and gone != LATER and gone != INTERRUPTED:
            self.lose(-gone)
            return False
        return True

    @cython.cfunc
    def drop_value(self) -> cython.void:
        if self.value is not None:
            self.value = None
            self.head = b""
            self.flow.coming -= self.filled

    def watch(self) -> None:
        """Register for the events of interest. A paused connection stays registered for reading until something arrives
        (`Poll`), because most pauses are short and changing epoll costs a system call.
        """
        wanted = (self.watched & IN) | (OUT if self.unsent else 0)
        if self.reading:
            wanted |= IN
        elif self.closing:
            wanted &= OUT
        self.change(wanted)

    def change(self, wanted: int) -> None:
        if self.fd >= 0 and wanted != self.watched:
            self.watched = wanted
            self.poll.descriptors.modify(self.fd, wanted)

    def lose(self, number: int) -> None:
        """Close the connection. `number`: the error, or 0."""
        self.closing = True
        self.reading = self.fast_path = self.waits = False
        self.unsent = []
        self.sent = self.left = 0
        self.drop_value()
        fd = self.fd
        self.fd = -1
        self.poll.close_descriptor(fd)
        self.poll.lost.append((self, number))
        if len(self.poll.lost) == 1:
            self.poll.loop.call_soon(self.poll.report_lost)


@cython.cclass
class HeldAnswers:
    """Responses of a turn that wait for the same batch, and its callback."""

    buffers: list[tuple[Wire, Flow, bytes]]
    taken: list[int]
    _tally: Any
    _clock: Any
    _began_ns: cython.longlong

    def __init__(self, tally: Any, clock: Callable[[], int], began_ns: cython.longlong) -> None:
        self.buffers = []
        """The connection of each read buffer, its flow, and the responses."""
        self.taken = tally.take_writes() if tally is not None else []
        """Their writes, counted."""
        self._tally: Any = tally
        self._clock: Any = clock
        self._began_ns = began_ns

    def __call__(self, safe: bool) -> None:
        """The batch is safe on every sync backup, or its outcome will never be known."""
        wire: Wire
        flow: Flow
        answers: bytes
        if self._tally is not None:
            self._tally.settle(self.taken, self._clock() - self._began_ns, safe)
        for wire, flow, answers in self.buffers:
            flow.held -= len(answers)
            assert flow.held >= 0, "each batch is settled once"
            if wire.closing:
                continue
            if safe:
                wire.write(answers)
            else:
                wire.connection.unknown(answers)
            if not wire.closing:
                if wire.unsent:
                    wire.connection.recount()
                if not wire.fast_path:
                    # The connection may have been waiting for room.
                    wire.connection.retry()


@cython.cclass
class Poll:
    descriptors: epoll
    fd: cython.int
    loop: Soon
    lost: list[tuple[Wire, int]]
    _door: Door
    _lane_code: LaneCode
    _serve: Any
    _sink: Any
    _tally: Any
    _clock: Any
    _began_ns: cython.longlong
    _wires: list[Wire | None]
    _first: cython.int
    _set: Any
    _ready: Any
    _room: bytearray
    _out: bytearray
    _bulk: list[Bulk]
    _departing: list[OutgoingFrames]
    _unsealed: bytearray
    _answered: list[Wire]
    _held: dict[Any, HeldAnswers]
    _come: cython.Py_ssize_t
    _wrote: cython.bint
    _busy: cython.bint
    _past_sessions: cython.bint

    def __init__(self, door: Door, loop: Soon, lane_code: LaneCode) -> None:
        self.descriptors = epoll()
        self.fd = self.descriptors.fileno()
        self.loop = loop
        self.lost = []
        """Closed connections to notify, each with its error."""
        self._door = door
        self._lane_code = lane_code
        self._serve = lane_code.serve_entries
        self._sink: Any = None
        """Where it goes, once the lane is known."""
        self._tally = door.tally
        self._clock = door.clock
        self._began_ns = 0
        self._wires = []
        self._first = 0
        """Place of the first connection that the last call had no time for. epoll keeps the order of those that it
        reports again.
        """
        self._set = self.fd if cython.compiled else self.descriptors
        self._ready = bytearray(MOST * READY_BYTES) if cython.compiled else []
        """Events from `wait`."""
        self._room = bytearray(READ_BYTES)
        self._out = bytearray()
        """Responses that are sent at the end of this call."""
        self._bulk = []
        """Large values inside the last responses, by offset; they are not copied."""
        self._departing = []
        """Requests of the last buffer that other members serve."""
        self._unsealed = bytearray()
        self._answered = []
        """Their connections."""
        self._held = {}
        """By batch: responses of this call."""
        self._come = 0
        """Bytes received that the door has not counted."""
        self._wrote = False
        """Whether the lane has written records that the member has not flushed."""
        self._busy = False
        self._past_sessions = False

    def fileno(self) -> int:
        return self.fd

    def add(self, fd: int, connection: ClientConnection, records: TlsRecords | None = None) -> Wire:
        """Register a connection, whose descriptor belongs to this from now on. `records`: None without TLS."""
        wire = Wire(self, fd, connection, records)
        while fd >= len(self._wires):
            self._wires.append(None)
        assert self._wires[fd] is None, "a descriptor is closed by who has it"
        self.descriptors.register(fd, IN)
        self._wires[fd] = wire
        return wire

    def close(self) -> None:
        for wire in self._wires:
            if wire is not None:
                wire.abort()
        self.report_lost()
        self.descriptors.close()

    def close_descriptor(self, fd: int) -> None:
        """Close a descriptor, and ignore its remaining events (runtime/P-2)."""
        self._wires[fd] = None
        self.descriptors.unregister(fd)
        os.close(fd)

    def report_lost(self) -> None:
        """Notify closed connections, while no other call is in progress."""
        lost = self.lost
        self.lost = []
        for wire, number in lost:
            connection = wire.connection
            # Break the reference cycle, so that no garbage collection is needed.
            wire.connection = wire.flow = None  # type: ignore[assignment]
            connection.connection_lost(OSError(number, os.strerror(number)) if number else None)

    def ready(self) -> None:
        if self._busy:
            return
        self._busy = True
        try:
            self._turn()
        except Exception as error:  # noqa: BLE001  (the member stops, whatever it is)
            self._door.failed(error)
        finally:
            self._busy = False

    @cython.cfunc
    def _turn(self) -> cython.void:
        door = self._door
        door.new_turn()
        door.enter()
        if self._tally is not None:
            self._began_ns = self._clock()
        self._look_around()
        each: cython.int
        number: cython.int
        count: cython.int
        first: cython.int = self._first
        fd: cython.int
        kinds: cython.uint
        self._first = 0
        count = wait(self._set, self._ready, MOST)
        for each in range(count):
            number = (first + each) % count
            if not self._past_sessions and door.late:
                self._first = number
                break
            fd = ready_fd(self._ready, number)
            kinds = ready_kinds(self._ready, number)
            wire: Wire | None = self._wires[fd]
            if wire is None:
                continue
            if kinds & OUT and wire.unsent:
                wire.push()
            if kinds & (IN | BROKEN):
                if wire.reading:
                    self._take(wire)
                elif kinds & BROKEN:
                    if wire.fd >= 0:
                        wire.lose(errno.ECONNRESET)
                else:
                    wire.change(wire.watched & OUT)
        self._send_all()
        self._held.clear()
        if self._tally is not None:
            self._tally.close(self._clock, self._began_ns)
        if self._wrote:
            self._wrote = False
            door.leave()

    @cython.cfunc
    def _look_around(self) -> cython.void:
        """Check whether the lane may be used now; again after any other code has run."""
        door = self._door
        backlog = door.backlog
        held: cython.bint = backlog.crowded and not backlog.refusing
        self._past_sessions = not held and not door.late and not door.pressure.crowded

    @cython.cfunc
    def _take(self, wire: Wire) -> cython.void:
        if wire.value is not None:
            self._fill(wire)
            return
        most: cython.Py_ssize_t = READ_BYTES
        if wire.glances and wire.records is None:
            wire.glances -= 1
            most = GLANCE_BYTES
        size: cython.Py_ssize_t = receive(wire.fd, self._room, 0, most)
        if size <= 0:
            self._end(wire, size)
            return
        data: bytes = taken(self._room, size)
        if wire.records is not None:
            self._take_records(wire, data)
            return
        if size == GLANCE_BYTES and most == size and wire.fast_path and self._begin_value(wire, data, 0):
            self._come += size
            self._fill(wire)
            return
        self._take_data(wire, data, size)

    @cython.cfunc
    def _take_records(self, wire: Wire, received: bytes) -> cython.void:
        """Serve what these records contain."""
        records: Any = wire.records
        data: bytes = b""
        try:
            data = records.take(received)
        except MemoryError as error:
            self.report(wire, broken(error))
            wire.lose(0)
            return
        answer: bytes = records.leaving()
        if answer:
            wire.write_raw(answer)
        if data and not wire.closing:
            self._take_data(wire, data, len(data))
        if wire.fd >= 0 and (records.ended or records.problem is not None):
            if records.problem is not None:
                self.report(wire, records.problem)
            self._end(wire, 0)

    def take_records(self, wire: Wire, received: bytes) -> None:
        self._take_records(wire, received)

    def report(self, wire: Wire, problem: Problem) -> None:
        problem.report(self._door.connection_log, wire.connection.peer)

    @cython.cfunc
    def _take_data(self, wire: Wire, data: bytes, size: cython.Py_ssize_t) -> cython.void:
        at: cython.Py_ssize_t = -1
        if wire.fast_path and self._past_sessions and not wire.unsent:
            at = self._serve_fast_path(wire, data, None, size)
            if at == size:
                if (
                    wire.records is None
                    and size >= LARGE_BYTES
                    and value_to_come(data[:GLANCE_BYTES], 0, wire.longest)[1]
                ):
                    wire.glances = GLANCES
                if wire.head:
                    # A whole read of it has arrived; count it now, as the client may send no more.
                    wire.connection.recount()
                self._come += size
                if self._come > OFTEN_BYTES:
                    self.report_to_door()
                return
        self._leave_lane()
        if at < 0:
            wire.connection.data_received(data)
        self._enter_lane(wire)

    @cython.cfunc
    def _take_whole(self, wire: Wire, head: bytes, value: bytes) -> cython.void:
        """Serve a message whose value was received separately; it is counted already."""
        size: cython.Py_ssize_t = len(head) + len(value) - SHARED_BYTES
        at: cython.Py_ssize_t = -1
        if wire.fast_path and self._past_sessions and not wire.unsent:
            at = self._serve_fast_path(wire, head, value, size)
            if at == size:
                return
        self._leave_lane()
        if at < 0:
            self._come -= size
            wire.connection.data_received(head[:-SHARED_BYTES] + value)
        self._enter_lane(wire)

    @cython.cfunc
    def _leave_lane(self) -> cython.void:
        """Flush the lane's writes before other code runs."""
        if self._wrote:
            self._wrote = False
            self._door.leave()

    @cython.cfunc
    def _enter_lane(self, wire: Wire) -> cython.void:
        """The connection has run: the lane may be usable or not by now."""
        if not wire.closing:
            self._look_at(wire)
        self._look_around()

    @cython.cfunc
    def report_to_door(self) -> cython.void:
        door = self._door
        door.come += self._come
        self._come = 0
        door.check_turn()
        door.enter()
        self._look_around()

    @cython.cfunc
    def _begin_value(self, wire: Wire, data: bytes, at: cython.Py_ssize_t) -> cython.bint:
        """Whether the rest of this buffer begins a large write. If so, its value is received directly into its final
        buffer, without copies.
        """
        if wire.records is not None:
            return False
        begin: cython.Py_ssize_t
        begin, size = value_to_come(data, at, wire.longest)
        if not size:
            return False
        try:
            wire.value = new_value(size, data[begin:])
        except MemoryError:
            return False
        wire.head = data[at : begin + SHARED_BYTES]
        wire.value_bytes = size
        wire.filled = len(data) - begin
        wire.flow.coming += wire.filled
        wire.glances = GLANCES
        return True

    @cython.cfunc
    def _fill(self, wire: Wire) -> cython.void:
        end: cython.Py_ssize_t = min(wire.value_bytes, wire.filled + READ_BYTES)
        size: cython.Py_ssize_t = receive_value(wire.fd, wire.value, wire.filled, end)
        if size <= 0:
            self._end(wire, size)
            return
        wire.filled += size
        wire.flow.coming += size
        wire.took = True
        if wire.filled < wire.value_bytes:
            wire.connection.recount()
            self._come += size
            if self._come > OFTEN_BYTES:
                self.report_to_door()
            return
        value = whole_value(wire.value)
        data = wire.head
        wire.drop_value()
        if wire.connection.unread:
            wire.connection.recount()
        self._come += size
        if self._come > OFTEN_BYTES:
            self.report_to_door()
        if not wire.closing:
            self._take_whole(wire, data, value)

    @cython.cfunc
    def _serve_fast_path(
        self, wire: Wire, data: bytes, apart: bytes | None, size: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Let the data lane serve this. Returns how far it came, or -1 if it was not called. The connection has been
        given the rest, unless that is being received separately.
        """
        flow = wire.flow
        gathered: cython.Py_ssize_t = flow.gathered
        changes: cython.Py_ssize_t = wire.access.changes
        if gathered or changes != wire.access_seen:
            return -1
        held: cython.Py_ssize_t = flow.held
        expected: cython.Py_ssize_t = flow.expected
        room: cython.Py_ssize_t = wire.most - held - expected
        if room < 0:
            return -1
        out = self._out
        unsealed = self._unsealed
        bulk = self._bulk
        begin: cython.Py_ssize_t = len(out)
        first: cython.Py_ssize_t = len(bulk)
        at: cython.Py_ssize_t = self._serve(data, 0, self._sink, wire.names, wire.longest, room, apart)
        wire.took = True
        if self._departing:
            wire.connection.forward(self._departing)
        settled: cython.bint = True
        if unsealed:
            self._wrote = True
            ended: Any = wire.lane.settle() if wire.collects_acks else wire.lane.end_buffer()
            if ended is True:
                out += unsealed
                unsealed.clear()
            elif wire.collects_acks:
                settled = False
            else:
                self._hold(wire, bytes(unsealed), ended)
                unsealed.clear()
        if settled and wire.closing:
            # The connection broke while safe responses were sent, or its client has left too many unread.
            del out[begin:]
            del bulk[first:]
            return size
        if settled and at < size and apart is None and self._begin_value(wire, data, at):
            at = size
        if settled and at == size:
            if len(bulk) > first:
                self._send_pieces(wire, self._pieces(begin, first))
            elif len(out) > begin:
                wire.begin = begin
                wire.end = len(out)
                wire.waits = True
                if wire.end - begin < LARGE_BYTES:
                    self._answered.append(wire)
                else:
                    self._send_answers(wire)
                    del out[begin:]
            return at
        if len(bulk) > first:
            answers = b"".join(self._pieces(begin, first))
        else:
            answers = bytes(out[begin:])
            del out[begin:]
        kept = bytes(unsealed)
        unsealed.clear()
        if apart is not None:
            self._come -= size
            data = data[:-SHARED_BYTES] + apart
        wire.connection.served(data, at, answers, kept)
        self._wrote = False
        return at if at < size else size - 1

    @cython.cfunc
    def _hold(self, wire: Wire, answers: bytes, batch: Any) -> cython.void:
        """Hold these responses until the batch that their buffer has joined is safe. False: close one for them."""
        flow: Flow = wire.flow
        held: HeldAnswers | None = self._held.get(batch)
        if held is None:
            held = HeldAnswers(self._tally, self._clock, self._began_ns)
            if batch is not False:
                self._held[batch] = held
                batch.callbacks.append(held)
        elif self._tally is not None:
            self._tally.add_writes(held.taken)
        flow.held += len(answers)
        held.buffers.append((wire, flow, answers))
        if batch is False:
            wire.lane.close_batch(held)
        if flow.held > COUNTED_BYTES:
            wire.connection.recount()

    @cython.cfunc
    def _look_at(self, wire: Wire) -> cython.void:
        """Check whether the next buffer of this connection may go to the lane."""
        path = wire.connection.fast_path()
        wire.fast_path = path is not None
        if path is not None:
            if self._sink is None:
                self._sink = self._lane_code.PrimarySink(
                    path.lane, self._out, self._unsealed, self._tally, self._bulk, path.forwards
                )
                self._departing = self._sink.departing
            wire.lane = path.lane
            wire.names = path.names
            wire.longest = path.longest
            wire.flow = path.flow
            wire.most = path.flow.most
            wire.access = path.access
            wire.access_seen = path.access_seen
            wire.collects_acks = path.collects_acks

    @cython.cfunc
    def _end(self, wire: Wire, size: cython.Py_ssize_t) -> cython.void:
        """Handle a read without data: end of stream (0), try again, or an error."""
        if size == 0:
            # Flush the responses that do not wait for other members.
            wire.connection.write()
            wire.close()
        elif size != LATER and size != INTERRUPTED:
            wire.lose(-size)

    @cython.cfunc
    def _send_all(self) -> cython.void:
        wire: Wire
        for wire in self._answered:
            if wire.waits:
                self._send_answers(wire)
        self._answered.clear()
        self._out.clear()

    def send_answers(self, wire: Wire) -> None:
        self._send_answers(wire)

    @cython.cfunc
    def _send_answers(self, wire: Wire) -> cython.void:
        wire.waits = False
        if wire.records is not None:
            wire.write_sealed(self._out[wire.begin : wire.end])
            if wire.unsent:
                wire.connection.recount()
            return
        gone: cython.Py_ssize_t = LATER
        if not wire.unsent:
            gone = send(wire.fd, self._out, wire.begin, wire.end)
        if gone == wire.end - wire.begin or not wire.goes_on(gone):
            return
        gone = max(gone, 0)
        wire.keep(bytes(memoryview(self._out)[wire.begin + gone : wire.end]))
        wire.connection.recount()

    @cython.cfunc
    def _send_pieces(self, wire: Wire, pieces: list[bytes | bytearray]) -> cython.void:
        """Send these now, unless responses to earlier writes are still queued."""
        size: cython.Py_ssize_t = 0
        if wire.records is not None:
            wire.write_sealed(pieces)
            if wire.unsent:
                wire.connection.recount()
            return
        for piece in pieces:
            size += len(piece)
        gone: cython.Py_ssize_t = LATER
        if not wire.unsent:
            gone = send_pieces(wire.fd, pieces, 0)
        if gone == size or not wire.goes_on(gone):
            return
        gone = max(gone, 0)
        wire.keep_pieces(pieces, gone)
        wire.connection.recount()

    @cython.cfunc
    def _pieces(self, begin: cython.Py_ssize_t, first: cython.Py_ssize_t) -> list[bytes | bytearray]:
        """The latest responses with the large values inside them."""
        found: list[bytes | bytearray] = []
        out = self._out
        bulk = self._bulk
        at: cython.Py_ssize_t = begin
        place: cython.Py_ssize_t
        if len(bulk) > first:
            for place, value in bulk[first:]:
                found.append(out[at:place])
                found.append(value)
                at = place
            del bulk[first:]
        if len(out) > at:
            found.append(out[at:])
        del out[begin:]
        return found
