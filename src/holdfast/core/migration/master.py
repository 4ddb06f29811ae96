"""The master's side of every change of placement: first assignment, repair, balance, migrations (H3, H6, H7).

One function, `control`, looks at the table and the members and does the next thing; it keeps no plan across a change of
members, and may be called at any time.

- migration/M-1: Nothing is done before the newest table is known (`ledger.ready`).
- migration/M-2: A replica on a departed member is taken out of the row and the hottest remaining one is promoted; but
  when none remains in the view that holds every map, the row is left as it is, and waits (rule 4), unless the operator
  chose to accept the loss.
- migration/M-3: A migration is committed, by a round of the ledger, when its primary says that the destination holds
  everything.
- migration/M-4: A failed migration raises the version further than its success would have, so that a success of which
  nobody here knows can never be mistaken for the present row.
- migration/M-5: At most `parallel_migrations` run at once on any member, and on all together as many as may have a
  chunk under way within `flight_bytes_total`, or one. Migrations of one partition run one after another; what restores
  a lost copy comes first, then what the least busy members can do.
- migration/M-6: While the cluster's state forbids it nothing moves; while the table is frozen no slot changes: a
  missing backup is only marked as behind, so that writes go on without it and it is not promoted.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Generator

from holdfast.config import Settings
from holdfast.core.cluster.membership import Membership
from holdfast.core.machine import Outbox
from holdfast.core.messages import Holdings, MigrationReady, MigrationRefused, MigrationRequest
from holdfast.core.migration.parting import why_kept
from holdfast.core.migration.returns import Returns
from holdfast.core.migration.running import MigrationPhase, MigrationStep, Running, Way
from holdfast.core.model.ids import MILLISECOND, SECOND, MemberId
from holdfast.core.model.migration_step import NONE, Migration
from holdfast.core.model.partition_events import Loss
from holdfast.core.model.partition_table import Row, survivors
from holdfast.core.model.views import Room, View
from holdfast.core.placement.dryrun import Layout
from holdfast.core.placement.event_log import tell_losses
from holdfast.core.placement.layout import Candidate, arrange
from holdfast.core.placement.ledger import Ledger
from holdfast.core.placement.planner import plan

PAUSE_NS = 300 * MILLISECOND
"""After a refusal or a failure: let the members settle before planning again."""
FULL_PAUSE_NS = 10 * SECOND
"""The same while somebody's disk is full: to copy a partition takes long, and it may be refused again."""
PARTING_NS = 250 * MILLISECOND
"""How long a member that leaves stays when it holds nothing any more: for what clients have sent it before they knew,
and until they know. They hang up on a member that is not listed any more, and what is under way then is unknown."""
PIECES = 8
"""Steps of planning that are done without a look at anything else: a millisecond or two."""
PLANNED_AT_ONCE = 16
"""Partitions whose way to the wanted row is one such step."""


