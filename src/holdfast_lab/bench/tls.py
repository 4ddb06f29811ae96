"""The cost of TLS: a member with TLS against one without, alternating.

    python -m holdfast_lab.bench.tls [--rounds 5] [--seconds 1]

One member each, on the servers' core. The generator in C does not support TLS, so the load comes from several
clients of `holdfast.aio` in one process, which is the slower side; the main figure is therefore the member's
processor time per request. Both serve their sockets in two ways: through the event loop, and with the compiled
sockets, which are the default.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import click
import trustme

from holdfast.aio import Client, Map
from holdfast.config.client_tls import ClientTls
from holdfast_lab.bench.systems import server_core
from holdfast_lab.fuzz.secured import config_of
from holdfast_lab.processes.local_cluster import LocalCluster

HOST = "127.0.0.1"
CLIENTS = 8
KEYS, VALUE = 10_000, b"v" * 100
CASES = (("get", 1), ("get", 32), ("set", 1), ("set", 32))
POLL, LOOP = "plain, compiled sockets", "plain, the loop's sockets"
TLS, TLS_LOOP = "TLS, compiled sockets", "TLS, the loop's sockets"


def made(folder: Path) -> ClientTls:
    """An authority and a certificate for loopback."""
    authority = trustme.CA()
    shown = authority.issue_cert(HOST)
    files = [folder / name for name in ("ca.pem", "member.pem", "member.key")]
    authority.cert_pem.write_to_path(str(files[0]))
    files[1].write_bytes(b"".join(each.bytes() for each in shown.cert_chain_pems))
    shown.private_key_pem.write_to_path(str(files[2]))
    ca, certificate, key = map(str, files)
    return ClientTls(ca, certificate, key)


@contextmanager
def running(tls: ClientTls) -> Iterator[dict[str, tuple[LocalCluster, ClientTls | None]]]:
    configs = {
        POLL: ("", None),
        LOOP: ('[member]\nsockets = "loop"\n', None),
        TLS: (config_of(tls), tls),
        TLS_LOOP: ('[member]\nsockets = "loop"\n' + config_of(tls), tls),
    }
    with ExitStack() as stack:
        found: dict[str, tuple[LocalCluster, ClientTls | None]] = {}
        for name, (config, speaks) in configs.items():
            with server_core():
                found[name] = stack.enter_context(LocalCluster(1, config, tls=speaks)), speaks
        for cluster, _ in found.values():
            cluster.wait_settled()
        yield found


async def _play(
    cluster: LocalCluster, tls: ClientTls | None, kind: str, depth: int, seconds: float
) -> tuple[float, float]:
    """Requests per second, and microseconds of the member's processor time for each."""
    clients = [Client(cluster.client_addresses(), tls=tls) for _ in range(CLIENTS)]
    for client in clients:
        await client.connect()
    try:
        maps: list[Map] = [client.map("entries") for client in clients]
        await maps[0].put_all(dict.fromkeys(range(KEYS), VALUE))
        done = [0]
        ends_s = time.monotonic() + seconds

        async def asks(entries: Map, key: int) -> None:
            while time.monotonic() < ends_s:
                key = (key + 7919) % KEYS
                if kind == "get":
                    await entries.get(key)
                else:
                    await entries.set(key, VALUE)
                done[0] += 1

        cpu, began_s = _cpu_s(cluster), time.monotonic()
        await asyncio.gather(*(asks(entries, 97 * n) for entries in maps for n in range(depth)))
        took_s = time.monotonic() - began_s
        return done[0] / took_s, (_cpu_s(cluster) - cpu) / done[0] * 1e6
    finally:
        for client in clients:
            await client.close()


def _cpu_s(cluster: LocalCluster) -> float:
    fields = (
        Path(f"/proc/{cluster.members[0].pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    )
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@click.command()
@click.option("--rounds", default=5, show_default=True)
@click.option("--seconds", default=1.0, show_default=True, help="Of each round of each case.")
def main(rounds: int, seconds: float) -> None:
    """Measure the cost of TLS."""
    load = os.getloadavg()[0]
    found: dict[tuple[str, str, int], list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder, running(made(Path(folder))) as them:
        for turn in range(-1, rounds):
            for kind, depth in CASES:
                for name in list(them) if turn % 2 else reversed(list(them)):
                    told = asyncio.run(_play(*them[name], kind, depth, seconds))
                    if turn >= 0:
                        found.setdefault((name, kind, depth), []).append(told)
    click.echo(
        f"load of the machine before: {load:.1f}; medians of {rounds} rounds of {seconds:g} s, in turns"
    )
    for kind, depth in CASES:
        for name in (POLL, LOOP, TLS, TLS_LOOP):
            base = median(cpu for _, cpu in found[POLL if name == TLS else LOOP, kind, depth])
            rate, cpu = (median(column) for column in zip(*found[name, kind, depth], strict=True))
            title = f"{kind}, {depth} in flight, {name}"
            click.echo(f"{title:48} {rate:10,.0f} /s {cpu:8.2f} us  {cpu / base:5.2f} x plain")


if __name__ == "__main__":
    main()
