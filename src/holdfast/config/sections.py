"""Building blocks of configuration sections: their base classes, and types of common values."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

import msgspec
from msgspec import Meta

Port = Annotated[int, Meta(ge=0, le=65_535)]
Text = Annotated[str, Meta(max_length=256)]
Password = Annotated[str, Meta(max_length=1024, extra={"secret": True})]
Secrets = Annotated[list[Annotated[str, Meta(max_length=1024)]], Meta(max_length=2, extra={"secret": True})]
"""One secret, or two while it is rotated: the old and the new one."""
Names = Annotated[list[Text], Meta(max_length=256)]

LIVE = {"live": True}
"""Marks keys that can be changed while a member runs (`holdfast config set`); `runtime.live_settings` applies them.
"""


IN_USE = {"in_use": True}
"""Marks keys of a map that can be changed for the whole cluster while the map is used (`holdfast map set`)."""


class Described(NamedTuple):
    """A key in the body of a section: `SectionMeta` makes it an annotation and a default."""

    default: Any
    meta: Meta


def about(default: Any, description: str, *, live: bool = False, in_use: bool = False) -> Any:
    """A key whose type alone says which values it allows. `live`: see `LIVE`; `in_use`: see `IN_USE`."""
    return Described(
        default, Meta(description=description, extra=LIVE if live else IN_USE if in_use else None)
    )


def whole(default: int, least: int, most: int, description: str, *, live: bool = False) -> Any:
    """A whole number from `least` to `most`."""
    extra = LIVE if live else None
    return Described(default, Meta(ge=least, le=most, description=description, extra=extra))


def sized(default: Any, most: int, description: str, *, least: int | None = None) -> Any:
    """A text, list or table of `least` to `most` characters or items."""
    return Described(default, Meta(min_length=least, max_length=most, description=description))


class SectionMeta(msgspec.StructMeta):
    """Lets a section declare a key as one value: `heartbeat_ms: Milliseconds = about(1000, "Interval ...")`."""

    def __new__(
        mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> SectionMeta:
        """Move descriptions into the annotations, where msgspec looks for them."""
        found = {field: value for field, value in namespace.items() if isinstance(value, Described)}
        if found:
            written = namespace["__annotations__"]
            alone = {"__annotations__": {field: written[field] for field in found}}
            carrier = type(name, (), alone | {"__module__": namespace["__module__"]})
            kinds = get_type_hints(carrier, include_extras=True)
            for field, (default, meta) in found.items():
                written[field] = Annotated[kinds[field], meta]
                namespace[field] = default
        return super().__new__(mcls, name, bases, namespace, **options)


class Section(msgspec.Struct, metaclass=SectionMeta, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the TOML file. Its keys are the annotated fields."""


def _is_secret(kind: Any) -> bool:
    return any((meta.extra or {}).get("secret") for meta in get_args(kind) if isinstance(meta, Meta))


class SecretiveSection(Section, frozen=True, kw_only=True):
    """A table with secrets, which its repr hides."""

    def __repr__(self) -> str:
        kinds = get_type_hints(type(self), include_extras=True)
        values = {field: getattr(self, field) for field in self.__struct_fields__}
        shown = [
            f"{name}={'***' if value and _is_secret(kinds[name]) else repr(value)}"
            for name, value in values.items()
        ]
        return f"{type(self).__name__}({', '.join(shown)})"
