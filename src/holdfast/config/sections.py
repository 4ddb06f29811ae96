"""Building blocks of configuration sections: their base classes, and types of common values."""

from __future__ import annotations

from typing import Annotated, Any, get_args, get_type_hints

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


def about(description: str, *, live: bool = False) -> Meta:
    """A key whose type alone says which values it allows. `live`: see `LIVE`."""
    return Meta(description=description, extra=LIVE if live else None)


def whole(description: str, least: int, most: int, *, live: bool = False) -> Meta:
    """A whole number from `least` to `most`."""
    return Meta(ge=least, le=most, description=description, extra=LIVE if live else None)


def sized(description: str, most: int, *, least: int | None = None) -> Meta:
    """A text, list or table of `least` to `most` characters or items."""
    return Meta(min_length=least, max_length=most, description=description)


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
