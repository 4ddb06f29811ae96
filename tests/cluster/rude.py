"""Clients that do what no client should: they send much and read nothing, or say nothing at all."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from uuid import uuid4

from hazelcast.protocol.client_message import OutboundMessage
from hazelcast.protocol.codec import client_authentication_codec
from hazelcast.serialization.data import Data

from holdfast.config import Settings
from holdfast.core.model.keys import partition_of
from holdfast.runtime.peering.member_handshake import OPENING_BYTES, framed, request_of, secrets_of
from holdfast_lab.processes.local_cluster import ManagedMember

FRAME = struct.Struct("<iH")
PARTITIONS = 271


def data(stored: bytes) -> Data:
    """Stored bytes as the client's `Data`."""
    return Data(bytes(4) + stored)


def stored(payload: bytes) -> bytes:
    """Bytes as an object that is stored: type id and payload."""
    return struct.pack(">i", -12) + payload


def connect(member: ManagedMember) -> socket.socket:
    """A plain connection to the client door."""
    host, _, port = member.client_address.rpartition(":")
    return socket.create_connection((host, int(port)), 20)


def connect_as_member(member: ManagedMember, greet: str = "") -> socket.socket:
    """A connection to the door of the members; `greet`: as the one with this UUID."""
    host, _, port = member.member_address.rpartition(":")
    opened = socket.create_connection((host, int(port)), 20)
    if greet:
        opening = b""
        with suppress(OSError):
            while len(opening) < OPENING_BYTES:
                opening += opened.recv(100)
            opened.sendall(framed(request_of(secrets_of(Settings().security), opening, (greet, host, 1))))
            time.sleep(0.02)
    return opened


def open_ones(sockets: Iterable[socket.socket]) -> int:
    """How many of these the member has not closed."""
    found = 0
    for one in sockets:
        one.setblocking(False)
        try:
            while one.recv(4096):
                pass
        except BlockingIOError:
            found += 1
        except OSError:
            pass
    return found


class Rude:
    """A connection of the Hazelcast protocol without a client behind it."""

    def __init__(self, member: ManagedMember, cluster: str = "dev") -> None:
        """Connect, and authenticate."""
        self.socket = connect(member)
        self._number = 0
        self._rest = b""
        self._at = 0
        self.socket.sendall(b"CP2")
        self.send(
            client_authentication_codec.encode_request(
                cluster, None, None, uuid4(), "PYH", 1, "5.7.0", "rude", []
            )
        )
        self.read()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def bytes_of(self, request: OutboundMessage, partition: int = -1) -> bytes:
        """A request with a correlation id of its own."""
        self._number += 1
        request.set_correlation_id(self._number)
        request.set_partition_id(partition)
        return bytes(request.buf)

    def send(self, request: OutboundMessage, partition: int = -1) -> None:
        """Send it, and look for no answer."""
        self.socket.sendall(self.bytes_of(request, partition))

    def read(self, answers: int = 1) -> list[bytes]:
        """So many whole messages that came back."""
        return [self._message() for _ in range(answers)]

    def _message(self) -> bytes:
        found = bytearray()
        while True:
            head = self._take(FRAME.size)
            length, flags = FRAME.unpack(head)
            found += head + self._take(length - FRAME.size)
            if flags & 0x2000:
                return bytes(found)

    def _take(self, count: int) -> bytes:
        while len(self._rest) - self._at < count:
            got = self.socket.recv(1 << 20)
            if not got:
                raise EOFError("the member closed the connection")
            self._rest, self._at = self._rest[self._at :] + got, 0
        self._at += count
        return self._rest[self._at - count : self._at]


def partition(key: bytes) -> int:
    """Where a key lives in a cluster with the usual number of partitions."""
    return partition_of(key, 0, PARTITIONS)


def peak_bytes(member: ManagedMember) -> int:
    """The most memory that the process has had."""
    status = Path(f"/proc/{member.pid}/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def close_all(sockets: Iterable[socket.socket]) -> None:
    """No more of these."""
    for one in sockets:
        one.close()
