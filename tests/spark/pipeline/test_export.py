"""Exporting and restoring without Spark: what one task does, against members in this process."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.server.memory_cluster import MemoryCluster

pytest.importorskip("pyspark")

from pyspark.sql.types import LongType, StructType

from holdfast.client.blocking import Client
from holdfast.client.cut_handles import Cut, take_cut
from holdfast.client.holdings import Holding, known_maps, map_names, read_holdings
from holdfast.core.model.keys import murmur3, partition_of
from holdfast.core.store.digest import batch_digest, entry_digest, whole
from holdfast.errors import ConfigError, CutLost, NotReady
from holdfast.spark.pipeline.export import (
    SCHEMA,
    Exported,
    Exporter,
    Piece,
    Share,
    WrittenFile,
    _look,
    _map_info,
    _names,
    _prepare,
    plan_shares,
    whole_tables,
)
from holdfast.spark.pipeline.manifest import (
    BadExport,
    FileInfo,
    Manifest,
    MapInfo,
    file_checksum,
    file_of,
    hex_digest,
    read_manifest,
    write_manifest,
)
from holdfast.spark.pipeline.restoring import Restorer, Written, _Holdings, _targets, judge, plan_parts
from holdfast.spark.pipeline.verified_export import cells_of, numbers_of, plain, read_batches, read_file
from holdfast.spark.rows.column_schemas import StoredSchema
from holdfast.spark.rows.stored import json_data
from holdfast.spark.source.options import Options
from holdfast.wire.own import Mark
from holdfast.wire.values import to_stored


class Rows:
    """Counts as `jobs.Counted` does."""

    rows = 0

    def add(self, rows: int, partitions: int = 0) -> None:
        self.rows += rows


@pytest.fixture
def client(cluster: MemoryCluster) -> Iterator[Client]:
    with Client(cluster.addresses(), timeout_s=5) as client:
        yield client


def load(client: Client, name: str, count: int, first: int = 0) -> None:
    numbers = range(first, first + count)
    keys, values = (
        [to_stored(number) for number in numbers],
        [to_stored(f"value {number}") for number in numbers],
    )
    client.put_columns(name, keys, values, ttl_ms=0)


def exporter(cluster: MemoryCluster, cut: Cut, folder: Path) -> Exporter:
    options = Options.parse({"address": cluster.addresses(), "map": "any", "timeout": "5"})
    return Exporter(options, (), cut, str(folder), {}, Rows())  # type: ignore[arg-type]


def written(work: Exporter, share: Share) -> list[WrittenFile]:
    return [WrittenFile(**row) for batch in work(share) for row in batch.to_pylist()]


def info(file: WrittenFile) -> FileInfo:
    return FileInfo(
        file.path, file.rows, file.bytes, file.digest, file.checksum, file.row_groups, file.expiring
    )


def test_the_digest_of_a_batch_is_the_sum_of_its_entries() -> None:
    keys, values = [b"a", b"ab", b"", b"b"], [b"bc", b"c", b"abc", b""]
    assert batch_digest(keys, values) == whole(map(entry_digest, keys, values))
    assert batch_digest(keys[:1], values[:1]) != batch_digest(keys[1:2], values[1:2])


# -- shares


def cut_of(marks: dict[tuple[str, int], int]) -> Cut:
    return Cut(
        b"0" * 16,
        {
            (name, partition): Mark(partition, name, entries, 1, entries, [f"member-{partition % 3}"])
            for (name, partition), entries in marks.items()
        },
    )


def test_shares_are_even_and_have_every_scan_once() -> None:
    marks = {(name, partition): 1000 for name in "ab" for partition in range(60)}
    marks["a", 60] = 0
    marks["c", 1] = 1000
    shares = plan_shares(cut_of(marks), ["a", "b"], 8)
    scans = [(piece.map, at) for share in shares for piece in share.pieces for at in piece.partitions]
    assert sorted(scans) == sorted((name, at) for name in "ab" for at in range(60))
    assert [share.number for share in shares] == list(range(8))
    sizes = [sum(len(piece.partitions) for piece in share.pieces) for share in shares]
    assert set(sizes) == {15}
    for share in shares:
        assert len({piece.map for piece in share.pieces}) == len(share.pieces)


def test_there_are_no_more_shares_than_scans_and_no_empty_ones_but_one() -> None:
    assert [len(share.pieces) for share in plan_shares(cut_of({("a", 1): 5, ("a", 2): 1}), ["a"], 8)] == [
        1,
        1,
    ]
    assert plan_shares(cut_of({("a", 1): 0}), ["a"], 8) == [Share(0, ())]
    uneven = plan_shares(cut_of({("a", at): 10_000_000 if at == 3 else 1 for at in range(9)}), ["a"], 4)
    assert sum(len(piece.partitions) for share in uneven for piece in share.pieces) == 9
    assert all(share.pieces for share in uneven)


# -- one task


def test_a_task_writes_what_the_map_was_at_the_cut(
    cluster: MemoryCluster, client: Client, tmp_path: Path
) -> None:
    load(client, "m", 1000)
    cut = take_cut(client, ["m"])
    load(client, "m", 1000, first=500)
    client.clear("m")
    work = exporter(cluster, cut, tmp_path)
    share = Share(4, (Piece("m", tuple(range(31))),))
    (file,) = written(work, share)
    expected = {to_stored(number): to_stored(f"value {number}") for number in range(1000)}
    assert file.path == file_of("entries", "m", 4)
    assert (file.rows, file.row_groups, file.expiring) == (1000, 1, 0)
    assert file.digest == hex_digest(batch_digest(list(expected), list(expected.values())))
    table = pq.read_table(tmp_path / file.path, partitioning=None)
    assert table.schema.equals(SCHEMA)
    assert dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)) == expected
    assert set(table["partition"].to_pylist()) == set(range(31))
    assert work.counted.rows == 1000
    read_file(tmp_path / file.path, info(file))


def test_a_task_that_runs_again_leaves_one_file(
    cluster: MemoryCluster, client: Client, tmp_path: Path
) -> None:
    load(client, "m", 300)
    cut = take_cut(client, ["m"])
    work = exporter(cluster, cut, tmp_path)
    share = Share(0, (Piece("m", tuple(range(31))),))
    first = written(work, share)
    assert written(work, share) == first
    # Two at the same time: the second finds the file only when it wants to give its own the name.
    temporary = tmp_path / "late"
    work._fill(client, share.pieces[0], [temporary])
    work._write(client, share.pieces[0], [tmp_path / first[0].path])
    assert written(work, share) == first
    assert [path.name for path in (tmp_path / "entries" / "map=m").iterdir()] == ["part-00000.parquet"]


def test_a_file_of_another_export_is_not_taken_for_ones_own(
    cluster: MemoryCluster, client: Client, tmp_path: Path
) -> None:
    load(client, "m", 30)
    share = Share(0, (Piece("m", tuple(range(31))),))
    written(exporter(cluster, take_cut(client, ["m"]), tmp_path), share)
    with pytest.raises(BadExport, match="belongs to another export"):
        written(exporter(cluster, take_cut(client, ["m"]), tmp_path), share)


def test_a_cut_that_nobody_keeps_leaves_no_file(
    cluster: MemoryCluster, client: Client, tmp_path: Path
) -> None:
    load(client, "m", 30)
    cut = take_cut(client, ["m"])
    lost = Cut(b"x" * 16, cut.marks)
    with pytest.raises(CutLost):
        written(exporter(cluster, lost, tmp_path), Share(0, (Piece("m", tuple(range(31))),)))
    assert list((tmp_path / "entries" / "map=m").iterdir()) == []


def test_entries_that_do_not_fit_the_columns_are_exported_all_the_same(
    cluster: MemoryCluster, client: Client, tmp_path: Path
) -> None:
    columns = StructType().add("id", LongType())
    for number in range(40):
        client.set("rows", to_stored(number), json_data(b'{"id": %d}' % number))
    client.set("rows", to_stored("odd"), to_stored("no JSON"))
    cut = take_cut(client, ["rows"])
    work = replace(
        exporter(cluster, cut, tmp_path), readable={"rows": StoredSchema(columns.jsonValue(), ["id"], "json")}
    )
    odd = partition_of(to_stored("odd"), 0, 31)
    shares = [
        Share(at, (Piece("rows", part),)) for at, part in enumerate((tuple(set(range(31)) - {odd}), (odd,)))
    ]
    found = [file for share in shares for file in written(work, share)]
    assert written(work, shares[1]) == found[2:], "a task that runs again says the same"
    kept = whole_tables(tmp_path, found)
    info = _map_info("rows", cut, 31, kept, {})
    assert (info.rows, len(info.files), info.tables) == (41, 2, [])
    assert re.search("the entry with key 'odd' of map 'rows' .* no JSON value", str(info.tables_left_out))
    _look(tmp_path, kept)
    assert [path.name for path in tmp_path.glob("tables/*/*")] == []
    manifest = Manifest(1, "0", "id", "dev", 31, "", "", [info])
    write_manifest(tmp_path, manifest)
    assert read_manifest(tmp_path).maps == [info]
    assert "not written in columns: the entry with key 'odd'" in str(Exported("x", manifest, 1.0))
    assert "tables_left_out" in plain(manifest)["maps"][0]


def test_of_two_tasks_at_the_same_moment_without_hard_links_nobody_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "entries" / "map=m" / "part-00000.parquet"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"mine!")
    mine = WrittenFile(
        "m", "entries", "entries/map=m/part-00000.parquet", 1, 5, "0", file_checksum(path)[0], 1, 0
    )
    _look(tmp_path, [mine])
    path.write_bytes(b"yours")
    _look(tmp_path, [mine])  # with hard links this cannot happen, and files are not read again

    def refuse(source: Path, link: Path) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(BadExport, match="written by two tasks at the same time"):
        _look(tmp_path, [mine])
    path.write_bytes(b"mine!")
    _look(tmp_path, [mine])
    assert [found.name for found in tmp_path.iterdir()] == ["entries"]


# -- before


def test_maps_are_found_by_name(cluster: MemoryCluster, client: Client) -> None:
    load(client, "flights", 10)
    client.set("__schemas.spark", to_stored("flights"), to_stored({"columns": []}))
    assert map_names(client) == ["flights"]
    assert _names(known_maps(client), ["flights", "flights"]) == ["flights"]
    with pytest.raises(ConfigError, match="did you mean 'flights'"):
        _names(known_maps(client), ["flight"])
    with pytest.raises(ConfigError, match="is Holdfast's own"):
        _names(known_maps(client), ["__schemas"])


def test_names_are_not_told_while_a_member_is_silent(cluster: MemoryCluster, client: Client) -> None:
    load(client, "m", 10)
    silent = cluster.members[1]
    cluster.do(lambda: [silent.server.close(), *[one.transport.abort() for one in silent.writers]])  # type: ignore[union-attr]
    with pytest.raises(NotReady, match="cannot list the maps"):
        map_names(client, timeout_s=0.05)


def test_an_export_wants_an_empty_folder(tmp_path: Path) -> None:
    _prepare(tmp_path / "deep" / "new")
    assert (tmp_path / "deep" / "new").is_dir()
    with pytest.raises(ConfigError, match="is not empty"):
        _prepare(tmp_path)
    (tmp_path / "deep" / "new" / "entries").mkdir()
    with pytest.raises(ConfigError, match="did not finish"):
        _prepare(tmp_path / "deep" / "new")


# -- reading files


def test_cells_are_cut_out_of_any_part_of_a_batch(
    cluster: MemoryCluster, client: Client, tmp_path: Path
) -> None:
    load(client, "m", 200)
    (file,) = written(
        exporter(cluster, take_cut(client, ["m"]), tmp_path), Share(0, (Piece("m", tuple(range(31))),))
    )
    (batch,) = read_batches(tmp_path / file.path)
    for part in (batch, batch.slice(3, 50), batch.slice(190), batch.slice(5, 0)):
        assert cells_of(part, "key") == part.column(0).to_pylist()
        assert cells_of(part, "value") == part.column(1).to_pylist()
    assert numbers_of(batch, "ttl_ms") == []
    assert numbers_of(batch, "partition") == batch.column(5).to_pylist()


def test_damaged_files_are_found(cluster: MemoryCluster, client: Client, tmp_path: Path) -> None:
    load(client, "m", 200)
    (file,) = written(
        exporter(cluster, take_cut(client, ["m"]), tmp_path), Share(0, (Piece("m", tuple(range(31))),))
    )
    path, said = tmp_path / file.path, info(file)
    data = path.read_bytes()
    path.write_bytes(data[:300] + bytes([data[300] ^ 1]) + data[301:])
    with pytest.raises(BadExport, match="is damaged: these are not the"):
        read_file(path, said)
    path.write_bytes(data)
    other = FileInfo(
        said.path, said.rows, said.bytes, hex_digest(int(said.digest, 16) + 1), said.checksum, said.row_groups
    )
    with pytest.raises(BadExport, match="holds 200 entries with digest"):
        read_file(path, other)
    path.unlink()
    with pytest.raises(BadExport, match="is missing"):
        read_file(path, said)


# -- restoring


def restored(cluster: MemoryCluster, folder: Path, map_info: MapInfo, to: str = "m") -> list[Written]:
    options = Options.parse({"address": cluster.addresses(), "map": "any", "timeout": "5"})
    work = Restorer(options, (), str(folder), Rows())  # type: ignore[arg-type]
    parts = plan_parts([map_info], {map_info.name: to}, 2)
    return [Written(**row) for part in parts for batch in work(part) for row in batch.to_pylist()]


def test_everything_that_belongs_to_an_entry_is_restored_into_another_number_of_partitions(
    cluster: MemoryCluster, client: Client, tmp_path: Path
) -> None:
    load(client, "m", 100)
    plain, lives, idles, placed = (to_stored(f"key {number}") for number in range(4))
    word = murmur3(b"somewhere else", 7)
    keys = [plain, lives, idles, placed]
    values = [to_stored(number) for number in range(4)]
    client.put_columns(
        "m",
        keys,
        values,
        ttls_ms=[0, 60_000, 0, 0],
        max_idles_ms=[0, 0, 70_000, 0],
        key_hashes=[0, 0, 0, word],
    )
    share = Share(0, (Piece("m", tuple(range(31))),))
    (file,) = written(exporter(cluster, take_cut(client, ["m"]), tmp_path), share)
    assert (file.rows, file.expiring) == (104, 2)
    said = MapInfo("m", file.rows, file.digest, [], [], [info(file)])
    with MemoryCluster(2, 7) as other, Client(other.addresses(), timeout_s=5) as there:
        for _ in range(2):
            (done,) = restored(other, tmp_path, said, to="n")
            assert (done.rows, done.digest) == (104, file.digest)
            held = read_holdings(there, range(7), ["n"], timeout_s=5)["n"]
            assert (held.entries, hex_digest(held.digest)) == (104, file.digest)
        maps = [other.owner(partition).held[partition].open("n") for partition in range(7)]
        expiries = {key: expiry for one in maps for key, expiry in one.state.expiries.items()}
        assert {key: (one.ttl_ms > 0, one.max_idle_ms) for key, one in expiries.items()} == {
            lives: (True, 0),
            idles: (False, 70_000),
        }
        assert 0 < expiries[lives].ttl_ms <= 60_000
        (hashes,) = [one.state.hashes for one in maps if one.state.hashes]
        assert hashes == {placed: word}


def test_a_file_is_cut_at_its_row_groups_for_more_tasks() -> None:
    files = [
        FileInfo(f"entries/map=m/part-0000{at}.parquet", 1, 1, "0", "0", groups)
        for at, groups in ((0, 4), (1, 1))
    ]
    said = MapInfo(
        "m", 2, "0", [], [], [*files, FileInfo("entries/map=m/part-00009.parquet", 0, 1, "0", "0", 0)]
    )
    parts = plan_parts([said], {"m": "n"}, 3)
    assert [(part.file.path[-9], part.groups) for part in parts] == [
        ("0", (0, 3)),
        ("0", (1,)),
        ("0", (2,)),
        ("1", (0,)),
    ]


def test_names_for_a_restore_are_checked() -> None:
    maps = [MapInfo(name, 0, "0", [], [], []) for name in ("a", "b")]
    assert _targets(maps, {"a": "c"}) == {"a": "c", "b": "b"}
    for rename, why in (
        ({"x": "y"}, "is not restored"),
        ({"a": "b"}, "two maps would become 'b'"),
        ({"a": "__a"}, "is no name for a map"),
        ({"a": "x" * 1025}, "is no name for a map"),
    ):
        with pytest.raises(ConfigError, match=why):
            _targets(maps, rename)


def said_of(expiring: int = 0) -> MapInfo:
    file = FileInfo("entries/map=m/part-00000.parquet", 10, 1, hex_digest(77), "0", 1, expiring)
    return MapInfo("m", 10, hex_digest(77), [], [], [file])


@pytest.mark.parametrize(
    ("before", "after", "expiring", "verdict", "why"),
    [
        (Holding(), Holding(10, 10, 77), 0, "equal", ""),
        (Holding(5, 0, 0), Holding(99, 10, 77), 0, "equal", ""),
        (Holding(9, 10, 77), Holding(19, 10, 77), 0, "equal", ""),
        (Holding(9, 2, 5), Holding(19, 12, 82), 0, "equal", ""),
        (Holding(), Holding(10, 9, 70), 0, "differs", "the export 10 with 000000000000004d"),
        (Holding(), Holding(10, 10, 78), 0, "differs", "digest 000000000000004e"),
        (Holding(), Holding(12, 10, 78), 0, "differs", ""),
        (Holding(), Holding(13, 10, 78), 0, "undecided", "1 changes more than the finished tasks made"),
        (Holding(), Holding(13, 10, 78), 0, "undecided", "or tasks that ran twice"),
        (Holding(), Holding(10, 9, 70), 2, "undecided", "2 of the restored entries have a time to live"),
        (Holding(9, 2, 5), Holding(19, 11, 80), 0, "undecided", "there were 2 before"),
    ],
)
def test_what_is_said_of_a_restored_map(
    before: Holding, after: Holding, expiring: int, verdict: str, why: str
) -> None:
    found = judge(said_of(expiring), "m", before, after, rows_resent=2)
    assert (found.verdict, why in found.reason) == (verdict, True), found


def test_holdings_wait_for_a_primary(cluster: MemoryCluster, client: Client) -> None:
    load(client, "m", 310)
    held = read_holdings(client, range(31), ["m", "nothing"], timeout_s=5)
    assert (held["m"].entries, held["m"].updates, held["nothing"]) == (310, 310, Holding())
    options = Options.parse({"address": cluster.addresses(), "map": "any", "timeout": "5"})
    asked = [_Holdings(options, (), ("m",))(range(part, 31, 2)) for part in range(2)]
    rows = [row for batches in asked for batch in batches for row in batch.to_pylist()]
    sums = [Holding(row["updates"], row["entries"], int(row["digest"], 16)) for row in rows]
    assert sums[0] + sums[1] == held["m"]
    serving: list[Any] = cluster.owner(3).lane.serving
    serving[3] = None
    with pytest.raises(NotReady, match=r"1 partitions are not served for 0\.05 s, partition 3 first"):
        read_holdings(client, range(31), ["m"], timeout_s=0.05)
