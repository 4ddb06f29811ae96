"""`holdfast data structures` and `holdfast data items`: queues, lists, sets and the like."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import click
from msgspec import UNSET, UnsetType

from holdfast.cli.answers import Answer
from holdfast.cli.data import ANSWER_S, data, limit_option
from holdfast.cli.operator_command import Call, operator_command
from holdfast.cli.rendering import Shown, table_of
from holdfast.cli.typed_values import plain_of, text_of, type_of
from holdfast.client.blocking import Client
from holdfast.client.holdings import known_maps
from holdfast.core.model.collections import CollectionKind, collection_of, partition_of_name
from holdfast.core.model.result_columns import column
from holdfast.errors import ConfigError

_OF_ITEMS = (CollectionKind.QUEUE, CollectionKind.LIST, CollectionKind.SET)
"""Kinds whose entries are nothing but items."""


class StructureSize(Answer):
    """The number of items of a structure."""

    kind: Annotated[str, column("kind")]
    name: Annotated[str, column("name")]
    items: Annotated[int, column("items", "count")]


class Structures(Answer):
    """The structures that have items."""

    structures: list[StructureSize]

    def view(self) -> Iterable[Shown]:
        yield table_of(self.structures, StructureSize)


class Item(Answer):
    """An item of a structure."""

    item: Any
    item_type: str
    key: Any | UnsetType = UNSET
    key_type: str | UnsetType = UNSET

    def view(self) -> Iterable[Shown]:
        yield "\t".join(text_of(one) for one in (self.key, self.item) if one is not UNSET)


def _structures(client: Client) -> list[tuple[CollectionKind, str]]:
    names = known_maps(client, timeout_s=ANSWER_S).names
    return sorted(found for name in names if (found := collection_of(name)) is not None)


@operator_command(data, short_help="List queues, lists, sets and the like, and their sizes.")
def structures(call: Call) -> Structures:
    r"""List the structures other than maps that have had items, with their number of items.

    \b
      holdfast data structures
    """
    with call.client(ANSWER_S) as client:
        return Structures(
            structures=[
                StructureSize(kind=kind, name=name, items=client.size(kind.map_of(name)))
                for kind, name in _structures(client)
            ]
        )


@operator_command(data, short_help="Print the items of a queue, list or set.")
@click.argument("kind", type=click.Choice([str(kind) for kind in _OF_ITEMS]), metavar="KIND")
@click.argument("name", metavar="NAME")
@limit_option
def items(call: Call, kind: str, name: str, *, limit: int) -> Iterator[Item]:
    r"""Print items of the structure NAME of this KIND (queue, list, set), one per line and in their order. Nothing is
    taken.

    \b
      holdfast data items queue jobs --limit 5
    """
    chosen = CollectionKind(kind)
    with call.client(ANSWER_S) as client:
        entries = _entries(client, chosen, name)
        if not entries and (chosen, name) not in (known := _structures(client)):
            there = ", ".join(f"{other} {named}" for other, named in known) or "none"
            raise ConfigError(f"there is no {kind} {name!r} with items: there are {there}")
        for number, stored in enumerate(_in_order(chosen, entries)):
            if limit and number == limit:
                click.echo(f"more than {limit}: see --limit", err=True)
                break
            yield Item(item=plain_of(stored), item_type=type_of(stored))


def _entries(client: Client, kind: CollectionKind, name: str) -> dict[bytes, bytes]:
    partition = partition_of_name(name, client.partition_count)
    found: dict[bytes, bytes] = {}
    for page in client.scan(kind.map_of(name), partition):
        found.update(zip(*page.split(), strict=True))
    return found


def _in_order(kind: CollectionKind, entries: dict[bytes, bytes]) -> Iterator[bytes]:
    """The items. In a set they are the keys, and the values number them; in others the keys are ascending."""
    if kind is CollectionKind.SET:
        yield from sorted(entries, key=lambda item: entries[item])
    else:
        for key in sorted(entries):
            yield entries[key]
