"""Members reduced to their membership and their table, for tests that drive these by messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from holdfast.config import Settings
from holdfast.core.effects import Effect, Send, SetTimer
from holdfast.core.journal.log import Log
from holdfast.core.membership.identity import Identity, Timing
from holdfast.core.membership.membership import Membership
from holdfast.core.messages import (
    Accept,
    Message,
    TableCheck,
    TableCommit,
    TableDiffers,
    TableFetch,
    TableOffer,
    TableReport,
    TableStored,
)
from holdfast.core.model import notices as n
from holdfast.core.model.ids import SECOND, MemberId
from holdfast.core.model.migration import Migration
from holdfast.core.model.partition_table import Assignment, Table
from holdfast.core.model.views import MemberInfo, View
from holdfast.core.outbox import Outbox
from holdfast.core.partition_table.table_replication import TableReplication

A, B, C, D = MemberId("a"), MemberId("b"), MemberId("c"), MemberId("d")
PORTS = {name: 5700 + number for number, name in enumerate("abcdefgh")}


def info(name: MemberId, life: int = 1, **more: object) -> MemberInfo:
    """A member as a view lists it."""
    return MemberInfo(name, life, "host", PORTS[name], "host", 0, name, **more)  # type: ignore[arg-type]


def view_of(number: int, *members: MemberId, **more: object) -> View:
    """A view of members in their first life, oldest first."""
    return View(number, "id", [info(member) for member in members], **more)  # type: ignore[arg-type]


class Seat:
    """The membership and the table replication of one member, and whatever they tell."""

    def __init__(
        self,
        name: MemberId,
        partitions: int = 1,
        *,
        majority: bool = True,
    ) -> None:
        self.name = name
        self.out = Outbox(self)
        self.applied: list[tuple[int, Assignment, Assignment]] = []
        """Partition, the row before, and the row."""
        self.committed: list[list[int]] = []
        self.gathered: list[tuple[list[tuple[Migration, int]], set[MemberId]]] = []
        self.current = 0
        """How often the table replication has become current."""
        self.active: list[tuple[Migration, int]] = []
        self.then: Callable[[], None] = lambda: None
        """What it does when the newest table is known."""
        self.parting = False
        identity = Identity(info(name), "cluster", {}, (), False, "id")
        self.membership = Membership(
            identity,
            Timing(SECOND, 5 * SECOND),
            self.out,
            self,
            majority=majority,
        )
        self.table = Table(partitions)
        self.journal = Log(self.out, on=False)
        self.table_replication = TableReplication(
            self.table, Settings(), self.membership, self.out, self.journal, self
        )

    # -- what its machines ask of those above them

    def can_leave(self, member: MemberId) -> bool:
        return self.parting

    def waits_for_copies(self) -> bool:
        return False

    def may_demote(self, member: MemberId) -> bool:
        return False

    def unsafe_reason(self) -> str:
        return ""

    def rounds(self) -> tuple[int, int]:
        return self.table_replication.rounds()

    def known_assignments(self) -> list[tuple[int, Assignment]]:
        return self.table_replication.known()

    def is_assigned(self) -> bool:
        return self.table.assigned

    def copies_proven(self) -> bool:
        return False

    def active_migrations(self) -> list[tuple[Migration, int]]:
        return self.active

    # -- what its machines tell

    def on_notice(self, notice: n.Notice) -> None:
        match notice:
            case n.ViewInstalled():
                self.on_view(notice)
            case n.AssignmentChanged():
                self.applied.append((notice.partition, notice.old, notice.new))
            case n.RoundCommitted():
                self.on_committed(notice)
            case n.RoundDurable():
                self.table_replication.on_durable(notice)
            case n.TableGathered():
                self.on_gathered(notice)
            case n.TableCurrent():
                self.current += 1

    def on_view(self, notice: n.ViewInstalled) -> None:
        self.table_replication.on_view(notice)

    def on_committed(self, notice: n.RoundCommitted) -> None:
        self.committed.append(list(notice.partitions))

    def on_gathered(self, notice: n.TableGathered) -> None:
        self.gathered.append((list(notice.active), set(notice.staying)))
        self.table_replication.settle_events()
        self.then()

    def install(self, view: View) -> None:
        """A view is decided."""
        self.membership.install(view)

    def effects(self) -> list[Effect]:
        """What it wants to be done, since this was asked last."""
        return self.out.take()

    def sent(self) -> list[tuple[MemberId, Message]]:
        """Messages since this was asked last, and to whom."""
        return [(one.to, one.message) for one in self.effects() if isinstance(one, Send)]

    def timers(self) -> list[str]:
        """Timers since this was asked last."""
        return [one.name for one in self.effects() if isinstance(one, SetTimer)]

    def beat(self, member: MemberId, view: int, applied: int, known: int) -> None:
        """A member of the view says which rounds it knows."""
        self.table_replication.on_beat(n.BeatHeard(member, 1, view, applied, known))

    def seal(self, view: View) -> None:
        """Somebody has this member agree to a next view."""
        present = self.membership.view
        assert present is not None
        self.membership.agreement.on_accept(self.name, Accept(present.number, (9, self.name), view))

    def state(self) -> object:
        """What it knows and has done."""
        table_replication = self.table_replication
        return [
            table_replication.known(),
            table_replication.leftovers,
            table_replication.rounds(),
            table_replication.settled,
            self.applied,
        ]

    def hear(self, sender: MemberId, message: Message) -> None:
        """A message over the link from a member."""
        table_replication = self.table_replication
        match message:
            case TableOffer():
                table_replication.on_offer(sender, message)
            case TableStored():
                table_replication.on_stored(sender, message)
            case TableCommit():
                table_replication.on_commit(sender, message)
            case TableFetch():
                table_replication.on_fetch(sender, message)
            case TableReport():
                table_replication.on_report(sender, message)
            case TableCheck():
                table_replication.on_check(sender, message)
            case TableDiffers():
                table_replication.on_differs(sender, message)
            case _:
                raise AssertionError(message)


class Links:
    """Links between seats: each delivers in order, which of them next is up to the caller."""

    def __init__(self, *seats: Seat) -> None:
        self.seats = {seat.name: seat for seat in seats}
        self.under_way: dict[tuple[MemberId, MemberId], deque[Message]] = {}
        self.dead: set[MemberId] = set()

    def collect(self) -> None:
        """Put what the seats have sent on its way."""
        for seat in self.seats.values():
            for to, message in seat.sent():
                if not self.dead & {seat.name, to}:
                    self.under_way.setdefault((seat.name, to), deque()).append(message)

    def choices(self) -> list[tuple[MemberId, MemberId]]:
        """Links on which something is under way."""
        return sorted(link for link, messages in self.under_way.items() if messages)

    def deliver(self, link: tuple[MemberId, MemberId]) -> None:
        """The next message of this link arrives."""
        sender, to = link
        self.seats[to].hear(sender, self.under_way[link].popleft())
        self.collect()

    def crash(self, member: MemberId) -> None:
        """This member ends, and with it what it sent and was sent."""
        self.collect()
        self.dead.add(member)
        for link in self.under_way:
            if member in link:
                self.under_way[link].clear()

    def state(self) -> str:
        """All that what is to come depends on."""
        return repr(
            [
                sorted((link, list(messages)) for link, messages in self.under_way.items() if messages),
                [seat.state() for seat in self.seats.values()],
            ]
        )

    def settle(self) -> None:
        """Deliver everything."""
        self.collect()
        while links := self.choices():
            self.deliver(links[0])


class Picks:
    """Picks one of so many, again and again; each run picks otherwise than all before it."""

    def __init__(self) -> None:
        self._choices: list[list[int]] = []
        self._place = 0
        self._new = 0

    def __call__(self, options: int) -> int:
        """One of `options` numbers, from 0 on."""
        if self._place == len(self._choices):
            self._choices.append([0, options])
        self._place += 1
        return self._choices[self._place - 1][0]

    @property
    def fresh(self) -> bool:
        """Whether no run before has picked like this one so far."""
        return self._place >= self._new

    def further(self) -> bool:
        """Begin the next run; answers whether there is one."""
        choices = self._choices
        del choices[self._place :]
        while choices and choices[-1][0] + 1 == choices[-1][1]:
            choices.pop()
        if choices:
            choices[-1][0] += 1
        self._place, self._new = 0, len(choices)
        return bool(choices)


def every_order(run: Callable[[Picks], None]) -> int:
    """Call `run` until it has picked everything that there is to pick; answers how many ways there were."""
    picks = Picks()
    ways = 1
    run(picks)
    while picks.further():
        ways += 1
        run(picks)
    return ways
