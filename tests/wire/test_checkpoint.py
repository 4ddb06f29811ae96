"""Checkpoints: read back as they were written or refused, and readable by everybody else."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import mmh3
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.model.journal_entries import MapSnapshot, Snapshot
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.store.replica import map_replica
from holdfast.errors import JournalBroken
from holdfast.wire import checkpoint
from holdfast.wire.checkpoint import (
    CheckpointHeader,
    CheckpointName,
    checkpoint_name,
    encode_checkpoint,
    parse_name,
    read_checkpoint,
    read_header,
)
from holdfast.wire.values import to_stored

STORE = "5f0c2b7e-2f2b-4df3-9c43-0d1d4f6b8a11"
WORDS = st.integers(-(2**31), 2**31 - 1)
TIMES = st.integers(0, 2**62)


def counter(lwm: int, *ranges: tuple[int, int]) -> bytes:
    made = UpdateCounter(lwm)
    for start, count in ranges:
        made.update(start, count)
    return made.encode()


@st.composite
def maps(draw: st.DrawFn, name: str) -> MapSnapshot:
    keys = draw(st.lists(st.binary(max_size=20), max_size=12, unique=True))

    def column(cells: st.SearchStrategy[int]) -> list[int]:
        drawn = draw(st.one_of(st.just([]), st.lists(cells, min_size=len(keys), max_size=len(keys))))
        return drawn if any(drawn) else []

    return MapSnapshot(
        name,
        draw(st.lists(st.tuples(st.integers(0, 2**50), st.integers(0, 2**50)), max_size=3)),
        counter(draw(st.integers(0, 2**50)), (2**51, 3), (2**52, 9)),
        keys,
        [draw(st.binary(max_size=60)) for _ in keys],
        column(TIMES),
        column(TIMES),
        column(WORDS),
    )


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    names = draw(st.lists(st.text(max_size=10), max_size=4, unique=True))
    return Snapshot(
        draw(st.integers(0, 99_999)),
        draw(st.integers(0, 2**40)),
        [draw(maps(name)) for name in names],
        draw(st.binary(max_size=30)),
    )


def example(rows: int = 40) -> Snapshot:
    dice = random.Random(rows)
    keys = [to_stored(number) for number in range(rows)]
    values = [to_stored(f"value {number}") for number in range(rows)]
    return Snapshot(
        17,
        3,
        [
            MapSnapshot("customers", [(1, 0), (9, 5)], counter(40, (44, 2)), keys, values),
            MapSnapshot("empty", [(1, 0)], counter(2), [], []),
            MapSnapshot(
                "sessions",
                [(4, 0)],
                counter(7),
                keys,
                [dice.randbytes(30) for _ in keys],
                [1000 * (number % 3) for number in range(rows)],
                [],
                [dice.randrange(-(2**31), 2**31) for _ in keys],
            ),
        ],
        b"requests",
    )


@given(snapshots(), st.integers(0, 2**60))
def test_what_was_written_is_read(snapshot: Snapshot, lsn: int) -> None:
    name, data = encode_checkpoint(snapshot, lsn, STORE)
    header, read = read_checkpoint(name, data, STORE)
    assert read == snapshot
    assert (header.partition, header.epoch, header.lsn, header.store) == (
        snapshot.partition,
        snapshot.epoch,
        lsn,
        STORE,
    )
    assert read_header(data) == header
    assert parse_name(name) == CheckpointName(snapshot.partition, lsn, name[-40:-8])
    assert encode_checkpoint(read, lsn, STORE) == (name, data), "the same content is the same file"


def test_the_digest_of_a_map_is_that_of_the_copy() -> None:
    snapshot = example()
    header = read_header(encode_checkpoint(snapshot, 1, STORE)[1])
    for told, each in zip(header.maps, snapshot.maps, strict=True):
        held = map_replica(each.name)
        held.state.entries = dict(zip(each.keys, each.values, strict=True))
        assert told.digest == f"{held.state.digest():016x}"
        assert told.entries == len(each.keys)
    assert header.entries == 80


def test_large_values_and_many_rows_have_pages_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """With values larger than a page, and with more rows than one."""
    monkeypatch.setattr(checkpoint, "_PAGE_BYTES", 1 << 16)
    big = [bytes([number]) * 100_000 for number in range(30)]
    small = [b"%d" % number for number in range(5000)]
    snapshot = Snapshot(
        1,
        0,
        [
            MapSnapshot("big", [], b"", small[:30], big),
            MapSnapshot("small", [], b"", small, small, list(range(5000))),
        ],
    )
    name, data = encode_checkpoint(snapshot, 2, STORE)
    assert read_checkpoint(name, data)[1] == snapshot


def test_more_bytes_than_one_array_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """One array holds 2 GiB; a cell that is longer than the limit has one of its own."""
    snapshot = example()
    whole = encode_checkpoint(snapshot, 2, STORE)
    monkeypatch.setattr(checkpoint, "_ARRAY_BYTES", 5)
    assert len(checkpoint._cells([b"123", b"45", b"6", b"7890123"])) == 3
    assert read_checkpoint(*encode_checkpoint(snapshot, 2, STORE))[1] == snapshot
    assert read_checkpoint(*whole)[1] == snapshot


def test_a_checkpoint_costs_no_member_the_import_of_pandas() -> None:
    code = (
        "import sys; from holdfast.core.model.journal_entries import MapSnapshot, Snapshot; "
        "from holdfast.wire.checkpoint import encode_checkpoint, read_checkpoint; "
        "held = MapSnapshot('m', [(1, 1)], b'', [b'k'], [b'v'], [5], [6], [7]); "
        "read_checkpoint(*encode_checkpoint(Snapshot(0, 0, [held]), 1, 'store')); "
        "print('pandas' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


# -- damage


def test_every_flipped_bit_is_refused() -> None:
    name, data = encode_checkpoint(example(8), 5, STORE)
    damaged = bytearray(data)
    for place in range(len(data)):
        for bit in range(8):
            damaged[place] ^= 1 << bit
            with pytest.raises(JournalBroken, match="damaged"):
                read_checkpoint(name, bytes(damaged))
            damaged[place] ^= 1 << bit
    assert read_checkpoint(name, bytes(damaged))[1] == example(8)


def test_every_cut_is_refused() -> None:
    name, data = encode_checkpoint(example(8), 5, STORE)
    for size in range(len(data)):
        with pytest.raises(JournalBroken, match="damaged"):
            read_checkpoint(name, data[:size])
    with pytest.raises(JournalBroken, match="damaged"):
        read_checkpoint(name, data + b"\0")


def test_a_header_is_read_or_refused_whatever_the_bytes_are() -> None:
    """A list of checkpoints looks at the metadata only: nothing but JournalBroken may come of it."""
    _, data = encode_checkpoint(example(8), 5, STORE)
    refused = 0
    damaged = bytearray(data)
    for place in range(len(data)):
        damaged[place] ^= 0xFF
        try:
            read_header(bytes(damaged))
        except JournalBroken:
            refused += 1
        damaged[place] ^= 0xFF
    assert refused > 8
    for size in range(0, len(data), 7):
        with pytest.raises(JournalBroken):
            read_header(data[:size])


def test_names_that_are_none() -> None:
    name, data = encode_checkpoint(example(8), 5, STORE)
    digest = name[-40:-8]
    for wrong in (
        "",
        name[1:],
        name + "x",
        f"p17-000000000005-{digest}.parquet",
        f"p00017-5-{digest}.parquet",
        f"p00017-000000000005-{digest.upper()}.parquet",
        f"p\u0660\u0660\u0660\u0661\u0667-000000000005-{digest}.parquet",
    ):
        assert parse_name(wrong) is None
        with pytest.raises(JournalBroken, match="not the name of a checkpoint"):
            read_checkpoint(wrong, data)


def test_a_checkpoint_under_another_name_or_of_another_store_is_refused() -> None:
    name, data = encode_checkpoint(example(8), 5, STORE)
    for partition, lsn in ((18, 5), (17, 6)):
        with pytest.raises(JournalBroken, match="partition 17 at 5 under another name"):
            read_checkpoint(checkpoint_name(partition, lsn, data), data)
    with pytest.raises(JournalBroken, match=f"another store, {STORE}"):
        read_checkpoint(name, data, "mine")


def rewritten(**changes: object) -> tuple[str, bytes]:
    """A checkpoint with other metadata, under the name that fits it."""
    _, data = encode_checkpoint(example(8), 5, STORE)
    table = pq.read_table(pa.BufferReader(data))
    header = msgspec.structs.replace(read_header(data), **changes)
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata({checkpoint.METADATA: msgspec.json.encode(header)}), sink)
    raw = sink.getvalue().to_pybytes()
    return checkpoint_name(17, 5, raw), raw


def test_metadata_that_do_not_fit_are_refused() -> None:
    name, data = rewritten()
    assert read_checkpoint(name, data)[1] == example(8)
    header: CheckpointHeader = read_header(data)
    wrong: list[tuple[str, dict[str, object]]] = [
        ("version 3", {"version": 3}),
        ("16 entries where the metadata say 8", {"maps": header.maps[:1]}),
        (
            "entries where",
            {
                "maps": [
                    msgspec.structs.replace(each, entries=n)
                    for each, n in zip(header.maps, (-8, 8, 16), strict=True)
                ]
            },
        ),
    ]
    for words, changes in wrong:
        with pytest.raises(JournalBroken, match=words):
            read_checkpoint(*rewritten(**changes))


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"x": [1]}),
        pa.table({"x": [1]}).replace_schema_metadata({"holdfast": "{}"}),
        pa.table({"x": [1]}).replace_schema_metadata({"holdfast": "nothing"}),
        pa.table({"x": [1]}).replace_schema_metadata(
            {"holdfast": msgspec.json.encode(CheckpointHeader(1, STORE, 17, 0, 5, []))}
        ),
    ],
)
def test_other_parquet_files_are_refused(table: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    data = sink.getvalue().to_pybytes()
    with pytest.raises(JournalBroken, match=r"not a checkpoint|entries where"):
        read_checkpoint(checkpoint_name(17, 5, data), data)


def test_columns_of_different_length_are_not_written() -> None:
    for each in (
        MapSnapshot("m", [], b"", [b"k"], []),
        MapSnapshot("m", [], b"", [b"k"], [b"v"], [1, 2]),
        MapSnapshot("m", [], b"", [b"k", b"l"], [b"v", b"w"], [], [], [1]),
    ):
        with pytest.raises(ValueError, match="not of one length"):
            encode_checkpoint(Snapshot(1, 1, [each]), 1, STORE)


def test_the_digest_in_the_name() -> None:
    """As anybody can compute it."""
    name, data = encode_checkpoint(example(3), 5, STORE)
    assert name == f"p00017-000000000005-{mmh3.hash_bytes(data).hex()}.parquet"


# -- everybody else


COLUMNS = ["map", "key", "value", "ttl_ms", "max_idle_ms", "key_hash"]


def as_rows(snapshot: Snapshot) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for each in snapshot.maps:
        zeros = [0] * len(each.keys)
        columns = (each.ttls_ms or zeros, each.max_idles_ms or zeros, each.key_hashes or zeros)
        found += zip([each.name] * len(zeros), each.keys, each.values, *columns, strict=True)
    return found


def test_it_is_a_plain_parquet_file() -> None:
    snapshot = example()
    _, data = encode_checkpoint(snapshot, 5, STORE)
    file = pq.ParquetFile(pa.BufferReader(data))
    group = file.metadata.row_group(0)
    assert [group.column(number).path_in_schema for number in range(group.num_columns)] == COLUMNS
    assert {group.column(number).compression for number in range(group.num_columns)} == {"UNCOMPRESSED"}
    for number in (1, 2):
        assert set(group.column(number).encodings) == {"PLAIN", "RLE"}  # RLE: of the levels
    rows = pq.read_table(pa.BufferReader(data)).to_pylist()
    assert [tuple(row[column] for column in COLUMNS) for row in rows] == as_rows(snapshot)


def test_pandas_reads_it(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    snapshot = example()
    name, data = encode_checkpoint(snapshot, 5, STORE)
    (tmp_path / name).write_bytes(data)
    frame = pandas.read_parquet(tmp_path / name)
    assert list(frame.columns) == COLUMNS
    assert list(frame.itertuples(index=False, name=None)) == as_rows(snapshot)
