"""What an export is: the files of a folder, and `manifest.json`, which is written last and says what they must hold.

    DIR/manifest.json
    DIR/entries/map=flights/part-00000.parquet     columns key, value, ttl_ms, max_idle_ms, key_hash, partition
    DIR/tables/map=flights/part-00000.parquet      the columns of the map, if they were asked for

Keys and values are in their stored form: a big-endian 32-bit type id and the payload. A folder without a manifest is
an export that did not come to its end, and is refused. Digests are those that members compare copies by
(`core.store.digest`), summed modulo 2**64: they depend neither on the number of partitions nor on any order. A checksum
is over all bytes of a file (128-bit murmur3).
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
"""A name that would be too long begins with so many characters of it, and ends in its checksum."""
_SPECIAL = re.compile(r"[\x00-,/:-@\[-^`{-\x7f]")
"""Spark takes back `%` and two digits, but not the letters of other alphabets: those stay."""
_CHUNK_BYTES = 4 << 20
_MASK = 0xFFFF_FFFF_FFFF_FFFF


class BadExport(HoldfastError):
    """A folder is no export, or is not what its manifest says."""


class FileInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file with entries of one map."""

    path: str
    """Within the folder, with slashes."""
    rows: int
    bytes: int
    digest: str
    """16 hexadecimal digits, over the entries."""
    checksum: str
    """32 hexadecimal digits, over the bytes."""
    row_groups: int
    expiring: int = 0
    """Entries with a time to live or a maximum idle time."""


class StoredEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of one of the grid's own maps, which are small: kept in the manifest itself, as base64."""

    key: bytes
    value: bytes


class MapInfo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One map, and where the cut goes through it."""

    name: str
    rows: int
    digest: str
    counters: list[int]
    """By partition: the update counter at the cut; 0 where nothing was ever written."""
    terms: list[int]
    """By partition: the term of that update."""
    files: list[FileInfo]
    schema: StoredEntry | None = None
    """What its columns are, as the map `__schemas.spark` says it; None when it was not written through Spark."""
    tables: list[FileInfo] = []
    """Its rows in columns, if they were asked for. Their digests are empty."""
    tables_left_out: str | msgspec.UnsetType = msgspec.UNSET
    """Why there are no rows in columns though they were asked for. Not written where there is nothing to say, so that
    manifests of before keep their checksum."""
    tables_unfit: int | msgspec.UnsetType = msgspec.UNSET
    """Entries that did not fit the columns, and are in `tables` as the option `bad` said. Not written where there are
    none."""

    @property
    def expiring(self) -> int:
        """Entries with a time to live or a maximum idle time."""
        return sum(file.expiring for file in self.files)


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an export holds."""

    format: int
    holdfast: str
    """The version that has written it."""
    cluster_id: str
    cluster_name: str
    partition_count: int
    taken: str
    """When the cut was made: ISO 8601, UTC, by the clock of the driver."""
    cut: str
    """Its id, 32 hexadecimal digits."""
    maps: list[MapInfo]
    compact_schemas: list[StoredEntry] = []
    """The map `__schemas` at the cut: without it nobody reads values of compact classes."""
    checksum: str = ""
    """Over everything else."""

    @property
    def rows(self) -> int:
        """Of all maps."""
        return sum(each.rows for each in self.maps)

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(file.bytes for each in self.maps for file in (*each.files, *each.tables))

    def map(self, name: str) -> MapInfo:
        """The map of this name. Raises BadExport, naming those that there are."""
        for each in self.maps:
            if each.name == name:
                return each
        names = ", ".join(each.name for each in self.maps) or "none"
        raise BadExport(f"the export has no map {name!r}; it has {names}")


# -- names


def folder_of(map_name: str) -> str:
    """The name of a map's folder, which every file system takes, and Spark and DuckDB read as a column `map`."""
    name = _SPECIAL.sub(lambda found: f"%{ord(found[0]):02X}", map_name)
    if len(name.encode()) > _FOLDER_BYTES:
        name = f"{name[:_FOLDER_CHARS].partition('%')[0]}-{checksum(map_name.encode())}"
    return f"map={name}"


def file_of(kind: str, map_name: str, share: int) -> str:
    """The path of a share's file within the export. `kind`: `ENTRIES` or `TABLES`."""
    return f"{kind}/{folder_of(map_name)}/part-{share:05}.parquet"


# -- sums


def hex_digest(digest: int) -> str:
    """A sum of digests as the manifest has it."""
    return f"{digest & _MASK:016x}"


def sum_digests(files: list[FileInfo]) -> str:
    """The digest of all these files together."""
    return hex_digest(sum(int(file.digest, 16) for file in files))


def checksum(data: bytes) -> str:
    """The checksum of these bytes."""
    return mmh3.mmh3_x64_128_digest(data).hex()


def file_checksum(path: Path) -> tuple[str, int]:
    """The checksum of a file's bytes, and how many there are. Raises OSError."""
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


# -- files that are there whole, or not at all


def publish(temporary: Path, final: Path) -> bool:
    """Give a complete file its name, durably, unless it is taken; answers whether it was free.

    Whoever comes second (a task that Spark runs again, or twice at the same time) loses, and changes nothing; where
    there are no hard links (`has_links`), it may win if it comes at the same moment.
    """
    _sync(temporary)
    try:
        os.link(temporary, final)
    except FileExistsError:
        temporary.unlink()
        return False
    except OSError:
        # A file system without links: the second one takes the place of the first.
        if final.exists():
            temporary.unlink()
            return False
        temporary.replace(final)
    else:
        temporary.unlink()
    _sync(final.parent)
    return True


def has_links(folder: Path) -> bool:
    """Whether the folder's file system has hard links; without them `publish` may let the second one win."""
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
    """Where a file is written before it has its name; Spark and other readers skip names with a dot in front."""
    return final.with_name(f".{final.name}.{uuid4().hex}")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# -- the manifest as a file


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write it, at once and durably: from now on the folder is an export. Raises BadExport when there is one."""
    sealed = msgspec.structs.replace(manifest, checksum=_seal(manifest))
    final = folder / NAME
    temporary = temporary_of(final)
    temporary.write_bytes(msgspec.json.encode(sealed) + b"\n")
    if not publish(temporary, final):
        raise BadExport(f"{final} is there already: somebody else has exported into the same folder")


def read_manifest(folder: Path | str) -> Manifest:
    """What the export in this folder holds. Raises BadExport when there is none, or it cannot be believed, and
    ConfigError for a URI.
    """
    folder = Path(local_path(folder))
    path = folder / NAME
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        if not folder.is_dir():
            raise BadExport(f"{folder} is no folder") from None
        if (folder / ENTRIES).is_dir():
            raise BadExport(
                f"{folder} has no {NAME}: the export did not come to its end. Export again into another folder"
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
