"""A client's connection to one member, over a plain or a TLS socket: it sends questions in Holdfast's own protocol, and
waits for their answers.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from holdfast.client_core.routing import error_of_fault
from holdfast.config.client_tls import SPEAKS_NONE, ClientTls, handshake_problem
from holdfast.core.model.ids import Address
from holdfast.errors import Denied, HoldfastError, ProtocolError, Unsupported
from holdfast.wire import doors, own

CONNECT_S_MAX = 5.0
ANSWER_S_MIN = 5.0
"""A member gets at least this long to answer, unless the caller's timeout is shorter."""
IDLE_S = 1.0
HELLO_ANSWER_BYTES_MAX = 65_536
ANSWER_BYTES_MAX = 2**31 - 1

AnswerType = TypeVar("AnswerType", bound=own.Answer)


TLS_HINT = "tls=ClientTls(...) in Python, --tls or --tls-ca on the command line, the option tlsCa on Spark"


class Broken(HoldfastError):
    """There is no connection, or it ended before the answer arrived."""


@dataclass(frozen=True, slots=True)
class Credentials:
    cluster: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    token: bytes | None = field(default=None, repr=False)
    operates: bool = False
    tls: ClientTls | None = None


def _secured(plain: socket.socket, tls: ClientTls, address: Address) -> ssl.SSLSocket:
    try:
        return tls.context().wrap_socket(plain, server_hostname=address.host)
    except BaseException as failed:
        plain.close()
        _raise_tls(failed, address)
        if isinstance(failed, ssl.SSLEOFError | ConnectionResetError):
            raise Broken(
                f"{address} closed the connection in the TLS handshake: it may not use TLS"
            ) from failed
        raise


