"""A test that memory is released: `python -m holdfast_lab.bench.soak`, or `make soak`.

Three members, with short-lived maps, clients and zones: maps that are filled and destroyed; clients that
connect, register a listener and a near cache, run a transaction and leave; zones that are created and dropped.
After the first tenth of each, no member's resident memory may grow by more than 5 MiB.
"""

from __future__ import annotations

import itertools
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import click

from holdfast.actions.change_zone import CreateZone, DropZone
from holdfast.client.blocking import Client
from holdfast.client.connection import Credentials
from holdfast.client.operator import act_at_any
from holdfast.client_core.routing import parse_addresses
from holdfast.core.model.operations import Op, Request
from holdfast.server.hazelcast import authentication
from holdfast.server.hazelcast.near_caches import ADD_LISTENER as ADD_NEAR_CACHE
from holdfast.wire import doors as preambles
from holdfast.wire.hazelcast.hazelcast_frames import BEGIN, END, FRAME, IS_FINAL, LONG, UUID, text
from holdfast.wire.values import to_stored
from holdfast_lab.processes.local_cluster import LocalCluster
from holdfast_lab.sim.clients.hazelcast import encode

MEMBERS = 3
MOST_MIB = 5.0
ADD_LISTENER, BEGIN_TRANSACTION, COMMIT = 0x011900, 0x150200, 0x150100
SETTINGS = "[metastore]\nvoters = 3\n[cluster]\ninitial_members = 3\n[replication]\nanti_entropy_ms = 5000\n"


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


class RawClient:
    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        self._correlations = itertools.count(1)
        self._came = b""

    def __enter__(self) -> Self:
        own = {
            "client": UUID.pack(False, int.from_bytes(os.urandom(8), "big"), 1),
            "serialization_version": b"\x01",
            "cluster_name": text("dev"),
            "username": text(None),
            "password": text(None),
            "client_type": text("SOAK"),
            "client_version": text("5.7.0"),
            "client_name": text("soak"),
        }
        self._socket.sendall(preambles.HAZELCAST_CLIENT)
        rest = [BEGIN, END]
        self.ask(authentication.AUTHENTICATE, own, rest)
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, kind: int, own: dict[str, bytes], rest: list[bytes] | None = None) -> bytes:
        """Send a request; returns the response message. Raises ClickException for an error response."""
        self._socket.sendall(encode(kind, next(self._correlations), -1, own=own, rest=rest or []))
        answer = self._message()
        if int.from_bytes(answer[6:10], "little") == 0:
            raise click.ClickException(f"request {kind:#x} was refused: {answer[-200:]!r}")
        return answer

    def _message(self) -> bytes:
        at = 0
        while True:
            while len(self._came) < at + FRAME.size:
                self._more()
            length, flags = FRAME.unpack_from(self._came, at)
            at += length
            while len(self._came) < at:
                self._more()
            if flags & IS_FINAL:
                found, self._came = self._came[:at], self._came[at:]
                return found

    def _more(self) -> None:
        data = self._socket.recv(65536)
        if not data:
            raise click.ClickException("a member has closed the connection")
        self._came += data


def one_map(client: Client, number: int, destroyed: list[int]) -> None:
    name = f"job-{number}"
    client.put_columns(name, [to_stored(key) for key in range(600)], [to_stored("v" * 20)] * 600)
    client.execute(Request(Op.DESTROY, name, destroyed), idempotent=True)


def one_client(address: str, number: int) -> None:
    """Connect, listen, feed a near cache, commit a transaction, and leave."""
    name = text(f"heard-{number % 100}")
    with RawClient(address) as client:
        flags = {
            "include_value": b"\x01",
            "flags": (7).to_bytes(4, "little"),
            "local_only": b"\x00",
            "name": name,
        }
        client.ask(ADD_LISTENER, flags)
        client.ask(ADD_NEAR_CACHE, flags)
        begin = {
            "timeout_ms": LONG.pack(60_000),
            "durability": bytes(4),
            "transaction_type": (1).to_bytes(4, "little"),
            "thread": LONG.pack(1),
        }
        answer = client.ask(BEGIN_TRANSACTION, begin)
        client.ask(COMMIT, {"transaction": answer[-17:], "thread": LONG.pack(1)})


def phases(
    cluster: LocalCluster, maps: int, clients: int, zones: int
) -> Iterator[tuple[str, int, Callable[[int], None]]]:
    """The phases: name, number of repetitions, and the function for one."""
    addresses = parse_addresses(",".join(cluster.client_addresses()))
    with Client(cluster.client_addresses()) as client:
        every = list(range(client.partition_count))
        yield "maps", maps, lambda number: one_map(client, number, every)
    ends = cluster.client_addresses()
    yield "clients", clients, lambda number: one_client(ends[number % len(ends)], number)

    def one_zone(number: int) -> None:
        act_at_any(addresses, Credentials(), CreateZone(f"z{number}", partitions=5, replicas=MEMBERS))
        act_at_any(addresses, Credentials(), DropZone(f"z{number}"))

    yield "zones", zones, one_zone


@click.command()
@click.option("--maps", default=10_000, show_default=True)
@click.option("--clients", default=10_000, show_default=True)
@click.option("--zones", default=200, show_default=True)
def main(maps: int, clients: int, zones: int) -> None:
    """Check that members release memory."""
    grown: list[str] = []
    with LocalCluster(MEMBERS, SETTINGS) as cluster:
        cluster.wait_safe(120)
        for what, count, one in phases(cluster, maps, clients, zones):
            base: list[float] = []
            for number in range(count):
                one(number)
                if (number + 1) % max(1, count // 10) == 0:
                    time.sleep(6)
                    now = [resident_mib(member.pid) for member in cluster.members]
                    base = base or now
                    shown = "  ".join(f"{one_of:7.1f}" for one_of in now)
                    click.echo(f"{what:8} {number + 1:7,}  MiB of each member: {shown}")
            more = max(end - begin for begin, end in zip(base, now, strict=True))
            if more > MOST_MIB:
                grown.append(f"{what}: {more:.1f} MiB more after the first tenth")
    if grown:
        raise click.ClickException("; ".join(grown))
    click.echo(f"no member has grown by more than {MOST_MIB:g} MiB after the first tenth")


if __name__ == "__main__":
    main()
