"""The cost of security on the data lane: a member with users and rules against one without, alternating.

    python -m holdfast_lab.bench.security [--lives 6] [--rounds 6] [--seconds 0.5]

One member each, on the servers' core, by `holdfast_lab.bench.lives`: two without security, and one with users,
whose clients have a rule for the map, or may only read it. Before that, the data lane is measured alone in this
process: reads of a map with all permissions, and with the permission to read only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import click

from holdfast.runtime.data_lane import data_lane
from holdfast.server.hazelcast.reference_lane import Served
from holdfast_lab.bench import frames, systems
from holdfast_lab.bench.lane import OPERATIONS, Primary, buffers_of
from holdfast_lab.bench.lives import compare, tell
from holdfast_lab.bench.systems import System

WRITER, READER = ("writer", "the password of the writer"), ("reader", "the password of the reader")
USERS = f"""
[users.writer]
passwords = ["{WRITER[1]}"]
roles = ["writer"]
[users.reader]
passwords = ["{READER[1]}"]
roles = ["reader"]
[roles.writer]
rules = ["map other read", "map {frames.MAP} read put remove", "cluster * status"]
[roles.reader]
rules = ["map {frames.MAP[:1]}* read", "cluster * status"]
"""
OPEN, AGAIN, PERMITTED, READING = (
    "without users",
    "another without users",
    "permitted by a rule",
    "reads alone permitted",
)


@contextmanager
def running() -> Iterator[dict[str, System]]:
    with ExitStack() as stack:
        off = stack.enter_context(systems.holdfast(1, 0, name=OPEN))
        again = stack.enter_context(systems.holdfast(1, 0, name=AGAIN))
        on = stack.enter_context(systems.holdfast(1, 0, name=PERMITTED, more=USERS, user=WRITER))
        reading = System(READING, on.pids, on.addresses, on.owners, user=READER)
        yield {OPEN: off, AGAIN: again, PERMITTED: on, READING: reading}


def _measure_lane(rounds: int) -> None:
    """Nanoseconds per operation in `serve_entries`: the minimum of all rounds, alternating."""
    forms: tuple[Served, ...] = (frames.MAP, (frames.MAP,))
    for way in (data_lane("python"), data_lane()):
        primary = Primary(way, backups=0)
        primary.run(buffers_of("set", 32))
        for depth in (1, 32):
            buffers = buffers_of("get", depth)
            told = [[primary.run(buffers, form) / OPERATIONS for form in forms] for _ in range(rounds)]
            every, reads = (min(column) for column in zip(*told, strict=True))
            title = f"the {way.kind} lane, get, {depth} in a buffer"
            click.echo(
                f"{title:48} {every:8.1f} ns  reads alone {reads:8.1f} ns  {100 * (reads / every - 1):+6.1f} %"
            )


@click.command()
@click.option("--lives", default=6, show_default=True, help="How often the members are started.")
@click.option("--rounds", default=6, show_default=True, help="Of each life.")
@click.option("--seconds", default=0.5, show_default=True, help="Of each round of each case.")
def main(lives: int, rounds: int, seconds: float) -> None:
    """Measure the cost of permissions."""
    load = os.getloadavg()[0]
    _measure_lane(lives * rounds)
    found = compare(running, lives, rounds, seconds, only_read=(READING,))
    tell(found, (OPEN, AGAIN, PERMITTED, READING), load, lives, rounds, seconds)


if __name__ == "__main__":
    main()
