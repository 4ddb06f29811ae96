"""Log of migrations and losses, delivered to the listeners of every member once, in order (H3, H5).

News travel with the rounds of the table replication: a member notifies its listeners of a migration when it applies
the assignment that the migration made. News that some member may lack are the *completed migrations* of the source:
each member keeps them until all have acknowledged, so that a new master can pass them on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from holdfast.core.effects import Announce, Note
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.migration import Migration
from holdfast.core.model.partition_events import NO_PROCESS, Kind, Loss, News, Number
from holdfast.core.outbox import Outbox

RECENT = 2000
"""News kept for listeners that reconnect."""

RANGES_SHOWN = 40


def loss_notes(losses: Iterable[Loss]) -> list[Note]:
    """One for each kind of reaction of an operator."""
    notes: list[Note] = []
    found: dict[tuple[str, str], list[Loss]] = {}
    for loss in losses:
        if loss.all_lost and not loss.begun_anew:
            what = "error", "partitions lost: they wait for a copy to return"
        elif loss.all_lost:
            what = "error", "partitions lost: started again, empty"
        elif loss.maps:
            what = "error", "partitions lost their owners: a backup has taken over, and entries are gone"
        else:
            what = "warning", "partitions lost their owners: a backup has taken over, no entry is gone"
        found.setdefault(what, []).append(loss)
    for (level, kind), same in found.items():
        names = sorted({name for loss in same for name in loss.maps})
        maps = {"maps": names} if names else {}
        partitions = ranges_of([loss.partition for loss in same])
        notes.append(Note(kind, {"count": len(same), "partitions": partitions, **maps}, level))
    return notes


def ranges_of(numbers: list[int]) -> str:
    """Ascending, as `0-3,7`, and how many more there are."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    words = [str(first) if first == last else f"{first}-{last}" for first, last in ranges[:RANGES_SHOWN]]
    more = f",and {len(ranges) - RANGES_SHOWN} more" if len(ranges) > RANGES_SHOWN else ""
    return ",".join(words) + more


class EventLog:
    def __init__(self, out: Outbox) -> None:
        self._out = out
        self._kept: dict[Number, tuple[int, News]] = {}
        self.delivered: Number = (0, 0)
        self._since: Number = (0, 0)
        self._recent: deque[News] = deque(maxlen=RECENT)
        self._whole_after: Number = (0, 0)
        """`recent` has everything that was delivered after this number."""
        self.open: News | None = None
        """The last news of a process that has not ended."""

    def since(self, number: Number) -> tuple[list[News], bool]:
        """The news after this number, in order; and whether these are all."""
        return [news for news in self._recent if news.number > number], number >= self._whole_after

    @property
    def kept(self) -> list[News]:
        """Some member may lack them; oldest first."""
        return [news for _, (_, news) in sorted(self._kept.items())]

    def admitted(self, life: int) -> None:
        """Earlier news than the view `life` do not concern this member.

        If it was away during a process, that process ends for its listeners as far as it had come; they get nothing of
        processes that began before.
        """
        self._kept.clear()
        before = self.delivered
        self._since = self.delivered = self._whole_after = max(self.delivered, (life, 0))
        assert before <= self.delivered, "news are delivered once"
        if self.open is not None:
            over = msgspec.structs.replace(
                self.open, number=self.delivered, kind=Kind.FINISHED, migration=None, version=0
            )
            self.open = None
            self._deliver(over)

    def learn(self, round_number: int, news: Iterable[News], *, whole: bool) -> None:
        """`whole`: they are all that is still to be kept."""
        if whole:
            self._kept.clear()
        for one in sorted(news, key=lambda one: one.number):
            self._kept[one.number] = (round_number, one)
            if one.number > self.delivered:
                self.delivered = one.number
                self._follow(one)
                if one.process > self._since or one.process == NO_PROCESS:
                    self._deliver(one)
        assert self._whole_after <= self.delivered, "complete news were delivered"

    def _deliver(self, news: News) -> None:
        assert news.number <= self.delivered, "recent news were delivered"
        assert not self._recent or self._recent[-1].number <= news.number, "news are delivered in order"
        if len(self._recent) == RECENT:
            self._whole_after = self._recent[0].number
        self._recent.append(news)
        self._out.effects.append(Announce(news))

    def _follow(self, news: News) -> None:
        if news.kind is Kind.FINISHED:
            self.open = None
        elif news.kind is not Kind.LOST:
            self.open = news

    def known(self, round_number: int) -> None:
        """All members have applied the rounds up to this one."""
        for number in [number for number, (brought, _) in self._kept.items() if brought <= round_number]:
            del self._kept[number]


class Reporter:
    """As master: numbers news and keeps them until a round takes them."""

    def __init__(self, out: Outbox) -> None:
        self._out = out
        self.pending: list[News] = []
        self._view = 0
        self._count = 0
        self._process: News | None = None
        self._began_ns = 0

    def view_changed(self, view: int) -> None:
        self._view, self._count = view, 0

    def reset(self) -> None:
        self.pending.clear()
        self._process = None
        self._began_ns = 0

    def take(self) -> list[News]:
        pending, self.pending = self.pending, []
        return pending

    def _add(self, news: News) -> News:
        self._count += 1
        news = msgspec.structs.replace(news, number=(self._view, self._count))
        assert not self.pending or self.pending[-1].number < news.number, "news are numbered as they happen"
        self.pending.append(news)
        return news

    # -- processes of migrations

    @property
    def under_way(self) -> bool:
        return self._process is not None

    def resume(self, event_log: EventLog, untold: Iterable[News]) -> None:
        """Continue after a change of view, from delivered and pending news."""
        self._process = event_log.open
        for news in untold:
            if news.number > event_log.delivered and news.kind is not Kind.LOST:
                self._process = None if news.kind is Kind.FINISHED else news

    def started(self, planned: int) -> None:
        self.finished()
        assert self._process is None, "one process after the other"
        self._began_ns = self._out.now_ns
        process = self._add(News((0, 0), Kind.STARTED, planned=planned))
        self.pending[-1] = self._process = msgspec.structs.replace(process, process=process.number)
        assert self.under_way, "it is over when that is said"

    def ended(self, migration: Migration, version: int, *, well: bool, began_ns: int | None = None) -> None:
        """`version`: of the partition's assignment now; `began_ns`: when the migration was requested."""
        before = self._process or News((0, 0), Kind.STARTED)
        after = News(
            (0, 0),
            Kind.COMPLETED if well else Kind.FAILED,
            before.process,
            before.planned,
            before.completed + well,
            before.failed + (not well),
            self._elapsed_ms(),
            migration,
            version,
            took_ms=(self._out.now_ns - began_ns) // MILLISECOND if began_ns is not None else 0,
        )
        added = self._add(after)
        if self._process is not None:
            self._process = added

    def finished(self) -> None:
        last, self._process = self._process, None
        if last is None:
            return
        over = self._add(
            News(
                (0, 0),
                Kind.FINISHED,
                last.process,
                last.planned,
                last.completed,
                last.failed,
                self._elapsed_ms() if self._began_ns else last.elapsed_ms,
            )
        )
        self._out.note(
            "rebalance finished", completed=over.completed, failed=over.failed, elapsed_ms=over.elapsed_ms
        )

    def _elapsed_ms(self) -> int:
        return (self._out.now_ns - self._began_ns) // MILLISECOND if self._began_ns else 0

    # -- losses

    def lost(self, loss: Loss) -> None:
        self._add(News((0, 0), Kind.LOST, loss=loss))
