"""Types of options that are times or sizes with units."""

from __future__ import annotations

from typing import Any

import click

from holdfast.config.units import WrongUnit, parse_size, parse_time

DAY_S = 86_400.0


class Seconds(click.ParamType[float]):
    """A time in seconds: `2.5`, `250ms`, `10min`."""

    name = "time"

    def __init__(self, least: float = 0.0, most: float = DAY_S) -> None:
        self._least, self._most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number of seconds. Fails for other units, and beyond the limits."""
        if isinstance(value, int | float):
            seconds = float(value)
        else:
            try:
                seconds = float(value)
            except ValueError:
                try:
                    seconds = parse_time(value) / 1000
                except WrongUnit as wrong:
                    self.fail(str(wrong), param, ctx)
        if not self._least <= seconds <= self._most:
            self.fail(f"{value} is not between {self._least:g} s and {self._most:,.0f} s", param, ctx)
        return seconds


class Bytes(click.ParamType[int]):
    """A size in bytes: `4096`, `512M`."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number of bytes. Fails for other units."""
        try:
            return value if isinstance(value, int) else parse_size(value)
        except WrongUnit as wrong:
            self.fail(str(wrong), param, ctx)


SECONDS = Seconds()
