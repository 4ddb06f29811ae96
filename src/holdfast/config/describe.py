"""The schema as data: every key with its type, default, meaning and allowed values."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, get_type_hints

import msgspec
import msgspec.inspect

from holdfast.config.schema import COLLECTION_SECTIONS, DEFAULT_MAP, NAMED, PREFIX, SECTIONS, SOMEBODY
from holdfast.config.sections import Section
from holdfast.config.units import UnitOf, unit_of


class Key(NamedTuple):
    """One key of the schema, for messages, flags and documentation."""

    section: str
    name: str
    type: Any
    default: Any
    allowed: str
    meaning: str
    secret: bool
    live: bool
    """Whether it can be changed while a member runs."""
    in_use: bool
    """Whether `holdfast map set` can change it while the map is used."""

    @property
    def unit(self) -> UnitOf | None:
        """The unit of a size or time."""
        return unit_of(self.name) if type(self.default) is int else None

    def readable(self, value: object) -> object:
        """A value with its unit, as people write it."""
        unit = self.unit
        return unit.format(value) if unit and isinstance(value, int) and value else value

    @property
    def dotted(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def variable(self) -> str:
        return PREFIX + self.dotted.replace(".", "_").upper()


@cache
def keys_of(section: str, table: type[Section]) -> tuple[Key, ...]:
    info = msgspec.inspect.type_info(table)
    assert isinstance(info, msgspec.inspect.StructType)
    types = get_type_hints(table, include_extras=True)
    keys = []
    for field in info.fields:
        kind, meaning, extra = field.type, "", dict[str, Any]()
        if isinstance(kind, msgspec.inspect.Metadata):
            meaning = str((kind.extra_json_schema or {}).get("description", ""))
            extra = kind.extra or {}
            kind = kind.type
        made = field.default_factory
        default = field.default if made is msgspec.NODEFAULT else made()
        secret, live = bool(extra.get("secret")), bool(extra.get("live"))
        allowed = str(extra.get("allowed") or _allowed(kind, unit_of(field.name)))
        in_use = bool(extra.get("in_use"))
        keys.append(
            Key(section, field.name, types[field.name], default, allowed, meaning, secret, live, in_use)
        )
    return tuple(keys)


def schema() -> list[Key]:
    """All keys. Keys of maps and collections are listed in the sections of `default`, those of other named tables under
    `NAME`.
    """
    inherited = ("maps", *COLLECTION_SECTIONS)
    named = {
        f"{kind}.{DEFAULT_MAP if kind in inherited else SOMEBODY}": table for kind, table in NAMED.items()
    }
    tables = {**SECTIONS, **named}
    return [key for section, table in tables.items() for key in keys_of(section, table)]


def _allowed(kind: msgspec.inspect.Type, unit: UnitOf | None) -> str:
    match kind:
        case msgspec.inspect.BoolType():
            return "true or false"
        case msgspec.inspect.IntType(ge=int(low), le=int(high)) if unit:
            limits = f"from {unit.format(low)} to {unit.format(high)}"
            return f"a {unit.kind} {limits}; a number without a unit is {unit.plain}"
        case msgspec.inspect.IntType(ge=low, le=high):
            return f"a whole number from {low} to {high}"
        case msgspec.inspect.LiteralType(values=values):
            return " or ".join(repr(value) for value in values)
        case msgspec.inspect.StrType(min_length=low, max_length=high):
            return f"text of {low or 0} to {high} characters"
        case msgspec.inspect.ListType(max_length=high):
            return f"a list of at most {high} texts"
        case msgspec.inspect.DictType(max_length=high):
            return f"a table of at most {high} texts"
        case _:  # pragma: no cover - a key of a new type needs its words here
            raise NotImplementedError(kind)
