"""Sizes and times with units, as people write them: `512M`, `1.5G`, `250ms`, `10min`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final, Literal, NamedTuple

SIZES: Final = {"B": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
TIMES: Final = {"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
"""Milliseconds of each."""
_SAME: Final = {"KIB": "K", "MIB": "M", "GIB": "G", "TIB": "T"}
_NUMBER = re.compile(r"(\d{1,30}(?:\.\d{1,12})?)\s*([^\W\d]*)", re.ASCII)


class WrongUnit(ValueError):
    """A text that is no size or time. The message says which units there are."""


def parse_size(text: str) -> int:
    """Bytes of `1G` (1,073,741,824), `512MiB` or `4096`. Raises WrongUnit."""
    number, unit = _split(text, "size", SIZES, "1K is 1024 bytes")
    upper = unit.upper()
    factor = SIZES.get(_SAME.get(upper, upper or "B"))
    if factor is None:
        raise WrongUnit(_unknown(text, unit, "size", SIZES, "1K is 1024 bytes"))
    return _whole(text, number * factor, "bytes")


def parse_time(text: str, unit_ms: int = 1) -> int:
    """`10min`, `1.5h` or `250ms` in the unit of a setting, in which a plain number is. Raises WrongUnit."""
    number, unit = _split(text, "time", TIMES, "")
    factor = TIMES.get(unit.lower()) if unit else unit_ms
    if factor is None:
        raise WrongUnit(_unknown(text, unit, "time", TIMES, ""))
    return _whole(text, number * factor / unit_ms, "milliseconds" if unit_ms == 1 else "seconds")


def format_size(number: int) -> str:
    """The size in the largest unit that expresses it exactly: `16M`, `1000`."""
    unit = next((one for one in "TGMK" if number and not number % SIZES[one]), "")
    return f"{number // SIZES[unit]}{unit}" if unit else str(number)


def format_time(number: int, unit_ms: int = 1) -> str:
    """The time in the largest unit that expresses it exactly: `10min`, `90s`, `0`."""
    milliseconds = number * unit_ms
    if not milliseconds:
        return "0"
    unit = next(one for one in reversed(TIMES) if not milliseconds % TIMES[one])
    return f"{milliseconds // TIMES[unit]}{unit}"


class UnitOf(NamedTuple):
    """The unit of a setting, as the end of its name says."""

    kind: Literal["size", "time"]
    plain: str
    """The unit of a plain number."""
    unit_ms: int = 1

    def parse(self, text: str) -> int:
        """The number for a text with or without a unit. Raises WrongUnit."""
        return parse_size(text) if self.kind == "size" else parse_time(text, self.unit_ms)

    def format(self, number: int) -> str:
        """The number with the largest unit that expresses it exactly."""
        return format_size(number) if self.kind == "size" else format_time(number, self.unit_ms)


def unit_of(name: str) -> UnitOf | None:
    """The unit of the setting with this name; None if it has none."""
    if name.removesuffix("_total").endswith("_bytes"):
        return UnitOf("size", "bytes")
    if name.endswith("_ms"):
        return UnitOf("time", "milliseconds")
    return UnitOf("time", "seconds", 1000) if name.endswith("_s") else None


def _split(text: str, kind: str, units: Mapping[str, int], remark: str) -> tuple[Decimal, str]:
    found = _NUMBER.fullmatch(text.strip())
    if found is None:
        raise WrongUnit(_unknown(text, "", kind, units, remark))
    return Decimal(found[1]), found[2]


def _unknown(text: str, unit: str, kind: str, units: Mapping[str, int], remark: str) -> str:
    what = f"{unit!r} is no unit of a {kind}" if unit else f"{text!r} is no {kind}"
    listed = ", ".join(units)
    return f"{what}: write a number and one of the units {listed}" + (f" ({remark})" if remark else "")


def _whole(text: str, number: Decimal, unit: str) -> int:
    if number != int(number):
        raise WrongUnit(f"{text!r} is no whole number of {unit}")
    return int(number)
