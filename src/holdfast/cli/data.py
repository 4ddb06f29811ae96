"""`holdfast data`: reads maps and changes single entries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Annotated, Any

import click
import msgspec
from msgspec import UNSET, UnsetType

from holdfast.cli.answers import Answer
from holdfast.cli.operator_command import Call, operator_command
from holdfast.cli.rendering import Shown, table_of
from holdfast.cli.typed_values import TYPES, plain_of, stored_of, text_of, type_of
from holdfast.cli.unit_types import Seconds
from holdfast.client.blocking import Client
from holdfast.client.holdings import check_maps, map_names
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import DEFAULT_TTL, LIFETIME_MS_MAX, Op, Request
from holdfast.core.model.result_columns import column
from holdfast.errors import Denied, NotReady

ANSWER_S = 20.0
ROWS = 20
"""Default number of entries to show."""
PAGE_ROWS = 1024

key_type_option = click.option(
    "--key-type",
    type=click.Choice(TYPES),
    metavar="TYPE",
    default="string",
    show_default=True,
    help=f"Keys of different types are different keys: {', '.join(TYPES)}.",
)
limit_option = click.option(
    "--limit",
    type=click.IntRange(0),
    default=ROWS,
    show_default=True,
    metavar="N",
    help="Maximum number; 0: all.",
)
map_argument = click.argument("name", metavar="MAP")


@click.group()
def data() -> None:
    r"""Read maps, and change single entries. Needs no Spark; use `holdfast read` for many entries.

    \b
      holdfast data maps
      holdfast data scan orders --limit 5
      holdfast data get orders 4711 --key-type int

    Values in a format that only their writers know are printed as hexadecimal digits of their stored form.
    """


class Value(msgspec.Struct, frozen=True):
    """A value that was there before."""

    value: Any
    value_type: str


class Found(Answer):
    """The entry of a key; without `value` the key has none."""

    decides = "found"

    found: bool
    map: str
    key: Any
    key_type: str
    value: Any | UnsetType = UNSET
    value_type: str | UnsetType = UNSET

    def view(self) -> Iterable[Shown]:
        if self.found:
            yield text_of(self.value)

    def notes(self) -> Iterable[str]:
        if not self.found:
            yield f"map {self.map!r} has no {self.key_type} key {self.key!r}"


class Stored(Answer):
    """Whether the value was stored, and what was there before."""

    decides = "stored"

    stored: bool
    before: Value | None

    def view(self) -> Iterable[Shown]:
        if self.stored:
            yield "stored" if self.before is None else f"stored, instead of {text_of(self.before.value)}"

    def notes(self) -> Iterable[str]:
        if not self.stored and self.before is not None:
            yield f"not stored: the key has the value {text_of(self.before.value)}"


class Removed(Answer):
    """Whether the key was removed, and what its value was."""

    decides = "removed"

    removed: bool
    map: str
    key: str
    key_type: str
    before: Value | None

    def view(self) -> Iterable[Shown]:
        if self.before is not None:
            yield f"removed: {text_of(self.before.value)}"

    def notes(self) -> Iterable[str]:
        if self.before is None:
            yield f"map {self.map!r} has no {self.key_type} key {self.key!r}"


class MapSize(Answer):
    """The number of entries of a map."""

    map: Annotated[str, column("map")]
    entries: Annotated[int, column("entries", "count")]

    def view(self) -> Iterable[Shown]:
        yield str(self.entries)


class Maps(Answer):
    """The maps that have entries or settings."""

    maps: list[MapSize]

    def view(self) -> Iterable[Shown]:
        yield table_of(self.maps, MapSize)


class Entry(Answer):
    """An entry, or with `data keys` its key. One object a line."""

    key: Any
    key_type: str
    value: Any | UnsetType = UNSET
    value_type: str | UnsetType = UNSET

    def view(self) -> Iterable[Shown]:
        yield "\t".join(text_of(one) for one in (self.key, self.value) if one is not UNSET)


def _keyed(
    client: Client, op: Op, name: str, key: bytes, value: bytes = b"", ttl_ms: int = DEFAULT_TTL
) -> Any:
    partition = partition_of(key, 0, client.partition_count)
    return client.execute(Request(op, name, [partition], key, value, ttl_ms=ttl_ms))


def _check_there_is(client: Client, name: str) -> None:
    """Nothing was found in this map: is there one? Raises ConfigError, naming the nearest, if this user may know."""
    with suppress(Denied, NotReady):
        check_maps(client, [name])


def _value(stored: bytes | None) -> Value | None:
    return None if stored is None else Value(plain_of(stored), type_of(stored))


@operator_command(data, short_help="Print the value of a key.")
@map_argument
@click.argument("key")
@key_type_option
def get(call: Call, name: str, key: str, *, key_type: str) -> Found:
    r"""Print the value of KEY: a string as it is, any other value as JSON.

    \b
      holdfast data get orders 4711 --key-type int
    """
    stored = stored_of(key, key_type, "the key")
    with call.client(ANSWER_S) as client:
        value = _keyed(client, Op.GET, name, stored)
        if value is None:
            _check_there_is(client, name)
            return Found(found=False, map=name, key=plain_of(stored), key_type=key_type)
    return Found(
        found=True,
        map=name,
        key=plain_of(stored),
        key_type=key_type,
        value=plain_of(value),
        value_type=type_of(value),
    )


@operator_command(data, short_help="Set the value of a key.")
@map_argument
@click.argument("key")
@click.argument("value")
@key_type_option
@click.option(
    "--value-type",
    type=click.Choice(TYPES),
    metavar="TYPE",
    default="string",
    show_default=True,
    help="One of the types of keys.",
)
@click.option(
    "--ttl",
    "ttl_s",
    type=Seconds(most=LIFETIME_MS_MAX / 1000),
    metavar="TIME",
    help="Time to live, in seconds or as 1h; 0: no limit.  [default: ttl_ms of the map]",
)
@click.option("--if-absent", is_flag=True, help="Only if the key has no value yet.")
def put(
    call: Call,
    name: str,
    key: str,
    value: str,
    *,
    key_type: str,
    value_type: str,
    ttl_s: float | None,
    if_absent: bool,
) -> Stored:
    r"""Set KEY to VALUE. Returns when all sync backups hold it.

    \b
      holdfast data put orders 4711 '{"total": 3}' --key-type int --value-type json --ttl 1h
    """
    stored = stored_of(key, key_type, "the key")
    wanted = stored_of(value, value_type, "the value")
    ttl_ms = DEFAULT_TTL if ttl_s is None else round(ttl_s * 1000)
    with call.client(ANSWER_S) as client:
        before = _keyed(client, Op.PUT_IF_ABSENT if if_absent else Op.PUT, name, stored, wanted, ttl_ms)
    return Stored(stored=before is None or not if_absent, before=_value(before))


@operator_command(data, short_help="Remove a key.")
@map_argument
@click.argument("key")
@key_type_option
def remove(call: Call, name: str, key: str, *, key_type: str) -> Removed:
    r"""Remove KEY, and print its old value.

    \b
      holdfast data remove orders 4711 --key-type int
    """
    stored = stored_of(key, key_type, "the key")
    with call.client(ANSWER_S) as client:
        before = _keyed(client, Op.REMOVE, name, stored)
        if before is None:
            _check_there_is(client, name)
    return Removed(removed=before is not None, map=name, key=key, key_type=key_type, before=_value(before))


@operator_command(data, short_help="Count the entries of a map.")
@map_argument
def size(call: Call, name: str) -> MapSize:
    r"""Print the number of entries of MAP.

    \b
      holdfast data size orders
    """
    with call.client(ANSWER_S) as client:
        found = client.size(name)
        if not found:
            _check_there_is(client, name)
    return MapSize(map=name, entries=found)


@operator_command(data, short_help="Print the keys of a map.")
@map_argument
@limit_option
def keys(call: Call, name: str, *, limit: int) -> Iterator[Entry]:
    r"""Print keys of MAP, one per line, partition by partition. The keys of one partition are a snapshot.

    \b
      holdfast data keys orders --limit 0
    """
    for key, _ in _entries(call, name, limit):
        yield Entry(key=plain_of(key), key_type=type_of(key))


@operator_command(data, short_help="Print the entries of a map.")
@map_argument
@limit_option
def scan(call: Call, name: str, *, limit: int) -> Iterator[Entry]:
    r"""Print entries of MAP, one per line with a tab between key and value, partition by partition. The entries of one
    partition are a snapshot.

    \b
      holdfast data scan orders --limit 5
    """
    for key, value in _entries(call, name, limit):
        yield Entry(
            key=plain_of(key), key_type=type_of(key), value=plain_of(value), value_type=type_of(value)
        )


def _entries(call: Call, name: str, limit: int) -> Iterator[tuple[bytes, bytes]]:
    """The first entries; says on standard error whether there are more."""
    count = 0
    with call.client(ANSWER_S) as client:
        for key, value in _scanned(client, name, limit):
            if limit and count == limit:
                click.echo(f"more than {limit}: see --limit", err=True)
                break
            count += 1
            yield key, value
        if not count:
            _check_there_is(client, name)


def _scanned(client: Client, name: str, limit: int) -> Iterator[tuple[bytes, bytes]]:
    for partition in range(client.partition_count):
        pages = client.scan(name, partition, rows_max=PAGE_ROWS, limit=limit + 1 if limit else 0)
        for page in pages:
            yield from zip(*page.split(), strict=True)


@operator_command(data, short_help="List maps and their sizes.")
def maps(call: Call) -> Maps:
    r"""List the maps that have entries or settings, with their number of entries.

    \b
      holdfast data maps
    """
    with call.client(ANSWER_S) as client:
        names = map_names(client, timeout_s=ANSWER_S)
        return Maps(maps=[MapSize(map=name, entries=client.size(name)) for name in names])
