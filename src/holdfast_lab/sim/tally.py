"""A second service, whose state shows every number it was sent, and its writers."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Sequence
from functools import partial

from holdfast.core.hosted_services import MigrationEvent
from holdfast.core.member_view import MemberView
from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast.core.model.object_names import part_name
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.store.service_state import ServiceState
from holdfast_lab.sim.cluster import Cluster
from holdfast_lab.sim.world import Process, World

NAME = "tally"
PIECE = 8
"""Few, so that a supply has many pieces."""


class TallyShare:
    def __init__(self) -> None:
        self.count = 0
        self.total = 0
        self.told: list[int] = []

    def apply(self, update: bytes) -> bytes:
        self.count += 1
        self.total += int(update)
        self.told.append(int(update))
        return b"%d" % self.count

    def ask(self, question: bytes) -> bytes:
        return b"%d" % {b"count": self.count, b"total": self.total}.get(question, -1)

    def supply(self) -> Iterable[bytes]:
        state = [self.count, self.total, *self.told]
        return (
            b",".join(b"%d" % number for number in state[start : start + PIECE])
            for start in range(0, len(state), PIECE)
        )

    def receive(self, piece: bytes) -> None:
        numbers = [int(number) for number in piece.split(b",")]
        if not self.count:
            self.count, self.total, *numbers = numbers
        self.told += numbers


class Tally:
    name = NAME

    def __init__(self, backups: int) -> None:
        self.backups = backups
        self.heard: list[tuple[str, MigrationEvent]] = []

    def open(self, partition: int) -> TallyShare:
        return TallyShare()

    def before(self, event: MigrationEvent) -> None:
        self.heard.append(("before", event))

    def commit(self, event: MigrationEvent) -> None:
        self.heard.append(("commit", event))

    def rollback(self, event: MigrationEvent) -> None:
        self.heard.append(("rollback", event))


def tally_of(member: MemberView) -> Tally:
    service = member.services()[0]
    assert isinstance(service, Tally)
    return service


def share_of(member: MemberView, partition: int) -> TallyShare | None:
    copy = member.held.get(partition)
    held = copy.services.get(part_name(NAME)) if copy is not None else None
    if held is None:
        return None
    assert isinstance(held.state, ServiceState) and isinstance(held.state.share, TallyShare)
    return held.state.share


class Teller:
    def __init__(
        self, index: int, world: World, cluster: Cluster, partitions: Sequence[int], think_ns: int
    ) -> None:
        self.index = index
        self.world = world
        self.cluster = cluster
        self.partitions = partitions
        self.think_ns = think_ns
        self.random = random.Random(f"{world.random.random()}/teller {index}")
        self.running = True
        self.waiting = False
        self.told: dict[int, tuple[int, Status | None]] = {}
        self.answers: dict[int, list[int]] = {}
        self._number = index

    def start(self) -> None:
        self.world.after(self.random.randint(0, self.think_ns), self._next)

    def _next(self) -> None:
        living = self.cluster.living()
        if not self.running:
            return
        if not living:
            self.world.after(SECOND, self._next)
            return
        self._number += 10
        number = self._number
        partition = self.random.choice(self.partitions)
        self.told[number] = (partition, None)
        self.waiting = True
        request = Request(Op.CALL, NAME, [partition], b"", b"%d" % number)
        process = self.random.choice(living)
        low, high = self.world.weather.delay_ns

        def arrive() -> None:
            process.whenever_awake(lambda: process.step(partial(process.driver.execute, request, done)))

        def done(outcome: Outcome) -> None:
            if not process.dead:
                self.world.after(self.random.randint(low, high), partial(self._finish, number, outcome))

        self.world.after(self.random.randint(low, high), arrive)
        self.world.after(20 * SECOND, partial(self._finish, number, None))

    def _finish(self, number: int, outcome: Outcome | None) -> None:
        if number != self._number or not self.waiting:
            return
        self.waiting = False
        if outcome is not None:
            partition, _ = self.told[number]
            self.told[number] = (partition, outcome.status)
            if outcome.status is Status.OK:
                assert isinstance(outcome.value, bytes), "the service did not answer"
                self.answers.setdefault(partition, []).append(int(outcome.value))
        self.world.after(self.random.randint(self.think_ns // 2, self.think_ns), self._next)

    @property
    def acknowledged(self) -> int:
        return sum(len(counts) for counts in self.answers.values())


# -- judges


def stop(tellers: Sequence[Teller]) -> None:
    for teller in tellers:
        teller.running = False
    world = tellers[0].world
    world.run_until(world.now_ns + 30 * SECOND, stop=lambda: not any(teller.waiting for teller in tellers))
    assert not any(teller.waiting for teller in tellers)


def judge(members: Sequence[MemberView], tellers: Sequence[Teller], lost: Collection[int] = ()) -> list[str]:
    """Errors in the tally of a cluster at rest, with one view and table. `lost`: partitions that have begun
    again.
    """
    problems: list[str] = []
    for partition in range(len(members[0].assignments)):
        row = members[0].assignment(partition)
        owner = next(member for member in members if member.me == row.owner)
        primary = share_of(owner, partition)
        if primary is None:
            problems.append(f"partition {partition}: its owner has no share")
            continue
        for member in members:
            index, share = row.index_of(member.me), share_of(member, partition)
            if (share is not None) != (0 <= index <= tally_of(member).backups):
                problems.append(f"partition {partition}: index {index} holds {share and share.count}")
            elif share is not None and vars(share) != vars(primary):
                problems.append(f"partition {partition}: index {index} differs from the owner")
        if partition not in lost:
            problems += _judge_numbers(primary, partition, tellers)
    for member in members:
        problems += judge_order(tally_of(member).heard)
        if member.open_service_migrations():
            problems.append(f"{member.me} waits for the end of {member.open_service_migrations()}")
    return problems


def _judge_numbers(share: TallyShare, partition: int, tellers: Sequence[Teller]) -> list[str]:
    """Every acknowledged number is there once; none twice, none that was refused; count and sum fit."""
    problems: list[str] = []
    mine = {
        number: status
        for teller in tellers
        for number, (at, status) in teller.told.items()
        if at == partition
    }
    for number in sorted({*share.told, *mine}):
        times = share.told.count(number)
        status = mine.get(number, Status.MOVED)
        if times > 1 or (status is Status.OK and not times):
            problems.append(
                f"partition {partition}: {number} ({'-' if status is None else status.name}) is there {times} times"
            )
        if times and status not in (Status.OK, Status.UNKNOWN, None):
            problems.append(f"partition {partition}: {number} was refused, and is there")
    counts = [count for teller in tellers for count in teller.answers.get(partition, [])]
    if len(set(counts)) != len(counts):
        problems.append(f"partition {partition}: two updates were answered alike")
    if (share.count, share.total) != (len(share.told), sum(share.told)):
        problems.append(f"partition {partition}: count or sum is wrong")
    return problems


def judge_order(heard: Sequence[tuple[str, MigrationEvent]]) -> list[str]:
    """Each `before` is followed by one commit or rollback of the same event, before the next one of the
    partition.
    """
    problems: list[str] = []
    under_way: dict[int, MigrationEvent] = {}
    for what, event in heard:
        if what == "before":
            if event.partition in under_way:
                problems.append(f"{event} began before {under_way[event.partition]} had ended")
            under_way[event.partition] = event
        elif under_way.pop(event.partition, None) != event:
            problems.append(f"{what} of {event} without its beginning")
    return problems + [f"{event} never ended" for event in under_way.values()]


def holders(processes: Sequence[Process], partition: int) -> dict[int, int]:
    found: dict[int, int] = {}
    for process in processes:
        member = process.picture
        share = share_of(member, partition)
        if share is not None and not process.dead:
            found[member.assignment(partition).index_of(member.me)] = share.count
    return found


THINK_NS = 2 * MILLISECOND
