"""Arrays, structs and maps as JSON, and back. Their cells have the form of plain columns (`rows.stored`)."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from base64 import b64decode
from collections.abc import Callable
from typing import Any

import pyarrow as pa

Change = Callable[[Any], Any]


def can_nest(kind: Any) -> bool:
    """Maps must have texts as keys."""
    if pa.types.is_list(kind):
        return can_nest(kind.value_type)
    if pa.types.is_map(kind):
        return pa.types.is_string(kind.key_type) and can_nest(kind.item_type)
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        return len(set(names)) == len(names) and all(can_nest(field.type) for field in kind)
    return bool(
        pa.types.is_boolean(kind)
        or pa.types.is_signed_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_date32(kind)
        or pa.types.is_decimal128(kind)
        or (pa.types.is_timestamp(kind) and kind.unit == "us")
    )


def outward(kind: Any) -> Change:
    if pa.types.is_list(kind):
        item = _or_none(outward(kind.value_type))
        return lambda cell: [item(one) for one in cell]
    if pa.types.is_map(kind):
        value = _or_none(outward(kind.item_type))
        return lambda cell: {key: value(one) for key, one in cell}
    if pa.types.is_struct(kind):
        parts = {field.name: _or_none(outward(field.type)) for field in kind}
        return lambda cell: {name: change(cell[name]) for name, change in parts.items()}
    if pa.types.is_floating(kind):
        return number_or_text
    if pa.types.is_timestamp(kind):
        ending = "" if kind.tz is None else "Z"
        return lambda cell: _utc(cell).isoformat(timespec="microseconds") + ending
    if pa.types.is_date32(kind) or pa.types.is_decimal128(kind):
        return _text
    return _as_it_is


def inward(kind: Any) -> Change:
    """Turns a JSON value back into a cell of this type. It raises ValueError if it does not fit."""
    if pa.types.is_list(kind):
        item = _or_none(inward(kind.value_type))
        return lambda cell: [item(one) for one in _a(list, cell)]
    if pa.types.is_map(kind):
        value = _or_none(inward(kind.item_type))
        return lambda cell: [(key, value(one)) for key, one in _a(dict, cell).items()]
    if pa.types.is_struct(kind):
        parts = {field.name: _or_none(inward(field.type)) for field in kind}
        return lambda cell: {name: change(_a(dict, cell).get(name)) for name, change in parts.items()}
    if pa.types.is_floating(kind):
        return _number
    if pa.types.is_timestamp(kind):
        return lambda cell: dt.datetime.fromisoformat(_a(str, cell))
    if pa.types.is_date32(kind):
        return lambda cell: dt.date.fromisoformat(_a(str, cell))
    if pa.types.is_decimal128(kind):
        return _decimal
    if pa.types.is_binary(kind):
        return lambda cell: b64decode(_a(str, cell), validate=True)
    wanted = str if pa.types.is_string(kind) else bool if pa.types.is_boolean(kind) else int
    return lambda cell: _a(wanted, cell)


def _or_none(change: Change) -> Change:
    return lambda cell: None if cell is None else change(cell)


def _as_it_is(cell: Any) -> Any:
    return cell


def _text(cell: Any) -> str:
    if isinstance(cell, decimal.Decimal):
        return format(cell, "f")
    return str(cell)


def _utc(moment: dt.datetime) -> dt.datetime:
    return moment if moment.tzinfo is None else moment.astimezone(dt.UTC).replace(tzinfo=None)


def number_or_text(number: float) -> float | str:
    """The texts `NaN`, `Infinity` and `-Infinity` for numbers that JSON lacks."""
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _number(cell: Any) -> float:
    if isinstance(cell, bool) or not isinstance(cell, int | float | str):
        raise ValueError(f"{cell!r} is no number")
    return float(cell)


def _decimal(cell: Any) -> decimal.Decimal:
    try:
        return decimal.Decimal(_a(str, cell))
    except decimal.InvalidOperation:
        raise ValueError(f"{cell!r} is no decimal number") from None


def _a(kind: type, cell: Any) -> Any:
    if type(cell) is not kind:
        raise ValueError(f"{cell!r} is no {kind.__name__}")
    return cell
