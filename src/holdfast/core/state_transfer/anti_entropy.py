"""Anti-entropy: primaries summarise their content, backups compare, and differences are repaired (H8).

- state_transfer/R-1: Periodically, partition by partition, a primary sends each backup a summary: the update counter,
  the term and the content digest of every map. A backup compares only at the same counter. Example: the primary stands
  at 120 while records 118 to 120 are in flight. A backup at 117 waits until it has applied 120, and then compares. If
  it has not by the next summary, a record was lost. If it stands at 125, and the primary does not reach 125 by the next
  summary, it counts updates that never existed: it would acknowledge the real 121 to 125 without applying them.
- state_transfer/R-2: A backup that differs requests a repair, with the reason. The primary fills it like any other
  replica (`state_transfer.source`). The present copy continues to follow and to acknowledge until the new one is
  complete. Only the differences are sent.
- state_transfer/R-3: At most `replication.parallel_repairs` run at a time, one per partition and backup, and none while
  the partition moves or the cluster's state forbids migrations.
- state_transfer/R-4: A backup forgets maps that its primary does not hold by two successive summaries. One alone may
  have been overtaken: the primary opens a map in the step in which it sends the summary, and the first updates arrive
  before it.
- state_transfer/R-5: Periodically a member recomputes the digest of one of its copies. If it is not what the updates
  have made, the copy is damaged: a backup requests a repair, a primary reports it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from holdfast.config import Settings
from holdfast.core.journal.log import Log
from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.messages import RepairWanted, Summary, Summed
from holdfast.core.model.collections import shown_name
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.journal_entries import Dropped
from holdfast.core.model.notices import AssignmentChanged, MapForgotten, RecordsTaken, ViewInstalled
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.timer_name import TimerName
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.lane import Lane
from holdfast.core.primary_backup.local_replicas import LocalReplicas
from holdfast.core.primary_backup.primary_activation import PrimaryActivation
from holdfast.core.state_transfer.forgetting import Forgetting
from holdfast.core.state_transfer.map_copies import MapCopies
from holdfast.core.state_transfer.source import Source
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import AnyReplica
from holdfast.core.store.replica_comparison import Point, Relation, relate

TICKS = 32
"""A primary visits all its partitions in so many steps."""
CHECK_EVERY = 4
"""Steps between two copies whose digest is recomputed."""
RepairKey = tuple[int, MemberId]


class AntiEntropy:
    def __init__(
        self,
        me: MemberId,
        settings: Settings,
        out: Outbox,
        rows: list[Assignment],
        copies: LocalReplicas,
        source: Source,
        log: Log,
        *,
        membership: MembershipStatus,
        activation: PrimaryActivation,
        lane: Lane,
    ) -> None:
        self._me = me
        self._out = out
        self._rows = rows
        self._copies = copies
        self._source = source
        self._log = log
        self._membership = membership
        self._activation = activation
        self.forgetting = Forgetting(me, out, rows, copies, lane, log, source)
        self._parallel = settings.replication.parallel_repairs
        self.map_copies = MapCopies(me, out, rows, source, membership, self._parallel)
        self._step_ns = settings.replication.anti_entropy_ms * MILLISECOND // TICKS
        self._tick = 0
        self._checked = -1
        """The last partition."""
        self._wanted: dict[RepairKey, RepairWanted] = {}
        self._running: set[RepairKey] = set()
        self._summaries: dict[int, list[Summed]] = {}
        """As backup: of maps and services whose counters this member has not reached."""
        self._missing: dict[int, set[tuple[str, int]]] = {}
        """By partition: maps of a backup that were not in the last summary, with their last update."""
        self._further: dict[int, dict[str, int]] = {}
        """As backup: they were above those of the last summary."""
        self.summaries_sent = 0
        self.asked = 0
        """As backup: requested repairs."""
        self.repaired = 0
        """As primary: repaired replicas."""

    # -- timers

    def start(self) -> None:
        if self._step_ns:
            self._out.timer(TimerName.REPAIR, self._step_ns)

    def on_timer(self) -> None:
        self._out.timer(TimerName.REPAIR, self._step_ns)
        count, at = len(self._rows), self._tick % TICKS
        self._tick += 1
        if self._may_repair():
            for partition in range(at * count // TICKS, (at + 1) * count // TICKS):
                self.summarise(partition)
        if self._tick % CHECK_EVERY == 0:
            self._check_next()

    def summarise(self, partition: int) -> None:
        """Send summaries, if the partition is served here and does not move."""
        row = self._rows[partition]
        copy = self._copies.held.get(partition)
        if row.owner != self._me or not self._is_active(partition) or copy is None:
            return
        if self._source.supplies.is_moving(partition):
            return
        self.forgetting.look_for_empty(copy)
        for index, member in enumerate(row.holding):
            if index and member is not None:
                maps = [summed(held) for held in copy.maps.values() if self._copies.wanted(held.name, index)]
                services = [
                    summed(held) for held in copy.services.values() if self._copies.wanted(held.name, index)
                ]
                self._out.send(member, Summary(partition, row.version, maps, services))
                self.summaries_sent += 1

    def _check_next(self) -> None:
        """See state_transfer/R-5."""
        later = [partition for partition in self._copies.held if partition > self._checked]
        partition = min(later or self._copies.held, default=-1)
        self._checked = partition
        if partition >= 0:
            self.check(partition)

    def check(self, partition: int) -> None:
        """Recompute the digests, and compare them with those that the updates have made."""
        mine = self._rows[partition].owner == self._me
        found = [
            f"{len(ranges)} key ranges of {held.name}"
            for held in self._copies.held[partition]
            if (ranges := held.state.damaged(adopt=not mine))
        ]
        if found:
            what = ", ".join(found)
            self._out.note(
                "replica content is damaged", level="error", partition=partition, what=what, primary=mine
            )
            if not mine and partition not in self._copies.staging:
                self._ask(partition, f"its content was damaged: {what}")

    # -- the backup

    def on_summary(self, sender: MemberId, message: Summary) -> None:
        """Compare when this copy reaches the counters of the summary (state_transfer/R-1)."""
        partition = message.partition
        row = self._rows[partition] if 0 <= partition < len(self._rows) else Assignment()
        copy = self._copies.held.get(partition)
        known = row.version == message.version and row.owner == sender and self._me in row.holding[1:]
        if not known or copy is None or partition in self._copies.staging:
            return
        overdue = [said for said in self._summaries.get(partition, []) if said.counter > _reached(copy, said)]
        self._forget_maps(copy, {said.name for said in message.maps})
        said_now = [*message.maps, *message.services]
        never = self._counted_too_much(copy, said_now)
        self._watch(partition, said_now)
        if never:
            self._ask(partition, never, content=False)
        elif overdue:
            said = overdue[0]
            stands = f"{said.name} stands at {_reached(copy, said)}, and {said.counter} was said before"
            self._ask(partition, stands, content=False)
        else:
            self._compare(partition)

    def _counted_too_much(self, copy: PartitionCopy, said_now: list[Summed]) -> str:
        """This copy was ahead at the last summary and the primary has still not caught up; empty: it was not."""
        before = self._further.pop(copy.partition, {})
        further = {
            said.name: reached for said in said_now if (reached := _reached(copy, said)) > said.counter
        }
        if further:
            self._further[copy.partition] = further
        return next(
            (
                f"{said.name} stood at {before[said.name]}, and its primary is at {said.counter} only now"
                for said in said_now
                if said.name in further and before.get(said.name, 0) > said.counter
            ),
            "",
        )

    def _forget_maps(self, copy: PartitionCopy, there: set[str]) -> None:
        """See state_transfer/R-4."""
        missing = {(name, held.updates.hwm) for name, held in copy.maps.items() if name not in there}
        before = self._missing.pop(copy.partition, set())
        if missing:
            self._missing[copy.partition] = missing
        for name, _ in sorted(missing & before):
            copy.forget(name)
            self._out.notify(MapForgotten(copy.partition, name))
            self._log.note(Dropped(copy.partition, name))
            self._out.note(
                "map forgotten", partition=copy.partition, map=shown_name(name), reason="its primary has none"
            )

    def _watch(self, partition: int, said: list[Summed]) -> None:
        if said:
            self._summaries[partition] = said
            self._copies.watched.add(partition)
        else:
            self._summaries.pop(partition, None)
            self._copies.watched.discard(partition)
        assert len(self._summaries) == len(self._copies.watched), "a watched partition has a waiting summary"

    def on_records(self, notice: RecordsTaken) -> None:
        """Compare a copy that was behind its summary."""
        self._compare(notice.partition)

    def _compare(self, partition: int) -> None:
        copy = self._copies.held.get(partition)
        if copy is None or partition in self._copies.staging:
            self._watch(partition, [])
            return
        behind: list[Summed] = []
        for said in self._summaries.get(partition, []):
            held = copy.called(said.name)
            relation = _relation(held, said)
            if relation == "behind":
                behind.append(said)
            elif held is not None and relation in ("parted", "differs"):
                other_term = f"{said.name} stands at {said.counter}, of term {held.term} and not {said.term}"
                other_content = f"the content of {said.name} at {said.counter} differs"
                self._ask(partition, other_term if relation == "parted" else other_content)
                return
        self._watch(partition, behind)

    def _ask(self, partition: int, why: str, *, content: bool = True) -> None:
        self._watch(partition, [])
        row = self._rows[partition]
        if row.owner is None or row.owner == self._me or self._me not in row.holding[1:]:
            return
        self.asked += 1
        self._out.send(row.owner, RepairWanted(partition, row.version, why, content))

    # -- the primary

    def on_wanted(self, sender: MemberId, message: RepairWanted) -> None:
        """Repair the backup when there is a permit (state_transfer/R-2, state_transfer/R-3)."""
        key = (message.partition, sender)
        why = self._rejection(sender, message)
        if why or key in self._running or key in self._wanted:
            return
        self._out.note("replica differs", partition=message.partition, at=sender, reason=message.why)
        assert key not in self._running, "one repair of a replica at a time"
        self._wanted[key] = message
        self._go_on()

    def _rejection(self, sender: MemberId, message: RepairWanted) -> str:
        """Why the repair is rejected; empty: it is not."""
        if not 0 <= message.partition < len(self._rows):
            return f"there is no partition {message.partition}"
        row = self._rows[message.partition]
        if row.version != message.version or row.owner != self._me:
            return f"the row is {row}"
        if sender not in row.holding[1:]:
            return f"{sender} is no backup"
        return "" if self._may_repair() else "the cluster's state forbids it"

    def _go_on(self) -> None:
        while self._wanted and len(self._running) < self._parallel:
            key = next(iter(self._wanted))
            message = self._wanted.pop(key)
            if self._rows[key[0]].version == message.version and self._may_repair():
                self._running.add(key)
                assert len(self._running) <= self._parallel, (
                    "no more than there are permits (state_transfer/R-3)"
                )
                self._source.refill(*key, partial(self._ended, key), compare=message.content)

    def _ended(self, key: RepairKey, why: str) -> None:
        assert key in self._running, "a repair ends once"
        assert key not in self._wanted, "it waits for a permit, or runs"
        self._running.discard(key)
        if why:
            self._out.note("repair abandoned", level="debug", partition=key[0], to=key[1], reason=why)
        else:
            self.repaired += 1

    def look(self) -> None:
        """Start repairs if permits have been returned."""
        if self._wanted and len(self._running) < self._parallel:
            self._go_on()

    # -- changes of assignments and members

    def _is_active(self, partition: int) -> bool:
        return partition in self._activation.active

    def _may_repair(self) -> bool:
        return self._membership.cluster_state.migrates

    def on_assignment(self, notice: AssignmentChanged) -> None:
        """Drop summaries and requests of the former version."""
        partition = notice.partition
        self._watch(partition, [])
        self._further.pop(partition, None)
        self._missing.pop(partition, None)
        self._drop(key for key in self._wanted if key[0] == partition)

    def on_view(self, notice: ViewInstalled) -> None:
        if not notice.admitted:
            self._reset()
            return
        members = notice.gone | notice.came
        self._drop(key for key in self._wanted if key[1] in members)

    def _drop(self, keys: Iterable[RepairKey]) -> None:
        for key in list(keys):
            del self._wanted[key]

    def _reset(self) -> None:
        self._wanted.clear()
        self._further.clear()
        self._missing.clear()
        for partition in list(self._summaries):
            self._watch(partition, [])

    @property
    def leftovers(self) -> dict[str, int]:
        return {
            "repairs": len(self._running) + len(self._wanted),
            "summaries that wait": len(self._summaries) + len(self._copies.watched),
            **self.forgetting.leftovers,
        }


def summed(held: AnyReplica) -> Summed:
    return Summed(held.name, held.counter, held.term, held.state.compared())


def _relation(held: AnyReplica | None, said: Summed) -> Relation:
    counter, term = (held.counter, held.term) if held is not None else (0, 0)
    # Computed only where it is compared.
    digest = held.state.compared() if held is not None and counter == said.counter else 0
    return relate(Point(0, term, counter), digest, Point(0, said.term, said.counter), said.digest)


def _reached(copy: PartitionCopy, said: Summed) -> int:
    held = copy.called(said.name)
    return held.counter if held is not None else 0
