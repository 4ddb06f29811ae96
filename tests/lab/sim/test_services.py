"""A second service in the simulated world, through every form of migration, committed and rolled back (H5)."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from functools import partial

import msgspec
import pytest
from tests.lab.sim.stage import Stage, settings
from tests.sampled_cases import sampled

from holdfast.config import ReplicationSettings
from holdfast.core.hosted_services import Endpoint, MigrationEvent, with_services
from holdfast.core.journal.log import Log
from holdfast.core.messages import Fill, Replicate, Section
from holdfast.core.migration import returning_members as returns_module
from holdfast.core.model.ids import MILLISECOND, SECOND, MemberId
from holdfast.core.model.migration import MigrationKind, ReplicaList
from holdfast.core.model.object_names import part_name
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Change, Record
from holdfast.core.outbox import Outbox
from holdfast.core.placement.layout import Candidate, arrange
from holdfast.core.primary_backup.local_replicas import LocalReplicas
from holdfast.core.state_transfer.destination import StagingReplica
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast_lab.check import convergence
from holdfast_lab.sim import tally
from holdfast_lab.sim.ablations.switching import ablated
from holdfast_lab.sim.cluster import Cluster, simulated_settings
from holdfast_lab.sim.faults import Faults
from holdfast_lab.sim.tally import Tally, TallyShare, Teller, share_of, tally_of
from holdfast_lab.sim.world import Process, World

PARTITION = 3
S, D = Endpoint.SOURCE, Endpoint.DESTINATION
Told = tuple[Endpoint, int, int]
"""Endpoint, index before and index after."""


class Form(msgspec.Struct, frozen=True):
    """A row before and after, by letters, and what each of the participants is to be told."""

    kind: MigrationKind
    start: str
    target: str
    told: dict[str, Told]

    @property
    def destination(self) -> str:
        return next(letter for letter, (endpoint, _, _) in self.told.items() if endpoint is D)

    @property
    def source(self) -> str | None:
        return next((letter for letter, (endpoint, _, _) in self.told.items() if endpoint is S), None)


FORMS = {
    "MOVE owner": Form(MigrationKind.MOVE, "ABC-", "DBC-", {"A": (S, 0, -1), "D": (D, -1, 0)}),
    "MOVE backup": Form(MigrationKind.MOVE, "ABC-", "ADC-", {"B": (S, 1, -1), "D": (D, -1, 1)}),
    "MOVE colder backup": Form(MigrationKind.MOVE, "ABC-", "ABD-", {"C": (S, 2, -1), "D": (D, -1, 2)}),
    "COPY": Form(MigrationKind.COPY, "A-C-", "ADC-", {"D": (D, -1, 1)}),
    "SHIFT DOWN owner": Form(MigrationKind.SHIFT_DOWN, "A-C-", "DAC-", {"A": (S, 0, 1), "D": (D, -1, 0)}),
    "SHIFT DOWN backup": Form(MigrationKind.SHIFT_DOWN, "AB--", "ADB-", {"B": (S, 1, 2), "D": (D, -1, 1)}),
    "SHIFT UP over an owner": Form(MigrationKind.SHIFT_UP, "ABC-", "CB--", {"A": (S, 0, -1), "C": (D, 2, 0)}),
    "SHIFT UP over a backup": Form(MigrationKind.SHIFT_UP, "ABC-", "AC--", {"B": (S, 1, -1), "C": (D, 2, 1)}),
    "SHIFT UP into an empty slot": Form(MigrationKind.SHIFT_UP, "A-C-", "AC--", {"C": (D, 2, 1)}),
    "both shifts": Form(MigrationKind.SHIFT_UP, "ABC-", "AC-B", {"B": (S, 1, 3), "C": (D, 2, 1)}),
    "EXCHANGE owner": Form(MigrationKind.EXCHANGE, "ABC-", "BAC-", {"A": (S, 0, 1), "B": (D, 1, 0)}),
    "EXCHANGE backup": Form(MigrationKind.EXCHANGE, "ABC-", "ACB-", {"B": (S, 1, 2), "C": (D, 2, 1)}),
}


class Play(Stage):
    """A master that holds nothing of the partition, and A to D, which hold it as the story wants."""

    def __init__(
        self,
        form: Form,
        backups: int,
        monkeypatch: pytest.MonkeyPatch,
        *,
        map_backups: int = 3,
        tail_bytes: int = ReplicationSettings().tail_bytes,
    ) -> None:
        base = settings(map_backups, partitions={"chunk_bytes": 64}, replication={"tail_bytes": tail_bytes})
        self.wished: ReplicaList = ()
        monkeypatch.setattr(returns_module, "arranging", self.arranging)
        super().__init__(5, settings=base, rest=False, services=lambda: [Tally(backups)])
        self.form = form
        self.backups = backups
        self.monkeypatch = monkeypatch
        self.master = self.processes[0]
        self.by_letter = dict(zip("ABCD", self.processes[1:], strict=True))
        self.wish(form.start)
        self.reach(form.start)
        self.tellers = [Teller(n, self.world, self.cluster, [PARTITION], tally.THINK_NS) for n in range(5)]
        for teller in self.tellers:
            teller.start()
        self.wait(0.5)
        assert self.acknowledged() > 100, "there is to be something to hand over"
        for process in self.processes:
            tally_of(process.picture).heard.clear()

    def arranging(
        self, current: Sequence[ReplicaList], candidates: Sequence[Candidate], replicas: int
    ) -> Generator[None, None, list[ReplicaList]]:
        """As the master asks for it: in pieces, of which this is one."""
        yield
        return self.arranged(current, candidates, replicas)

    def arranged(
        self, current: Sequence[ReplicaList], candidates: Sequence[Candidate], replicas: int
    ) -> list[ReplicaList]:
        """The rows of the layout, but for the one that is wished for, as soon as all who are in it are there."""
        rows = arrange(current, candidates, replicas)
        here = {candidate.uuid for candidate in candidates}
        if self.wished and here.issuperset(filter(None, self.wished)):
            rows[PARTITION] = self.wished
        return rows

    def uuid(self, letter: str) -> MemberId:
        return self.by_letter[letter].driver.member.me

    def wish(self, row: str) -> None:
        """Have the master make this row of the partition."""
        self.wished = tuple(None if letter == "-" else self.uuid(letter) for letter in row)
        self.master.step(self._replan)

    def _replan(self) -> None:
        self.master.driver.enter()
        self.master.driver.member.migrations.departures_known()
        self.master.driver.leave_lane()

    def row(self, process: Process) -> str:
        letters = {self.uuid(letter): letter for letter in self.by_letter}
        slots = process.driver.member.table.rows[PARTITION].replicas
        return "".join("-" if uuid is None else letters.get(uuid, "?") for uuid in slots)

    def reach(self, row: str) -> None:
        """Wait until everybody who lives and can be reached knows this row, and nothing moves."""

        def there() -> bool:
            migrations = self.master.driver.member.migrations
            still = migrations.planned and not migrations.running and not migrations.queued
            return still and all(self.row(process) == row for process in self.cluster.living())

        self.world.run_until(self.world.now_ns + 90 * SECOND, stop=there)
        assert not self.world.failures, self.world.failures
        assert there(), [self.row(process) for process in self.cluster.living()]

    def acknowledged(self) -> int:
        return sum(teller.acknowledged for teller in self.tellers)

    def heard(self, letter: str) -> list[tuple[str, MigrationEvent]]:
        """What a member was told of the partition."""
        heard = tally_of(self.by_letter[letter].picture).heard
        return [(what, event) for what, event in heard if event.partition == PARTITION]

    def expected(self, letter: str, outcome: str) -> list[tuple[str, MigrationEvent]]:
        event = MigrationEvent(PARTITION, *self.form.told[letter])
        return [("before", event), (outcome, event)]

    def at_completion(self, deed: Callable[[], None]) -> None:
        """Do this when the destination holds everything, before it can say so; once."""
        self.when_filled(lambda staged: staged.complete, deed)

    def when_filled(self, so_far: Callable[[StagingReplica], bool], deed: Callable[[], None]) -> None:
        """Do this when the destination has been filled so far, before it can say so; once."""
        member = self.by_letter[self.form.destination].driver.member
        inner = member.destination.on_fill
        left = [deed]

        def on_fill(sender: MemberId, fill: Fill) -> None:
            inner(sender, fill)
            staged = member.destination.staging.get(PARTITION)
            if left and staged is not None and staged.joining and so_far(staged):
                left.pop()()

        self.monkeypatch.setattr(member.destination, "on_fill", on_fill)

    def end(self) -> None:
        """No more updates, the layout of the master's own choice, and then all must be right."""
        self.check_holders()
        tally.stop(self.tellers)
        self.wished = ()
        self.master.step(self._replan)
        self.rest()
        assert tally.judge(self.cluster.pictures(), self.tellers) == []

    def check_holders(self) -> None:
        """Whoever has a slot from 0 to the service's backups holds a share, and nobody else."""
        for process in self.cluster.living():
            member = process.driver.member
            index = member.table.rows[PARTITION].index_of(member.me)
            assert (share_of(member.picture, PARTITION) is not None) == (0 <= index <= self.backups), index


