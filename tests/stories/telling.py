"""Stories of the protocols as text: prose, commands, and what follows from each: messages, rows, views.

A story is a file of paragraphs. One that begins with `#` is prose. Of any other the lines before `----` are commands,
and those after it are what has happened: written by the telling, compared by the test. Messages are told when they
leave, rows and views when a member applies them. Each message takes a millisecond, and nothing is left to chance.
"""

from __future__ import annotations

import random
from collections.abc import Callable, MutableSequence, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from holdfast.actions.drain import Drain
from holdfast.config import PartitionSettings, PersistenceSettings, Settings
from holdfast.core import messages as m
from holdfast.core.events import ActionRequested
from holdfast.core.model.ids import MILLISECOND, SECOND, Address
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Outcome, Request
from holdfast.core.model.partition_table import Assignment
from holdfast.core.primary_backup.cuts import Taken
from holdfast.engine.link import HEADER
from holdfast.observe.stories import QUIET, in_words, row_in_words
from holdfast.wire.codec import decode
from holdfast_lab.check import convergence
from holdfast_lab.sim.calls import name_of, wire_key
from holdfast_lab.sim.cluster import Cluster, simulated_settings
from holdfast_lab.sim.world import STRAIGHT, Process, World

HOSTS = 6
MAP = "ledger"
LEASE_MS = 60_000
PATIENCE_S = 120


class NoChance(random.Random):
    """Nothing is lost, doubled or late, and of each span the beginning is drawn."""

    def random(self) -> float:
        return 0.5

    def randint(self, a: int, b: int) -> int:
        return a

    def shuffle(self, x: MutableSequence[Any]) -> None:
        pass


