"""The latest exchanges as this member saw them: a new topology, and the partitions that it leads since then (I5; 004
"Importance of atomic primaries switching").

The source's exchange is one for the whole cluster. Here each partition has its own, in these phases:

- *wait*: a primary that hands its partition over takes no more writes, and waits for those under way, with the steps
  of transactions among them. After a crash nothing is waited for.
- *table*: the master finds the new place, a majority stores it, and it is in force on the new primary.
- *counters*: all replicas report the counters of the new primary, or are filled until they do.
- *switch*: the new primary begins to serve.

Rules:

- partition_table/X-1: At most `TOPOLOGIES` topologies and `EXCHANGES` exchanges of partitions are kept; the number of
  dropped ones is reported.
- partition_table/X-2: An exchange that ends before its partition is served stays as *superseded*. It does not count for
  the longest phases.

Example: member 2 leads partition 7 and crashes. Its backup 3 sees the new topology at 0 ms, is named by the table at
40 ms, has compared counters at 42 ms and serves then: wait 0, table 40, counters 2, switch 0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import StrEnum, unique
from typing import Final

import msgspec

from holdfast.core.model.ids import MemberId
from holdfast.core.model.notices import (
    ActivationBegan,
    AssignmentChanged,
    LastChunkReceived,
    LeadershipTaken,
    ServingBegan,
    ViewInstalled,
)
from holdfast.core.model.partition_table import Table
from holdfast.core.model.topology import TopologyVersion
from holdfast.core.model.views import MemberInfo, View
from holdfast.core.outbox import Outbox

TOPOLOGIES: Final = 200
EXCHANGES: Final = 4_000


@unique
class ExchangeCause(StrEnum):
    FIRST = "first owner"
    FAILOVER = "failover"
    """The former primary has gone."""
    MOVE = "move"
    """The former primary has handed the partition over."""
    REPLICA_BACK = "replica is back"
    """The same primary: it compares counters with a replica that has restarted."""


@unique
class ExchangePhase(StrEnum):
    COUNTERS = "counters"
    SWITCH = "switch"
    DONE = "done"
    SUPERSEDED = "superseded"


class PhaseTimes(msgspec.Struct):
    """Nanoseconds."""

    wait: int = 0
    table: int = 0
    counters: int = 0
    switch: int = 0

    def raise_to(self, other: PhaseTimes) -> None:
        self.wait = max(self.wait, other.wait)
        self.table = max(self.table, other.table)
        self.counters = max(self.counters, other.counters)
        self.switch = max(self.switch, other.switch)


class PartitionExchange(msgspec.Struct):
    """A partition that this member was to lead."""

    partition: int
    topology: TopologyVersion
    cause: ExchangeCause
    before: str
    """The former primary's name; empty: none."""
    began_ns: int
    """When the counters began to be compared."""
    times: PhaseTimes
    phase: ExchangePhase = ExchangePhase.COUNTERS


class TopologyExchange(msgspec.Struct):
    """A topology, and what this member's partitions went through while it was in force."""

    major: int
    began_ns: int
    joined: list[str]
    restarted: list[str]
    left: list[str]
    """In order."""
    gone: list[str]
    state: str
    """The state of the cluster."""
    master: str
    first: bool
    """This member has seen no topology before it, so it does not know what has changed."""
    exchanges: dict[ExchangeCause, int]
    """Ended ones."""
    longest: PhaseTimes
    last_ns: int = 0
    """From its beginning to the last end of an exchange."""


