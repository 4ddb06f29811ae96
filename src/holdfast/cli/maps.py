"""`holdfast map`: settings of maps, and changes of them while the maps are used."""

from __future__ import annotations

from collections.abc import Iterable

import click
import msgspec

from holdfast.cli.action_commands import add_actions
from holdfast.cli.answers import Answer
from holdfast.cli.operator_command import Call, operator_command
from holdfast.cli.rendering import Shown, table_of
from holdfast.config.schema import DEFAULT_MAP
from holdfast.core.model.member_status import MapSetting
from holdfast.core.model.result_columns import duration


@click.group("map")
def map_group() -> None:
    r"""Show the settings of maps, and change them while the maps are used.

    \b
      holdfast map list
      holdfast map set flights backups=2 ttl=1h
    """


class MapList(Answer):
    """The settings of maps that are not built-in defaults."""

    settings: list[MapSetting]

    def view(self) -> Iterable[Shown]:
        """Times as `map set` takes them: `ttl 1h` for `ttl_ms` 3600000; 0 is no limit."""
        yield table_of([_with_unit(row) for row in self.settings], MapSetting)


def _with_unit(row: MapSetting) -> MapSetting:
    if not row.setting.endswith("_ms"):
        return row
    value = duration(int(row.value) / 1000) if row.value else "no limit"
    return msgspec.structs.replace(row, setting=row.setting.removesuffix("_ms"), value=value)


@operator_command(map_group, "list", short_help="List settings that were configured or changed.")
def list_command(call: Call) -> MapList:
    r"""List the settings of all maps that were configured or changed, and where each comes from.

    \b
      configuration   the file, environment or flags of the member that answers
      map set         changed while the map is used, for all members
      default         taken from the map `default`

    \b
      holdfast map list -a 127.0.0.1:5702
    """
    return MapList(settings=[row for row in call.status().map_settings if row.source != "built-in"])


@operator_command(map_group, "show", short_help="Show all settings of a map.")
@click.argument("name")
def show_command(call: Call, *, name: str) -> MapList:
    r"""Show every setting of a map, and where each comes from; of `default` if the map has none of its own.

    \b
      holdfast map show flights
    """
    rows = call.status().map_settings
    known = name if any(row.map == name for row in rows) else DEFAULT_MAP
    return MapList(settings=[row for row in rows if row.map == known])


add_actions(map_group, "map")
