"""`holdfast data`: reads maps and changes single entries."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NoReturn

import click

from holdfast.cli.addresses import address_option
from holdfast.cli.answers import json_option, tell_json
from holdfast.cli.credentials import Credentials, credentials
from holdfast.cli.orders import EXIT_FAILED
from holdfast.cli.typed_values import TYPES, plain_of, shown, stored_of, type_of
from holdfast.client.blocking import Client
from holdfast.client.holdings import check_maps, map_names
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import DEFAULT_TTL, LIFETIME_MS_MAX, Op, Request
from holdfast.errors import Denied, NotReady

ANSWER_S = 20.0
ROWS = 20
"""Default number of entries to show."""
PAGE_ROWS = 1024

key_type_option = click.option(
    "--key-type",
    type=click.Choice(TYPES),
    default="string",
    show_default=True,
    help="Keys of different types are different keys.",
)
limit_option = click.option(
    "--limit",
    type=click.IntRange(0),
    default=ROWS,
    show_default=True,
    metavar="N",
    help="Maximum number; 0: all.",
)


@click.group()
def data() -> None:
    r"""Read maps, and change single entries. Needs no Spark; use `holdfast read` for many entries.

    \b
      holdfast data maps
      holdfast data scan orders --limit 5
      holdfast data get orders 4711 --key-type int
      holdfast data put orders 4711 '{"total": 3}' --key-type int --value-type json
      holdfast data remove orders 4711 --key-type int

    Values in a format that only their writers know are printed as hexadecimal digits of their stored form.
    """


def _client(address: str, known: Credentials) -> Client:
    return Client(
        address,
        username=known.username,
        password=known.password,
        token=known.token,
        tls=known.tls,
        timeout_s=ANSWER_S,
    )


def _keyed(
    client: Client, op: Op, name: str, key: bytes, value: bytes = b"", ttl_ms: int = DEFAULT_TTL
) -> Any:
    partition = partition_of(key, 0, client.partition_count)
    return client.execute(Request(op, name, [partition], key, value, ttl_ms=ttl_ms))


def _check_there_is(client: Client, name: str) -> None:
    """Nothing was found in this map: is there one? Raises ConfigError, naming the nearest, if this user may know."""
    with suppress(Denied, NotReady):
        check_maps(client, [name])


def _entry(key: bytes, value: bytes | None) -> dict[str, Any]:
    """An entry for scripts."""
    found: dict[str, Any] = {"key": plain_of(key), "key_type": type_of(key)}
    return found if value is None else found | {"value": plain_of(value), "value_type": type_of(value)}


def _end_without(name: str, key: str, key_type: str, as_json: bool) -> NoReturn:
    """There was nothing: said to people, and by the exit status."""
    if not as_json:
        click.echo(f"map {name!r} has no {key_type} key {key!r}", err=True)
    sys.exit(EXIT_FAILED)


@data.command(short_help="Print the value of a key.")
@click.argument("name", metavar="MAP")
@click.argument("key")
@key_type_option
@json_option
@address_option
@credentials
def get(name: str, key: str, *, key_type: str, as_json: bool, address: str, credentials: Credentials) -> None:
    """Print the value of KEY: a string as it is, any other value as JSON."""
    stored = stored_of(key, key_type, "the key")
    with _client(address, credentials) as client:
        value = _keyed(client, Op.GET, name, stored)
        if value is None:
            _check_there_is(client, name)
    if as_json:
        tell_json({"found": value is not None, **_entry(stored, value)})
    elif value is not None:
        click.echo(shown(value))
    if value is None:
        _end_without(name, key, key_type, as_json)


@data.command(short_help="Set the value of a key.")
@click.argument("name", metavar="MAP")
@click.argument("key")
@click.argument("value")
@key_type_option
@click.option("--value-type", type=click.Choice(TYPES), default="string", show_default=True)
@click.option(
    "--ttl",
    "ttl_s",
    type=click.FloatRange(0),
    metavar="SECONDS",
    help="Time to live; 0: no limit.  [default: ttl_ms of the map]",
)
@click.option("--if-absent", is_flag=True, help="Only if the key has no value yet.")
@json_option
@address_option
@credentials
def put(
    name: str,
    key: str,
    value: str,
    *,
    key_type: str,
    value_type: str,
    ttl_s: float | None,
    if_absent: bool,
    as_json: bool,
    address: str,
    credentials: Credentials,
) -> None:
    """Set KEY to VALUE. Returns when all sync backups hold it."""
    stored = stored_of(key, key_type, "the key")
    wanted = stored_of(value, value_type, "the value")
    ttl_ms = DEFAULT_TTL if ttl_s is None else min(round(ttl_s * 1000), LIFETIME_MS_MAX)
    with _client(address, credentials) as client:
        before = _keyed(client, Op.PUT_IF_ABSENT if if_absent else Op.PUT, name, stored, wanted, ttl_ms)
    done = before is None or not if_absent
    if as_json:
        told = None if before is None else {"value": plain_of(before), "value_type": type_of(before)}
        tell_json({"stored": done, "before": told})
    elif done:
        click.echo("stored" if before is None else f"stored, instead of {shown(before)}")
    else:
        click.echo(f"not stored: the key has the value {shown(before)}", err=True)
    if not done:
        sys.exit(EXIT_FAILED)


@data.command(short_help="Remove a key.")
@click.argument("name", metavar="MAP")
@click.argument("key")
@key_type_option
@json_option
@address_option
@credentials
def remove(
    name: str, key: str, *, key_type: str, as_json: bool, address: str, credentials: Credentials
) -> None:
    """Remove KEY, and print its old value."""
    stored = stored_of(key, key_type, "the key")
    with _client(address, credentials) as client:
        before = _keyed(client, Op.REMOVE, name, stored)
        if before is None:
            _check_there_is(client, name)
    if as_json:
        told = None if before is None else {"value": plain_of(before), "value_type": type_of(before)}
        tell_json({"removed": before is not None, "before": told})
    elif before is not None:
        click.echo(f"removed: {shown(before)}")
    if before is None:
        _end_without(name, key, key_type, as_json)


@data.command(short_help="Count the entries of a map.")
@click.argument("name", metavar="MAP")
@json_option
@address_option
@credentials
def size(name: str, *, as_json: bool, address: str, credentials: Credentials) -> None:
    """Print the number of entries of MAP."""
    with _client(address, credentials) as client:
        found = client.size(name)
        if not found:
            _check_there_is(client, name)
    tell_json({"map": name, "entries": found}) if as_json else click.echo(found)


@data.command(short_help="Print the keys of a map.")
@click.argument("name", metavar="MAP")
@limit_option
@json_option
@address_option
@credentials
def keys(name: str, *, limit: int, as_json: bool, address: str, credentials: Credentials) -> None:
    """Print keys of MAP, one per line, partition by partition. The keys of one partition are a snapshot."""
    _show(name, limit, address, credentials, lambda key, _: shown(key), as_json=as_json, values=False)


@data.command(short_help="Print the entries of a map.")
@click.argument("name", metavar="MAP")
@limit_option
@json_option
@address_option
@credentials
def scan(name: str, *, limit: int, as_json: bool, address: str, credentials: Credentials) -> None:
    """Print entries of MAP, one per line with a tab between key and value, partition by partition. The entries of one
    partition are a snapshot.
    """
    _show(
        name,
        limit,
        address,
        credentials,
        lambda key, value: f"{shown(key)}\t{shown(value)}",
        as_json=as_json,
        values=True,
    )


def _show(
    name: str,
    limit: int,
    address: str,
    known: Credentials,
    line: Callable[[bytes, bytes], str],
    *,
    as_json: bool,
    values: bool,
) -> None:
    """Print a line for each entry, and on standard error whether there are more."""
    told = 0
    with _client(address, known) as client:
        for key, value in _entries(client, name, limit):
            if limit and told == limit:
                click.echo(f"more than {limit}: see --limit", err=True)
                break
            told += 1
            if as_json:
                tell_json(_entry(key, value if values else None))
            else:
                click.echo(line(key, value))
        if not told:
            _check_there_is(client, name)


def _entries(client: Client, name: str, limit: int) -> Iterator[tuple[bytes, bytes]]:
    """All entries, or at most `limit` + 1 of each partition."""
    for partition in range(client.partition_count):
        pages = client.scan(name, partition, rows_max=PAGE_ROWS, limit=limit + 1 if limit else 0)
        for page in pages:
            yield from zip(*page.split(), strict=True)


@data.command(short_help="List maps and their sizes.")
@json_option
@address_option
@credentials
def maps(*, as_json: bool, address: str, credentials: Credentials) -> None:
    """List the maps that have entries or settings, with their number of entries."""
    with _client(address, credentials) as client:
        names = map_names(client, timeout_s=ANSWER_S)
        sizes = {name: client.size(name) for name in names}
    if as_json:
        tell_json({"maps": [{"map": name, "entries": count} for name, count in sizes.items()]})
        return
    width = max(map(len, names), default=0)
    for name, count in sizes.items():
        click.echo(f"{name:<{width}}  {count:>12,}")