class ExchangeHistory:
    def __init__(self, out: Outbox, me: MemberId, table: Table) -> None:
        self._out = out
        self._me = me
        self._table = table
        self.topologies: deque[TopologyExchange] = deque(maxlen=TOPOLOGIES)
        self._exchanges: deque[PartitionExchange] = deque(maxlen=EXCHANGES)
        self._open: dict[int, PartitionExchange] = {}
        self._named: dict[int, tuple[ExchangeCause, str, PhaseTimes]] = {}
        """Partitions that the table has given to this member, until it begins to lead them."""
        self._received: dict[int, tuple[int, int]] = {}
        """Last chunks: how long writes had stopped when each was sent, and when it arrived."""
        self._present: dict[MemberId, str] = {}
        self._gone: dict[MemberId, str] = {}
        """Names of those that the last view has removed."""
        self.dropped = 0
        """Exchanges of partitions that are not kept any more."""

    # -- topologies

    def on_view(self, notice: ViewInstalled) -> None:
        view = notice.new
        if view is None:
            self._present, self._gone = {}, {}
            return
        before = {info.uuid: info for info in notice.old.members} if notice.old is not None else {}
        now = {info.uuid: info.name for info in view.members}
        self._gone = {uuid: info.name for uuid, info in before.items() if uuid not in now}
        self._present = now
        self.topologies.append(self._topology(view, before))

    def _topology(self, view: View, before: dict[MemberId, MemberInfo]) -> TopologyExchange:
        gone = [info for uuid, info in before.items() if uuid in self._gone]
        known = [info for info in view.members if info.uuid in before]
        return TopologyExchange(
            view.number,
            self._out.now_ns,
            [info.name for info in view.members if info.uuid not in before],
            [info.name for info in known if info.life != before[info.uuid].life],
            [info.name for info in gone if info.uuid in view.left],
            [info.name for info in gone if info.uuid not in view.left],
            view.state.value,
            view.members[0].name if view.members else "",
            not before,
            {},
            PhaseTimes(),
        )

    # -- partitions

    def on_last_chunk(self, notice: LastChunkReceived) -> None:
        self._received[notice.partition] = notice.paused_ns, self._out.now_ns

    def on_assignment(self, notice: AssignmentChanged) -> None:
        received = self._received.pop(notice.partition, None)
        self._named.pop(notice.partition, None)
        owner, former = notice.new.owner, notice.old.owner
        if owner != self._me:
            self._end(notice.partition, ExchangePhase.SUPERSEDED)
        elif former != self._me:
            self._named[notice.partition] = self._cause(former, received)

    def _cause(
        self, former: str | None, received: tuple[int, int] | None
    ) -> tuple[ExchangeCause, str, PhaseTimes]:
        now_ns = self._out.now_ns
        if former is None:
            return ExchangeCause.FIRST, "", PhaseTimes()
        uuid = MemberId(former)
        name = self._present.get(uuid) or self._gone.get(uuid) or former[:8]
        if uuid in self._present:
            paused_ns, received_ns = received or (0, now_ns)
            return ExchangeCause.MOVE, name, PhaseTimes(paused_ns, now_ns - received_ns)
        seen_ns = self.topologies[-1].began_ns if self.topologies else now_ns
        return ExchangeCause.FAILOVER, name, PhaseTimes(table=now_ns - seen_ns)

    def on_activation(self, notice: ActivationBegan) -> None:
        partition = notice.partition
        self._end(partition, ExchangePhase.SUPERSEDED)
        same = ExchangeCause.REPLICA_BACK, self._present.get(self._me, ""), PhaseTimes()
        cause, before, times = self._named.pop(partition, same)
        began = PartitionExchange(partition, self._version(), cause, before, self._out.now_ns, times)
        if len(self._exchanges) == EXCHANGES:
            self.dropped += 1
        self._exchanges.append(began)
        self._open[partition] = began

    def on_leadership(self, notice: LeadershipTaken) -> None:
        known = self._open.get(notice.partition)
        if known is not None and known.phase is ExchangePhase.COUNTERS:
            known.times.counters = self._out.now_ns - known.began_ns
            known.phase = ExchangePhase.SWITCH

    def on_serving(self, notice: ServingBegan) -> None:
        known = self._open.get(notice.partition)
        if known is not None and known.phase is ExchangePhase.SWITCH:
            known.times.switch = self._out.now_ns - known.began_ns - known.times.counters
            self._end(notice.partition, ExchangePhase.DONE)

    def _end(self, partition: int, phase: ExchangePhase) -> None:
        known = self._open.pop(partition, None)
        if known is None:
            return
        known.phase = phase
        topology = self.topologies[-1] if self.topologies else None
        if phase is ExchangePhase.DONE and topology is not None:
            topology.exchanges[known.cause] = topology.exchanges.get(known.cause, 0) + 1
            topology.longest.raise_to(known.times)
            topology.last_ns = self._out.now_ns - topology.began_ns

    def _version(self) -> TopologyVersion:
        major = self.topologies[-1].major if self.topologies else 0
        return TopologyVersion(major, self._table.version)

    # -- what is known

    def of_partition(self, partition: int) -> Iterator[PartitionExchange]:
        """Oldest first."""
        return (one for one in self._exchanges if one.partition == partition)

    @property
    def open(self) -> int:
        """Partitions that this member is to lead and does not serve yet."""
        return len(self._open)
