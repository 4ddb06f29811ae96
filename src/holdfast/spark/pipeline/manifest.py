"""Format of an export: files in a folder, and `manifest.json`, which is written last and describes them.

    DIR/manifest.json
    DIR/entries/map=flights/part-00000.parquet     columns key, value, ttl_ms, max_idle_ms, key_hash, partition
    DIR/tables/map=flights/part-00000.parquet      the columns of the map, if they were requested

Keys and values are in their stored form: a big-endian 32-bit type id and the payload. A folder without a
manifest is an unfinished export and is rejected. Digests are those by which members compare copies
(`core.store.digest`), summed modulo 2**64: they depend neither on the number of partitions nor on the order.
Checksums cover all bytes of a file (128-bit murmur3).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import mmh3
import msgspec

from holdfast.config.local_paths import local_path
from holdfast.errors import HoldfastError

FORMAT = 1
NAME = "manifest.json"
ENTRIES = "entries"
TABLES = "tables"
_FOLDER_BYTES = 200
_FOLDER_CHARS = 40
"""A longer name is cut to so many characters, followed by its checksum."""
_SPECIAL = re.compile(r"[\x00-,/:-@\[-^`{-\x7f]")
"""Spark decodes `%` with two digits, but not letters of other alphabets, so those stay."""
_CHUNK_BYTES = 4 << 20
_MASK = 0xFFFF_FFFF_FFFF_FFFF


class BadExport(HoldfastError):
    """A folder is no export, or differs from its manifest."""


class FileInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    rows: int
    bytes: int
    digest: str
    """16 hexadecimal digits, over the entries."""
    checksum: str
    """32 hexadecimal digits, over the bytes."""
    row_groups: int
    expiring: int = 0


class StoredEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Entry of an internal map. These are small and stored in the manifest itself, as base64."""

    key: bytes
    value: bytes


class MapInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    rows: int
    digest: str
    counters: list[int]
    """By partition; 0 where nothing was ever written."""
    terms: list[int]
    """Term of that update by partition."""
    files: list[FileInfo]
    schema: StoredEntry | None = None
    """Its columns, from the map `__schemas.spark`; None if Spark did not write it."""
    tables: list[FileInfo] = []
    """Its rows as columns, if requested, with empty digests."""
    tables_left_out: str | msgspec.UnsetType = msgspec.UNSET
    """Why there are no rows as columns though they were requested. Omitted if unset, so that older manifests keep their
    checksum.
    """
    tables_unfit: int | msgspec.UnsetType = msgspec.UNSET
    """Entries that did not fit the columns, and were handled as the option `bad` said. Omitted if there are none."""

    @property
    def expiring(self) -> int:
        return sum(file.expiring for file in self.files)


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    holdfast: str
    cluster_id: str
    cluster_name: str
    partition_count: int
    taken: str
    cut: str
    maps: list[MapInfo]
    compact_schemas: list[StoredEntry] = []
    """The map `__schemas` at the cut, which is needed to read values of compact classes."""
    checksum: str = ""
    """Over everything else."""

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.maps)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for each in self.maps for file in (*each.files, *each.tables))

    def map(self, name: str) -> MapInfo:
        """Raises BadExport, which names the existing maps."""
        for each in self.maps:
            if each.name == name:
                return each
        names = ", ".join(each.name for each in self.maps) or "none"
        raise BadExport(f"the export has no map {name!r}; it has {names}")


# -- names


def folder_of(map_name: str) -> str:
    """Valid in every file system; Spark and DuckDB read it as a column `map`."""
    name = _SPECIAL.sub(lambda found: f"%{ord(found[0]):02X}", map_name)
    if len(name.encode()) > _FOLDER_BYTES:
        name = f"{name[:_FOLDER_CHARS].partition('%')[0]}-{checksum(map_name.encode())}"
    return f"map={name}"


def file_of(kind: str, map_name: str, share: int) -> str:
    return f"{kind}/{folder_of(map_name)}/part-{share:05}.parquet"


# -- sums


def hex_digest(digest: int) -> str:
    return f"{digest & _MASK:016x}"