class Story:
    """A cluster, and what is told of it."""

    def __init__(self) -> None:
        self.world = World(1, None)
        self.world.random = NoChance("a story")
        self.world.weather.delay_ns = (MILLISECOND, MILLISECOND)
        self.world.tap = self._leaves
        self.cluster: Cluster
        self._lines: list[str] = []
        self._rows: dict[tuple[str, int], Assignment] = {}
        self._views: dict[str, int] = {}
        self._seen: set[tuple[str, Address, int, int]] = set()
        self._awaited: tuple[str, str, str] | None = None
        """Message, sender, receiver that stop the time."""
        self._blocked: tuple[str, str, str] | None = None
        self._stop = False
        self._names: dict[str, str] = {}
        self._pins: dict[str, str] = {}

    def do(self, command: str) -> list[str]:
        """Carry out one command; answers what has happened. Raises AttributeError for an unknown one."""
        words = command.split()
        getattr(self, f"do_{words[0]}")(*words[1:])
        lines, self._lines = self._lines, []
        return lines

    def tell(self, line: str) -> None:
        self._lines.append(line)

    # -- commands

    def do_cluster(self, *choices: str) -> None:
        """`cluster partitions=1 backups=1 files`: the settings; nobody has started yet."""
        chosen = dict(choice.partition("=")[::2] for choice in choices)
        partitions, backups = int(chosen.get("partitions", "1")), int(chosen.get("backups", "1"))
        if "files" in chosen:
            files = PersistenceSettings(directory="disk")
            settings = simulated_settings(backups, partitions, journal="sync", persistence=files)
        else:
            settings = simulated_settings(backups, partitions)
        self.cluster = Cluster(self.world, _calm(settings), HOSTS)
        self.tell(f"{partitions} partitions, {backups} backups")

    def do_start(self, *hosts: str) -> None:
        """`start host0 host1`, `start host3 lite`: new processes; who is alone forms the cluster."""
        lite = "lite" in hosts
        for host in hosts:
            if host != "lite":
                number = int(host.removeprefix("host"))
                first = all(one.dead for one in self.world.processes.values())
                process = self.cluster.start(number, bootstrap=first, lite=lite)
                process._random = NoChance(host)  # effects stay in their order
                self._names[process.driver.member.me] = host
                process.driver.callers.watch(partial(self._changed, process))

    def do_rest(self) -> None:
        """Until nothing is to be done any more."""
        self._run(self._at_rest)
        assert convergence.judge(self.cluster.pictures()) == []

    def do_wait(self, seconds: str) -> None:
        """`wait 3`: so many seconds."""
        self.world.run_until(self.world.now_ns + round(float(seconds) * SECOND))

    def do_until(self, *words: str) -> None:
        """`until MigrationReady [from host1] [to host0]`: until such a message leaves; it arrives later."""
        self._awaited, self._stop = _pattern(words), False
        self._run(lambda: self._stop)

    def do_lose(self, *words: str) -> None:
        """`lose TableOffer [from host0] [to host1]`: no such message arrives from now on, `lose nothing`: all do."""
        self._blocked = None if words == ("nothing",) else _pattern(words)

    def do_kill(self, *hosts: str) -> None:
        """`kill host1`: at once, without a word."""
        for host in hosts:
            self._process(host).crash()
        # Who comes back has to learn which hosts have no process.
        self.world.weather.refusal = 1.0

    def do_drain(self, *hosts: str) -> None:
        """`drain host1`: it is asked to leave; told until it has."""
        leaving = [self._process(host) for host in hosts]
        for process in leaving:
            process.step(partial(process.driver.handle, ActionRequested(Drain())))
        self._run(lambda: all(process.dead for process in leaving))
        for process in leaving:
            self.tell(f"{process.host} ends: {process.ended_because}")

    def do_set(self, key: str, value: str, *at: str) -> None:
        """`set k1 red [at host2]`."""
        self._ask(Op.SET, key, value, *at)

    def do_get(self, key: str, *at: str) -> None:
        """`get k1 [at host2]`."""
        self._ask(Op.GET, key, "", *at)

    def do_send(self, key: str, value: str, *at: str) -> None:
        """`send k1 red [at host2]`: a set whose answer is told whenever it comes."""
        self._send(Op.SET, key, value, *at)

    def do_rows(self) -> None:
        """The table, as each living member knows it."""
        known: dict[str, list[str]] = {}
        for process in self.cluster.living():
            rows = process.driver.member.table.rows
            text = "; ".join(f"p{number} {row_in_words(row, self._names)}" for number, row in enumerate(rows))
            known.setdefault(text, []).append(process.host)
        for text, hosts in known.items():
            self.tell(f"{', '.join(hosts)}: {text}")

    def do_cut(self, name: str) -> None:
        """`cut now`: the primary keeps the map as it is, and so do its backups."""
        for partition in range(self.cluster.settings.partitions.count):
            owner = self.cluster.living()[0].driver.member.table.rows[partition].owner
            process = next(one for one in self.cluster.living() if one.driver.member.me == owner)
            told: list[Taken] = []
            process.step(partial(self._take, process, name, partition, told))
            self._run(lambda told=told: bool(told))  # type: ignore[misc]
            for pin in told[0].pins:
                holders = ", ".join(self._names[holder] for holder in pin.holders)
                self.tell(f"cut {name} of p{partition}: update {pin.counter}, kept by {holders}")

    def _take(self, process: Process, name: str, partition: int, told: list[Taken]) -> None:
        process.driver.callers.take_cut(name.encode(), (MAP,), (partition,), LEASE_MS, told.append)

    def do_read(self, name: str, host: str) -> None:
        """`read now host1`: what a cut holds, as this member has it."""
        for partition in range(self.cluster.settings.partitions.count):
            pin = self._process(host).driver.member.copies.cuts.find(name.encode(), partition, MAP)
            content = {} if pin is None else pin.content()
            entries = ", ".join(f"{name_of(value)}" for _, value in sorted(content.items()))
            self.tell(f"{host} p{partition}: {'nothing is kept' if pin is None else entries or 'empty'}")

    # -- time

    def _run(self, reached: Callable[[], bool]) -> None:
        until_ns = self.world.now_ns + PATIENCE_S * SECOND
        while not reached() and self.world.now_ns < until_ns:
            self.world.run_until(self.world.now_ns + MILLISECOND // 2)
        assert not self.world.failures, self.world.failures
        assert reached(), convergence.judge(self.cluster.pictures())

    def _at_rest(self) -> bool:
        members = self.cluster.pictures()
        return not convergence.judge(members) and not any(member.leaving for member in members)

    # -- requests

    def _ask(self, op: Op, key: str, value: str, *at: str) -> None:
        answers = self._send(op, key, value, *at)
        self._run(lambda: bool(answers))

    def _send(self, op: Op, key: str, value: str, *at: str) -> list[Outcome]:
        process = self._process(at[1]) if at else self.cluster.living()[0]
        raw = wire_key(key)
        partition = partition_of(raw, 0, self.cluster.settings.partitions.count)
        answers: list[Outcome] = []

        def done(outcome: Outcome) -> None:
            answers.append(outcome)
            found = f" {outcome.value.decode()}" if isinstance(outcome.value, bytes) else ""
            found = found or (f": {outcome.detail}" if outcome.detail else "")
            self.tell(f"{process.host} answers {op.name} {key}: {outcome.status.name}{found}")

        request = Request(op, MAP, [partition], raw, value.encode())
        process.step(partial(process.driver.execute, request, done))
        return answers

    def _process(self, host: str) -> Process:
        return self.world.processes[self.cluster.addresses[int(host.removeprefix("host"))]]

    # -- what is told

    def _changed(self, process: Process) -> None:
        member = process.driver.member
        view = member.membership.view
        if view is not None and self._views.get(process.name) != view.number:
            self._views[process.name] = view.number
            members = ", ".join(info.name.partition("#")[0] for info in view.members)
            self.tell(f"{process.host} is in view {view.number}: {members}")
        for partition, row in enumerate(member.table.rows):
            before = self._rows.get((process.name, partition), Assignment())
            if row.version != before.version:
                self._rows[process.name, partition] = row
                self.tell(f"{process.host} applies p{partition} {row_in_words(row, self._names)}")

    def _leaves(self, source: Process, target: Address, data: bytes, linked: bool) -> Sequence[int]:
        payload = data[HEADER.size :] if linked else data
        if not payload:
            return STRAIGHT
        if linked:
            road, number, _ = HEADER.unpack_from(data)
            if (again := (source.name, target, road, number)) in self._seen:
                return () if self._is(self._blocked, source, target, decode(payload)) else STRAIGHT
            self._seen.add(again)
        message = decode(payload)
        lost = self._is(self._blocked, source, target, message)
        if not isinstance(message, QUIET):
            words = (
                f"{source.host} -> {target.host}: {type(message).__name__} {in_words(message, self._names)}"
            )
            self.tell(words.rstrip() + (" (lost)" if lost else ""))
        if self._is(self._awaited, source, target, message):
            self._awaited, self._stop = None, True
        return () if lost else STRAIGHT

    @staticmethod
    def _is(
        wanted: tuple[str, str, str] | None, source: Process, target: Address, message: m.Message
    ) -> bool:
        if wanted is None:
            return False
        kind, sender, receiver = wanted
        return (
            type(message).__name__ == kind and sender in ("", source.host) and receiver in ("", target.host)
        )


def _pattern(words: Sequence[str]) -> tuple[str, str, str]:
    """A kind of message, `from` whom and `to` whom if that is said."""
    said = dict(zip(words[1::2], words[2::2], strict=True))
    return words[0], said.get("from", ""), said.get("to", "")


def _calm(settings: Settings) -> Settings:
    """One migration at a time, at once; no looks at the table or the copies in between."""
    partitions = msgspec.structs.replace(settings.partitions, parallel_migrations=1, rebalance_delay_ms=0)
    replication = msgspec.structs.replace(settings.replication, anti_entropy_ms=0)
    assert isinstance(partitions, PartitionSettings)
    return msgspec.structs.replace(settings, partitions=partitions, replication=replication)


# -- files


def retold(text: str) -> str:
    """The story with what happens now in place of what it says."""
    story = Story()
    return "\n\n".join(_retold(story, paragraph) for paragraph in text.strip().split("\n\n")) + "\n"


def _retold(story: Story, paragraph: str) -> str:
    if paragraph.startswith("#"):
        return paragraph
    commands = paragraph.partition("\n----")[0].strip().splitlines()
    happened = [line for command in commands for line in story.do(command)]
    return "\n".join([*commands, "----", *(happened or ["nothing to tell"])])


def stories() -> list[Path]:
    return sorted(Path(__file__).parent.glob("*.txt"))