class Migrations:
    """What the master has planned, what runs, what has come of it."""

    def __init__(self, settings: Settings, out: Outbox, membership: Membership, replicas: int) -> None:
        self._settings = settings
        self._out = out
        self._membership = membership
        self._replicas = replicas
        self.ledger: Ledger
        self.layout: Layout | None = None
        """Where every replica should live; the crash matrix gives another one, to have just the migration it wants."""
        self.returns = Returns(settings, out, membership, replicas)
        self._queue: dict[int, list[Migration]] = {}
        self._waiting: dict[Way, deque[int]] = {}
        """Partitions of the queue of which nothing runs, by the way of what comes next; none is empty."""
        self.running: dict[int, Running] = {}
        self.planned = False
        """Whether the queue is what the present members need; an empty queue then means: balanced."""
        self._planning: Generator[None] | None = None
        """The plan in the making: a part at a time, for the master serves requests meanwhile."""
        self._free_since: dict[MemberId, int] = {}
        """Since when members that want to leave might."""
        self._paused = False
        self._resume_ns = 0
        """Not before this time are lost copies restored elsewhere; 0: no wait."""
        self.completed = 0
        self.failed = 0
        self.lost: set[int] = set()
        self._load: Counter[MemberId] = Counter()
        partitions = settings.partitions
        self._limit = partitions.parallel_migrations
        self._limit_total = max(1, partitions.flight_bytes_total // partitions.chunk_bytes)

    # -- occasions

    def view_changed(self, old: View | None, view: View | None) -> None:
        """Plans die with the view they were made for; what runs between living members goes on."""
        self._discard_plan()
        self.returns.view_changed(old, view)
        if old is not None and view is not None:
            self._delay(old, view)
        if view is None or not self._membership.is_master:
            self.running.clear()
            self._load.clear()

    def returned(self, sender: MemberId, holdings: Holdings) -> None:
        """A member says what it has brought back: partitions that wait for it go on, and the plan may be another."""
        self.returns.heard(sender, holdings)
        if self.ledger.ready:
            self._revive()
            self._discard_plan()
            self.control()

    def accept_loss(self) -> None:
        """The operator does not wait for what is missing."""
        if self.ledger.ready:
            self.returns.accepted = True
            self._out.note("the operator accepts the loss of what is missing", level="warning")
            self._revive()
            if self.lost:
                self._repair({info.uuid for info in self._membership.members()})
                rows = {p: row for p, row in enumerate(self.ledger.head) if row != self.ledger.table.rows[p]}
                self.ledger.publish(rows)
            self.returns.accepted = not self.ledger.table.assigned
            self._discard_plan()
            self.control()

    def _revive(self) -> None:
        """migration/X-2."""
        rows = {p: row for p in self.lost if (row := self.returns.revive(p, self.ledger.head[p])) is not None}
        if rows:
            self.lost -= rows.keys()
            self._out.note("partitions are back", partitions=len(rows))
            self.ledger.propose(rows)

    def _delay(self, old: View, view: View) -> None:
        """After a crash wait before copies are restored elsewhere; whoever joins ends the wait."""
        here = {info.uuid for info in view.members}
        crashed = [info for info in old.members if info.uuid not in here and info.uuid not in view.left]
        came = here - {info.uuid for info in old.members}
        delay_ns = self._settings.partitions.rebalance_delay_ms * MILLISECOND
        if came:
            self._resume_ns = 0
        elif crashed and delay_ns:
            self._resume_ns = self._out.now_ns + delay_ns
            self._out.timer("delay", delay_ns)

    def gathered(self, active: list[tuple[Migration, int]], staying: set[MemberId]) -> None:
        """The newest table is known, or the view has changed under the same master: settle what was under way.

        `active` are migrations of an earlier master, `staying` the members of both views in one life.
        """
        head = self.ledger.head
        state = self._membership.cluster_state
        failures: list[Migration] = []
        offered: dict[int, Running] = {}
        for partition, running in list(self.running.items()):
            involved = {running.owner, MemberId(running.migration.destination)}
            if involved <= staying and (state.migrates or running.committing):
                continue
            self._forget(partition)
            running.step(MigrationStep.LOST)
            if running.phase is MigrationPhase.OFFERED:
                offered[partition] = running
            else:
                self._raise(running.migration)
                failures.append(running.migration)
        for partition, row in enumerate(head):
            base = self.ledger.base(partition)
            gone = not staying.issuperset(filter(None, row.replicas))
            if staying and row.version > base.version and gone and base.version:
                # placement/L-6: offered, but not committed, and one of those that it names is gone.
                taken_back = self._forget(partition) or offered.get(partition)
                head[partition] = _taken_back(row, base)
                if taken_back is not None:
                    taken_back.step(MigrationStep.TAKEN_BACK)
                    failures.append(taken_back.migration)
        for migration, version in active:
            # migration/M-4: the old master's migrations; none of them is in a row that anyone knows.
            if head[migration.partition].version == version:
                self._raise(migration)
                failures.append(migration)
        self.ledger.settle_news()
        for migration in failures:
            self._ended(migration, head[migration.partition].version, well=False)
        if not staying:
            self.ledger.reporter.finished()
        present = {info.uuid for info in self._membership.members()}
        if state.frozen:
            self._mark_behind(present)
        else:
            self._repair(present)

    def _ended(self, migration: Migration, version: int, *, well: bool, began_ns: int | None = None) -> None:
        if not well:
            self.failed += 1
            self._out.note(
                "migration failed", partition=migration.partition, version=version, level="warning"
            )
        self.ledger.reporter.ended(migration, version, well=well, began_ns=began_ns)

    def _raise(self, migration: Migration) -> None:
        """migration/M-4."""
        row = self.ledger.head[migration.partition]
        higher = row.version + migration.increment + 1
        self.ledger.head[migration.partition] = Row(higher, row.replicas, row.epoch, row.behind)

    def _mark_behind(self, present: set[MemberId]) -> None:
        """migration/M-6: a primary that is here goes on without its missing backups, and they do not hold everything
        then.
        """
        head = self.ledger.head
        for partition, row in enumerate(head):
            gone = [m for m in row.holding[1:] if m is not None and m not in present]
            if gone and row.owner in present:
                head[partition] = Row(row.version + 1, row.replicas, row.epoch, (*row.behind, *gone))

    def _repair(self, present: set[MemberId]) -> None:
        """migration/M-2, on the head of the ledger."""
        head = self.ledger.head
        waiting, self.lost = self.lost, set()
        promoted: list[tuple[Migration, int]] = []
        losses: list[Loss] = []
        for partition, row in enumerate(head):
            if row.version == 0 or all(member is None or member in present for member in row.holding):
                if row.behind:
                    head[partition] = row.changed(row.holding)
                continue
            slots, survivor = survivors(row.holding, present)
            if survivor is None and not self.ledger.base(partition).version and not self._recovering:
                self._begin_anew(partition, row, present)
                continue
            few = survivor is None or survivor >= self._settings.holders()
            if few and (back := self.returns.revive(partition, row)):
                head[partition] = back
                continue
            if survivor is None or (few and not self._accepts_loss()):
                losses += self._all_gone(partition, row, present, told=partition in waiting)
                continue
            head[partition] = row.changed(slots)
            if survivor:
                promotion = Migration(partition, None, NONE, NONE, str(slots[0]), survivor, 0)
                promoted.append((promotion, head[partition].version))
                losses.append(Loss(partition, survivor - 1, False, self._settings.maps_within(survivor)))
        reporter = self.ledger.reporter
        for loss in losses:
            reporter.lost(loss)
        tell_losses(self._out, losses)
        if promoted:
            reporter.started(len(promoted))
            for promotion, version in promoted:
                reporter.ended(promotion, version, well=True)
            reporter.finished()

    def _all_gone(self, partition: int, row: Row, present: set[MemberId], *, told: bool) -> list[Loss]:
        """No copy that holds every map is left: the partition waits, or begins anew. Answers what is to be told."""
        data = self._data_members(present)
        width = len(row.replicas)
        if not data or not self._accepts_loss():
            self.lost.add(partition)
            return [] if told else [Loss(partition, width - 1, True, [])]
        self._begin_anew(partition, row, present, epoch=row.epoch + 1)
        return [Loss(partition, width - 1, True, self._settings.maps_within(width), begun_anew=True)]

    def _begin_anew(self, partition: int, row: Row, present: set[MemberId], *, epoch: int = 0) -> None:
        """Give the partition to one of those who are here, empty."""
        data = self._data_members(present)
        if data:
            width = len(row.replicas)
            raised = row.changed((data[partition % len(data)], *(None,) * (width - 1)), extra=width)
            self.ledger.head[partition] = Row(raised.version, raised.replicas, epoch)

    @property
    def _recovering(self) -> bool:
        view = self._membership.view
        return view is not None and view.recovering

    def _accepts_loss(self) -> bool:
        return self._settings.partitions.lost == "accept" or self.returns.accepted

    def _data_members(self, present: set[MemberId]) -> list[MemberId]:
        return [info.uuid for info in self._membership.data_members() if info.uuid in present]

    # -- the next thing to do

    def control(self) -> None:
        """migration/M-1: look at the table and the members, and do what is due."""
        if not self.ledger.ready or self._paused or (self.delayed_ms and self.ledger.table.assigned):
            return
        if not self._membership.cluster_state.migrates:
            if self.ledger.settled:
                self._membership.consider()
            return
        if not self.planned:
            if self._planning is None:
                self._planning = self._plan()
                self.go_on_planning()
            return
        self._start()
        if not self.running and not self._queue and self.ledger.settled:
            self._membership.consider()

    @property
    def delayed_ms(self) -> int:
        """How much longer the restoring of copies waits after a crash (`partitions.rebalance_delay_ms`)."""
        return max(0, self._resume_ns - self._out.now_ns) // MILLISECOND

    def _discard_plan(self) -> None:
        self.planned = False
        self._planning = None
        self._clear_queue()

    def go_on_planning(self) -> None:
        """Do a part of the plan in the making; when it is made, what it says."""
        if self._planning is None:
            return
        for _ in range(PIECES):
            try:
                next(self._planning)
            except StopIteration:
                self._planning = None
                self.control()
                return
        self._out.timer("planning", 0)

    def _plan(self) -> Generator[None]:
        candidates = [
            Candidate(info.uuid, info.group or info.uuid) for info in self._membership.data_members()
        ]
        if not candidates:
            self.planned = True
            return
        if not self.ledger.head[0].version:
            if self._recovering:
                self._table_of_before(candidates)
            elif len(candidates) >= self._settings.cluster.initial_members:
                self._first_assignment(candidates)
            self.planned = True
            return
        if self.returns.unheard:
            # What they have kept decides where partitions go; it is on its way.
            self.planned = True
            return
        present = {info.uuid for info in self._membership.members()}
        head = self.ledger.head
        # A partition that waits for its copies (migration/M-2) keeps its row, even if a colder replica lives.
        here = [p for p, row in enumerate(head) if p not in self.lost and row.owner in present]
        before = list(head)
        current = [tuple(m if m in present else None for m in head[p].replicas) for p in here]
        if self.layout is not None:
            targets = self.layout(current, candidates, self._replicas)
        else:
            targets = yield from self.returns.arranging(here, current, candidates, self._replicas)
        cleared: dict[int, Row] = {}
        for number, (partition, now, target) in enumerate(zip(here, current, targets, strict=True)):
            if number % PLANNED_AT_ONCE == 0:
                yield
            if (
                tuple(now) == tuple(target)
                or partition in self.running
                or head[partition] != before[partition]
            ):
                continue
            found = plan(partition, tuple(now), tuple(target))
            if found.migrations:
                self._queue[partition] = list(found.migrations)
            elif found.cleared:
                slots = [None if index in found.cleared else member for index, member in enumerate(now)]
                cleared[partition] = head[partition].changed(tuple(slots))
        # What was committed while this was planned is looked at once more, in the end (`committed`) or now.
        self.planned = bool(self._queue or self.running) or head == before
        if self._queue:
            self._waiting.clear()
            for partition in self._queue:
                self._line_up(partition)
            self._out.note("rebalance planned", migrations=self.queued)
            self.ledger.reporter.started(self.queued + len(self.running))
            self.ledger.tell()
        if cleared:
            self.ledger.propose(cleared)

    def _table_of_before(self, candidates: list[Candidate]) -> None:
        """migration/X-1: the table of a cluster that was stopped as a whole."""
        why = self.returns.why_waiting()
        self.returns.note_waiting(why)
        if why:
            return
        rows, lost = self.returns.table(len(self.ledger.head))
        if not rows:
            if len(candidates) >= self._settings.cluster.initial_members:
                self._first_assignment(candidates)
            return
        self.ledger.propose(rows)
        self._out.note("the table of before is found", partitions=len(rows), without_a_copy=len(lost))
        if lost:
            self._repair({info.uuid for info in self._membership.members()})
            changed = {p: row for p in lost if (row := self.ledger.head[p]) != rows[p]}
            self.ledger.publish(changed)
        self.returns.accepted = False

    def _first_assignment(self, candidates: list[Candidate]) -> None:
        empty: list[tuple[str | None, ...]] = [(None,) * self._replicas] * len(self.ledger.head)
        rows = (self.layout or arrange)(empty, candidates, self._replicas)
        self.ledger.propose({p: Row().changed(tuple(row)) for p, row in enumerate(rows)})  # type: ignore[arg-type]
        self._out.note("partitions assigned", count=len(rows), members=len(candidates))

    def _clear_queue(self) -> None:
        self._queue.clear()
        self._waiting.clear()

    def _line_up(self, partition: int) -> None:
        """Of this partition nothing runs, but something is planned."""
        migration = self._queue[partition][0]
        owner = self.ledger.head[partition].owner
        assert owner is not None
        way = Way(migration.source is not None, owner, MemberId(migration.destination))
        self._waiting.setdefault(way, deque()).append(partition)

    def _start(self) -> None:
        """migration/M-5."""
        offered: list[int] = []
        while len(self.running) < self._limit_total and (way := self._free_way()) is not None:
            waiting = self._waiting[way]
            partition = waiting.popleft()
            if not waiting:
                del self._waiting[way]
            row = self.ledger.table.rows[partition]
            if self.ledger.head[partition].version != row.version:
                offered.append(partition)
            elif not self._start_one(partition, row, way):
                self._replan()
                return
        for partition in offered:
            self._line_up(partition)

    def _free_way(self) -> Way | None:
        """The way that is to be gone next, of those whose ends have room; none to a member whose memory is full."""
        load, limit = self._load, self._limit
        short = self._membership.wishes.short
        free = (
            way
            for way in self._waiting
            if load[way.owner] < limit
            and load[way.destination] < limit
            and short.get(way.destination) is not Room.NONE
        )
        return min(
            free, key=lambda way: (way.balances, load[way.owner] + load[way.destination]), default=None
        )

    def _start_one(self, partition: int, row: Row, way: Way) -> bool:
        """Request the next migration of a partition; answers whether the plan still fits."""
        _, owner, destination = way
        migration = self._queue[partition].pop(0)
        if not self._queue[partition]:
            del self._queue[partition]
        try:
            migration.apply_to(row.replicas)
        except ValueError:
            return False
        known = self._membership.member
        if row.owner != owner or known(owner) is None or known(destination) is None:
            return False
        view = self._membership.view
        assert view is not None
        self.running[partition] = Running(migration, row.version, owner, self._out.now_ns)
        self._load[owner] += 1
        self._load[destination] += 1
        self._out.send(owner, MigrationRequest(view.number, migration, row.version))
        return True

    def _forget(self, partition: int) -> Running | None:
        running = self.running.pop(partition, None)
        if running is not None:
            self._load[running.owner] -= 1
            self._load[MemberId(running.migration.destination)] -= 1
        return running

    def _replan(self) -> None:
        self._discard_plan()
        if not self._paused:
            self._paused = True
            pause_ns = FULL_PAUSE_NS if self._membership.wishes.full else PAUSE_NS
            self._out.timer("plan", pause_ns, pause_ns // 2)

    def on_timer(self, name: str) -> None:
        """The pause after a failure ("plan"), or the delay after a crash ("delay"), is over."""
        if name == "plan":
            self._paused = False
            if not self.ledger.table.assigned:
                self._discard_plan()
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
        running.step(MigrationStep.READY)
        migration = running.migration
        replicas = migration.apply_to(head.replicas)
        row = Row(head.version + migration.increment, replicas, head.epoch)  # type: ignore[arg-type]
        self._ended(migration, row.version, well=True, began_ns=running.began_ns)
        self.ledger.propose({message.partition: row})

    def on_refused(self, sender: MemberId, message: MigrationRefused) -> None:
        running = self.running.get(message.partition)
        if running is None or running.version != message.version or running.committing:
            return
        self._forget(message.partition)
        running.step(MigrationStep.REFUSED)
        self._out.note("migration refused", level="debug", partition=message.partition, why=message.why)
        self.ledger.reporter.ended(running.migration, running.version, well=False, began_ns=running.began_ns)
        self.ledger.tell()
        self._replan()

    def committed(self, partitions: list[int]) -> None:
        """A round is committed: these rows are the table now."""
        for partition in partitions:
            running = self.running.get(partition)
            if running is not None and self.ledger.table.rows[partition].version > running.version:
                self._forget(partition)
                running.step(MigrationStep.COMMITTED)
                self.completed += running.phase is MigrationPhase.COMMITTED
                if partition in self._queue and self.planned:
                    self._line_up(partition)
        if partitions and not self.running and not self._queue and not self._paused:
            # Look once more: what is reached must be what the layout wants.
            self.planned = False
        self.control()
        if not self.running and not self._queue and self.ledger.reporter.under_way:
            self.ledger.reporter.finished()
            self.ledger.tell()

    def departures_known(self) -> None:
        """Who wants to leave, or to be lite, has changed: plan anew. Whoever wants that does not wait for a delay."""
        if self._membership.departing:
            self._resume_ns = 0
        self._discard_plan()
        self.control()

    def may_part(self, member: MemberId) -> bool:
        """Whether this member may leave: it holds nothing, and everyone has stored every round (cluster/A-2)."""
        if not self.ledger.ready or not self.ledger.settled:
            return False
        if self._settings.journalled and not self.ledger.kept_by_all:
            # Else nobody's files would say who has its partitions now.
            return False
        if self.why_kept(member) or self._moves(member):
            self._free_since.pop(member, None)
            return False
        return not self._membership.data_members() or self._has_stayed(member)

    def why_kept(self, member: MemberId) -> str:
        """What has to happen before this member may leave, in words that say what helps; empty when nothing has."""
        return why_kept(member, self.ledger.table.rows, self._membership, self._settings.complete())

    def may_demote(self, member: MemberId) -> bool:
        """Whether this member may become lite: it holds nothing, and another data member remains."""
        if not self.ledger.ready or not self.ledger.settled:
            return False
        if self._moves(member) or all(info.uuid == member for info in self._membership.data_members()):
            return False
        return not any(member in row.replicas for row in self.ledger.table.rows)

    @property
    def leftovers(self) -> dict[str, int]:
        """What should be empty when nothing is under way, by name."""
        return {
            "migrations": len(self.running) + len(self._queue),
            "members with migrations": sum(1 for count in self._load.values() if count),
        }

    def _moves(self, member: MemberId) -> bool:
        """Whether a migration that was begun before its wish was known brings something to this member, or takes it."""
        return any(
            member in (running.owner, running.migration.source, running.migration.destination)
            for running in self.running.values()
        )

    def _has_stayed(self, member: MemberId) -> bool:
        """Whether it has been free to go for a while: clients hear meanwhile that it owns nothing any more."""
        now_ns = self._out.now_ns
        if member not in self._free_since:
            self._free_since[member] = now_ns
            self._out.timer("part-look", PARTING_NS)
        return now_ns - self._free_since[member] >= PARTING_NS

    @property
    def queued(self) -> int:
        """Migrations planned and not started."""
        return sum(len(moves) for moves in self._queue.values())


def _taken_back(offered: Row, base: Row) -> Row:
    """The row of before, above the one that was offered (placement/L-6)."""
    return Row(offered.version + 1, base.replicas, base.epoch, base.behind)
