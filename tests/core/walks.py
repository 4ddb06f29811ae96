"""Every state x every message, for the machines whose states are tables: what each message makes of each state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tests.core.migration.lead import Lead
from tests.core.primary_backup.test_primary_activation import B as BACKUP
from tests.core.primary_backup.test_primary_activation import C as OTHER_BACKUP
from tests.core.primary_backup.test_primary_activation import Office
from tests.core.seats import A, B, C, D, view_of
from tests.core.state_transfer import receiving
from tests.core.state_transfer.supplying import (
    MASTER,
    ME,
    NEW,
    OTHER,
    VIEW,
    Side,
    moving,
    near_its_end,
    request,
)
from tests.core.telling import assigned, gone, removed

from holdfast.config import PartitionSettings
from holdfast.core.effects import Checkpoint
from holdfast.core.events import HistoryRead
from holdfast.core.messages import (
    Enlisted,
    Filled,
    FillEnded,
    FillRefused,
    MigrationReady,
    MigrationRefused,
    TableStored,
)
from holdfast.core.migration.running_migrations import RUNNING, MigrationPhase, Running
from holdfast.core.model.lifecycle import Lifecycle
from holdfast.core.model.notices import PartitionDrained, ReplicaDiffers
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.sync_request import Base, Demand
from holdfast.core.model.views import ClusterState
from holdfast.core.primary_backup.primary_activation import LEADERSHIP, LeadershipPhase
from holdfast.core.primary_backup.staging_replica import STAGING, StagingPhase, StagingReplica
from holdfast.core.raft.configuration import Configuration
from holdfast.core.raft.group import Group
from holdfast.core.raft.raft_log import RaftLog
from holdfast.core.raft.raft_messages import RaftKind, RaftMessage, RaftSnapshot
from holdfast.core.raft.raft_state import RaftSettings
from holdfast.core.raft.reconfiguration import CHANGING, ChangeStage
from holdfast.core.state_transfer.source import DRAIN_NS
from holdfast.core.state_transfer.supply import SUPPLY, Supply, SupplyPhase


@dataclass
class Walk:
    """One machine in each of its states, and what it may be told there."""

    title: str
    table: Lifecycle[Any, Any]
    states: list[StrEnum]
    enter: Callable[[Any], Any]
    """Makes the machine, in this state."""
    state: Callable[[Any], StrEnum]
    messages: dict[str, Callable[[Any], None]]

    def outcomes(self) -> dict[str, list[StrEnum]]:
        """What each message makes of each state."""
        found: dict[str, list[StrEnum]] = {}
        for name, tell in self.messages.items():
            for state in self.states:
                machine = self.enter(state)
                assert self.state(machine) is state, (self.title, state)
                tell(machine)
                after = self.state(machine)
                assert after in self._reached(state), (name, state, after)
                found.setdefault(name, []).append(after)
        return found

    def _reached(self, state: StrEnum) -> set[StrEnum]:
        reached = {state}
        for _ in self.table.table:
            reached |= {after for (begin, _), after in self.table.table.items() if begin in reached}
        return reached

    def shown(self) -> str:
        """The same as a table in Markdown: only what changes something is named."""
        return shown(self.states, self.outcomes())


def shown(states: list[Any], outcomes: dict[str, list[Any]]) -> str:
    """A table in Markdown of what each message makes of each state; only what changes something is named."""
    rows = [
        [name, *("" if after is state else after.value for state, after in zip(states, afters, strict=True))]
        for name, afters in outcomes.items()
    ]
    lines = [" | ".join(row) for row in (["message", *states], ["---"] * (len(states) + 1), *rows)]
    return "\n".join(f"| {line} |" for line in lines)


# -- a supply


class Supplying:
    """A primary that supplies one partition with one entry, so far."""

    def __init__(self, phase: SupplyPhase) -> None:
        few = PartitionSettings(count=1, parallel_migrations=1)
        match phase:
            case SupplyPhase.QUEUED:
                self.side = Side(ME, OTHER, NEW, settings=few)
                self.side.source.bring_up_to_date(ReplicaDiffers(0, OTHER))
                self.side.source.bring_up_to_date(ReplicaDiffers(0, NEW))
            case SupplyPhase.CHOOSING:
                self.side = Side(ME, OTHER, journal=True, tail_bytes=0)
                for key in (b"a", b"b", b"c"):
                    self.side.write(key)
                self.side.source.on_request(MASTER, request())
                self.side.hold(self.side.fills()[0], demand=Demand(0, [Base("m", [(0, 0)], 1, 1)]))
            case SupplyPhase.STORING:
                self.side = Side(ME, OTHER)
                near_its_end(self.side)
            case SupplyPhase.DRAINING:
                self.side = Side(ME, OTHER)
                fill = moving(self.side, "content")
                self.side.write(b"b")
                self.side.hold(fill)
            case _:
                self.side = Side()
                until = {
                    SupplyPhase.OFFERED: "first",
                    SupplyPhase.HELD_UP: "first",
                    SupplyPhase.COPYING: "content",
                }
                fill = moving(self.side, until.get(phase, "last"))
                if phase is SupplyPhase.HELD_UP:
                    self.side.source.flow.flight += 1 << 40
                    self.side.hold(fill)
                elif phase in (SupplyPhase.ARRIVED, SupplyPhase.OVER):
                    self.side.hold(fill)
        self.side.sent()
        source = self.side.source
        self.supply: Supply = next(iter([*source.supplies.queue, *source.supplies.running.values()]))
        if phase is SupplyPhase.OVER:
            self.newer_row()

    def answer(self, *, ticket: int = 0, sequence: int = 0) -> None:
        one = self.supply
        answer = Filled(0, one.version, one.ticket + ticket, one.sequence + sequence, Demand(0, []))
        self.side.source.on_filled(one.to, answer)

    def refuse(self, *, ticket: int = 0) -> None:
        one = self.supply
        self.side.source.on_fill_refused(one.to, FillRefused(0, one.version, one.ticket + ticket, "no"))

    def newer_row(self) -> None:
        self.side.rows[0] = Assignment(8, (ME, None))
        self.side.source.on_assignment(assigned(0, self.side.rows[0]))

    def room(self) -> None:
        self.side.source.flow.flight = 0
        self.side.source._send_ready()

    def other_ends(self) -> None:
        for ticket in range(1, self.supply.ticket):
            self.side.source.on_fill_refused(OTHER, FillRefused(0, 5, ticket, "no"))

    def locks_stored(self) -> None:
        for _ in range(2):
            self.side.source.on_locks()

    def too_long(self) -> None:
        self.side.out.now_ns += DRAIN_NS + 1
        self.side.source.on_draining()


SUPPLYING = Walk(
    "a supply",
    SUPPLY,
    list(SupplyPhase),
    Supplying,
    lambda one: one.supply.phase,
    {
        "the answer to its last chunk": Supplying.answer,
        "an answer of an earlier supply": lambda one: one.answer(ticket=-1),
        "an answer to an earlier chunk": lambda one: one.answer(sequence=-1),
        "a refusal": Supplying.refuse,
        "a refusal of an earlier supply": lambda one: one.refuse(ticket=-1),
        "the journal's answer": lambda one: one.side.source.on_history(HistoryRead(1, None)),
        "another supply ends": Supplying.other_ends,
        "there is room on the way": Supplying.room,
        "all locks are stored": Supplying.locks_stored,
        "all writes are acknowledged": lambda one: one.side.source.on_drained(PartitionDrained(0)),
        "writes wait for too long": Supplying.too_long,
        "the master asks again": lambda one: one.side.source.on_request(MASTER, request(view=VIEW)),
        "a newer row": Supplying.newer_row,
        "its receiver is gone": lambda one: one.side.source.on_view(gone(one.supply.to)),
        "this member is removed": lambda one: one.side.source.on_view(removed()),
    },
)


# -- a staging replica


class Receiving:
    """A member that is filled, so far, with one partition that moves to it or that its row names it for."""

    def __init__(self, phase: StagingPhase, *, joining: bool) -> None:
        self.joining = joining
        row = (receiving.OWNER, receiving.OTHER) if joining else (receiving.OWNER, receiving.ME)
        self.side = receiving.Side(*row, journal=True)
        self.chunk(0)
        self.staged: StagingReplica = self.side.destination.staging[0]
        self.chunk(1)
        if phase is not StagingPhase.FILLING:
            self.chunk(2, last=True)
        if phase is StagingPhase.NO_ROOM:
            self.disk(well=False)
        if phase is StagingPhase.HELD or (phase is StagingPhase.OVER and not joining):
            self.disk(well=True)
        if phase is StagingPhase.OVER and joining:
            self.newer_row(receiving.OWNER)

    def chunk(self, sequence: int, *, last: bool = False, ticket: int = 2, sender: Any = None) -> None:
        content = [(b"key", b"one")] if sequence == 1 else []
        fill = receiving.chunk(sequence, 1, *content, last=last, ticket=ticket, joining=self.joining)
        self.side.tell(fill, sender or receiving.OWNER)

    def disk(self, *, well: bool) -> None:
        for effect in self.side.out.take():
            if isinstance(effect, Checkpoint):
                self.side.log.on_checkpoint(effect.ticket, well=well)

    def newer_row(self, *replicas: Any) -> None:
        old, self.side.rows[0] = self.side.rows[0], Assignment(7, replicas)
        self.side.destination._arrived(0, old)

    def off(self, ticket: int) -> None:
        self.side.destination.on_fill_ended(receiving.OWNER, FillEnded(0, 5, ticket, "no"))


def _receiving(title: str, states: list[StagingPhase], *, joining: bool) -> Walk:
    return Walk(
        title,
        STAGING,
        list(states),
        lambda phase: Receiving(phase, joining=joining),
        lambda one: one.staged.phase,
        {
            "its next chunk": lambda one: one.chunk(2),
            "its last chunk": lambda one: one.chunk(2, last=True),
            "its first chunk again": lambda one: one.chunk(0),
            "the first chunk of a later supply": lambda one: one.chunk(0, ticket=3),
            "a chunk of an earlier supply": lambda one: one.chunk(1, ticket=1),
            "a chunk of somebody else": lambda one: one.chunk(2, sender=receiving.OTHER),
            "its primary calls it off": lambda one: one.off(2),
            "its primary calls an earlier one off": lambda one: one.off(1),
            "the disk has it": lambda one: one.disk(well=True),
            "the disk has no room": lambda one: one.disk(well=False),
            "a moment later": lambda one: one.side.destination.on_timer(),
            "a row that names this member": lambda one: one.newer_row(receiving.OWNER, receiving.ME),
            "a row that does not": lambda one: one.newer_row(receiving.OWNER),
            "its primary is gone": lambda one: one.side.destination.on_view(gone(receiving.OWNER)),
            "this member is removed": lambda one: one.side.destination.on_view(removed()),
        },
    )


# -- a migration, at the master


class Leading:
    """A master, A, with one migration so far, from B to D, with C as backup."""

    def __init__(self, phase: MigrationPhase) -> None:
        lead = self.lead = Lead(Assignment(5, (B, C)))
        lead.wanted = [(D, C)]
        lead.enter((A, B, C, D))
        self.running: Running = lead.migrations.running[0]
        if phase in (MigrationPhase.COMMITTING, MigrationPhase.OFFERED):
            lead.silent |= {B, C, D}
        if phase is MigrationPhase.FAILED:
            self.refused()
        elif phase is not MigrationPhase.REQUESTED:
            lead.ready()
        if phase is MigrationPhase.OFFERED:
            self.view(A, C, D)

    def said(self, sender: Any = B, version: int = 5) -> None:
        self.lead.hear(sender, MigrationReady(1, 0, version))
        self.lead.settle()

    def refused(self, version: int = 5) -> None:
        self.lead.hear(B, MigrationRefused(1, 0, version, "no"))
        self.lead.settle()

    def view(self, *members: Any, state: ClusterState = ClusterState.ACTIVE) -> None:
        present = self.lead.membership.view
        assert present is not None
        self.lead.install(view_of(present.number + 1, *members, state=state))
        self.lead.settle()

    def stored(self) -> None:
        for view, number, *_ in self.lead.offered:
            for member in (B, C, D):
                self.lead.hear(member, TableStored(view, number))
        self.lead.settle()


LEADING = Walk(
    "a running migration",
    RUNNING,
    list(MigrationPhase),
    Leading,
    lambda one: one.running.phase,
    {
        "its primary says that all is there": Leading.said,
        "somebody else says so": lambda one: one.said(C),
        "its primary says so of an older row": lambda one: one.said(version=4),
        "its primary refuses": Leading.refused,
        "its primary refuses for an older row": lambda one: one.refused(4),
        "all have stored what was offered": Leading.stored,
        "its primary is gone": lambda one: one.view(A, C, D),
        "its destination is gone": lambda one: one.view(A, B, C),
        "a backup is gone": lambda one: one.view(A, B, D),
        "nothing may move": lambda one: one.view(A, B, C, D, state=ClusterState.NO_MIGRATION),
    },
)


# -- taking office


class Officiating:
    """A member that its row names as owner of a partition with two backups."""

    def __init__(self, phase: LeadershipPhase) -> None:
        self.office = Office()
        if phase is not LeadershipPhase.NONE:
            self.office.begin()
        if phase is LeadershipPhase.SERVING:
            self.everybody()

    def everybody(self) -> None:
        self.office.durable()
        self.office.enlisted(BACKUP, OTHER_BACKUP)

    def enlisted(self, version: int = 5, *, same: bool = True) -> None:
        self.office.activation.on_enlisted(BACKUP, Enlisted([(0, version, same)]))


OFFICIATING = Walk(
    "the primary of a partition",
    LEADERSHIP,
    list(LeadershipPhase),
    Officiating,
    lambda one: one.office.activation.phase(0),
    {
        "its row names this member": lambda one: one.office.begin(),
        "a backup holds the same": Officiating.enlisted,
        "all do, and its own disk": Officiating.everybody,
        "a backup holds something else": lambda one: one.enlisted(same=False),
        "a word about an older row": lambda one: one.enlisted(4),
        "a backup is filled": lambda one: one.office.activation.holds(0, BACKUP),
        "its disk has it": lambda one: one.office.durable(),
        "the row changes, or a replica is back": lambda one: one.office.activation.cancel(0),
    },
)

# -- a change of the peers of a group


class ChangingPeers:
    """The leader of the group a, b, c, which is to become a, b, d."""

    def __init__(self, stage: ChangeStage) -> None:
        begin = RaftSnapshot(1, 1, Configuration(frozenset("abc")))
        settings = RaftSettings(catch_up_ticks=5, pre_vote=False, check_quorum=False)
        self.group = Group("a", b"g", RaftLog(begin), None, settings)
        self.group.campaign()
        self._go_on()
        self._say(RaftKind.VOTED, "b")
        self.acknowledge("b")
        if stage is not ChangeStage.NONE:
            self.want("d", 5)
        if stage in (ChangeStage.JOINT, ChangeStage.FINAL):
            self.acknowledge("d")
        if stage is ChangeStage.FINAL:
            self.acknowledge("b")

    @property
    def stage(self) -> ChangeStage:
        assert self.group._changing is not None, "it leads"
        return self.group._changing.stage

    def _go_on(self) -> None:
        """What it wants written is, and what it says to itself arrives."""
        while self.group.has_ready:
            ready = self.group.ready()
            if ready.written is not None:
                self.group.written(ready.written)
            for message in ready.after:
                if message.to == "a":
                    self.group.step(message)
            if ready.committed:
                self.group.applied(ready.committed)

    def _say(self, kind: RaftKind, node: str, **more: Any) -> None:
        self.group.step(RaftMessage(kind=kind, to="a", sender=node, term=self.group.term, **more))
        self._go_on()

    def acknowledge(self, node: str) -> None:
        """This one has the whole log."""
        self._say(RaftKind.APPENDED, node, index=self.group.log.last)

    def want(self, node: str, token: int) -> None:
        """The group is to be a, b and this one."""
        self.group.change_peers(self.group.term, ["a", "b", node], [], token)
        self._go_on()

    def cancel(self) -> None:
        self.group.cancel_change(self.group.term, 5)

    def pass_time(self) -> None:
        for _ in range(6):
            self.group.tick()
        self._go_on()


CHANGING_PEERS = Walk(
    "a change of the peers of a group, for its leader",
    CHANGING,
    list(ChangeStage),
    ChangingPeers,
    lambda machine: machine.stage,
    {
        "other peers are wanted": lambda machine: machine.want("e", 6),
        "they are wanted by an older token": lambda machine: machine.want("e", 4),
        "it is cancelled": lambda machine: machine.cancel(),
        "a new voter has the log": lambda machine: machine.acknowledge("d"),
        "a voter of before has the log": lambda machine: machine.acknowledge("b"),
        "nothing is heard for long": lambda machine: machine.pass_time(),
    },
)


WALKS = [
    LEADING,
    SUPPLYING,
    _receiving(
        "a staging replica of a partition that moves here",
        [StagingPhase.FILLING, StagingPhase.WRITING, StagingPhase.HELD, StagingPhase.OVER],
        joining=True,
    ),
    _receiving(
        "a staging replica of one that its row names",
        [StagingPhase.FILLING, StagingPhase.WRITING, StagingPhase.NO_ROOM, StagingPhase.OVER],
        joining=False,
    ),
    OFFICIATING,
    CHANGING_PEERS,
]