def _raise_tls(failed: BaseException, address: Address) -> None:
    """Raise Denied or ProtocolError for a TLS error that would happen again after a retry."""
    if isinstance(failed, ssl.SSLError) and not isinstance(failed, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        why = handshake_problem(failed)
        if why:
            kind = ProtocolError if why == SPEAKS_NONE else Denied
            raise kind(f"no TLS with {address}: {why}") from failed


class Connection:
    """One connection to one member. After it raised Broken it cannot be used any more."""

    def __init__(self, address: Address, credentials: Credentials, timeout_s: float) -> None:
        """Connect and authenticate. Raises Broken, Denied, Unsupported, ProtocolError, or ConfigError for TLS
        files.
        """
        self.address = address
        self.closed = False
        self._used_s = 0.0
        self._number = 0
        self._answers: dict[int, own.Answer] = {}
        self._limit = HELLO_ANSWER_BYTES_MAX
        self._tls = credentials.tls is not None
        try:
            self._socket = socket.create_connection(
                (address.host, address.port), min(timeout_s, CONNECT_S_MAX)
            )
            if credentials.tls is not None:
                self._socket = _secured(self._socket, credentials.tls, address)
        except OSError as failed:
            raise Broken(f"cannot connect to {address}: {failed}") from failed
        try:
            # Shorter than the caller's timeout: if this member is paused, there must be time to ask another
            # one.
            self._socket.settimeout(max(timeout_s / 3, min(timeout_s, ANSWER_S_MIN)))
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            hello = own.Hello(
                self.next_number(),
                own.VERSION,
                credentials.cluster,
                credentials.username,
                credentials.password,
                credentials.token,
                credentials.operates,
            )
            # In one piece. With TLS 1.3 a server may reject the client after the handshake and close; a
            # second piece, sent to the closed socket, would break the connection before the rejection is
            # read.
            self._write(own.PREAMBLE + own.frame(hello))
            self.hello = self.collect(hello.id, own.HelloOk)
        except BaseException:
            self.close()
            raise
        self._limit = ANSWER_BYTES_MAX

    @property
    def ended(self) -> bool:
        """Whether the member has closed the connection, as it does after a long idle time."""
        if self.closed or time.monotonic() - self._used_s < IDLE_S:
            return self.closed
        try:
            if select.select([self._socket], [], [], 0)[0] and (
                # With TLS, pending data cannot be inspected without reading it. Nothing was asked, so it must
                # be the end.
                self._tls or not self._socket.recv(1, socket.MSG_PEEK)
            ):
                self.close()
        except OSError:
            self.close()
        return self.closed

    def check_release(self, release: str | None) -> None:
        if release is not None and self.hello.release != release:
            self.close()
            raise Unsupported(
                f"{self.address} runs Holdfast {self.hello.release or 'of an older version'}, this client {release}: "
                "use the same version on both sides"
            )

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def ask(self, question: own.Question, kind: type[AnswerType]) -> AnswerType:
        """Send a question and wait for its answer. Raises the error of the member's fault, or Broken."""
        self.post(question)
        return self.collect(question.id, kind)

    def post(self, question: own.Question) -> None:
        self._write(own.frame(question))

    def collect(self, number: int, kind: type[AnswerType]) -> AnswerType:
        """Wait for the answer to question `number`. Raises the same errors as `ask`."""
        while number not in self._answers:
            self._read_answer()
        answer = self._answers.pop(number)
        if isinstance(answer, own.Fault):
            raise error_of_fault(answer)
        if not isinstance(answer, kind):
            self.close()
            raise ProtocolError(
                f"{self.address} answered with {type(answer).__name__} instead of {kind.__name__}"
            )
        return answer

    def has_answer(self, number: int) -> bool:
        return number in self._answers

    def wait(self, number: int, timeout_s: float) -> bool:
        """Wait up to `timeout_s` for an answer that may take long; returns whether it has arrived."""
        deadline = time.monotonic() + timeout_s
        while number not in self._answers:
            left_s = deadline - time.monotonic()
            if not self._undecoded() and (
                left_s <= 0 or not select.select([self._socket], [], [], left_s)[0]
            ):
                return False
            self._read_answer()
        return True

    def _undecoded(self) -> bool:
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def _read_answer(self) -> None:
        answer = own.read_answer(self._read_frame())
        if isinstance(answer, own.Fault) and answer.id == 0:
            self.close()
            raise error_of_fault(answer)
        self._answers[answer.id] = answer

    def close(self) -> None:
        self.closed = True
        with suppress(OSError):
            self._socket.close()

    def _write(self, data: bytes) -> None:
        self._used_s = time.monotonic()
        try:
            self._socket.sendall(data)
        except OSError as failed:
            self._read_arrived()
            self.close()
            raise Broken(f"the connection to {self.address} broke: {failed}") from failed

    def _read_arrived(self) -> None:
        with suppress(HoldfastError, OSError):
            while self._undecoded() or select.select([self._socket], [], [], 0)[0]:
                self._read_answer()

    def _read_frame(self) -> bytearray:
        first = self._read(own.LENGTH_BYTES)
        if self._limit == HELLO_ANSWER_BYTES_MAX:
            self._check_door(bytes(first))
        length = own.frame_length(first, self._limit)
        return self._read(length)

    def _check_door(self, first: bytes) -> None:
        if doors.who(first):
            said = first + (self._rest_of_opening() if first == doors.MEMBER else b"")
            self.close()
            raise ProtocolError(doors.wrong_port(str(self.address), said, TLS_HINT))

    def _rest_of_opening(self) -> bytes:
        """Read the rest of the bytes with which a member opens its member port; they may name the client port."""
        try:
            return bytes(self._read(doors.OPENING_BYTES - own.LENGTH_BYTES + doors.OTHER_PORT_BYTES))
        except HoldfastError:
            return b""

    def _read(self, count: int) -> bytearray:
        buffer = bytearray(count)
        rest = memoryview(buffer)
        while rest:
            try:
                got = self._socket.recv_into(rest)
            except OSError as failed:
                self.close()
                _raise_tls(failed, self.address)  # TLS 1.3 reports a rejected client certificate only here.
                raise Broken(f"no answer from {self.address}: {failed}") from failed
            if not got:
                self.close()
                raise Broken(f"{self.address} closed the connection")
            rest = rest[got:]
        return buffer