def sum_digests(files: list[FileInfo]) -> str:
    return hex_digest(sum(int(file.digest, 16) for file in files))


def checksum(data: bytes) -> str:
    return mmh3.mmh3_x64_128_digest(data).hex()


def file_checksum(path: Path) -> tuple[str, int]:
    """Checksum and number of a file's bytes. Raises OSError."""
    hasher: _Hasher = mmh3.mmh3_x64_128()
    size = 0
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK_BYTES):
            hasher.update(chunk)
            size += len(chunk)
    return hasher.digest().hex(), size


class _Hasher(Protocol):
    def update(self, data: bytes, /) -> None: ...
    def digest(self) -> bytes: ...


# -- atomic files


def publish(temporary: Path, final: Path) -> bool:
    """Rename a complete file to its final name, durably, unless that exists; returns whether it did not.

    The second of two writers (a task that Spark repeats, or runs twice at the same time) loses and changes
    nothing. Without hard links (`has_links`), it may win if it comes at the same moment.
    """
    _sync(temporary)
    try:
        os.link(temporary, final)
    except FileExistsError:
        temporary.unlink()
        return False
    except OSError:
        # A file system without links: the second file may replace the first.
        if final.exists():
            temporary.unlink()
            return False
        temporary.replace(final)
    else:
        temporary.unlink()
    _sync(final.parent)
    return True


def has_links(folder: Path) -> bool:
    """Whether the folder's file system has hard links, which `publish` needs to be exact."""
    probe, link = temporary_of(folder / "probe"), temporary_of(folder / "probe")
    probe.touch()
    try:
        os.link(probe, link)
    except OSError:
        return False
    finally:
        probe.unlink()
        link.unlink(missing_ok=True)
    return True


def temporary_of(final: Path) -> Path:
    """Name of a file while it is written; Spark and other readers skip names with a leading dot."""
    return final.with_name(f".{final.name}.{uuid4().hex}")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# -- the manifest as a file


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write it atomically and durably: from now on the folder is an export. Raises BadExport if it already is."""
    sealed = msgspec.structs.replace(manifest, checksum=_seal(manifest))
    final = folder / NAME
    temporary = temporary_of(final)
    temporary.write_bytes(msgspec.json.encode(sealed) + b"\n")
    if not publish(temporary, final):
        raise BadExport(f"{final} exists already: another export wrote into the same folder")


def read_manifest(folder: Path | str) -> Manifest:
    """Raises BadExport if it is missing or damaged, ConfigError for a URI."""
    folder = Path(local_path(folder))
    path = folder / NAME
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        if not folder.is_dir():
            raise BadExport(f"{folder} is no folder") from None
        if (folder / ENTRIES).is_dir():
            raise BadExport(
                f"{folder} has no {NAME}: the export did not finish. Export again into another folder"
            ) from None
        raise BadExport(f"{folder} is no export: it has no {NAME}") from None
    except OSError as error:
        raise BadExport(f"{path} cannot be read: {error.strerror}") from error
    try:
        said = msgspec.json.decode(data, type=_Version)
        if said.format != FORMAT:
            raise BadExport(f"{path} is of format {said.format}; this Holdfast reads format {FORMAT}")
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadExport(f"{path} is damaged: {error}") from error
    if manifest.checksum != _seal(manifest):
        raise BadExport(f"{path} is damaged: it does not match its checksum")
    for each in manifest.maps:
        for file in (*each.files, *each.tables):
            if not _INNER.fullmatch(file.path):
                raise BadExport(f"{path} is damaged: {file.path!r} is no file of an export")
        if each.rows != sum(file.rows for file in each.files) or each.digest != sum_digests(each.files):
            raise BadExport(f"{path} is damaged: the files of map {each.name!r} do not add up")
    return manifest


_INNER = re.compile(rf"(?:{ENTRIES}|{TABLES})/map=[^/]+/part-[0-9]{{5,}}\.parquet", re.ASCII)


class _Version(msgspec.Struct, frozen=True):
    format: int


def _seal(manifest: Manifest) -> str:
    return checksum(msgspec.json.encode(msgspec.structs.replace(manifest, checksum="")))
