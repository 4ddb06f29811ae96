"""The cost of growth while many clients listen to member and partition views, which are sent to each at every change.

    python -m holdfast_lab.bench.watchers [--clients 1000]

Two members without entries; all clients are connected to the first one and have registered for its views, as
smart clients do with one member each. Then a third and a fourth member join.
"""

from __future__ import annotations

import asyncio
import resource
import time

import click

from holdfast.server.hazelcast.cluster_views import ADD_CLUSTER_VIEW_LISTENER
from holdfast.wire.hazelcast.hazelcast_frames import IS_FINAL, REQUEST, UNFRAGMENTED
from holdfast_lab.bench import frames
from holdfast_lab.bench.systems import MOST_CONNECTIONS, process_cpu_seconds
from holdfast_lab.processes.local_cluster import LocalCluster

LISTEN = REQUEST.pack(REQUEST.size, UNFRAGMENTED | IS_FINAL, ADD_CLUSTER_VIEW_LISTENER, 2, -1)
JOINS = 2
QUIET_S = 2.0
"""Silence after a join that ends the measurement."""
CONFIG = (
    f"[limits]\nconnections = {MOST_CONNECTIONS}\nconnections_per_address = {MOST_CONNECTIONS}\n"
    f"unauthenticated_connections = {MOST_CONNECTIONS}\n"
)


class Listeners:
    """Clients that only read the views."""

    def __init__(self) -> None:
        self.bytes = 0
        self._writers: list[asyncio.StreamWriter] = []
        self._reading: list[asyncio.Task[None]] = []

    async def add(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(frames.sign_in_message("dev"))
        assert await reader.read(1 << 16), "it is welcome"
        writer.write(LISTEN)
        self._writers.append(writer)
        self._reading.append(asyncio.create_task(self._read(reader)))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(1 << 20):
            self.bytes += len(data)

    async def end(self) -> None:
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*self._reading, return_exceptions=True)


async def measure(cluster: LocalCluster, clients: int) -> None:
    listeners, first = Listeners(), cluster.members[0]
    for _ in range(clients):
        await listeners.add(first.client_address)
    await asyncio.sleep(QUIET_S)
    for _ in range(JOINS):
        listeners.bytes = 0
        before_s, began_s = process_cpu_seconds(first.pid), time.monotonic()
        await asyncio.to_thread(cluster.start_member)
        await asyncio.to_thread(cluster.wait_settled, 300)
        took_s = time.monotonic() - began_s
        await asyncio.sleep(QUIET_S)
        spent_s = process_cpu_seconds(first.pid) - before_s
        click.echo(
            f"{clients:,} clients: settled {took_s:.1f} s after the start of a member; processor time of the one "
            f"with the clients {spent_s:.2f} s; told {listeners.bytes / 1e6:.1f} MB"
        )
    await listeners.end()


@click.command()
@click.option("--clients", default=1_000, show_default=True)
def main(clients: int) -> None:
    """Measure joins while clients listen."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with LocalCluster(2, CONFIG) as cluster:
        cluster.wait_safe(60)
        asyncio.run(measure(cluster, clients))


if __name__ == "__main__":
    main()
