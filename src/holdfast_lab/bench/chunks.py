"""The path of a migration chunk in process: microseconds from one response to the next, stage by stage, with a real
source, real messages and a real destination.

    python -m holdfast_lab.bench.chunks [--rounds 5]

Sockets and the event loop are left out. Entries are in memory in random order, as clients store them. Ten
partitions move at a time. In the first round the destination gets new memory from the system, later it reuses
it; so that round is reported separately.
"""

from __future__ import annotations

import gc
import os
import random
import time
from dataclasses import dataclass, field

import click

from holdfast.config import MapSettings, PartitionSettings, Settings
from holdfast.core.effects import Send
from holdfast.core.journal.log import Log
from holdfast.core.messages import Fill, Filled, Message, MigrationRequest
from holdfast.core.model.ids import MemberId
from holdfast.core.model.migration import Migration
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.views import Room
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.lane import Lane, Ways
from holdfast.core.primary_backup.local_replicas import LocalReplicas
from holdfast.core.state_transfer.destination import Destination
from holdfast.core.state_transfer.source import Source
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.engine.link import Link
from holdfast.runtime.data_lane import data_lane
from holdfast.runtime.memory import prepare
from holdfast.wire.codec import decode, encode
from holdfast_lab.bench.lane import BEN, ME

STAGES = (
    "choose and pack",
    "encode",
    "packet",
    "decode and judge",
    "take and store",
    "answer, and be answered",
)
MAP = "m"
KEY_BYTES = 12
AT_A_TIME = 10
MASTER = MemberId("master")


@dataclass
class Quiet:
    """The environment of both sides, in which nothing else happens."""

    master: MemberId = MASTER
    view: None = None
    intents: Quiet | None = None
    full: frozenset[MemberId] = frozenset()
    short: dict[MemberId, Room] = field(default_factory=dict)
    active: frozenset[int] = frozenset()

    def stored_assignment(self, partition: int) -> None: ...


class Mover:
    """A primary of all partitions, and the destination of their migrations."""

    def __init__(self, ways: Ways, partitions: int, entries: int, value_bytes: int, chunk_bytes: int) -> None:
        settings = Settings(
            partitions=PartitionSettings(count=partitions, chunk_bytes=chunk_bytes),
            maps={"default": MapSettings(backups=0)},
        )
        self.count = partitions
        self.out, self.out_there = Outbox(), Outbox()
        rows = [Assignment(1, (ME,))] * partitions
        quiet = Quiet(active=frozenset(range(partitions)))
        quiet.intents = quiet
        around = {"membership": quiet, "table_replication": quiet}
        log, log_there = Log(self.out, on=False), Log(self.out_there, on=False)
        lane = Lane(ME, settings, self.out, log, puts=ways.puts)
        lane.attach(rows)
        copies = LocalReplicas(ME, settings, self.out, rows, log, entries=ways.entries, puts=ways.puts)
        copies.held.update((at, PartitionCopy(at, 0, entries=ways.entries)) for at in range(partitions))
        _fill(copies, partitions, entries, value_bytes)
        self.source = Source(ME, settings, self.out, rows, copies, lane, activation=quiet, **around)  # type: ignore[arg-type]
        self.there = LocalReplicas(
            BEN, settings, self.out_there, rows, log_there, entries=ways.entries, puts=ways.puts
        )
        self.destination = Destination(BEN, self.out_there, rows, self.there, log_there, **around)  # type: ignore[arg-type]
        self.held = copies
        self.spent = dict.fromkeys(STAGES, 0)
        self.chunks = 0

    def _asked(self, partition: int) -> None:
        migration = Migration(partition, ME, 0, -1, BEN, -1, 0)
        self.source.on_request(MASTER, MigrationRequest(0, migration, 1))

    def run(self) -> dict[str, float]:
        """Move all partitions; returns microseconds per chunk of each stage."""
        self.spent, self.chunks = dict.fromkeys(STAGES, 0), 0
        here: Link[Message] = Link(1)
        there: Link[Message] = Link(1)
        asked, done = 0, 0
        while done < self.count:
            while asked < self.count and asked - done < AT_A_TIME:
                self._asked(asked)
                asked += 1
            for fill in self._sent(self.out):
                if isinstance(fill, Fill):
                    self._chunk(fill, here, there)
                    done += fill.last
        assert not self.source.flow.flight, "all has arrived"
        moved = sum(staged.copy.entry_count() for staged in self.destination.staging.values())
        assert moved == sum(copy.entry_count() for copy in self.held.held.values()), "all has arrived"
        self._again()
        return {stage: spent / self.chunks / 1000 for stage, spent in self.spent.items()}

    def _chunk(self, fill: Fill, here: Link[Message], there: Link[Message]) -> None:
        clock, spent = time.perf_counter_ns, self.spent
        at = clock()

        def stage(name: str) -> None:
            nonlocal at
            now = clock()
            spent[name] += now - at
            at = clock()

        data = encode(fill)
        stage("encode")
        packet = here.send(data, at)
        stage("packet")
        (come,) = there.receive(memoryview(packet), at, self._read)
        stage("decode and judge")
        assert isinstance(come, Fill)
        self.destination.on_fill(ME, come)
        stage("take and store")
        (answer,) = self._sent(self.out_there)
        (back,) = here.receive(memoryview(there.send(encode(answer), at)), at, self._read)
        stage("answer, and be answered")
        assert isinstance(back, Filled)
        self.source.on_filled(BEN, back)
        stage("choose and pack")
        self.chunks += bool(fill.maps and not fill.last)

    def _read(self, payload: bytes | memoryview) -> Message:
        return decode(payload, self.count)

    @staticmethod
    def _sent(out: Outbox) -> list[Message]:
        return [effect.message for effect in out.take() if isinstance(effect, Send)]

    def _again(self) -> None:
        self.source._reset()
        self.destination.staging.clear()
        for partition in range(self.count):
            self.held.services.give_up(partition)
            self.there.services.give_up(partition)
        self.out.take()
        self.out_there.take()


