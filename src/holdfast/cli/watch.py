"""`holdfast cluster watch`: one line for each event of partitions and zones."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from queue import Empty, Queue
from typing import Any, Literal, assert_never

import click
import msgspec
from msgspec import UNSET, UnsetType
from rich.text import Text

from holdfast.cli.answers import Answer, Described
from holdfast.cli.operator_command import Call, operator_command
from holdfast.client.operator import Gap, Listening, Silence, Watcher
from holdfast.client.zone_events import ZoneEvent, ZoneEventKind
from holdfast.client.zone_watcher import ZonesGap, ZonesWatched, ZoneWatcher
from holdfast.core.model.member_status import MemberStatus
from holdfast.core.model.migration import NONE, Migration
from holdfast.core.model.partition_events import Kind, Loss, News, Number
from holdfast.core.partition_table.event_log import ranges_of

Told = News | Listening | Gap | Silence | ZoneEvent | ZonesWatched | ZonesGap
SUMMARY_S = 1.0
"""Least time between two lines of a summary."""
ALARMING = {ZoneEventKind.RESET, ZoneEventKind.FAILING}
"""Events that are printed in red."""


class ListeningEvent(Answer):
    """The command watches partitions through this member."""

    member: str
    cluster_state: str
    kind: Literal["listening"] = "listening"


class SilenceEvent(Answer):
    """No member answers; the command tries again."""

    reason: str
    kind: Literal["silence"] = "silence"


class GapEvent(Answer):
    """Earlier events are unknown."""

    kind: Literal["gap"] = "gap"


class ZonesWatchedEvent(Answer):
    """The command watches these zones from a revision of the metastore on."""

    zones: list[str]
    revision: int
    kind: Literal["zones watched"] = "zones watched"


class ZonesGapEvent(Answer):
    """Earlier events of zones are unknown."""

    reason: str
    kind: Literal["zones gap"] = "zones gap"


class MigrationCounts(msgspec.Struct):
    """Finished migrations since the last line, and of the present rebalance."""

    completed: int
    failed: int
    ended: int
    planned: int


class SummaryEvent(Answer):
    """With --summary: counts since the last line."""

    migrations: MigrationCounts
    zones: dict[str, int]
    taken_over: int
    lost: dict[str, list[int]]
    kind: Literal["summary"] = "summary"


class MovedReplica(msgspec.Struct):
    """A migration; an index of -1 is none."""

    form: str
    partition: int
    source: str | None
    source_current: int
    source_new: int
    destination: str
    destination_current: int
    destination_new: int


class LostPartition(msgspec.Struct):
    """A partition that lost its owner."""

    partition: int
    lost_backups: int
    all_lost: bool
    maps: list[str]
    begun_anew: bool


class PartitionEvent(Answer):
    """An event of a rebalance, a migration or a loss."""

    number: Number
    kind: Kind
    process: Number
    planned: int
    completed: int
    failed: int
    elapsed_ms: int
    version: int
    took_ms: int
    remaining: int
    migration: MovedReplica | UnsetType = UNSET
    loss: LostPartition | UnsetType = UNSET


Event = (
    ListeningEvent
    | SilenceEvent
    | GapEvent
    | ZonesWatchedEvent
    | ZonesGapEvent
    | SummaryEvent
    | PartitionEvent
    | ZoneEvent
)


class Lines:
    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def of(self, event: Told) -> str:
        match event:
            case Listening(status):
                return f"watching {status.cluster} through {status.name}: {status.cluster_state}"
            case Silence(why):
                return f"no member answers: {why}; trying again"
            case Gap():
                return "earlier events are unknown here: see holdfast status"
            case ZonesWatched(zones, revision):
                return f"watching zones as of revision {revision}: {', '.join(zones) or 'there are none'}"
            case ZonesGap(why):
                return f"earlier events of zones are unknown: {why}; look at holdfast zone list"
            case ZoneEvent():
                return _of_zone(event)
            case News():
                return self._news(event)

    def learn(self, status: MemberStatus | None) -> None:
        """Learn names of members; former members keep theirs."""
        self._names.update({row.uuid: row.name for row in (status.members if status else ())})

    def name(self, uuid: str | None) -> str:
        return "none" if uuid is None else self._names.get(uuid, uuid[:8])

    def _news(self, news: News) -> str:
        match news.kind:
            case Kind.STARTED:
                return f"started: {news.planned} migrations planned"
            case Kind.FINISHED:
                left = f", {news.remaining} planned again" if news.remaining else ""
                return (
                    f"finished: {news.completed} of {news.planned} done, {news.failed} failed{left}, "
                    f"{news.elapsed_ms / 1000:.1f} s"
                )
            case Kind.LOST:
                assert news.loss is not None
                return _lost(news.loss)
            case Kind.COMPLETED | Kind.FAILED:
                assert news.migration is not None
                ended = news.completed + news.failed
                count = f"{ended} of {news.planned}" if news.planned else "one"
                failed = "" if news.kind is Kind.COMPLETED else "FAILED "
                return f"{count}: {failed}{self._moved(news.migration)}, {news.took_ms} ms"

    def _moved(self, done: Migration) -> str:
        text = f"{done.kind} partition {done.partition} replica {done.destination_new}: "
        if done.source is None:
            text += f"to {self.name(done.destination)}"
            before = (
                "" if done.destination_current == NONE else f", which was replica {done.destination_current}"
            )
            return text + before
        text += f"{self.name(done.source)} to {self.name(done.destination)}"
        if done.destination_current != NONE:
            text += f", which was replica {done.destination_current}"
        if done.source_new != NONE:
            text += f"; {self.name(done.source)} is replica {done.source_new} now"
        return text


def _lost(loss: Loss) -> str:
    where = f"partition {loss.partition}: "
    if not _costs(loss):
        return where + _fate(loss)
    return f"LOST {where}{_fate(loss)}"


def _fate(loss: Loss) -> str:
    if loss.all_lost and not loss.begun_anew:
        return "every copy is gone; it waits for a member that holds one to return"
    maps = f"entries are lost of: {', '.join(loss.maps)}" if loss.maps else "no entry is lost"
    if loss.all_lost:
        return f"every copy is gone; it continues empty; {maps}"
    backups = f" and {loss.lost_backups} backups are" if loss.lost_backups else " is"
    return f"the owner{backups} gone; a backup has taken over; {maps}"


def _costs(loss: Loss) -> bool:
    """Whether entries are lost or unavailable: not if a backup with all of them took over."""
    return loss.all_lost or bool(loss.maps)


def _of_zone(event: ZoneEvent) -> str:
    who = f"zone {event.zone}"
    before, after = " ".join(event.before) or "none", " ".join(event.after) or "none"
    if event.partition is not None:
        who += f" partition {event.partition}"
    kind = ZoneEventKind
    match event.kind:
        case kind.CREATED:
            return f"{who}: created, " + ", ".join(
                f"{count[0]} {name}" for name, count in event.changed.items()
            )
        case kind.ALTERED:
            changed = (f"{name} {_word(was)} to {_word(now)}" for name, (was, now) in event.changed.items())
            return f"{who}: altered, {', '.join(changed)}"
        case kind.RENAMED:
            return f"zone {event.was}: is called {event.zone} now"
        case kind.DROPPED:
            return f"{who}: dropped, with everything in it"
        case kind.DATA_NODES:
            return f"{who}: members that may hold it: {before} to {after}"
        case kind.RESET_ASKED:
            which = ", ".join(map(str, event.partitions)) or "all"
            return f"{who}: reset of partitions that have lost their majority ({which})"
        case kind.RESET:
            return f"{who}: RESET, continues with {after}; data that only others had is lost"
        case kind.LEADER:
            return f"{who}: leader {after} in term {event.term}, was {before}"
        case kind.FAILING:
            return f"{who}: FAILING on {after}, {event.attempts} times: {event.why}"
        case kind.PLACED | kind.MOVE_BEGUN | kind.MOVE_CHANGED | kind.MOVE_GIVEN_UP | kind.ASSIGNED:
            return f"{who}: {_of_move(event, before, after)}"
    assert_never(event.kind)


def _of_move(event: ZoneEvent, before: str, after: str) -> str:
    """An event about the replicas of one partition of a zone."""
    forced = ", by force" if event.by_force else ""
    match event.kind:
        case ZoneEventKind.PLACED:
            return f"placed on {after}"
        case ZoneEventKind.MOVE_BEGUN:
            return f"move started, {before} to {after}{forced}"
        case ZoneEventKind.MOVE_CHANGED:
            return f"move has another target, {after}{forced}"
        case ZoneEventKind.MOVE_GIVEN_UP:
            return f"move to {after} cancelled, stays on {before}"
        case _:
            return f"moved, {before} to {after}{forced}"


class Summary:
    """Counts of events that concern many partitions, printed in one line."""

    def __init__(self) -> None:
        self._taken_over = 0
        """Partitions whose owner was lost and whose backup had every entry."""
        self._lost: dict[str, list[int]] = {}
        """Partitions that lost entries, by their fate."""
        self._done = Counter[str]()
        self._zones = Counter[str]()
        self._progress = (0, 0)
        """Finished and planned migrations of the present rebalance."""

    def takes(self, event: Told) -> bool:
        """Count this event if it is one of many; returns whether it was counted."""
        if isinstance(event, News) and event.loss is not None:
            if _costs(event.loss):
                self._lost.setdefault(_fate(event.loss), []).append(event.loss.partition)
            else:
                self._taken_over += 1
            return True
        if isinstance(event, News) and event.kind in (Kind.COMPLETED, Kind.FAILED):
            self._done[event.kind.value] += 1
            self._progress = (event.completed + event.failed, event.planned)
            return True
        if isinstance(event, ZoneEvent) and event.partition is not None and event.kind not in ALARMING:
            self._zones[event.kind.value] += 1
            return True
        return False

    def take(self) -> Described[SummaryEvent] | None:
        """Counts since the last line; None if there are none."""
        done, zones, lost, taken_over = self._done, self._zones, self._lost, self._taken_over
        if not done and not zones and not lost and not taken_over:
            return None
        self._done, self._zones, self._lost, self._taken_over = Counter(), Counter(), {}, 0
        completed, failed = done[Kind.COMPLETED.value], done[Kind.FAILED.value]
        ended, planned = self._progress
        event = SummaryEvent(
            migrations=MigrationCounts(completed, failed, ended, planned),
            zones=dict(sorted(zones.items())),
            taken_over=taken_over,
            lost={fate: sorted(partitions) for fate, partitions in sorted(lost.items())},
        )
        parts = [
            f"LOST {len(partitions)} partitions ({ranges_of(partitions)}): {fate}"
            for fate, partitions in event.lost.items()
        ]
        if taken_over:
            parts.append(f"{taken_over} partitions taken over by backups, no entry is lost")
        if done:
            of = f", {ended} of {planned} of this rebalance" if planned else ""
            parts.append(f"{completed} migrations done, {failed} failed{of}")
        if zones:
            counts = (f"{count} {kind}" for kind, count in event.zones.items())
            parts.append(f"of zones: {', '.join(counts)}")
        return Described(event, _line("; ".join(parts), alarming=bool(lost)))


def _word(value: object) -> object:
    return "none" if value == "" else value


def struct_of(event: Told) -> Event:
    """The event for programs."""
    match event:
        case ZonesWatched(zones, revision):
            return ZonesWatchedEvent(list(zones), revision)
        case ZonesGap(why):
            return ZonesGapEvent(why)
        case ZoneEvent():
            return event
        case Listening(status):
            return ListeningEvent(status.uuid, status.cluster_state)
        case Silence(why):
            return SilenceEvent(why)
        case Gap():
            return GapEvent()
        case News():
            found = {name: getattr(event, name) for name in (*event.__struct_fields__, "remaining")}
            moved, loss = found.pop("migration"), found.pop("loss")
            if moved is not None:
                found["migration"] = MovedReplica(form=moved.kind, **msgspec.structs.asdict(moved))
            if loss is not None:
                found["loss"] = LostPartition(**msgspec.structs.asdict(loss))
            return PartitionEvent(**found)


class _Sources:
    """Several streams of events combined; each is read by its own thread."""

    def __init__(self) -> None:
        self._found: Queue[Told | Exception] = Queue()
        self.ended = threading.Event()

    def add(self, source: Callable[[], Iterable[Told]]) -> None:
        threading.Thread(target=self._read, args=(source,), daemon=True).start()

    def _read(self, source: Callable[[], Iterable[Told]]) -> None:
        try:
            for event in source():
                self._found.put(event)
                if self.ended.is_set():
                    return
        except Exception as error:  # noqa: BLE001  (the reader gets it)
            self._found.put(error)

    def events(self, pause_s: float | None = None) -> Iterator[Told | None]:
        """All events as they come; None if none came for `pause_s`. Raises errors of the streams."""
        while True:
            try:
                found = self._found.get(timeout=pause_s)
            except Empty:
                yield None
                continue
            if isinstance(found, Exception):
                raise found
            yield found


@operator_command(short_help="Print migrations, losses and zone changes as they happen.")
@click.option(
    "--summary", is_flag=True, help="Summarise events of many partitions: at most one line a second."
)
def watch(call: Call, *, summary: bool) -> Iterator[Event]:
    r"""Print one line per partition event until Ctrl-C: the start and end of a rebalance, each migration, and lost
    copies. When the connected member goes away, the command continues with another one.

    With a metastore it also prints zone events: zones created, altered, renamed and dropped, changes of their data
    nodes, and leaders, moves, resets and repeated failures of their partitions.

    \b
      holdfast cluster watch --json -a 127.0.0.1:5702 | grep lost
    """
    watcher = Watcher(call.addresses, call.credentials.for_client())
    sources = _Sources()
    with suppress(KeyboardInterrupt), call.client(operates=True) as client:
        sources.add(watcher.events)
        sources.add(lambda: ZoneWatcher(client).events(sources.ended.is_set))
        try:
            # Each comes with its line for people.
            yield from _events(watcher, sources, Summary() if summary else None)  # type: ignore[misc]
        finally:
            sources.ended.set()


def _events(watcher: Watcher, sources: _Sources, counts: Summary | None) -> Iterator[Described[Any]]:
    """Events, without end."""
    lines = Lines()
    last_s = 0.0
    for event in sources.events(None if counts is None else SUMMARY_S / 4):
        many = counts is not None and event is not None and counts.takes(event)
        # Print what was counted before any other event, so that the lines stay in order.
        ends = event is not None and not many
        if counts is not None and (ends or time.monotonic() - last_s >= SUMMARY_S):
            summary = counts.take()
            if summary is not None:
                yield summary
            last_s = time.monotonic()
        if event is not None and not many:
            lines.learn(watcher.status)
            yield Described(struct_of(event), _line(lines.of(event), alarming=is_alarming(event)))


def _line(text: str, *, alarming: bool) -> Text:
    return Text(f"{time.strftime('%H:%M:%S')} {text}", "bold red" if alarming else "")


def is_alarming(event: Told) -> bool:
    if isinstance(event, ZoneEvent):
        return event.kind in ALARMING
    lost = isinstance(event, News) and event.loss is not None and _costs(event.loss)
    return lost or isinstance(event, Silence)
