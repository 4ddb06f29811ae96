"""Title, unit and colour of a field of a result, kept in its metadata.

```python
class Zone(msgspec.Struct):
    name: Annotated[str, column("zone")]
    lag_ms: Annotated[int, column("lag", "ms", styles={...})]
```

A program reads the same field under its own name, as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec
import msgspec.inspect

Unit = Literal["", "count", "bytes", "ms", "s", "percent"]


class Column(NamedTuple):
    title: str
    unit: Unit = ""
    right: bool = False
    fold: bool = False
    """Break long texts into lines."""
    styles: Mapping[object, str] = {}
    """By value, as rich names them."""

    def text(self, value: object) -> str:
        match value:
            case None | msgspec.UNSET:
                return ""
            case bool():
                return "yes" if value else "no"
            case int() | float() if self.unit:
                return _with_unit(value, self.unit)
            case list() | tuple() | set() | frozenset():
                return ", ".join(map(self.text, value))
            case _:
                return str(value)


def column(
    title: str,
    unit: Unit = "",
    *,
    right: bool = False,
    fold: bool = False,
    styles: Mapping[object, str] | None = None,
    about: str | None = None,
) -> msgspec.Meta:
    """`about` describes the field in the JSON schema."""
    shown = Column(title, unit, right or bool(unit), fold, styles or {})
    return msgspec.Meta(description=about, extra={"column": shown})


def columns_of(kind: type[msgspec.Struct]) -> dict[str, Column]:
    """The columns in order; a field without `column` is for programs only."""
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    found: dict[str, Column] = {}
    for field in info.fields:
        extra = field.type.extra if isinstance(field.type, msgspec.inspect.Metadata) else None
        if extra and "column" in extra:
            found[field.name] = extra["column"]
    return found


def duration(seconds: float) -> str:
    """The two largest units: `3d4h`, `2m5s`, `1.5s`, `250ms`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms" if seconds else "0s"
    if seconds < 10:
        return f"{seconds:.1f}s"
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    units = ((days, "d"), (hour, "h"), (minute, "m"), (second, "s"))
    first = next(at for at, (count, _) in enumerate(units) if count)
    return "".join(f"{count}{unit}" for count, unit in units[first : first + 2] if count)


def size(number: float) -> str:
    """`512 B`, `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(number) < 1024:
            return f"{number:.0f} B" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def _with_unit(value: float, unit: Unit) -> str:
    match unit:
        case "bytes":
            return size(value)
        case "ms":
            return duration(value / 1000)
        case "s":
            return duration(value)
        case "percent":
            return f"{value:.0%}"
        case _:
            return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}"
