"""A master whose cluster stores whatever it offers: for the tests of its decisions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.core.seats import A, B, C, Seat, view_of

from holdfast.config import ClusterSettings, MapSettings, PartitionSettings, Settings
from holdfast.core.effects import Announce, Note, Send, SetTimer
from holdfast.core.messages import (
    Heartbeat,
    Holdings,
    Message,
    MigrationReady,
    MigrationRefused,
    MigrationRequest,
    TableCommit,
    TableFetch,
    TableOffer,
    TableReport,
    TableStored,
)
from holdfast.core.migration.migration_master import MigrationMaster
from holdfast.core.model.ids import MemberId
from holdfast.core.model.migration import ReplicaList
from holdfast.core.model.notices import RoundCommitted, TableGathered, ViewInstalled
from holdfast.core.model.partition_events import Kind, News
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.views import Intent, View
from holdfast.core.placement.layout import Candidate

E = MemberId("e")


def settings(
    count: int = 1, *, initial: int = 1, backups: int = 1, deep: int | None = None, **more: object
) -> Settings:
    maps = {"default": MapSettings(backups=backups)}
    if deep is not None:
        maps["deep"] = MapSettings(backups=deep)
    return Settings(
        cluster=ClusterSettings(initial_members=initial),
        partitions=PartitionSettings(count=count, **more),  # type: ignore[arg-type]
        maps=maps,
    )


class Lead(Seat):
    """A member with the machine of the master; the other members store whatever is offered."""

    def __init__(self, *rows: Assignment, chosen: Settings | None = None, arranged: bool = False) -> None:
        """`rows`: the table that it has applied before."""
        self.arranged = arranged
        """Whether the layout is the real one."""
        self.settings = chosen or settings(max(1, len(rows)))
        self.wanted: list[ReplicaList] | None = None
        """The layout; None: what is there."""
        self.asked: list[Sequence[Candidate]] = []
        self.log: list[tuple[MemberId, Message]] = []
        """What was sent, but for the rounds of the table."""
        self.timers_set: list[SetTimer] = []
        self.notes: list[str] = []
        self.silent: set[MemberId] = set()
        """Who stores nothing."""
        self.offered: list[tuple[int, int, list[int], list[Kind]]] = []
        """View, round, partitions and news of each round, as the first of the others heard of it."""
        self.bringing: Holdings | None = None
        """What it tells itself of its own files, when it comes."""
        super().__init__(A, self.settings.partitions.count)
        for partition, row in enumerate(rows):
            self.table.rows[partition] = row
        self.news: list[News] = []
        self.migrations = MigrationMaster(
            self.settings,
            self.out,
            self.membership,
            self.table_replication,
            1 + self.settings.replica_backups(),
        )
        if not self.arranged:
            self.migrations.layout = self.layout
        self.parts: Callable[[MemberId], bool] = self.migrations.can_leave
        """Who may leave."""

    def can_leave(self, member: MemberId) -> bool:
        return self.parts(member)

    def layout(
        self, current: Sequence[ReplicaList], candidates: Sequence[Candidate], replicas: int
    ) -> list[ReplicaList]:
        self.asked.append(candidates)
        return list(current) if self.wanted is None else self.wanted[: len(current)]

    def on_view(self, notice: ViewInstalled) -> None:
        self.migrations.on_view(notice)
        if self.bringing is not None:
            self.migrations.returns.on_inventory(A, self.bringing)
        self.table_replication.on_view(notice)

    def on_committed(self, notice: RoundCommitted) -> None:
        self.migrations.on_committed(notice)

    def on_gathered(self, notice: TableGathered) -> None:
        self.migrations.on_gathered(notice)

    def enter(self, view: View | tuple[MemberId, ...] = (A, B, C)) -> Lead:
        """The view, in which all that is stored is told, and everyone else knows nothing."""
        self.install(view if isinstance(view, View) else view_of(1, *view))
        self.settle()
        return self

    def settle(self) -> Lead:
        """Let the others store the rounds, and planning go on."""
        while effects := self.effects():
            for effect in effects:
                if isinstance(effect, SetTimer):
                    self.timers_set.append(effect)
                    if effect.name == "planning":
                        self.migrations.go_on_planning()
                elif isinstance(effect, Announce):
                    self.news.append(effect.news)
                elif isinstance(effect, Note):
                    self.notes.append(effect.kind)
                elif isinstance(effect, Send):
                    self._answer(effect.to, effect.message)
        return self

    def _answer(self, to: MemberId, message: Message) -> None:
        if isinstance(message, TableFetch):
            self.hear(to, TableReport(message.view, [], []))
        elif isinstance(message, TableOffer):
            words = (message.view, message.round)
            if words not in [one[:2] for one in self.offered]:
                partitions = [partition for partition, _ in message.rows]
                self.offered.append((*words, partitions, [one.kind for one in message.news]))
            if to not in self.silent:
                self.hear(to, TableStored(message.view, message.round))
        elif not isinstance(message, TableCommit):
            self.log.append((to, message))

    def hear(self, sender: MemberId, message: Message) -> None:
        if isinstance(message, MigrationReady):
            self.migrations.on_ready(sender, message)
        elif isinstance(message, MigrationRefused):
            self.migrations.on_refused(sender, message)
        elif isinstance(message, Holdings):
            self.migrations.on_inventory(sender, message)
        else:
            super().hear(sender, message)

    def requests(self) -> list[tuple[MemberId, int, str, int]]:
        """Migrations that were asked for since this was called last: of whom, partition, destination, version."""
        log, self.log = self.log, []
        return [
            (to, one.migration.partition, one.migration.destination, one.version)
            for to, one in log
            if isinstance(one, MigrationRequest)
        ]

    def ready(self, partition: int = 0, version: int | None = None, sender: MemberId | None = None) -> None:
        """The primary says that the destination holds everything."""
        row = self.table.rows[partition]
        self.hear(
            sender or row.owner or A,
            MigrationReady(1, partition, row.version if version is None else version),
        )
        self.settle()

    def told(self) -> list[tuple[Kind, int]]:
        """News since this was asked last: the kind, and the version."""
        news, self.news[:] = list(self.news), []
        return [(one.kind, one.version) for one in news]

    def wish(self, member: MemberId, wish: Intent) -> None:
        view = self.membership.view
        assert view is not None
        self.membership.intents.heard(
            Heartbeat(member, 1, view.number, wish=wish, wish_number=1), view.number
        )

    def pass_ns(self, time_ns: int) -> None:
        self.out.now_ns += time_ns
