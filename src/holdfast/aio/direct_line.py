"""Connections on which the caller's own thread sends and receives, so that no other thread has to be woken.

Each serves one request at a time. A member gets as many as there are threads that use it at the same time, up
to a limit; further threads wait for each other.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable
from threading import Lock
from time import monotonic

from holdfast.aio.client_handshake import ClientHandshake, no_tls
from holdfast.client_core.answer_stream import AnswerStream, OtherAnswer
from holdfast.client_core.message_decoding import answer_in
from holdfast.client_core.request_forms import AIM, STEP, WHOLE, RequestForm
from holdfast.client_core.retries import LineBroken, LineClosed
from holdfast.config.addresses import format_address
from holdfast.errors import ProtocolError
from holdfast.wire.doors import HAZELCAST_CLIENT

RECEIVE_BYTES = 1 << 16
JUST_USED_S = 0.02
"""Skip the check for a dead connection for so long after an answer: it costs a system call."""
_TIME = struct.Struct("@ll")


class _Slot:
    __slots__ = ("error", "open", "result")

    def __init__(self) -> None:
        self.open = False
        self.result: object = None
        self.error: BaseException | None = None

    def done(self) -> bool:
        return not self.open

    def set_result(self, result: object, /) -> None:
        self.open = False
        self.result = result

    def set_exception(self, error: BaseException, /) -> None:
        self.open = False
        self.error = error


class DirectLine:
    def __init__(
        self,
        address: tuple[str, int],
        introduction: ClientHandshake,
        *,
        limit: int,
        timeout_s: float,
        silence_s: float,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`limit`: bytes of the longest answer. `silence_s`: longest wait for an answer. Raises LineClosed,
        Denied, NotReady, ProtocolError.
        """
        self.address = address
        self._slot = _Slot()
        self._used_s = 0.0
        self._stream = AnswerStream(limit, _unheard)
        try:
            self._socket = socket.create_connection(address, timeout_s)
            if tls is not None:
                self._socket = _secured(self._socket, tls, address)
        except OSError as failed:
            raise LineClosed(f"{format_address(*address)}: {failed}") from failed
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # The kernel ends a wait (SO_RCVTIMEO): Python's own timeouts cost an extra system call each time.
            self._socket.setblocking(True)
            patience = _TIME.pack(int(silence_s), int(silence_s % 1 * 1_000_000))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
            self._socket.sendall(HAZELCAST_CLIENT)
            answer = self.ask(introduction.form, -1, introduction.frames)
            if not isinstance(answer, bytes):
                raise ProtocolError("the response to the authentication has another type")
            introduction.read(answer, address)
        except BaseException as failed:
            self.close()
            if isinstance(failed, LineBroken | OSError):
                raise LineClosed(f"{format_address(*address)}: {failed}") from failed
            raise

    def ask(self, form: RequestForm, partition: int, rest: bytes) -> object:
        """Send a request once; see `Client.ask`. Raises LineBroken, OtherAnswer, ProtocolError. After any
        error but OtherAnswer the connection must be closed.
        """
        stream, slot = self._stream, self._slot
        stream.count = count = stream.count + STEP
        correlation = count | form.code
        stream.pending[correlation] = slot
        slot.open = True
        try:
            self._socket.sendall(
                b"".join((form.begins, AIM.pack(correlation, partition), form.goes_on, rest))
            )
            receive = self._socket.recv
            while slot.open:
                came = receive(RECEIVE_BYTES)
                if not came:
                    raise LineBroken(f"the connection to {format_address(*self.address)} ended")
                stream.feed(came)
            self._used_s = monotonic()
        except OSError as failed:
            raise LineBroken(f"{format_address(*self.address)}: {failed}") from failed
        error, slot.error = slot.error, None
        if error is not None:
            raise error
        result, slot.result = slot.result, None
        return result

    @property
    def alive(self) -> bool:
        """Whether the member neither closed the connection nor sent anything unasked. True if it was just
        used.
        """
        if monotonic() < self._used_s + JUST_USED_S:
            return True
        try:
            # Read the plain socket, also with TLS: no byte of any kind may be pending.
            socket.socket.recv(self._socket, 1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def hang_up(self) -> None:
        """End it from any thread: a thread that waits for an answer gets LineBroken."""
        try:
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        except OSError:
            pass

    def socket_number(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()


def _secured(plain: socket.socket, tls: ssl.SSLContext, address: tuple[str, int]) -> ssl.SSLSocket:
    """Raises Denied, NotReady, OSError, and closes the connection then."""
    try:
        return tls.wrap_socket(plain, server_hostname=address[0])
    except ssl.SSLError as failed:
        plain.close()
        raise no_tls(failed, address) from failed
    except BaseException:
        plain.close()
        raise


def _unheard(kind: int, correlation: int, whole: bytes) -> None:
    """Ignore events: no listener is registered on these connections."""


class _Waiter:
    __slots__ = ("line", "told")

    def __init__(self) -> None:
        self.line: DirectLine | None = None
        self.told = Lock()
        self.told.acquire()


class DirectLines:
    """Pool of connections to one member. Waiting threads are served in order of arrival."""

    def __init__(self, make: Callable[[], DirectLine], most: int) -> None:
        self._make = make
        self._most = most
        self._idle: deque[DirectLine] = deque()
        """Empty while a thread waits."""
        self._used: set[DirectLine] = set()
        self._count = 0
        self._waiting: deque[_Waiter] = deque()
        self._lock = Lock()
        self._ended = ""

    def ask(self, form: RequestForm, partition: int, rest: bytes) -> object:
        """Send a request on a free connection and return its answer. Raises HoldfastError."""
        line = self._take()
        try:
            answer = line.ask(form, partition, rest)
        except OtherAnswer as other:
            self._give(line)
            return answer_in(form, other.whole)
        except BaseException:
            # Also when the thread was interrupted: the answer to this request would be taken for that of the
            # next one.
            self._drop(line)
            raise
        self._give(line)
        return answer_in(form, answer) if form.code == WHOLE and isinstance(answer, bytes) else answer

    def _take(self) -> DirectLine:
        while True:
            line = self._next()
            self._used.add(line)
            if line.alive and not self._ended:
                return line
            self._drop(line)

    def _next(self) -> DirectLine:
        with self._lock:
            self._check()
            if self._idle:
                return self._idle.pop()
            waiter = None
            if self._count < self._most:
                self._count += 1
            else:
                waiter = _Waiter()
                self._waiting.append(waiter)
        if waiter is not None:
            self._wait(waiter)
            if waiter.line is not None:
                return waiter.line
        try:
            self._check()
            return self._make()
        except BaseException:
            self._left()
            raise

    def _check(self) -> None:
        if self._ended:
            raise LineClosed(self._ended)

    def _wait(self, waiter: _Waiter) -> None:
        try:
            waiter.told.acquire()
        except BaseException:
            # The thread was interrupted: pass the connection on to the next one.
            with self._lock:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)
                    raise
            if waiter.line is not None:
                self._give(waiter.line)
            else:
                self._left()
            raise

    def _left(self) -> None:
        """A connection is gone: the first waiting thread may open another one."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().told.release()
            else:
                self._count -= 1

    def _give(self, line: DirectLine) -> None:
        self._used.discard(line)
        with self._lock:
            if not self._ended:
                if self._waiting:
                    waiter = self._waiting.popleft()
                    waiter.line = line
                    waiter.told.release()
                else:
                    self._idle.append(line)
                return
        self._drop(line)

    def _drop(self, line: DirectLine) -> None:
        self._used.discard(line)
        line.close()
        self._left()

    def prune(self) -> None:
        while True:
            with self._lock:
                if not self._idle:
                    return
                line = self._idle.popleft()
            self._drop(line)

    def socket_numbers(self) -> list[int]:
        return [line.socket_number() for line in [*self._idle, *self._used]]

    def end(self, why: str) -> None:
        self._ended = why
        self.prune()
        for line in list(self._used):
            line.hang_up()
