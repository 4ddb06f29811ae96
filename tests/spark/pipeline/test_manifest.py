"""What an export says of itself, and whom it is believed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.spark.pipeline.manifest import (
    ENTRIES,
    FORMAT,
    NAME,
    BadExport,
    FileInfo,
    Manifest,
    MapInfo,
    StoredEntry,
    checksum,
    file_checksum,
    file_of,
    folder_of,
    publish,
    read_manifest,
    sum_digests,
    temporary_of,
    write_manifest,
)


def manifest(*maps: MapInfo) -> Manifest:
    return Manifest(FORMAT, "0.1.0", "id", "dev", 3, "2026-01-01T00:00:00+00:00", "00" * 16, list(maps))


def flights(path: str = "entries/map=flights/part-00000.parquet") -> MapInfo:
    files = [
        FileInfo(path, 3, 10, "ffffffffffffffff", "00", 1),
        FileInfo("entries/map=flights/part-00001.parquet", 2, 10, "0000000000000003", "00", 1, 2),
    ]
    schema = StoredEntry(b"\xff\x00", b"\x80value")
    return MapInfo("flights", 5, sum_digests(files), [4, 0, 9], [1, 0, 2], files, schema)


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_manifest(tmp_path, manifest(flights()))
    read = read_manifest(tmp_path)
    assert read.maps == [flights()]
    assert (read.rows, read.bytes, read.map("flights").expiring) == (5, 20, 2)
    assert read.map("flights").digest == "0000000000000002"
    with pytest.raises(BadExport, match="no map 'flight'; it has flights"):
        read.map("flight")


def test_a_manifest_without_anything_left_out_has_the_bytes_that_it_always_had(tmp_path: Path) -> None:
    write_manifest(tmp_path, manifest(flights()))
    assert b"left_out" not in (tmp_path / NAME).read_bytes()


def test_a_folder_without_a_manifest_is_no_export(tmp_path: Path) -> None:
    with pytest.raises(BadExport, match="is no folder"):
        read_manifest(tmp_path / "nowhere")
    with pytest.raises(BadExport, match=r"is no export: it has no manifest\.json"):
        read_manifest(tmp_path)
    (tmp_path / ENTRIES).mkdir()
    with pytest.raises(BadExport, match="did not finish"):
        read_manifest(tmp_path)


def test_every_change_of_a_manifest_is_found(tmp_path: Path) -> None:
    write_manifest(tmp_path, manifest(flights()))
    path = tmp_path / NAME
    whole = path.read_bytes()
    for at in range(0, len(whole) - 1, 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(BadExport, match=r"is damaged|of format"):
            read_manifest(tmp_path)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadExport, match="is damaged"):
        read_manifest(tmp_path)
    path.write_bytes(whole)
    assert read_manifest(tmp_path).rows == 5


def test_a_manifest_of_a_later_format_is_refused_by_its_number(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(json.dumps({"format": 2, "what": "ever"}))
    with pytest.raises(BadExport, match="is of format 2; this Holdfast reads format 1"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    "path", ["../secret", "entries/../../x", "/etc/passwd", "entries/map=a/b/part-00000.parquet"]
)
def test_files_outside_of_the_folder_are_refused(path: str, tmp_path: Path) -> None:
    write_manifest(tmp_path, manifest(flights(path)))
    with pytest.raises(BadExport, match="is no file of an export"):
        read_manifest(tmp_path)


def test_files_that_do_not_add_up_are_refused(tmp_path: Path) -> None:
    wrong = flights()
    write_manifest(tmp_path, manifest(MapInfo("flights", 6, wrong.digest, [], [], wrong.files)))
    with pytest.raises(BadExport, match="do not add up"):
        read_manifest(tmp_path)


def test_two_exports_do_not_share_a_folder(tmp_path: Path) -> None:
    write_manifest(tmp_path, manifest())
    with pytest.raises(BadExport, match="another export wrote"):
        write_manifest(tmp_path, manifest(flights()))
    assert read_manifest(tmp_path).maps == []


def test_a_file_is_published_once(tmp_path: Path) -> None:
    final = tmp_path / "final"
    for content, first in ((b"one", True), (b"two", False)):
        temporary = temporary_of(final)
        temporary.write_bytes(content)
        assert publish(temporary, final) is first
        assert not temporary.exists()
    assert final.read_bytes() == b"one"
    assert [path.name for path in tmp_path.iterdir()] == ["final"]
    assert file_checksum(final) == (checksum(b"one"), 3)


def test_every_map_has_a_folder_of_its_own() -> None:
    names = ["a", "A b", "a/b", "..", ".", "ü✓", "a=b%2F", "x" * 256, "x" * 255 + "y", "\x00\n", "/" * 256]
    folders = [folder_of(name) for name in names]
    assert len(set(folders)) == len(names)
    for folder in folders:
        assert len(folder.encode()) < 255
        assert "/" not in folder
        assert folder.isprintable()
    assert folder_of("ü✓") == "map=ü✓"
    assert file_of(ENTRIES, "a/b", 7) == "entries/map=a%2Fb/part-00007.parquet"
