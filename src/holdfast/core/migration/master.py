"""The master's side of every change of placement: first assignment, repair, balance, migrations (H3, H6, H7).

One function, `control`, looks at the table and the members and does the next thing; it keeps no plan across a change of
members, and may be called at any time.

- M-1: Nothing is done before the newest table is known (`ledger.ready`).
- M-2: A replica on a departed member is taken out of the row and the hottest remaining one is promoted; but when none
  remains in the view that holds every map, the row is left as it is, and waits (rule 4), unless the operator chose to
  accept the loss.
- M-3: A migration is committed, by a round of the ledger, when its primary says that the destination holds everything.
- M-4: A failed migration raises the version further than its success would have, so that a success of which nobody here
  knows can never be mistaken for the present row.
- M-5: At most `parallel_migrations` run at once on any member; migrations of one partition run one after another.
"""

from __future__ import annotations

from collections import Counter

from holdfast.config import Settings
from holdfast.core.cluster.membership import Membership
from holdfast.core.machine import MILLISECOND, MemberId, Outbox
from holdfast.core.messages import MigrationReady, MigrationRefused, MigrationRequest, View
from holdfast.core.placement.layout import Candidate, arrange
from holdfast.core.placement.ledger import Ledger
from holdfast.core.placement.migration import Migration
from holdfast.core.placement.planner import plan
from holdfast.core.placement.table import Row
from holdfast.core.rules import Rules

PAUSE_NS = 300 * MILLISECOND
"""After a refusal or a failure: let the members settle before planning again."""


class Running:
    """A migration that was requested from its primary, or waits to be committed."""

    __slots__ = ("committing", "migration", "owner", "version")

    def __init__(self, migration: Migration, version: int, owner: MemberId) -> None:
        self.migration = migration
        self.version = version
        self.owner = owner
        self.committing = False


