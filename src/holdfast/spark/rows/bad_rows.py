"""Entries that do not fit the columns of a read, and the option `bad` that decides what becomes of them.

Example: the map has a column `delay` of type long, and the entry "UA1" is {"origin": "EWR", "delay": "late"}.
`fail` ends the job with an error that names the key; `null` gives (EWR, null), since only the bad field is
lost; `skip` leaves the row out; `column raw` gives (EWR, null) with the whole value as text in the column
`raw`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

import msgspec
import pyarrow as pa

from holdfast.errors import ConfigError, HoldfastError

T = TypeVar("T")

Mode = Literal["fail", "null", "skip", "column"]

MEANING = (
    "what happens to an entry that does not fit the columns: fail, null (null for values that do not fit), skip "
    "(leave the row out) or column NAME (as null, and the raw value as text in the column NAME)"
)

UNREADABLE = (
    ValueError,  # also pyarrow's ArrowInvalid, and bytes that are no UTF-8
    LookupError,
    ArithmeticError,
    TypeError,
    RecursionError,  # JSON that is nested too deeply
    struct.error,
    msgspec.MsgspecError,
    pa.ArrowException,
)

REASON_MAX = 200
"""A reason or key in an error may quote a value of megabytes."""


class BadRow(HoldfastError):
    """A row that cannot become an entry, or an entry that cannot become a row."""


@dataclass(frozen=True, slots=True)
class BadRows:
    mode: Mode = "fail"
    column: str = ""

    @classmethod
    def parse(cls, text: str) -> BadRows:
        """Raises ConfigError."""
        word, _, name = text.strip().partition(" ")
        for mode in get_args(Mode):
            if word.lower() == mode and bool(name.strip()) == (mode == "column"):
                return cls(mode, name.strip())
        raise ConfigError(f"bad is fail, null, skip or 'column NAME', not {text!r}: {MEANING}")

    def __str__(self) -> str:
        return f"{self.mode} {self.column}".strip()


def advice(*, stream: bool = False) -> str:
    begin = (
        "Correct or remove the entry and start the query again, with the same checkpoint; or continue"
        if stream
        else "Continue"
    )
    return (
        f"{begin} without it with the option bad (--bad): null (null for values that do not fit), skip, or "
        "'column NAME' (the raw value goes to that column)"
    )


def short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= REASON_MAX else line[: REASON_MAX - 1] + "…"


def sift(
    rows: int, read: Callable[[int, int], T], *, first_only: bool = False
) -> tuple[list[tuple[int, T]], dict[int, str]]:
    """Read all rows together, and halves of those that fail. Returns results with the number of their first
    row, and the rows that fail even alone, with the reason.

    `first_only`: stop at the first bad row. One bad row of 8,192 costs 26 more calls.
    """
    good: list[tuple[int, T]] = []
    bad: dict[int, str] = {}
    waiting = [(0, rows)]
    while waiting and not (first_only and bad):
        start, end = waiting.pop()
        try:
            good.append((start, read(start, end)))
        except UNREADABLE as failed:
            if end - start <= 1:
                bad[start] = short(str(failed)) or type(failed).__name__
            else:
                middle = (start + end) // 2
                waiting += [(middle, end), (start, middle)]
    return good, bad
