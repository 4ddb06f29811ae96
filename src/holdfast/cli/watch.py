"""`holdfast cluster watch`: one line for each event of partitions and zones."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from queue import Empty, Queue
from typing import Any, assert_never

import click
import msgspec

from holdfast.cli.addresses import address_option
from holdfast.cli.credentials import Credentials, credentials
from holdfast.client.blocking import Client
from holdfast.client.operator import Gap, Listening, Silence, Watcher
from holdfast.client.zone_events import ZoneEvent, ZoneEventKind
from holdfast.client.zone_watcher import ZonesGap, ZonesWatched, ZoneWatcher
from holdfast.client_core.routing import parse_addresses
from holdfast.core.model.migration import NONE, Migration
from holdfast.core.model.partition_events import Kind, Loss, News
from holdfast.core.partition_table.event_log import ranges_of

Told = News | Listening | Gap | Silence | ZoneEvent | ZonesWatched | ZonesGap
SUMMARY_S = 1.0
"""Least time between two lines of a summary."""
ALARMING = {ZoneEventKind.RESET, ZoneEventKind.FAILING}
"""Events that are printed in red."""


class Lines:
    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def of(self, event: Told) -> str:
        match event:
            case Listening(status):
                return f"watching {status['cluster']} through {status['name']}: {status['cluster_state']}"
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

    def learn(self, status: dict[str, Any]) -> None:
        """Learn names of members; former members keep theirs."""
        self._names.update({row["uuid"]: row["name"] for row in status.get("members", [])})

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
    """The fate of a partition that lost its owner."""
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

    @property
    def alarming(self) -> bool:
        """Whether entries were lost since the last line."""
        return bool(self._lost)

    def told(self, *, as_json: bool) -> str:
        """Counts since the last line, in one line; empty if there are none."""
        done, zones, lost, taken_over = self._done, self._zones, self._lost, self._taken_over
        if not done and not zones and not lost and not taken_over:
            return ""
        self._done, self._zones, self._lost, self._taken_over = Counter(), Counter(), {}, 0
        completed, failed = done[Kind.COMPLETED.value], done[Kind.FAILED.value]
        ended, planned = self._progress
        if as_json:
            migrations = {"completed": completed, "failed": failed, "ended": ended, "planned": planned}
            return json.dumps(
                {
                    "kind": "summary",
                    "migrations": migrations,
                    "zones": dict(sorted(zones.items())),
                    "taken_over": taken_over,
                    "lost": {fate: sorted(partitions) for fate, partitions in sorted(lost.items())},
                }
            )
        parts = [
            f"LOST {len(partitions)} partitions ({ranges_of(partitions)}): {fate}"
            for fate, partitions in sorted(lost.items())
        ]
        if taken_over:
            parts.append(f"{taken_over} partitions taken over by backups, no entry is lost")
        if done:
            of = f", {ended} of {planned} of this rebalance" if planned else ""
            parts.append(f"{completed} migrations done, {failed} failed{of}")
        if zones:
            parts.append("of zones: " + ", ".join(f"{count} {kind}" for kind, count in sorted(zones.items())))
        return "; ".join(parts)


def _word(value: object) -> object:
    return "none" if value == "" else value


def _plain(event: Told) -> dict[str, Any]:
    match event:
        case ZonesWatched(zones, revision):
            return {"kind": "zones watched", "zones": list(zones), "revision": revision}
        case ZonesGap(why):
            return {"kind": "zones gap", "reason": why}
        case ZoneEvent():
            plain = msgspec.to_builtins(event)
            assert isinstance(plain, dict)
            return plain
        case Listening(status):
            return {"kind": "listening", "member": status["uuid"], "cluster_state": status["cluster_state"]}
        case Silence(why):
            return {"kind": "silence", "reason": why}
        case Gap():
            return {"kind": "gap"}
        case News():
            found: dict[str, Any] = {name: getattr(event, name) for name in event.__struct_fields__}
            found["remaining"] = event.remaining
            moved, loss = event.migration, event.loss
            if moved is not None:
                found["migration"] = {
                    "form": moved.kind,
                    **{name: getattr(moved, name) for name in moved.__struct_fields__},
                }
            if loss is not None:
                found["loss"] = {name: getattr(loss, name) for name in loss.__struct_fields__}
            return {name: value for name, value in found.items() if value is not None}


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
        except Exception as error:  # noqa: BLE001  (who reads is told)
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


def _zone_client(address: str, known: Credentials) -> Client:
    return Client(
        address,
        username=known.username,
        password=known.password,
        token=known.token,
        tls=known.tls,
        timeout_s=5,
        operates=True,
    )


@click.command(short_help="Print migrations, losses and zone changes as they happen.")
@address_option
@click.option(
    "--summary", is_flag=True, help="Summarise events of many partitions: at most one line a second."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each event, for scripts.")
@credentials
def watch(*, address: str, summary: bool, as_json: bool, credentials: Credentials) -> None:
    r"""Print one line per partition event until Ctrl-C: the start and end of a rebalance, each migration, and lost
    copies. When the connected member goes away, the command continues with another one.

    With a metastore it also prints zone events: zones created, altered, renamed and dropped, changes of their data
    nodes, and leaders, moves, resets and repeated failures of their partitions.

    \b
      holdfast cluster watch
      holdfast cluster watch --summary
      holdfast cluster watch --json -a 127.0.0.1:5702 | grep lost
    """
    watcher = Watcher(parse_addresses(address), credentials.for_client())
    sources = _Sources()
    with suppress(KeyboardInterrupt), _zone_client(address, credentials) as client:
        sources.add(watcher.events)
        sources.add(lambda: ZoneWatcher(client).events(sources.ended.is_set))
        try:
            _print_events(watcher, sources, Summary() if summary else None, as_json=as_json)
        finally:
            sources.ended.set()


def _print_events(watcher: Watcher, sources: _Sources, counts: Summary | None, *, as_json: bool) -> None:
    """Print events for ever."""
    lines = Lines()
    told_s = 0.0
    for event in sources.events(None if counts is None else SUMMARY_S / 4):
        many = counts is not None and event is not None and counts.takes(event)
        # Print what was counted before any other event, so that the lines stay in order.
        ends = event is not None and not many
        if counts is not None and (ends or time.monotonic() - told_s >= SUMMARY_S):
            alarming = counts.alarming
            _tell(counts.told(as_json=as_json), as_json=as_json, alarming=alarming)
            told_s = time.monotonic()
        if event is None or many:
            continue
        if as_json:
            _tell(msgspec.json.encode(_plain(event)).decode(), as_json=True)
        else:
            lines.learn(watcher.status)
            _tell(lines.of(event), as_json=False, alarming=_alarming(event))


def _tell(text: str, *, as_json: bool, alarming: bool = False) -> None:
    """Print a line at once, for people with the time; nothing when there is none."""
    if not text:
        return
    line = text if as_json else f"{time.strftime('%H:%M:%S')} {text}"
    click.echo(click.style(line, fg="red", bold=True) if alarming else line)
    sys.stdout.flush()


def _alarming(event: Told) -> bool:
    if isinstance(event, ZoneEvent):
        return event.kind in ALARMING
    lost = isinstance(event, News) and event.loss is not None and _costs(event.loss)
    return lost or isinstance(event, Silence)
