"""`holdfast cluster watch`: one line for everything that happens to partitions and zones."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from queue import Queue
from typing import Any, assert_never

import click
import msgspec

from holdfast.cli.addresses import address_option
from holdfast.cli.credentials import Credentials, credentials
from holdfast.client.blocking import Client
from holdfast.client.operator import Gap, Listening, Silence, Watcher
from holdfast.client.routing import parse_addresses
from holdfast.client.zone_events import ZoneEvent, ZoneEventKind
from holdfast.client.zone_watching import ZonesGap, ZonesWatched, ZoneWatcher
from holdfast.core.model.migration_step import NONE, Migration
from holdfast.core.model.partition_events import Kind, Loss, News

Told = News | Listening | Gap | Silence | ZoneEvent | ZonesWatched | ZonesGap
ALARMING = {ZoneEventKind.RESET, ZoneEventKind.FAILING}
"""Of these an operator is told in red."""


class Lines:
    """Events as lines for people."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def of(self, event: Told) -> str:
        """One line, without the time."""
        match event:
            case Listening(status):
                return f"watching {status['cluster']} through {status['name']}: {status['cluster_state']}"
            case Silence(why):
                return f"no member answers: {why}; trying again"
            case Gap():
                return "what happened just before is not known here: look at holdfast status"
            case ZonesWatched(zones, revision):
                return f"watching zones as of revision {revision}: {', '.join(zones) or 'there are none'}"
            case ZonesGap(why):
                return f"what happened to zones just before is not known: {why}; look at holdfast zone list"
            case ZoneEvent():
                return _of_zone(event)
            case News():
                return self._news(event)

    def learn(self, status: dict[str, Any]) -> None:
        """Names of members; those that have gone keep theirs."""
        self._names.update({row["uuid"]: row["name"] for row in status.get("members", [])})

    def name(self, uuid: str | None) -> str:
        """What a member is called."""
        return "nobody" if uuid is None else self._names.get(uuid, uuid[:8])

    def _news(self, news: News) -> str:
        match news.kind:
            case Kind.STARTED:
                return f"started: {news.planned} migrations planned"
            case Kind.FINISHED:
                left = f", {news.remaining} planned anew" if news.remaining else ""
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
    if loss.all_lost and not loss.begun_anew:
        return f"LOST partition {loss.partition}: every copy; it waits for a member that holds one to return"
    maps = f"entries are gone of: {', '.join(loss.maps)}" if loss.maps else "no entry is gone"
    if loss.all_lost:
        return f"LOST partition {loss.partition}: every copy; it goes on empty; {maps}"
    backups = f" and {loss.lost_backups} backups" if loss.lost_backups else ""
    return f"LOST partition {loss.partition}: the owner{backups}; a backup has taken over; {maps}"


def _of_zone(event: ZoneEvent) -> str:
    who = f"zone {event.zone}"
    before, after = " ".join(event.before) or "nobody", " ".join(event.after) or "nobody"
    if event.partition is not None:
        who += f" partition {event.partition}"
    forced = ", by force" if event.by_force else ""
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
            return f"{who}: reset asked, of partitions that have lost their majority ({which})"
        case kind.RESET:
            return f"{who}: RESET, goes on with {after}; what only others had is lost"
        case kind.PLACED:
            return f"{who}: placed on {after}"
        case kind.MOVE_BEGUN:
            return f"{who}: move begun, {before} to {after}{forced}"
        case kind.MOVE_CHANGED:
            return f"{who}: move has another target, {after}{forced}"
        case kind.MOVE_GIVEN_UP:
            return f"{who}: move to {after} given up, stays on {before}"
        case kind.ASSIGNED:
            return f"{who}: moved, {before} to {after}{forced}"
        case kind.LEADER:
            return f"{who}: leader {after} in term {event.term}, was {before}"
        case kind.FAILING:
            return f"{who}: FAILING on {after}, {event.attempts} times: {event.why}"
    assert_never(event.kind)


def _word(value: object) -> object:
    return "none" if value == "" else value


def _plain(event: Told) -> dict[str, Any]:
    """For scripts."""
    match event:
        case ZonesWatched(zones, revision):
            return {"kind": "zones watched", "zones": list(zones), "revision": revision}
        case ZonesGap(why):
            return {"kind": "zones gap", "why": why}
        case ZoneEvent():
            plain = msgspec.to_builtins(event)
            assert isinstance(plain, dict)
            return plain
        case Listening(status):
            return {"kind": "listening", "member": status["uuid"], "cluster_state": status["cluster_state"]}
        case Silence(why):
            return {"kind": "silence", "why": why}
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
    """Several streams of events as one: each is read by a thread of its own."""

    def __init__(self) -> None:
        self._found: Queue[Told | Exception] = Queue()
        self.ended = threading.Event()

    def add(self, source: Callable[[], Iterable[Told]]) -> None:
        """Read this one, too."""
        threading.Thread(target=self._read, args=(source,), daemon=True).start()

    def _read(self, source: Callable[[], Iterable[Told]]) -> None:
        try:
            for event in source():
                self._found.put(event)
                if self.ended.is_set():
                    return
        except Exception as error:  # noqa: BLE001  (who reads is told)
            self._found.put(error)

    def events(self) -> Iterator[Told]:
        """All of them, as they come. Raises what a source has raised."""
        while True:
            found = self._found.get()
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


@click.command(short_help="Show each migration, loss, and change of zones as it happens.")
@address_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each event, for scripts.")
@credentials
def watch(*, address: str, as_json: bool, credentials: Credentials) -> None:
    r"""Print one line for each thing that happens to partitions, until Ctrl-C: the start and end of a rebalance, each
    migration, and copies that are lost. When the member that is asked goes away, another one is.

    Where there is a metastore also what happens to zones: created, altered, renamed and dropped, members that may hold
    them, and of their partitions leaders, moves, resets, and what members fail to do again and again.

    \b
      holdfast cluster watch
      holdfast cluster watch --json -a 127.0.0.1:5702 | grep lost
    """
    lines = Lines()
    watcher = Watcher(parse_addresses(address), credentials.for_client())
    sources = _Sources()
    with _zone_client(address, credentials) as client:
        sources.add(watcher.events)
        sources.add(lambda: ZoneWatcher(client).events(sources.ended.is_set))
        try:
            for event in sources.events():
                if as_json:
                    text = msgspec.json.encode(_plain(event)).decode()
                else:
                    lines.learn(watcher.status)
                    text = f"{time.strftime('%H:%M:%S')} {lines.of(event)}"
                    if _alarming(event):
                        text = click.style(text, fg="red", bold=True)
                click.echo(text)
                sys.stdout.flush()
        except KeyboardInterrupt:
            return
        finally:
            sources.ended.set()


def _alarming(event: Told) -> bool:
    if isinstance(event, ZoneEvent):
        return event.kind in ALARMING
    return isinstance(event, Silence) or (isinstance(event, News) and event.kind is Kind.LOST)