def _fill(copies: LocalReplicas, partitions: int, entries: int, value_bytes: int) -> None:
    maps = [copies.open(copies.held[at], MAP) for at in range(partitions)]
    order = list(range(partitions * entries))
    random.Random(1).shuffle(order)
    value = os.urandom(value_bytes)
    for number in order:
        held = maps[number % partitions]
        held.state.entries[number.to_bytes(KEY_BYTES, "big")] = value
        held.updates.update(held.counter)


@click.command()
@click.option("--rounds", default=5, show_default=True)
@click.option("--partitions", default=50, show_default=True)
@click.option("--entries", default=2000, show_default=True, help="Of each partition.")
@click.option("--value-bytes", default=1024, show_default=True)
@click.option("--chunk-bytes", default=65_536, show_default=True)
def main(rounds: int, partitions: int, entries: int, value_bytes: int, chunk_bytes: int) -> None:
    """Measure the path of a chunk."""
    gc.disable()
    prepare(files=False)
    for lane in (data_lane("python"), data_lane()):
        mover = Mover(lane.ways, partitions, entries, value_bytes, chunk_bytes)
        first = mover.run()
        rows = [mover.run() for _ in range(rounds)]
        click.echo(
            f"{lane.kind}, {mover.chunks} chunks: us a chunk, the first round, and the lowest of the others"
        )
        for stage in STAGES:
            click.echo(f"  {stage:26}{first[stage]:10.1f}{min(row[stage] for row in rows):10.1f}")
        lowest = sum(min(row[stage] for row in rows) for stage in STAGES)
        click.echo(f"  {'all':26}{sum(first.values()):10.1f}{lowest:10.1f}")
        size = partitions * entries * (KEY_BYTES + value_bytes)
        click.echo(
            f"  {'MB/s of one processor':26}{size / mover.chunks / sum(first.values()):10.0f}"
            f"{size / mover.chunks / lowest:10.0f}"
        )
        del mover
        gc.collect()
        if lane.kind == "compiled":
            break


if __name__ == "__main__":
    main()
