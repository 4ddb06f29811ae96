"""`holdfast cluster watch`: one line for everything that happens to partitions."""

from __future__ import annotations

import sys
import time
from typing import Any

import click
import msgspec

from holdfast.cli.credentials import Credentials, credentials
from holdfast.cli.orders import address_option
from holdfast.client.operator import Gap, Listening, Silence, Watcher
from holdfast.client.routing import parse_addresses
from holdfast.core.model.migration_step import NONE, Migration
from holdfast.core.model.partition_events import Kind, Loss, News


class Lines:
    """Events as lines for people."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def of(self, event: News | Listening | Gap | Silence) -> str:
        """One line, without the time."""
        match event:
            case Listening(status):
                return f"watching {status['cluster']} through {status['name']}: {status['cluster_state']}"
            case Silence(why):
                return f"no member answers: {why}; trying again"
            case Gap():
                return "what happened just before is not known here: look at holdfast status"
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


def _plain(event: News | Listening | Gap | Silence) -> dict[str, Any]:
    """For scripts."""
    match event:
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


@click.command(short_help="Show each migration and loss as it happens.")
@address_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each event, for scripts.")
@credentials
def watch(*, address: str, as_json: bool, credentials: Credentials) -> None:
    r"""Print one line for each thing that happens to partitions, until Ctrl-C: the start and end of a rebalance, each
    migration, and copies that are lost. When the member that is asked goes away, another one is.

    \b
      holdfast cluster watch
      holdfast cluster watch --json -a 127.0.0.1:5702 | grep lost
    """
    lines = Lines()
    watcher = Watcher(parse_addresses(address), credentials.for_client())
    try:
        for event in watcher.events():
            if as_json:
                text = msgspec.json.encode(_plain(event)).decode()
            else:
                lines.learn(watcher.status)
                text = f"{time.strftime('%H:%M:%S')} {lines.of(event)}"
                if isinstance(event, Silence) or (isinstance(event, News) and event.kind is Kind.LOST):
                    text = click.style(text, fg="red", bold=True)
            click.echo(text)
            sys.stdout.flush()
    except KeyboardInterrupt:
        return
