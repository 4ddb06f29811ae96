"""A stage of the crash matrix: a small cluster whose next change is exactly one migration, under load.

Assignments come from the stage's own layout; everything else is the real protocol. The stage numbers each
packet that leaves after the request of the migration: at these boundaries faults strike. Pure
acknowledgements, heartbeats and requests to join change nothing, and are not counted.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from functools import partial

from holdfast.actions.drain import Drain
from holdfast.config import ClusterSettings, MapSettings, PartitionSettings, Settings
from holdfast.core.events import ActionRequested, Heard
from holdfast.core.member import Member
from holdfast.core.messages import Heartbeat, JoinAnswer, JoinRequest, ViewDecided
from holdfast.core.model.ids import MILLISECOND, Address
from holdfast.core.model.levels import HIGHEST
from holdfast.core.model.migration import ReplicaList
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.model.views import View
from holdfast.core.placement.layout import Candidate, arrange
from holdfast.core.placement.planner import plan
from holdfast.engine.link import HEADER
from holdfast.wire.codec import decode
from holdfast_lab.check.durability import Read, Write
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.matrix.forms import EMPTY, LITE, PRIMARY, Form
from holdfast_lab.sim.rig import Rig
from holdfast_lab.sim.world import STRAIGHT, Process, Story, World

LEDGER, DEEP, LOOSE = "ledger", "deep", "loose"
MAPS = (LEDGER, DEEP, LOOSE)
"""With the backups of the form; with one backup for each further place; with async backups only."""
KEYS = 5
VALUE_BYTES = 200
"""Large enough that the content takes two chunks."""
CHATTER = (Heartbeat, JoinRequest, JoinAnswer)
HEARTBEAT_MS = 500
BUSY_NS = 30 * MILLISECOND
"""How long the client writes fast: longer than an undisturbed migration."""
SETUP_S = 30

Deed = Callable[["Boundary"], Sequence[int]]

CLUSTER = "6d617472-6978-4000-8000-000000000000"


class Boundary:
    __slots__ = ("message", "number", "receiver", "sender", "target")

    def __init__(self, number: int, sender: Process, target: Address, receiver: str, message: str) -> None:
        self.number = number
        self.sender = sender
        self.target = target
        self.receiver = receiver
        self.message = message


def settings_of(form: Form) -> Settings:
    """Short times, so that a case has few heartbeats; maps with different numbers of backups."""
    return Settings(
        cluster=ClusterSettings(name="matrix", heartbeat_ms=HEARTBEAT_MS, suspect_after_ms=2000),
        partitions=PartitionSettings(count=1, chunk_bytes=1024),
        maps={
            "default": MapSettings(backups=form.backups),
            DEEP: MapSettings(backups=form.width - 1),
            LOOSE: MapSettings(backups=0, async_backups=form.backups),
        },
    )


class Stage(Rig):
    def __init__(self, form: Form, master: str, seed: int, *, story: Story | None) -> None:
        self.form = form
        first, *rest = form.hosts(master)
        random.Random(f"{form.name}/{master}/{seed}/ages").shuffle(rest)
        self.letters = [first, *rest]
        super().__init__(World(seed, story), settings_of(form), len(self.letters))
        self.cluster.counts_copies = False
        self.wanted = form.start
        self.strike: Deed = lambda boundary: STRAIGHT
        self.count = 0
        self._counting = False
        self._letter_of: dict[str, str] = {
            address.host: letter for address, letter in zip(self.cluster.addresses, self.letters, strict=True)
        }
        self._host_of: dict[str, str] = {}
        self._stalled: dict[tuple[str, str], int] = {}
        for index in range(len(self.letters)):
            self.start(index)
        self._found()
        self.until(self._is_set_up, SETUP_S, "the start of the form is reached")
        self.client = Client(self)
        self.client.load()
        self.until(lambda: not self.client.open, SETUP_S, "the data is there")
        # Until acknowledgements are out, and then to a random moment between two heartbeats.
        idle_ns = 60 * MILLISECOND + self.world.random.randint(0, HEARTBEAT_MS * MILLISECOND)
        self.world.run_until(self.world.now_ns + idle_ns)
        self.problems = list(self.world.failures)

    # -- members

    def start(self, index: int) -> Process:
        letter = self.letters[index]
        process = self.cluster.start(index, lite=letter == LITE)
        member = process.driver.member
        self._host_of[member.me] = letter
        member.migrations.layout = self._layout
        return process

    def _found(self) -> None:
        """Begin with an installed view of all members: joining is not tested here."""
        processes = self.cluster.living()
        view = View(1, CLUSTER, [process.picture.info for process in processes], level=HIGHEST)
        for process in processes:
            process.step(partial(process.driver.handle, Heard(process.address, ViewDecided(view))))

    def living(self, letter: str) -> Process | None:
        address = self.cluster.addresses[self.letters.index(letter)]
        process = self.world.processes.get(address)
        return process if process is not None and not process.dead else None

    def letter(self, process: Process) -> str:
        return self._letter_of[process.host]

    def row_of(self, member: Member) -> str:
        """The assignment as a member knows it; dead members in lower case."""
        living = {each.me for each in self.cluster.members()}
        found = ""
        for uuid in member.picture.assignment(0).replicas:
            letter = EMPTY if uuid is None else self._host_of[uuid]
            found += letter if uuid is None or uuid in living else letter.lower()
        return found.ljust(self.form.width, EMPTY)

    def _layout(
        self, rows: Sequence[ReplicaList], candidates: Sequence[Candidate], replicas: int
    ) -> list[ReplicaList]:
        """The wanted assignment if all its members are present; otherwise the real layout."""
        if not rows:
            return []  # no copy is reachable
        here = {self._host_of[candidate.uuid]: candidate.uuid for candidate in candidates}
        row = rows[0] + (None,) * (self.form.width - len(rows[0]))
        if self.aims_at_target(here):
            target = tuple(None if letter == EMPTY else here[letter] for letter in self.wanted)
            return [plan(0, row, target).target] if any(row) else [target]
        return arrange(rows, candidates, replicas)

    def aims_at_target(self, here: Collection[str]) -> bool:
        """Whether all members of the wanted assignment are present, and the leaving one is not back."""
        stays = self.wanted == self.form.target and self.form.leaving in here
        return not stays and all(letter in here for letter in self.wanted if letter != EMPTY)

    # -- the migration

    def begin(self) -> None:
        self.wanted = self.form.target
        self._counting = True
        if self.form.leaving:
            process = self.living(self.form.leaving)
            assert process is not None
            process.step(partial(process.driver.handle, ActionRequested(Drain())))
        else:
            process = self.cluster.living()[0]
            process.step(partial(self._replan, process))
        self.client.start()

    @staticmethod
    def _replan(process: Process) -> None:
        process.driver.enter()
        process.driver.member.migrations.departures_known()
        process.driver.leave_lane()

    def _tap(self, source: Process, target: Address, data: bytes, linked: bool) -> Sequence[int]:
        if not self._counting:
            return STRAIGHT
        if linked:
            copies: Sequence[int] = STRAIGHT
            if len(data) > HEADER.size:
                copies = self._boundary(source, target, data[HEADER.size :])
            until = self._stalled.get((source.host, target.host), 0) if self._stalled else 0
            if until > self.world.now_ns:
                return [max(late, until - self.world.now_ns) for late in copies]
            return copies
        return self._boundary(source, target, data)

    def _boundary(self, source: Process, target: Address, payload: bytes) -> Sequence[int]:
        message = decode(payload)
        if isinstance(message, CHATTER):
            return STRAIGHT
        self.count += 1
        receiver = self._letter_of[target.host]
        name = type(message).__name__
        self.world.trace(f"{self.count} {source.name}>{receiver} {name}", payload)
        return self.strike(Boundary(self.count, source, target, receiver, name))

    def stall(self, source: str, target: str, length_ns: int) -> None:
        self._stalled[source, target] = self.world.now_ns + length_ns

    # -- rest

    def _is_set_up(self) -> bool:
        members = self.cluster.members()
        master = members[0]
        return (
            master.picture.is_master
            and len(master.picture.members()) == len(members)
            and all(self.row_of(member) == self.form.start for member in members)
            and not any(member.picture.under_way() for member in members)
            and master.picture.table_settled
            and master.picture.balanced
        )

    def primary(self) -> Process | None:
        serving = [p for p in self.cluster.living() if p.picture.serves(0)]
        return serving[0] if serving else None


class Client:
    ROTA = (
        (Op.SET, LEDGER, True),
        (Op.SET, DEEP, True),
        (Op.SET, LEDGER, False),
        (Op.DELETE, LEDGER, True),
        (Op.SET, LOOSE, True),
        (Op.GET, LEDGER, True),
        (Op.PUT, DEEP, False),
    )

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.random = random.Random(f"{stage.world.random.random()}/client")
        self.writes: list[Write] = []
        self.reads: list[Read] = []
        self.running = False
        self.open: dict[int, Process] = {}
        self._count = 0
        self._quick_until_ns = 0

    def load(self) -> None:
        primary = self.stage.living(PRIMARY)
        assert primary is not None
        for name in MAPS:
            for number in range(KEYS):
                self._ask(primary, Op.SET, name, f"k{number}")

    def start(self) -> None:
        self.running = True
        self._quick_until_ns = self.stage.world.now_ns + BUSY_NS
        self._next()

    def _next(self) -> None:
        if not self.running:
            return
        world = self.stage.world
        op, name, straight = self.ROTA[self._count % len(self.ROTA)]
        living = self.stage.cluster.living()
        primary = self.stage.primary() if straight else None
        if living:
            key = f"k{self.random.randint(0, KEYS)}"
            self._ask(primary or self.random.choice(living), op, name, key)
        quick = world.now_ns < self._quick_until_ns
        low, high = (2 * MILLISECOND, 6 * MILLISECOND) if quick else (150 * MILLISECOND, 350 * MILLISECOND)
        world.after(self.random.randint(low, high), self._next)

    def _ask(self, process: Process, op: Op, name: str, key: str) -> None:
        self._count += 1
        number, start = self._count, self.stage.world.now_ns
        value = None if op in (Op.DELETE, Op.GET) else f"{number}"
        write = Write(f"{name}/{key}", value, start)
        if op is not Op.GET:
            self.writes.append(write)

        def told(outcome: Outcome) -> None:
            if process.dead or number not in self.open:
                return  # the connection broke when the process died
            del self.open[number]
            now_ns = self.stage.world.now_ns
            if op is Op.GET and outcome.status is Status.OK:
                found = _shown(outcome.value) if isinstance(outcome.value, bytes) else None
                self.reads.append(Read(write.key, found, start, now_ns))
            write.end = now_ns
            if outcome.status is Status.OK:
                write.outcome = "refused" if op is Op.DELETE and outcome.value is False else "ok"
            elif outcome.status is not Status.UNKNOWN:
                write.outcome = "refused"

        self.open[number] = process
        request = Request(op, name, [0], wire_key(key), _stored(value) if value else b"")
        process.whenever_awake(partial(process.step, partial(process.driver.execute, request, told)))

    def waiting(self) -> int:
        self.open = {number: process for number, process in self.open.items() if not process.dead}
        return len(self.open)

    def look(self, process: Process, name: str, told: Callable[[dict[str, str | None]], None]) -> None:
        keys = {wire_key(f"k{number}"): f"{name}/k{number}" for number in range(KEYS + 1)}

        def answered(outcome: Outcome) -> None:
            if outcome.status is not Status.OK:
                return
            found: dict[str, str | None] = dict.fromkeys(keys.values())
            flat = outcome.value
            assert isinstance(flat, list)
            for key, value in zip(flat[::2], flat[1::2], strict=True):
                assert isinstance(key, bytes) and isinstance(value, bytes)
                found[keys[key]] = _shown(value)
            told(found)

        request = Request(Op.GET_ALL, name, [0], items=list(keys))
        process.step(partial(process.driver.execute, request, answered))


def _stored(value: str) -> bytes:
    return value.encode().ljust(VALUE_BYTES, b".")


def _shown(value: bytes) -> str:
    return value.decode().rstrip(".")
