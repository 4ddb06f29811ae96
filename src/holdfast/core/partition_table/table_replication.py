"""Replication of the partition table: how a change by the master becomes the table of all members (H1, H2; DESIGN rule
1).

The master offers new assignments in numbered rounds, one at a time: first to the members that they name, then, when
these have stored them, to all others. When a majority of the view has stored the round, it is committed: the master
applies it, then the others do. So a migration is committed by its destination, by the master, and by its source, in
this order (rule 6).

Why two phases: partition 7 moves from 1 to 4, which holds a complete copy. Suppose the master sent the new assignment
to all members at once and crashed, and only 5 had stored it. 4 may accept another transfer of partition 7, and drop the
copy. Then the next master finds the assignment at 5 and makes 4 the primary, without data. In two phases 4 stores it
before 5 gets it, and then accepts no other transfer of this partition until the outcome is known. Any majority that
decides the next view has a member that stored the round (membership/A-2).

- partition_table/L-1: A member stores rounds of the master of the installed view only, and none after it has accepted a
  next view.
- partition_table/L-2: A round is offered to other members only when every member that its new assignments name has
  stored it, and committed only when a majority of the view has. So an assignment that is known outside its replicas is
  known to, and accepted by, all of them.
- partition_table/L-3: A new master first gathers the newest assignment of every partition, stored or applied, from
  every member of its view. With membership/A-2 this finds every committed one. Until then it offers nothing.
- partition_table/L-4: Each view begins with a round that has the whole table, for members that returned or were late.
- partition_table/L-5: A member that is removed though alive forgets assignments that it stored and that were never
  committed.
- partition_table/L-6: When a member goes, the master takes back, with a higher version, what it has offered and not
  committed and what names that member; but never an offer of an earlier master, which may have committed it.
- partition_table/L-7: News travel in the rounds, and every member keeps them until all have applied the round: what one
  member may have delivered to its listeners, a new master can deliver to all.
- partition_table/L-8: Every `partitions.publish_interval_ms` the master compares the stamps of all tables. A member
  whose table differs gets the whole table.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from holdfast.config import Settings
from holdfast.core.journal.log import Log
from holdfast.core.membership.membership import Membership
from holdfast.core.messages import (
    TableCheck,
    TableCommit,
    TableDiffers,
    TableFetch,
    TableOffer,
    TableReport,
    TableStored,
)
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.migration import Migration
from holdfast.core.model.notices import (
    AssignmentChanged,
    BeatHeard,
    RoundCommitted,
    RoundDurable,
    TableCurrent,
    TableGathered,
    ViewInstalled,
)
from holdfast.core.model.partition_events import News
from holdfast.core.model.partition_table import Assignment, Table
from holdfast.core.model.timer_name import TimerName
from holdfast.core.model.views import MemberInfo, View
from holdfast.core.outbox import Outbox
from holdfast.core.partition_table.event_log import EventLog, Reporter
from holdfast.core.partition_table.exchange_history import ExchangeHistory


class TableDelegate(Protocol):
    def active_migrations(self) -> list[tuple[Migration, int]]:
        """Migrations whose primary is this member, with the version from which each starts."""


class Round:
    __slots__ = ("everyone", "named", "news", "number", "rows", "stored_by")

    def __init__(
        self, number: int, rows: dict[int, Assignment], news: list[News], named: set[MemberId]
    ) -> None:
        self.number = number
        self.rows = rows
        self.news = news
        self.named = named
        """Named by the new assignments; they get the offer first."""
        self.everyone = False
        """The other members have got the offer."""
        self.stored_by: set[MemberId] = set()


class TableReplication:
    def __init__(
        self,
        table: Table,
        settings: Settings,
        membership: Membership,
        out: Outbox,
        log: Log,
        delegate: TableDelegate,
    ) -> None:
        self.table = table
        self._check_ns = settings.partitions.publish_interval_ms * MILLISECOND
        self._membership = membership
        self._out = out
        self._log = log
        self._delegate = delegate
        self._stored: dict[int, Assignment] = {}
        """Newest known assignments above the table, perhaps not committed."""
        self._offers: dict[int, TableOffer] = {}
        self._decided = 0
        """Rounds of this view up to this one are committed; a commit may arrive before its offer."""
        self._applied_round = 0
        self.event_log = EventLog(out)
        self.exchanges = ExchangeHistory(out, membership.me, table)
        self._unheard: dict[tuple[int, int], News] = {}
        """Offered and not applied."""
        self._certain: dict[tuple[int, int], News] = {}
        """As a new master: news that others have applied."""
        self._early: list[tuple[MemberId, TableOffer | TableFetch | TableCommit]] = []
        self.current = False
        """This member has applied a round since it joined; before, its table may be long out of date."""
        # as master
        self.ready = False
        """This member is the master and knows the newest table (H2)."""
        self.head: list[Assignment] = list(table.rows)
        """As master: the table with every change that is offered or queued."""
        self._inherited: list[Assignment] = list(table.rows)
        """As master: the newest assignments of earlier masters."""
        self._queued: dict[int, Assignment] = {}
        self._round: Round | None = None
        self._number = 0
        self._confirmed: dict[MemberId, int] = {}
        self._applied_by: dict[MemberId, int] = {}
        self._reports: dict[MemberId, TableReport] | None = None
        self.reporter = Reporter(out)
        self._durable_round = 0
        """Last round of this view that is known after a restart."""

    # -- every member

    def on_view(self, notice: ViewInstalled) -> None:
        old, view = notice.old, notice.new
        was_master = self.ready
        self.ready = False
        self._offers.clear()
        self._decided = self._applied_round = self._durable_round = 0
        unsure = [*(self._round.news if self._round is not None else ()), *self.reporter.take()]
        self._unheard.update({news.number: news for news in unsure})
        self._round = None
        self._confirmed = {}
        self._applied_by = {}
        self._reports = None
        if old is None:
            self.current = False
        if view is None:
            self._stored.clear()
            self._queued.clear()
            self._early.clear()
            self._unheard.clear()
            self.reporter.reset()
            return
        mine = self._membership.member(self._membership.me)
        if old is None and mine is not None:
            self.event_log.admitted(mine.life)
        for partition, row in self._membership.carried:
            if row.version > self._newest(partition).version:
                self._stored[partition] = row
        self.reporter.view_changed(view.number)
        if self._membership.is_master:
            self._number = 0
            if was_master:
                self._begin([], _staying(old, view))
            else:
                self._fetch(view)
        early, self._early = self._early, []
        for sender, message in early:
            if isinstance(message, TableOffer):
                self.on_offer(sender, message)
            elif isinstance(message, TableCommit):
                self.on_commit(sender, message)
            else:
                self.on_fetch(sender, message)

    def on_offer(self, sender: MemberId, offer: TableOffer) -> None:
        view = self._membership.view
        if view is None or offer.view > view.number:
            self._early.append((sender, offer))
            return
        if offer.view < view.number or sender != self._membership.master:
            return
        if self._membership.agreement.fenced:
            return
        self._offers[offer.round] = offer
        self._unheard.update({news.number: news for news in offer.news})
        for partition, row in offer.rows:
            if row.version > self._newest(partition).version:
                self._stored[partition] = row
        self._out.send(sender, TableStored(offer.view, offer.round))
        self._apply_up_to(offer.committed)

    def on_commit(self, sender: MemberId, commit: TableCommit) -> None:
        view = self._membership.view
        if view is None or commit.view > view.number:
            self._early.append((sender, commit))
        elif commit.view == view.number and sender == self._membership.master:
            self._apply_up_to(commit.round)

    def on_fetch(self, sender: MemberId, fetch: TableFetch) -> None:
        view = self._membership.view
        if view is None or fetch.view > view.number:
            self._early.append((sender, fetch))
            return
        if fetch.view < view.number or sender != self._membership.master:
            return
        self._out.send(sender, self._report(fetch.view))

    def _report(self, view: int) -> TableReport:
        offered = [news for _, news in sorted(self._unheard.items())]
        return TableReport(
            view, self.known(), self._delegate.active_migrations(), self.event_log.kept, offered
        )

    def _newest(self, partition: int) -> Assignment:
        return self._stored.get(partition, self.table.rows[partition])

    def stored_assignment(self, partition: int) -> Assignment | None:
        return self._stored.get(partition)

    def base(self, partition: int) -> Assignment:
        """As master: the newest assignment that may be committed: this member's own, or one of an earlier master, which
        may have committed it unnoticed.
        """
        applied, inherited = self.table.rows[partition], self._inherited[partition]
        return inherited if inherited.version > applied.version else applied

    def known(self) -> list[tuple[int, Assignment]]:
        """The newest ones, stored or applied."""
        return [(p, self._newest(p)) for p in range(len(self.table.rows)) if self._newest(p).version]

    def _apply_up_to(self, number: int) -> None:
        """Apply rounds in order: a commit, or a later offer, may arrive before an offer."""
        self._decided = max(self._decided, number)
        while self._applied_round < self._decided and self._applied_round + 1 in self._offers:
            offer = self._offers.pop(self._applied_round + 1)
            assert offer.round == self._applied_round + 1, "an offer is kept under its round"
            self._apply(offer.round, offer.rows, offer.news)
            self._note_current()

    def _note_current(self) -> None:
        if not self.current:
            self.current = True
            self._out.notify(TableCurrent())

    def _apply(self, number: int, rows: Iterable[tuple[int, Assignment]], news: list[News]) -> None:
        assert number == self._applied_round + 1, "rounds are applied one after the other"
        self._applied_round = number
        for partition, row in rows:
            old = self.table.apply(partition, row)
            stored = self._stored.get(partition)
            if stored is not None and stored.version <= row.version:
                del self._stored[partition]
            assert self._newest(partition).version >= self.table.rows[partition].version >= row.version
            if old is not None:
                self._out.notify(AssignmentChanged(partition, old, row))
        view = self._membership.view
        if view is not None:
            self._log.notify_when_durable(RoundDurable(view.number, number))
        for one in news:
            self._unheard.pop(one.number, None)
        self.event_log.learn(number, news, whole=number == 1)

    def on_durable(self, notice: RoundDurable) -> None:
        present = self._membership.view
        if present is not None and present.number == notice.view:
            self._durable_round = max(self._durable_round, notice.round)

    @property
    def kept_by_all(self) -> bool:
        """As master: every member would know the newest table after a restart."""
        others = [uuid for uuid in self._present() if uuid != self._membership.me]
        kept = [self._durable_round, *(self._applied_by.get(uuid, 0) for uuid in others)]
        return min(kept) >= self._number

    def on_check(self, sender: MemberId, check: TableCheck) -> None:
        view = self._membership.view
        if view is None or check.view != view.number or sender != self._membership.master:
            return
        stamp = self.table.stamp
        if check.round == self._applied_round and check.stamp != stamp:
            self._out.note("partition table differs from the master's", level="error", round=check.round)
            self._out.send(sender, TableDiffers(view.number, check.round, stamp))

    # -- the master

    def _fetch(self, view: View) -> None:
        self._reports = {self._membership.me: self._report(view.number)}
        for uuid in self._unreported():
            self._out.send(uuid, TableFetch(view.number))
        self._gather()

    def _unreported(self) -> list[MemberId]:
        assert self._reports is not None
        return [info.uuid for info in self._membership.members() if info.uuid not in self._reports]

    def on_report(self, sender: MemberId, report: TableReport) -> None:
        view = self._membership.view
        if self._reports is None or view is None or report.view != view.number:
            return
        self._reports[sender] = report
        self._gather()

    def _gather(self) -> None:
        assert self._reports is not None
        if self._unreported():
            return
        reports, self._reports = self._reports, None
        self.head = list(self.table.rows)
        active: list[tuple[Migration, int]] = []
        for report in reports.values():
            active += report.active
            for partition, row in report.rows:
                if row.version > self.head[partition].version:
                    self.head[partition] = row
        assert all(row.version >= mine.version for row, mine in zip(self.head, self.table.rows, strict=True))
        self._inherited = list(self.head)
        for report in reports.values():
            self._certain.update({news.number: news for news in report.news})
            self._unheard.update({news.number: news for news in report.offered})
        assert not self.ready, "only who does not know the newest table looks for it"
        self._out.note(
            "newest partition table found", version=sum(row.version for row in self.head), of=len(reports)
        )
        self._begin(active, set())

    def _begin(self, active: list[tuple[Migration, int]], staying: set[MemberId]) -> None:
        assert self._membership.is_master, "the master alone changes the table"
        assert self._round is None, "a view begins with no round"
        self.ready = True
        self._out.timer(TimerName.TABLE, self._check_ns)
        self._out.notify(TableGathered(tuple(active), frozenset(staying)))
        self._queued = {p: row for p, row in enumerate(self.head) if row.version}
        if self._queued or self.reporter.pending:
            self._start_round()
        else:
            self._note_current()
            self._out.notify(RoundCommitted(()))

    def send_news(self) -> None:
        """As master: send news, even without a changed assignment."""
        self._start_round()

    def propose(self, rows: dict[int, Assignment]) -> None:
        assert self.ready
        for partition, row in rows.items():
            assert row.version > self.head[partition].version, (partition, row, self.head[partition])
            self.head[partition] = row
        self._queued.update(rows)
        self._start_round()

    def publish(self, rows: dict[int, Assignment]) -> None:
        """As master: publish assignments of the head, with pending news."""
        assert self.ready, "the master alone changes the table"
        self._queued.update(rows)
        self._start_round()

    def _start_round(self) -> None:
        if self._round is not None or self._membership.agreement.fenced:
            return
        if not self._queued and not self.reporter.pending:
            return
        if not self.ready:
            # The last commit has let this member leave: the next master continues.
            return
        self._number += 1
        assert self._number > self._applied_round, "a round comes after those that are applied"
        rows, self._queued = self._queued, {}
        news = self._news()
        self._round = Round(self._number, rows, news, self._named(rows))
        self._offer(self._round, [uuid for uuid in self._present() if uuid in self._round.named])
        self._advance()

    def _named(self, rows: dict[int, Assignment]) -> set[MemberId]:
        """partition_table/L-2: they have to store these assignments first."""
        present = {info.uuid for info in self._membership.members()}
        committed = self.table.rows
        return {
            member
            for partition, row in rows.items()
            if row.version > committed[partition].version
            for member in row.replicas
            if member in present
        }

    def settle_events(self) -> None:
        """As master, when the assignments of the view are known: keep the inherited news that agree with them."""
        offered = {n: news for n, news in self._unheard.items() if news.agrees_with(self.head)}
        self._unheard = dict(sorted((offered | self._certain).items()))
        self._certain = {}
        self.reporter.resume(self.event_log, self._unheard.values())

    def _news(self) -> list[News]:
        """partition_table/L-7: since the last round; in the first round of a view, all that some member may lack."""
        fresh = self.reporter.take()
        if self._number > 1:
            return fresh
        older = self._unheard | {news.number: news for news in self.event_log.kept}
        self._unheard = {}
        return [older[number] for number in sorted(older)] + fresh

    def _present(self) -> list[MemberId]:
        return [info.uuid for info in self._membership.members()]

    def _offer(self, current: Round, to: list[MemberId]) -> None:
        view = self._membership.view
        assert view is not None
        rows = sorted(current.rows.items())
        number = current.number
        offer = TableOffer(view.number, number, number - 1, rows, current.news)
        for uuid in to:
            if uuid != self._membership.me:
                self._out.send(uuid, offer)
                continue
            for partition, row in rows:
                if row.version > self._newest(partition).version:
                    self._stored[partition] = row
            current.stored_by.add(uuid)

    def on_stored(self, sender: MemberId, stored: TableStored) -> None:
        view = self._membership.view
        if not self.ready or view is None or stored.view != view.number:
            return
        self._confirmed[sender] = max(stored.round, self._confirmed.get(sender, 0))
        if self._round is not None and stored.round == self._round.number:
            self._round.stored_by.add(sender)
            self._advance()
        elif self.settled:
            # A member that waits for the last round may leave.
            self._membership.consider()

    def rounds(self) -> tuple[int, int]:
        """For heartbeats: the last round that is durable here, and, on the master, the last one that all members
        have.
        """
        if not self.ready:
            return self._durable_round, 0
        others = [uuid for uuid in self._present() if uuid != self._membership.me]
        known = min((self._applied_by.get(uuid, 0) for uuid in others), default=self._applied_round)
        known = min(known, self._applied_round)
        assert self._durable_round <= self._applied_round, "only what is applied is durable"
        self.event_log.known(known)
        return self._durable_round, known

    def on_beat(self, notice: BeatHeard) -> None:
        sender = self._membership.member(notice.sender)
        present = self._membership.view
        if sender is None or sender.life != notice.life or present is None or notice.view != present.number:
            return
        self._applied_by[sender.uuid] = max(notice.applied, self._applied_by.get(sender.uuid, 0))
        if sender.uuid == self._membership.master:
            self.event_log.known(min(notice.known, self._applied_round))

    def _advance(self) -> None:
        current = self._round
        assert current is not None
        if not current.named <= current.stored_by or self._membership.agreement.fenced:
            return
        assert current.number == self._number, "the newest round is the one under way"
        if not current.everyone:
            current.everyone = True
            self._offer(current, [uuid for uuid in self._present() if uuid not in current.named])
        if self._may_commit(current):
            self._commit(current)

    def _may_commit(self, current: Round) -> bool:
        return self._membership.is_quorum(current.stored_by)

    def _commit(self, current: Round) -> None:
        view = self._membership.view
        assert view is not None
        assert current is self._round, "one round is under way"
        assert current.everyone, "those whom it names have it, and all were asked (partition_table/L-2)"
        assert current.number == self._number, "the newest round is the one under way"
        self._round = None
        for info in view.members:
            if info.uuid != self._membership.me:
                self._out.send(info.uuid, TableCommit(view.number, current.number))
        self._apply(current.number, sorted(current.rows.items()), current.news)
        self._note_current()
        self._out.notify(RoundCommitted(tuple(sorted(current.rows))))
        self._start_round()

    @property
    def leftovers(self) -> dict[str, int]:
        return {
            "rows stored and never applied": len(self._stored),
            "offers never decided": len(self._offers),
            "early rounds": len(self._early),
            "rows to offer": len(self._queued) + (self._round is not None),
            "reports of a table without a search": len(self._reports or ()),
        }

    @property
    def settled(self) -> bool:
        """As master: every member has stored every round, and none is in progress."""
        if not self.ready or self._round is not None or self._queued:
            return False
        others = [uuid for uuid in self._present() if uuid != self._membership.me]
        return all(self._confirmed.get(uuid, 0) >= self._number for uuid in others)

    def on_timer(self) -> None:
        """partition_table/L-8."""
        view = self._membership.view
        if not self.ready or view is None:
            return
        self._out.timer(TimerName.TABLE, self._check_ns)
        if self.settled and self._applied_round == self._number:
            for uuid in self._present():
                if uuid != self._membership.me:
                    self._out.send(uuid, TableCheck(view.number, self._number, self.table.stamp))

    def on_differs(self, sender: MemberId, answer: TableDiffers) -> None:
        """partition_table/L-8: send the whole table again. A member with other replicas at the same version then
        detects two histories, and stops.
        """
        view = self._membership.view
        if not self.ready or view is None or answer.view != view.number or answer.round != self._number:
            return
        self._out.note("partition table differs", level="error", member=sender, round=answer.round)
        self._queued = {p: row for p, row in enumerate(self.head) if row.version} | self._queued
        self._start_round()


def _staying(old: View | None, new: View) -> set[MemberId]:
    before = {_life(info) for info in old.members} if old else set()
    return {info.uuid for info in new.members if _life(info) in before}


def _life(info: MemberInfo) -> tuple[MemberId, int]:
    return info.uuid, info.life
