"""The one way from a result to what is printed: a line of JSON, or lines and tables for people.

A result is a struct (`holdfast.cli.answers`). One that shows more than its JSON has a method `plain` for the struct.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
import msgspec
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from holdfast.core.model.result_columns import Column, columns_of

Shown = RenderableType
"""A line, a styled line, or a table."""

WIDTH = 160
"""Width of tables that no terminal bounds: long enough not to fold a row in a pipe."""


def as_json(answer: object) -> str:
    """One line of JSON. Bytes are hexadecimal digits; numbers that JSON lacks are "NaN" and "Infinity"."""
    struct = answer.plain() if hasattr(answer, "plain") else answer
    plain = msgspec.to_builtins(struct, builtin_types=(bytes,))
    try:
        return json.dumps(plain, default=bytes.hex, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(plain), default=bytes.hex, allow_nan=False)


def _finite(plain: object) -> object:
    match plain:
        case dict():
            return {name: _finite(value) for name, value in plain.items()}
        case list() | tuple():
            return [_finite(value) for value in plain]
        case float() if not math.isfinite(plain):
            return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(plain)]
        case _:
            return plain


def tell_json(answer: object) -> None:
    """Print one line of JSON, at once: a reader of the pipe does not wait for the next one."""
    click.echo(as_json(answer))
    sys.stdout.flush()


def show(answer: Any) -> None:
    """Print a result for people: what it shows to standard output, its notes to standard error."""
    if hasattr(answer, "view"):
        print_shown(answer.view())
    else:
        print_shown(fields_view(answer) if isinstance(answer, msgspec.Struct) else [answer])
    for note in answer.notes() if hasattr(answer, "notes") else ():
        click.echo(note, err=True)


def print_shown(shown: Iterable[Shown]) -> None:
    """Print lines and tables."""
    console = console_for_people()
    for each in shown:
        if isinstance(each, str):
            click.echo(each)
        else:
            console.print(each, soft_wrap=isinstance(each, Text))
    sys.stdout.flush()


def console_for_people() -> Console:
    # Without a terminal a table keeps its width instead of being folded at 80 columns.
    return Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False, markup=False)


def table_of(
    rows: Sequence[msgspec.Struct],
    kind: type[msgspec.Struct],
    *,
    without: Sequence[str] = (),
    first: Mapping[str, Sequence[str]] | None = None,
) -> Table:
    """Rows as a table, with the columns that the fields of `kind` describe. `first`: columns before these."""
    columns = {name: one for name, one in columns_of(kind).items() if name not in without}
    table = Table(box=None, pad_edge=False, header_style="bold")
    before = first or {}
    for title in before:
        table.add_column(Text(title), no_wrap=True)
    for one in columns.values():
        table.add_column(
            Text(one.title),
            justify="right" if one.right else "left",
            no_wrap=not one.fold,
            overflow="fold",
        )
    for number, row in enumerate(rows):
        start = (Text(cells[number]) for cells in before.values())
        table.add_row(*start, *(cell(one, getattr(row, name)) for name, one in columns.items()))
    return table


def cell(column: Column, value: Any) -> Text:
    """One value, in its colour."""
    style = column.styles.get(value, "") if isinstance(value, str | int | None) else ""
    return Text(column.text(value), style)


def fields_view(answer: msgspec.Struct) -> list[Shown]:
    """A result without a view of its own: a line for each value, a table for each list of structs."""
    shown: list[Shown] = []
    for name, one in columns_of(type(answer)).items():
        value = getattr(answer, name)
        if isinstance(value, list | tuple) and value and isinstance(value[0], msgspec.Struct):
            shown.append(table_of(value, type(value[0])))
        elif value is not None and value != []:
            shown.append(f"{one.title} {one.text(value)}")
    return shown