class Migrations:
    """What the master has planned, what runs, what has come of it."""

    def __init__(
        self, settings: Settings, out: Outbox, rules: Rules, membership: Membership, replicas: int
    ) -> None:
        self._settings = settings
        self._out = out
        self._rules = rules
        self._membership = membership
        self._replicas = replicas
        self.ledger: Ledger
        self.layout = arrange
        """Where every replica should live; the crash matrix gives another one, to have just the migration it wants."""
        self._queue: dict[int, list[Migration]] = {}
        self.running: dict[int, Running] = {}
        self.planned = False
        """Whether the queue is what the present members need; an empty queue then means: balanced."""
        self._paused = False
        self.completed = 0
        self.failed = 0
        self.lost: set[int] = set()
        self._load: Counter[MemberId] = Counter()

    # -- occasions

    def view_changed(self, view: View | None) -> None:
        """Plans die with the view they were made for; what runs between living members goes on."""
        self._queue.clear()
        self.planned = False
        if view is None or not self._membership.is_master:
            self.running.clear()
            self._load.clear()

    def gathered(self, active: list[tuple[Migration, int]], staying: set[MemberId]) -> None:
        """The newest table is known, or the view has changed under the same master: settle what was under way.

        `active` are migrations of an earlier master, `staying` the members of both views in one life.
        """
        head = self.ledger.head
        for partition, running in list(self.running.items()):
            if {running.owner, MemberId(running.migration.destination)} <= staying:
                continue
            self._forget(partition)
            if not running.committing:
                self._fail(partition, running.migration)
        for partition, row in enumerate(head):
            base = self.ledger.base(partition)
            if staying and row.version > base.version and not staying.issuperset(filter(None, row.replicas)):
                # L-6: offered, but not committed, and one of those that it names is gone.
                self._forget(partition)
                higher = row.version + 1 if self._rules.holds("failed-version") else base.version
                head[partition] = Row(higher, base.replicas, base.epoch)
        for migration, version in active:
            # M-4: the old master's migrations; none of them is in a row that anyone knows.
            if head[migration.partition].version == version:
                self._fail(migration.partition, migration)
        self._repair({info.uuid for info in self._membership.members()})

    def _fail(self, partition: int, migration: Migration) -> None:
        row = self.ledger.head[partition]
        extra = migration.increment + 1 if self._rules.holds("failed-version") else 0
        self.failed += 1
        self.ledger.head[partition] = Row(row.version + extra, row.replicas, row.epoch)
        self._out.note("migration failed", partition=partition, version=row.version + extra, level="warning")

    def _repair(self, present: set[MemberId]) -> None:
        """M-2, on the head of the ledger."""
        head = self.ledger.head
        self.lost.clear()
        for partition, row in enumerate(head):
            if row.version == 0 or all(member is None or member in present for member in row.replicas):
                continue
            kept = tuple(member if member in present else None for member in row.replicas)
            survivor = next((index for index, member in enumerate(kept) if member is not None), None)
            if survivor is None or (survivor >= self._settings.holders() and not self._accepts_loss()):
                self._all_gone(partition, row, present)
                continue
            if survivor >= self._settings.holders():
                self._out.note(
                    "partition lost for maps with fewer backups", level="error", partition=partition
                )
            slots = list(kept)
            if survivor:
                slots[0], slots[survivor] = slots[survivor], None
            head[partition] = row.changed(tuple(slots))

    def _all_gone(self, partition: int, row: Row, present: set[MemberId]) -> None:
        data = self._data_members(present)
        if not data or not self._accepts_loss():
            self.lost.add(partition)
            return
        owner = data[partition % len(data)]
        rest = (None,) * (len(row.replicas) - 1)
        raised = row.changed((owner, *rest), extra=len(row.replicas))
        self.ledger.head[partition] = Row(raised.version, raised.replicas, row.epoch + 1)
        self._out.note(
            "partition lost, begun anew empty", level="error", partition=partition, epoch=row.epoch + 1
        )

    def _accepts_loss(self) -> bool:
        return self._settings.partitions.lost == "accept" or not self._rules.holds("wait-for-copies")

    def _data_members(self, present: set[MemberId]) -> list[MemberId]:
        leaving = self._membership.leavers
        return [
            info.uuid
            for info in self._membership.members()
            if not info.lite and info.uuid in present and info.uuid not in leaving
        ]

    # -- the next thing to do

    def control(self) -> None:
        """M-1: look at the table and the members, and do what is due."""
        if not self.ledger.ready or self._paused:
            return
        if not self.planned:
            self._plan()
        self._start()
        if not self.running and not self._queue and self.ledger.settled:
            self._membership.consider()

    def _plan(self) -> None:
        self._queue.clear()
        candidates = [
            Candidate(info.uuid, info.group or info.uuid)
            for info in self._membership.members()
            if not info.lite and info.uuid not in self._membership.leavers
        ]
        if not candidates:
            self.planned = True
            return
        if not self.ledger.head[0].version:
            self._first_assignment(candidates)
            self.planned = True
            return
        present = {info.uuid for info in self._membership.members()}
        head = self.ledger.head
        here = [p for p, row in enumerate(head) if any(member in present for member in row.replicas)]
        current = [tuple(m if m in present else None for m in head[p].replicas) for p in here]
        targets = self.layout(current, candidates, self._replicas)
        cleared: dict[int, Row] = {}
        for partition, now, target in zip(here, current, targets, strict=True):
            if tuple(now) == tuple(target) or partition in self.running:
                continue
            found = plan(partition, tuple(now), tuple(target))
            if found.migrations:
                self._queue[partition] = list(found.migrations)
            elif found.cleared:
                slots = [None if index in found.cleared else member for index, member in enumerate(now)]
                cleared[partition] = head[partition].changed(tuple(slots))
        self.planned = True
        if self._queue:
            self._out.note("rebalance planned", migrations=sum(len(moves) for moves in self._queue.values()))
        if cleared:
            self.ledger.propose(cleared)

    def _first_assignment(self, candidates: list[Candidate]) -> None:
        empty: list[tuple[str | None, ...]] = [(None,) * self._replicas] * len(self.ledger.head)
        rows = self.layout(empty, candidates, self._replicas)
        self.ledger.propose({p: Row().changed(tuple(row)) for p, row in enumerate(rows)})  # type: ignore[arg-type]
        self._out.note("partitions assigned", count=len(rows), members=len(candidates))

    def _start(self) -> None:
        limit = self._settings.partitions.parallel_migrations
        committed = self.ledger.table.rows
        for partition in list(self._queue):
            if (
                partition in self.running
                or self.ledger.head[partition].version != committed[partition].version
            ):
                continue
            migration = self._queue[partition][0]
            row = committed[partition]
            owner = row.owner
            destination = MemberId(migration.destination)
            assert owner is not None
            if self._load[owner] >= limit or self._load[destination] >= limit:
                continue
            try:
                migration.apply_to(row.replicas)
            except ValueError:
                self._replan()
                return
            self._queue[partition].pop(0)
            if not self._queue[partition]:
                del self._queue[partition]
            if self._membership.member(owner) is None or self._membership.member(destination) is None:
                self._replan()
                return
            self.running[partition] = Running(migration, row.version, owner)
            self._load[owner] += 1
            self._load[destination] += 1
            view = self._membership.view
            assert view is not None
            self._out.send(owner, MigrationRequest(view.number, migration, row.version))

    def _forget(self, partition: int) -> Running | None:
        running = self.running.pop(partition, None)
        if running is not None:
            self._load[running.owner] -= 1
            self._load[MemberId(running.migration.destination)] -= 1
        return running

    def _replan(self) -> None:
        self.planned = False
        self._queue.clear()
        if not self._paused:
            self._paused = True
            self._out.timer("plan", PAUSE_NS, PAUSE_NS // 2)

    def on_timer(self) -> None:
        """The pause after a failure is over."""
        self._paused = False
        self.control()

    # -- answers of primaries, and of the ledger

    def on_ready(self, sender: MemberId, message: MigrationReady) -> None:
        running = self.running.get(message.partition)
        if (
            not self.ledger.ready
            or running is None
            or running.version != message.version
            or running.committing
        ):
            return
        if sender != running.owner:
            return
        head = self.ledger.head[message.partition]
        if head.version != running.version:
            return
        running.committing = True
        migration = running.migration
        replicas = migration.apply_to(head.replicas)
        row = Row(head.version + migration.increment, replicas, head.epoch)  # type: ignore[arg-type]
        self.ledger.propose({message.partition: row})

    def on_refused(self, sender: MemberId, message: MigrationRefused) -> None:
        running = self.running.get(message.partition)
        if running is None or running.version != message.version or running.committing:
            return
        self._forget(message.partition)
        self._out.note("migration refused", level="debug", partition=message.partition, why=message.why)
        self._replan()

    def committed(self, partitions: list[int]) -> None:
        """A round is committed: these rows are the table now."""
        for partition in partitions:
            running = self.running.get(partition)
            if running is not None and self.ledger.table.rows[partition].version > running.version:
                self._forget(partition)
                if running.committing:
                    self.completed += 1
        if not self.running and not self._queue and not self._paused:
            # Look once more: what is reached must be what the layout wants.
            self.planned = False
        self.control()

    def leaver_known(self) -> None:
        """A member has said that it wants to leave: plan without it."""
        self.planned = False
        self._queue.clear()
        self.control()

    def may_part(self, member: MemberId) -> bool:
        """Whether this member may leave: it holds nothing, and everyone has stored every round (A-2)."""
        if not self._rules.holds("drain-waits"):
            return True
        if not self.ledger.ready or not self.ledger.settled:
            return False
        rows = self.ledger.table.rows
        members = self._membership.members()
        if any(not info.lite and info.uuid not in self._membership.leavers for info in members):
            return not any(member in row.replicas for row in rows)
        # Everyone who holds data leaves: the cluster ends, unless somebody who is missing holds what nobody here does.
        present = {info.uuid for info in members}
        return not self._membership.may_be_missed and all(
            present.intersection(row.replicas) for row in rows if row.version
        )

    @property
    def queued(self) -> int:
        """Migrations planned and not started."""
        return sum(len(moves) for moves in self._queue.values())