@pytest.mark.rule("core/W-1", "core/W-2")
@pytest.mark.covering(1)
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("backups", [0, 1, 2])
def test_committed(name: str, backups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    form = FORMS[name]
    play = Play(form, backups, monkeypatch)
    acknowledged: list[int] = []
    play.at_completion(lambda: acknowledged.append(play.acknowledged()))
    before = play.acknowledged()
    play.wish(form.target)
    play.reach(form.target)
    play.wait(0.1)
    assert acknowledged, "nobody was filled"
    if form.destination == form.target[0] or form.told[form.destination][2] <= backups:
        assert acknowledged[0] > before, "updates are to go on while the content travels"
    for letter in "ABCD":
        wanted = play.expected(letter, "commit") if letter in form.told else []
        assert play.heard(letter) == wanted, letter
    play.end()


FAILURES = [("crash", 1), ("isolation", 0), ("isolation", 1), ("isolation", 2)]


@pytest.mark.rule("core/W-1", "core/W-4")
@pytest.mark.covering(1)
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(("failure", "backups"), FAILURES)
def test_rolled_back(name: str, failure: str, backups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    form = FORMS[name]
    play = Play(form, backups, monkeypatch)
    destination = play.by_letter[form.destination]

    def fail() -> None:
        for teller in play.tellers:
            teller.think_ns = 50 * MILLISECOND
        if failure == "crash":
            destination.crash()
        else:
            play.isolate(destination)
        play.wished = tuple(
            None if slot == play.uuid(form.destination) else slot
            for slot in (None if letter == "-" else play.uuid(letter) for letter in form.start)
        )

    play.at_completion(fail)
    play.wish(form.target)
    play.world.run_until(
        play.world.now_ns + 30 * SECOND, stop=lambda: play.master.driver.member.migrations.failed > 0
    )
    play.wait(2)
    assert play.row(play.master) == form.start.replace(form.destination, "-")
    assert play.master.driver.member.migrations.failed == 1
    play.heal()
    play.reach(form.start.replace(form.destination, "-"))
    play.wait(1)
    for letter in "ABCD":
        heard = play.heard(letter)
        if letter == form.destination:
            _check_failed_destination(play, heard, failure)
        elif letter == form.source and form.start[0] == letter:
            assert heard == play.expected(letter, "rollback")
        else:
            assert heard == [], "who takes no part in the copying hears of a row only"
    play.end()


def _check_failed_destination(play: Play, heard: list[tuple[str, MigrationEvent]], failure: str) -> None:
    """It dies with the migration under way, or is told that it is rolled back when it hears of its removal."""
    wanted = play.expected(play.form.destination, "rollback")
    if failure == "crash":
        assert heard == wanted[:1]
        return
    current = play.form.told[play.form.destination][1]
    if current >= 0:
        # The slot that it had is not its own any more, either.
        gone = MigrationEvent(PARTITION, S, current, -1)
        wanted += [("before", gone), ("commit", gone)]
    assert heard == wanted


@pytest.mark.parametrize(
    "name", sampled(["MOVE backup", "COPY", "SHIFT UP over a backup", "SHIFT UP into an empty slot"], 4)
)
def test_an_owner_that_dies_while_it_supplies(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    form = FORMS[name]
    play = Play(form, 2, monkeypatch)

    def fail() -> None:
        for teller in play.tellers:
            teller.think_ns = 50 * MILLISECOND
        play.by_letter["A"].crash()
        play.wished = ()

    # Who holds a colder replica already is sent only what it has missed: that is one chunk.
    chunks = 1 if form.kind is MigrationKind.SHIFT_UP else 3
    play.when_filled(lambda staged: staged.sequence >= chunks, fail)
    play.wish(form.target)
    play.wait(15)
    assert play.by_letter["A"].dead
    assert play.heard(form.destination)[:2] == play.expected(form.destination, "rollback")
    play.end()


# -- members that were removed though alive


@pytest.mark.rule("core/W-3")
def test_a_source_removed_though_alive_rolls_back_and_hears_anew_what_became_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    form = FORMS["MOVE owner"]
    play = Play(form, 1, monkeypatch)
    source = play.by_letter["A"]

    def fail() -> None:
        play.isolate(source)
        play.wished = ()

    play.at_completion(fail)
    play.wish(form.target)
    play.wait(15)
    assert play.row(play.master)[0] == "B", "the backup is promoted"
    promoted = MigrationEvent(PARTITION, D, 1, 0)
    assert play.heard("B")[:2] == [("before", promoted), ("commit", promoted)]
    play.heal()
    play.end()
    gone = MigrationEvent(PARTITION, S, 0, -1)
    assert play.heard("A")[:4] == [("before", gone), ("rollback", gone), ("before", gone), ("commit", gone)]


@pytest.mark.rule("core/W-3")
def test_a_destination_removed_though_alive_hears_anew_that_it_was_committed_after_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    form = Form(MigrationKind.MOVE, "A", "D", {"A": (S, 0, -1), "D": (D, -1, 0)})
    play = Play(form, 0, monkeypatch, map_backups=0)
    destination, master = play.by_letter["D"], play.master.driver.member

    def assignment_changed() -> None:
        # The master has applied the row, and has not said so yet.
        if play.row(play.master) == "D":
            play.isolate(destination)

    unwatch = play.master.driver.callers.watch(assignment_changed)
    play.wish("D")
    play.wait(10)
    unwatch()
    assert play.row(play.master) == "D"
    assert destination.driver.member.me not in {info.uuid for info in master.membership.members()}
    wanted = play.expected("D", "commit")
    assert play.heard("D") == wanted[:1]
    assert play.heard("A") == play.expected("A", "commit")
    play.heal()
    play.reach("D")
    assert play.heard("D") == [*play.expected("D", "rollback"), *wanted]
    play.end()


# -- what is no migration


@pytest.mark.rule("core/W-5")
def test_nobody_is_told_of_the_first_assignment() -> None:
    stage = Stage(1, services=lambda: [Tally(1)])
    member = stage.processes[0].driver.member
    assert [share_of(member.picture, partition) is not None for partition in range(7)] == [True] * 7
    assert tally_of(member.picture).heard == []


@pytest.mark.parametrize(
    ("here", "there", "told"),
    [
        ([Tally(1)], [], "this cluster runs the service 'tally', you do not"),
        ([], [Tally(1)], "you run the service 'tally', this cluster does not"),
        ([Tally(1)], [Tally(2)], "the service 'tally' has 1 backups in this cluster, yours has 2"),
    ],
)
def test_a_member_with_other_services_is_not_admitted(
    here: list[Tally], there: list[Tally], told: str
) -> None:
    stage = Stage(1, spare=1, services=lambda: here)
    stage.cluster.settings = with_services(settings(), there)
    stage.cluster.services = lambda: there
    stranger = stage.cluster.start(1)
    stage.wait(5)
    assert stranger.driver.member.membership.refusal == f"{told}; all members need the same ones"


def test_a_backup_takes_updates_in_their_order_and_each_once() -> None:
    me, owner = MemberId("me"), MemberId("owner")
    services = [Tally(1)]
    rows = [Assignment(5, (owner, me))]
    copies = LocalReplicas(
        me, with_services(settings(), services), Outbox(), rows, Log(Outbox(), on=False), services
    )
    copy = copies.held[0] = PartitionCopy(0, 0)
    copies.services.furnish(copy, 1)
    held = copy.services[part_name("tally")]
    for counter in (2, 1, 1, 3):
        record = Record(held.name, counter, Change.CALL, b"", b"%d" % counter)
        copies.on_replicate(owner, Replicate([counter], [Section(0, 5, [record])]))
    assert isinstance(held.state.share, TallyShare)
    assert held.state.share.told == [1, 2, 3]


# -- whatever comes


@pytest.mark.parametrize("seed", sampled([40_004, *range(40_000, 40_004), *range(40_005, 40_010)], 10))
def test_nothing_of_it_is_lost_or_doubled_whatever_fails(seed: int) -> None:
    assert campaign(seed) == []


@pytest.mark.parametrize(("rule", "seed"), [("all-ack", 40_013), ("record-order", 40_000)])
def test_without_a_rule_the_judges_of_the_tally_find_the_harm(rule: str, seed: int) -> None:
    with ablated(rule):
        assert any(problem.startswith("partition ") for problem in campaign(seed))


def campaign(seed: int) -> list[str]:
    """A run of the ordinary faults with a tally beside the maps: what is wrong when they have ended."""
    world = World(seed, None)
    draw = random.Random(f"{seed}/shape")
    hosts, backups = draw.choice([3, 4, 5]), draw.choice([1, 2])
    base = simulated_settings(1, draw.choice([3, 7]), chunk_bytes=draw.choice([64, 1024]))
    cluster = Cluster(world, base, hosts, lambda: [Tally(backups)])
    cluster.start(0, bootstrap=True)
    for index in range(1, hosts):
        world.after(draw.randint(0, 2 * SECOND), partial(cluster.start, index))
    partitions = range(base.partitions.count)
    tellers = [Teller(n, world, cluster, partitions, 30 * MILLISECOND) for n in range(4)]
    for teller in tellers:
        teller.start()
    faults = Faults(seed, world, cluster, 25 * SECOND)
    faults.start()
    world.run_until(25 * SECOND)
    faults.end()
    world.run_until(world.now_ns + 12 * SECOND)
    for teller in tellers:
        teller.running = False
    world.run_until(
        world.now_ns + 180 * SECOND,
        stop=lambda: cluster.settled() and not any(teller.waiting for teller in tellers),
    )
    if world.failures:
        return world.failures
    assert sum(teller.acknowledged for teller in tellers) > 100
    members = cluster.pictures()
    return convergence.judge(members) or tally.judge(members, tellers)
