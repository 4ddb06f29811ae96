"""Amounts as users write them (bytes, bits a second, times), and sizes of partitions, measured or random."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

from holdfast.config.local_paths import local_path
from holdfast.errors import ConfigError

BYTES = {
    "": 1,
    "b": 1,
    "kb": 1_000,
    "mb": 1_000**2,
    "gb": 1_000**3,
    "tb": 1_000**4,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}
BITS = {"bit": 1, "kbit": 1_000, "mbit": 1_000**2, "gbit": 1_000**3}
SECONDS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "y": 365.25 * 86_400.0}
_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?(?:e\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)

YEAR_S = SECONDS["y"]
BYTES_END = 1 << 63


def _amount(text: str, units: dict[str, float] | dict[str, int], what: str, example: str) -> float:
    found = _AMOUNT.fullmatch(text)
    if found is None or found[2].lower() not in units:
        raise ConfigError(f"{what} {text!r} is not allowed: write it like {example}")
    amount = float(found[1]) * units[found[2].lower()]
    if not math.isfinite(amount):
        raise ConfigError(f"{what} {text!r} is not allowed: it is too large")
    return amount


def parse_bytes(text: str, what: str = "the size") -> int:
    """`64KiB`, `10MB`, `4096`. Raises ConfigError."""
    amount = round(_amount(text, BYTES, what, "64KiB, 10MB or 4096"))
    if amount >= BYTES_END:
        raise ConfigError(f"{what} {text!r} is not allowed: it is too large")
    return amount


def parse_rate(text: str) -> float:
    """`1Gbit` or `100MB` as bytes a second. Raises ConfigError."""
    plain = text.lower().removesuffix("/s").removesuffix("ps")
    found = _AMOUNT.fullmatch(plain)
    bits = found is not None and found[2] in BITS
    rate = _amount(plain, BITS if bits else BYTES, "the bandwidth", "1Gbit or 100MB, for each second")
    if bits:
        rate /= 8
    if rate <= 0:
        raise ConfigError(f"the bandwidth {text!r} is not allowed: nothing would ever arrive")
    return rate


def parse_time(text: str, what: str) -> float:
    """`500ms`, `30s`, `90d`, `2y` as seconds. Raises ConfigError."""
    return _amount(text, SECONDS, what, "500ms, 30s, 12h, 90d or 2y")


def bytes_text(amount: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if amount < 1024 or unit == "TiB":
            return f"{amount:,.0f} {unit}" if unit == "B" else f"{amount:,.1f} {unit}"
        amount /= 1024
    raise AssertionError("unreachable")


def time_text(seconds: float) -> str:
    for unit, length in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:,.1f} s"


# -- sizes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sizes:
    kind: str
    """`fixed`, `uniform`, `lognormal` or `measured`."""
    low: float = 0.0
    high: float = 0.0
    """The maximum; for `lognormal` the standard deviation of the logarithm."""
    seed: int = 0
    measured: tuple[int, ...] = ()
    """Repeated if there are more partitions."""

    def of(self, partition: int) -> int:
        match self.kind:
            case "fixed":
                return round(self.low)
            case "measured":
                return self.measured[partition % len(self.measured)]
            case "uniform":
                return round(self.low + (self.high - self.low) * _dice(self.seed, partition))
        return round(self.low * math.exp(self.high * _NORMAL.inv_cdf(_dice(self.seed, partition))))

    @property
    def mean(self) -> float:
        match self.kind:
            case "fixed":
                return self.low
            case "measured":
                return sum(self.measured) / len(self.measured)
            case "uniform":
                return (self.low + self.high) / 2
        return self.low * math.exp(self.high**2 / 2)

    def __str__(self) -> str:
        match self.kind:
            case "fixed":
                return f"{bytes_text(self.low)} a partition"
            case "uniform":
                return f"{bytes_text(self.low)} to {bytes_text(self.high)} a partition"
            case "lognormal":
                return f"{bytes_text(self.low)} a partition in the middle, lognormal with sigma {self.high:g}"
        return f"{len(self.measured):,} measured sizes of partitions"


_NORMAL = NormalDist()
_FAR = 8.3
"""Random sizes stay within so many standard deviations of the median: `_dice` has 53 bits."""
_MASK = (1 << 64) - 1


def mixed(number: int) -> int:
    """Hash of a number to 64 bits: the finaliser of splitmix64."""
    number = (number + 0x9E3779B97F4A7C15) & _MASK
    number = ((number ^ number >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ number >> 27) * 0x94D049BB133111EB) & _MASK
    return number ^ number >> 31


def _dice(seed: int, partition: int) -> float:
    return ((mixed(mixed(seed) + partition) >> 11) + 0.5) / (1 << 53)


def parse_sizes(text: str, seed: int = 0) -> Sizes:
    """`10MiB`, `uniform:1MiB..20MiB`, `lognormal:10MiB,1.5` or `file:PATH`. Raises ConfigError.

    The file has the size of each partition in bytes: a JSON list, or a number on each line.
    """
    kind, colon, rest = text.partition(":")
    if not colon:
        return Sizes("fixed", parse_bytes(text), seed=seed)
    if kind == "fixed":
        return Sizes("fixed", parse_bytes(rest), seed=seed)
    if kind == "uniform":
        low, dots, high = rest.partition("..")
        if dots and parse_bytes(low) <= parse_bytes(high):
            return Sizes("uniform", parse_bytes(low), parse_bytes(high), seed)
        raise ConfigError(f"the size {text!r} is not allowed: write it like uniform:1MiB..20MiB")
    if kind == "lognormal":
        median, comma, spread = rest.partition(",")
        try:
            sigma = float(spread) if comma else 1.0
        except ValueError:
            sigma = math.nan
        middle = parse_bytes(median)
        # Check the largest possible size; NaN also fails the comparison.
        if not 0 <= sigma < math.inf or math.log(max(middle, 1)) + _FAR * sigma >= math.log(BYTES_END):
            raise ConfigError(
                f"the size {text!r} is not allowed: write it like lognormal:10MiB,1.5 "
                "(with a second number of 0 or more, and not so large that sizes cannot be counted)"
            )
        return Sizes("lognormal", middle, sigma, seed)
    if kind == "file":
        return measured(read_sizes(Path(local_path(rest))))
    raise ConfigError(f"the size {text!r} is not allowed: it is BYTES, uniform:, lognormal: or file:")


def measured(sizes: Sequence[int]) -> Sizes:
    if not sizes or min(sizes) < 0 or max(sizes) >= BYTES_END:
        raise ConfigError(
            "sizes that were measured are one number of bytes for each partition, 0 or more and below 2^63"
        )
    return Sizes("measured", measured=tuple(sizes))


def read_sizes(path: Path) -> list[int]:
    """A JSON list, or a number on each line. Raises ConfigError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    try:
        found = json.loads(text) if text.lstrip().startswith("[") else text.split()
        return [int(each) for each in found]
    except (ValueError, TypeError, OverflowError) as error:
        raise ConfigError(f"{path} is no list of bytes, one number for each partition: {error}") from error
