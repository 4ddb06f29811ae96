"""A queue as a service in the simulated world: each item is taken once and in its order, and who waits is answered."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

import pytest
from tests.core.operations.queues import NAME, Queue, QueueShare
from tests.lab.sim.stage import Stage
from tests.sampled_cases import sampled

from holdfast.core.member import Member
from holdfast.core.model.decisions import Wait
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.object_names import part_name
from holdfast.core.model.operations import EntryEvent, EventKind, Op, Outcome, Request, Status
from holdfast.core.model.sync_request import How
from holdfast_lab.check import convergence
from holdfast_lab.sim.ablations.switching import ablated
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.cluster import Cluster, simulated_settings
from holdfast_lab.sim.faults import Faults
from holdfast_lab.sim.world import Process, World


class Call:
    """One call of a queue, and what came of it."""

    def __init__(self, partition: int, update: bytes, now_ns: int) -> None:
        self.partition = partition
        self.update = update
        self.began_ns = now_ns
        self.ended_ns = 0
        """0: it was not answered."""
        self.outcome: Outcome | None = None

    @property
    def known(self) -> bytes | None:
        """What it was answered, if that is known."""
        if self.outcome is None or self.outcome.status is not Status.OK:
            return None
        assert isinstance(self.outcome.value, bytes), "there is such a service everywhere"
        return self.outcome.value


class Caller:
    """Offers and takes, one call after the other."""

    def __init__(self, index: int, world: World, cluster: Cluster, partitions: Sequence[int]) -> None:
        self.index = index
        self.world = world
        self.cluster = cluster
        self.partitions = partitions
        self.random = random.Random(f"{world.random.random()}/caller {index}")
        self.running = True
        self.calls: list[Call] = []

    def start(self) -> None:
        self.world.after(self.random.randint(0, 20 * MILLISECOND), self._next)

    def _next(self) -> None:
        living = self.cluster.living()
        if not self.running:
            return
        if not living:
            self.world.after(SECOND, self._next)
            return
        offers = self.random.random() < 0.5
        update = (
            b"+%d.%d" % (self.index, len(self.calls))
            if offers
            else b"-%d" % self.random.choice([0, 50, 2000])
        )
        call = Call(self.random.choice(self.partitions), update, self.world.now_ns)
        self.calls.append(call)
        process = self.random.choice(living)
        begin(self.world, process, call, partial(self._finish, call))
        self.world.after(20 * SECOND, partial(self._finish, call, None))

    def _finish(self, call: Call, outcome: Outcome | None) -> None:
        if call is not self.calls[-1] or call.ended_ns:
            return
        call.ended_ns = self.world.now_ns
        call.outcome = outcome
        self.world.after(self.random.randint(MILLISECOND, 30 * MILLISECOND), self._next)

    @property
    def waiting(self) -> bool:
        return bool(self.calls) and not self.calls[-1].ended_ns


def begin(world: World, process: Process, call: Call, done: Callable[[Outcome], None]) -> None:
    """Make this call through this member."""
    request = Request(Op.CALL, NAME, [call.partition], value=call.update)

    def answered(outcome: Outcome) -> None:
        if not process.dead:
            world.after(MILLISECOND, partial(done, outcome))

    process.whenever_awake(lambda: process.step(partial(process.driver.execute, request, answered)))


# -- the judge


def share_of(member: Member, partition: int) -> QueueShare | None:
    copy = member.copies.held.get(partition)
    held = copy.services.get(part_name(NAME)) if copy is not None else None
    if held is None:
        return None
    assert isinstance(held.state.share, QueueShare)
    return held.state.share


def judge(members: Sequence[Member], calls: Sequence[Call]) -> list[str]:
    """What is wrong with the queues of a cluster at rest, in words."""
    problems: list[str] = []
    for partition, row in enumerate(members[0].table.rows):
        owner = next(member for member in members if member.me == row.owner)
        share = share_of(owner, partition)
        assert share is not None
        for member in members:
            other = share_of(member, partition)
            if other is not None and vars(other) != vars(share):
                problems.append(
                    f"partition {partition}: index {row.index_of(member.me)} differs from the owner"
                )
        here = [call for call in calls if call.partition == partition]
        problems += [f"partition {partition}: {what}" for what in _judge_queue(share, here)]
    return problems


def _judge_queue(share: QueueShare, calls: Sequence[Call]) -> list[str]:
    problems: list[str] = []
    order = [*share.taken, *(item for _, item in share.items)]
    place = {item: at for at, item in enumerate(order)}
    if len(place) != len(order):
        problems.append("an item is there twice")
    offers = {call.update[1:]: call for call in calls if call.update.startswith(b"+")}
    for item, call in offers.items():
        if call.known is not None and item not in place:
            problems.append(f"{item!r} was acknowledged, and is lost")
        elif call.known is not None and call.known != b"%d" % (place[item] + 1):
            problems.append(f"{item!r} has number {place[item] + 1}, and {call.known!r} was answered")
        refused = call.outcome is not None and call.outcome.status not in (Status.OK, Status.UNKNOWN)
        if refused and item in place:
            problems.append(f"{item!r} was refused, and is there")
    problems += [f"{item!r} was never offered" for item in order if item not in offers]
    takes = [call for call in calls if call.update.startswith(b"-") and call.known is not None]
    got = [call for call in takes if call.known]
    for call in got:
        if place.get(call.known or b"", len(order)) >= len(share.taken):
            problems.append(f"{call.known!r} was taken, and is there again, or gone")
    if len({call.known for call in got}) != len(got):
        problems.append("an item was taken twice")
    got.sort(key=lambda call: place.get(call.known or b"", 0))
    latest_began = 0
    for call in got:
        if call.ended_ns < latest_began:
            problems.append(f"{call.known!r} was taken before one that is older")
        latest_began = max(latest_began, call.began_ns)
    for call in takes:
        if call.known == b"":
            left = [item for item in order[len(share.taken) :] if _known_before(offers[item], call)]
            problems += [f"{item!r} was there when nothing was found" for item in left]
    return problems


def _known_before(offer: Call, call: Call) -> bool:
    return offer.known is not None and offer.ended_ns < call.began_ns


# -- whatever fails


def campaign(seed: int, *, power_cuts: int = 0) -> list[str]:
    """A run of the ordinary faults with queues beside the maps: what is wrong when they have ended."""
    world = World(seed, None)
    draw = random.Random(f"{seed}/shape")
    hosts, backups = draw.choice([3, 4]), draw.choice([1, 2])
    journal = "sync" if power_cuts else "off"
    base = simulated_settings(1, draw.choice([3, 7]), chunk_bytes=draw.choice([64, 1024]), journal=journal)
    cluster = Cluster(world, base, hosts, lambda: [Queue(backups, journal)])
    cluster.start(0, bootstrap=True)
    for index in range(1, hosts):
        world.after(draw.randint(0, 2 * SECOND), partial(cluster.start, index))
    callers = [Caller(n, world, cluster, range(base.partitions.count)) for n in range(5)]
    for caller in callers:
        caller.start()
    faults = Faults(seed, world, cluster, 15 * SECOND, power_cuts=power_cuts)
    faults.start()
    world.run_until(15 * SECOND)
    if power_cuts:
        world.run_until(world.now_ns + 60 * SECOND, stop=lambda: not faults.power_cuts_due)
    faults.end()
    world.run_until(world.now_ns + 12 * SECOND)
    for caller in callers:
        caller.running = False
    world.run_until(
        world.now_ns + 180 * SECOND,
        stop=lambda: cluster.settled() and not any(caller.waiting for caller in callers),
    )
    if world.failures:
        return world.failures
    calls = [call for caller in callers for call in caller.calls]
    assert sum(bool(call.known) for call in calls) > 100
    members = cluster.members()
    return convergence.judge(cluster.pictures()) or judge(members, calls)


@pytest.mark.parametrize("seed", sampled([50_003, 50_000, 50_001, 50_002, 50_004, 50_005], 6))
def test_each_item_is_taken_once_and_in_its_order_whatever_fails(seed: int) -> None:
    assert campaign(seed) == []


@pytest.mark.parametrize("seed", sampled([51_002, 51_001, 51_000, 51_003], 2))
def test_what_is_written_down_is_there_after_the_power_failed_everywhere(seed: int) -> None:
    assert campaign(seed, power_cuts=2) == []


@pytest.mark.parametrize("rule", ["all-ack", "apply-once"])
def test_without_a_rule_the_judge_finds_the_harm(rule: str) -> None:
    with ablated(rule):
        assert any(campaign(seed) for seed in (50_003, 50_000, 50_001, 50_002))


# -- one by one


class Calling(Stage):
    """Three members with a queue, of which the calls of one partition are watched."""

    def __init__(self, journal: str = "off", backups: int = 1) -> None:
        base = simulated_settings(min(backups, 1), 3, journal=journal)
        super().__init__(3, settings=base, services=lambda: [Queue(backups, journal)])
        self.calls: list[Call] = []

    def call(self, update: bytes, *, at_owner: bool = True) -> Call:
        owner = next(p for p in self.cluster.living() if p.driver.member.lane.leading[0] is not None)
        others = [process for process in self.cluster.living() if process is not owner]
        call = Call(0, update, self.world.now_ns)

        def done(outcome: Outcome) -> None:
            call.outcome, call.ended_ns = outcome, self.world.now_ns

        begin(self.world, owner if at_owner else others[-1], call, done)
        self.calls.append(call)
        return call


@pytest.mark.rule("routing/R-11")
@pytest.mark.parametrize("at_owner", [True, False])
def test_who_waits_is_answered_when_something_is_offered(at_owner: bool) -> None:
    stage = Calling()
    takes = [stage.call(b"-20000", at_owner=at_owner) for _ in range(2)]
    stage.wait(1)
    assert not any(take.ended_ns for take in takes)
    stage.call(b"+a")
    stage.call(b"+b")
    stage.wait(1)
    assert [take.known for take in takes] == [b"a", b"b"], "in the order in which they came"
    stage.rest()


@pytest.mark.rule("routing/R-11")
@pytest.mark.parametrize("at_owner", [True, False])
def test_who_waits_for_nothing_hears_so_at_its_time(at_owner: bool) -> None:
    stage = Calling()
    take = stage.call(b"-3000", at_owner=at_owner)
    stage.wait(2.9)
    assert not take.ended_ns
    stage.wait(0.5)
    assert take.known == b""
    stage.rest()


def lane_write(process: Process, key: str) -> None:
    """What a session of a client does, past the router."""
    driver = process.driver

    def write() -> None:
        driver.enter()
        copy = driver.member.lane.serving[0]
        assert copy is not None
        driver.member.lane.set(copy, "map", wire_key(key), b"v", 0, 0, 0)
        driver.member.lane.close_batch(lambda known: None)
        driver.leave_lane()

    process.step(write)


def router_write(process: Process, key: str) -> None:
    """What another member, or a rarer operation, does."""
    request = Request(Op.SET, "map", [0], wire_key(key), b"v")
    process.step(partial(process.driver.execute, request, lambda outcome: None))


@pytest.mark.covering(1)
@pytest.mark.rule("routing/R-11")
@pytest.mark.parametrize("backups", [0, 1])
@pytest.mark.parametrize("write", [lane_write, router_write])
def test_who_waits_is_asked_again_when_a_map_of_the_partition_changes(
    monkeypatch: pytest.MonkeyPatch, write: Callable[[Process, str], None], backups: int
) -> None:
    """Also when the first map comes into being, and at once: without backups no message follows from the write."""
    asked: list[int] = []
    decide = QueueShare.decide

    def watched(share: QueueShare, update: bytes) -> tuple[bytes, bytes | None] | Wait:
        asked.append(stage.world.now_ns)
        return decide(share, update)

    stage = Calling(backups=backups)
    owner = next(p for p in stage.cluster.living() if p.driver.member.lane.leading[0] is not None)
    lane = owner.driver.member.lane
    stage.wait(1)
    monkeypatch.setattr(QueueShare, "decide", watched)
    take = stage.call(b"-9000")
    stage.wait(1)
    for number, key in enumerate(["a", "b", "a"], 2):
        before_ns = stage.world.now_ns
        write(owner, key)
        stage.wait(1)
        assert len(asked) == number, "asked again after each change, and after nothing else"
        assert asked[-1] - before_ns < 10 * MILLISECOND
        assert list(lane.awaited) == [0]
    stage.wait(10)
    assert take.known == b""
    write(owner, "c")
    stage.wait(1)
    assert not lane.awaited, "nobody waits: nothing is watched any more after the next change"
    stage.rest()


def test_listeners_hear_of_what_a_service_does_on_any_member() -> None:
    stage = Calling()
    heard: list[list[EntryEvent]] = []
    ends: list[Callable[[], None]] = []
    for process in stage.cluster.living():
        mine: list[EntryEvent] = []
        heard.append(mine)
        listen = process.driver.callers.listen
        process.step(
            lambda listen=listen, mine=mine: ends.append(
                listen(part_name(NAME), key=None, local_only=False, on_event=mine.append)
            )
        )
    stage.wait(1)
    for update in (b"+a", b"+b", b"-0", b"+c"):
        stage.call(update)
        stage.wait(0.2)
    for mine in heard:
        assert [event.value for event in mine] == [b"+a", b"+b", b"!1", b"+c"]
        assert {(event.kind, event.map) for event in mine} == {(EventKind.UPDATED, part_name(NAME))}
    for process, end in zip(stage.cluster.living(), ends, strict=True):
        process.step(end)
    stage.wait(1)
    stage.call(b"+d")
    stage.wait(1)
    assert [len(mine) for mine in heard] == [4] * 3
    stage.rest()


def test_who_waits_at_a_member_that_dies_waits_at_the_next_primary() -> None:
    stage = Calling()
    take = stage.call(b"-25000", at_owner=False)
    stage.wait(1)
    owner = next(p for p in stage.cluster.living() if p.driver.member.lane.leading[0] is not None)
    owner.crash()
    stage.wait(8)
    assert not take.ended_ns
    stage.call(b"+a")
    stage.wait(2)
    assert take.known == b"a"


def test_who_comes_back_with_its_files_is_sent_only_the_updates_that_it_has_missed() -> None:
    stage = Calling("sync", 2)
    for number in range(20):
        stage.call(b"+before %d" % number)
    stage.wait(2)
    rows = stage.cluster.members()[0].table.rows
    backup = next(p for p in stage.cluster.living() if p.driver.member.me == rows[0].replicas[1])
    host = stage.cluster.addresses.index(backup.address)
    backup.crash()
    for number in range(20):
        stage.call(b"+after %d" % number)
    stage.wait(1)
    stage.cluster.start(host)
    stage.rest(120)
    fills = [member.source.selection.fills for member in stage.cluster.members()]
    assert sum(one[How.HISTORY] for one in fills) > 0, "nothing but queues was ever written"
    assert judge(stage.cluster.members(), stage.calls) == []


def test_a_queue_is_there_after_the_power_has_failed_everywhere() -> None:
    stage = Calling("sync")
    for item in (b"+a", b"+b", b"+c"):
        stage.call(item)
        stage.wait(0.1)
    assert stage.call(b"-0").known is None
    stage.wait(1)
    assert stage.calls[-1].known == b"a"
    stage.cluster.power_cut_everywhere()
    for index in range(3):
        stage.cluster.start(index)
    stage.rest()
    takes = [stage.call(b"-0") for _ in range(3)]
    stage.wait(2)
    assert [take.known for take in takes] == [b"b", b"c", b""]
