"""What all tables of the configuration are."""

from __future__ import annotations

import msgspec

LIVE = {"live": True}
"""Marks what can be changed while a member runs (`holdfast config set`): `runtime.live_settings` does it."""


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the TOML file. Its keys are the annotated fields."""
