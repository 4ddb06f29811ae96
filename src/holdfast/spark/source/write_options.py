"""Options of writes, checked before anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.core.model.transaction_orders import TOGETHER_MAX
from holdfast.errors import ConfigError

WRITE_FORMATS = ("json", "binary", "primitive", "compact")

WRITE_MEANING = {
    "ttlColumn": "column with the seconds after which each row's entry ends; null: as for ttl or the map (writing "
    "only)",
    "write": "upsert, or insert: rows with an existing key are not written (writing only)",
    "rejects": "fail, or a folder for JSON lines with the rows that cannot be stored (writing only)",
    "rowsPerSecond": "rows that the whole job may write in a second; needs concurrentTasks (writing only)",
    "transactionRows": "so many rows of a task are stored in one transaction each (writing only)",
    "concurrentTasks": "how many tasks run at the same time, for rowsPerSecond (writing only)",
    "valueColumn": "the column that is the value, for valueFormat primitive; default: the only one left",
    "typeName": "the type name of Compact rows, for valueFormat compact; default: the map's name",
    "corruptColumn": "column that is null unless the row could not be read from its file (writing only)",
}

FAIL = "fail"


@dataclass(frozen=True, slots=True)
class WriteOptions:
    insert: bool = False
    ttl_column: str | None = None
    rejects: str | None = None
    """Folder for rows that cannot be stored; None: they fail the job."""
    rows_per_second: float | None = None
    value_column: str | None = None
    type_name: str | None = None
    corrupt_column: str | None = None
    transaction_rows: int | None = None
    """Rows stored in one transaction; None: each by itself."""

    @classmethod
    def parse(cls, found: Mapping[str, str]) -> WriteOptions:
        """`found` has option names in lower case. Raises ConfigError."""
        how = found.get("write", "upsert").lower()
        if how not in ("upsert", "insert"):
            raise ConfigError(f"write is upsert or insert, not {found['write']!r}")
        rejects = found.get("rejects", FAIL)
        rate = _positive(found, "rowsPerSecond")
        tasks = _positive(found, "concurrentTasks")
        if rate is not None and tasks is None:
            raise ConfigError(
                "rowsPerSecond is for the whole job: set concurrentTasks to the number of tasks that run at once "
                "(pipeline.load does)"
            )
        together = _together(found)
        if together is not None and how == "insert":
            raise ConfigError("transactionRows goes with write=upsert only: no transaction inserts rows")
        return cls(
            transaction_rows=together,
            insert=how == "insert",
            ttl_column=found.get("ttlcolumn") or None,
            rejects=None if rejects.lower() == FAIL or not rejects else absolute(rejects),
            rows_per_second=None if rate is None or tasks is None else rate / max(1.0, tasks),
            value_column=found.get("valuecolumn") or None,
            type_name=found.get("typename") or None,
            corrupt_column=found.get("corruptcolumn") or None,
        )


def _together(found: Mapping[str, str]) -> int | None:
    text = found.get("transactionrows")
    if text is None:
        return None
    if not (text.isdecimal() and 1 <= int(text) <= TOGETHER_MAX):
        raise ConfigError(f"transactionRows is a whole number from 1 to {TOGETHER_MAX}, not {text!r}")
    return int(text)


def absolute(path: str) -> str:
    """The same path for processes in other working directories; URIs unchanged."""
    return path if "://" in path else str(Path(path).absolute())


def _positive(found: Mapping[str, str], name: str) -> float | None:
    text = found.get(name.lower())
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1e12:
        raise ConfigError(f"{name} is a number above 0, not {text!r}: {WRITE_MEANING[name]}")
    return number
