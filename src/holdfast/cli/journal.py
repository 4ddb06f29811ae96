"""`holdfast journal`: shows and verifies the directory of a member that is not running."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import click
import msgspec
from msgspec import UNSET, UnsetType
from rich.text import Text

from holdfast.cli.answers import Answer
from holdfast.cli.exit_statuses import DONE, FAILED
from holdfast.cli.operator_command import Call, operator_command
from holdfast.cli.paths import LocalPath
from holdfast.cli.rendering import Shown, table_of
from holdfast.core.model.journal_entries import (
    Began,
    Checkpointed,
    Dropped,
    Entry,
    GroupWrote,
    Meta,
    Seen,
    TableAssignments,
    Wrote,
    WrotePuts,
)
from holdfast.core.model.records import Change, Record
from holdfast.core.model.result_columns import column
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.raft_partition.logged_changes import changes_in
from holdfast.errors import ConfigError, CounterBroken, JournalBroken
from holdfast.wire.checkpoint import parse_name, read_checkpoint, read_header
from holdfast.wire.journal_blocks import Block, segment_lsn, segments
from holdfast.wire.journal_reader import JournalReader, SegmentRead
from holdfast.wire.values import BIG_INTEGER, Serialized, from_stored

IDENTITY = "identity.json"
VALUE_CHARS = 60
INTEGER_BITS = 4096
"""Python does not write longer integers as digits."""


@dataclass(slots=True)
class Files:
    directory: Path
    segments: list[str]
    checkpoints: list[str]
    identity: dict[str, Any]
    """Contents of the member's identity file; empty if there is none."""

    @property
    def store(self) -> str | None:
        """Id of the files, if the identity file has it."""
        store = self.identity.get("store")
        return store if isinstance(store, str) else None

    def load(self, name: str) -> bytes:
        try:
            return (self.directory / name).read_bytes()
        except OSError as error:
            raise JournalBroken(f"{self.directory / name} cannot be read: {error.strerror}") from error

    def reading(self, since: int = 0) -> JournalReader:
        """The journal, from the segment with this block on."""
        firsts = [segment_lsn(name) or 0 for name in self.segments]
        old = max(0, sum(1 for first in firsts if first <= since) - 1)
        return JournalReader(self.segments[old:], self.load, self.store)


def find(directory: Path) -> Files:
    """The files in this directory. Raises ConfigError if it is not a member's."""
    try:
        paths = sorted(directory.iterdir())
    except OSError as error:
        raise ConfigError(f"{directory} cannot be read: {error.strerror}") from error
    names = [path.name for path in paths]
    inner = [path for path in paths if path.is_dir()]
    files = Files(directory, segments(names), [name for name in names if parse_name(name)], {})
    if IDENTITY in names:
        try:
            told = json.loads((directory / IDENTITY).read_bytes())
            files.identity = told if isinstance(told, dict) else {}
        except (OSError, ValueError):
            pass  # the identity file is damaged; other files name their owner too
    if not files.segments and not files.checkpoints and not files.identity:
        fitting = next((path for path in inner if _holds_a_journal(path)), None)
        raise ConfigError(
            f"{directory} holds no journal: no file like j000000000001.seg or p00017-….parquet. "
            + (f"Did you mean {fitting}?" if fitting else "Give the one that persistence.directory names")
        )
    return files


def _holds_a_journal(directory: Path) -> bool:
    try:
        return any(segment_lsn(path.name) or parse_name(path.name) for path in directory.iterdir())
    except OSError:
        return False


# -- verification
# -----------------------------------------------------------------------------------------------------


class Findings(Answer):
    """Counts of what was read, and descriptions of damage."""

    blocks: int = 0
    checkpoints: int = 0
    entries: Annotated[int, msgspec.Meta(description="in checkpoints")] = 0
    damage: list[str] = msgspec.field(default_factory=list)
    cut: Annotated[
        str | None, msgspec.Meta(description="where the journal ends in a block that was never durable")
    ] = None

    def view(self) -> Iterable[Shown]:
        yield from (f"damaged: {line}" for line in self.damage)
        if self.cut:
            yield self.cut
        damaged = f"; {len(self.damage)} damaged" if self.damage else ""
        yield (
            f"{self.blocks:,} blocks and {self.checkpoints:,} checkpoints with {self.entries:,} entries are in order"
            + damaged
        )

    @property
    def exit_status(self) -> int:
        return FAILED if self.damage else DONE


def examine(files: Files) -> Findings:
    found = Findings()
    reading = files.reading()
    named: dict[int, Checkpointed] = {}
    try:
        for block in reading:
            found.blocks += 1
            for entry in block.entries:
                _follow(named, entry)
    except JournalBroken as broken:
        found.damage += [*map(str, reading.damage), str(broken)]
    else:
        found.damage += map(str, reading.damage)
        found.cut = str(reading.torn) if reading.torn else None
        found.damage += _missing(files, named, reading.end.lsn)
    for name in files.checkpoints:
        try:
            header, snapshot = read_checkpoint(name, files.load(name), reading.store)
            for each in snapshot.maps:
                UpdateCounter.decode(each.counter)
            found.checkpoints += 1
            found.entries += header.entries
        except JournalBroken as broken:
            found.damage.append(str(broken))
        except CounterBroken as broken:
            found.damage.append(f"{name}: {broken}")
    return found


def _follow(named: dict[int, Checkpointed], entry: Entry) -> None:
    if isinstance(entry, Checkpointed):
        named[entry.partition] = entry
    elif isinstance(entry, Began) or (isinstance(entry, Dropped) and not entry.map):
        named.pop(entry.partition, None)


def _missing(files: Files, named: dict[int, Checkpointed], next_lsn: int) -> Iterator[str]:
    """Contradictions between journal and checkpoints."""
    newest: dict[int, int] = {}
    for name in files.checkpoints:
        if said := parse_name(name):
            newest[said.partition] = max(newest.get(said.partition, -1), said.lsn)
    for partition, entry in sorted(named.items()):
        # The entry may name a later position than the file: the partition has not changed since.
        said = parse_name(entry.file)
        if said is not None and newest.get(partition, -1) < said.lsn:
            yield f"{entry.file}: missing; the journal says that partition {partition} is in it"
    last = max(newest.values(), default=0)
    if last >= next_lsn:
        yield f"the journal ends before block {next_lsn}, and a checkpoint holds what block {last} says"


# -- entries as lines -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wanted:
    partition: int | None
    map: str | None

    def lines(self, block: Block) -> Iterator[dict[str, Any]]:
        """Selected entries of this block as plain data; a record has its own line."""
        for entry in block.entries:
            for line in _lines(entry):
                if self.partition is not None and line.get("partition") != self.partition:
                    continue
                if self.map is not None and line.get("map") != self.map:
                    continue
                yield {"lsn": block.lsn, **line}
        if not block.entries and self == Wanted(None, None):
            yield {"lsn": block.lsn, "kind": "seal"}


def _lines(entry: Entry) -> Iterator[dict[str, Any]]:
    match entry:
        case Wrote(partition, term) | WrotePuts(partition, term):
            for record in entry.records:
                yield {
                    "kind": record.change.name.lower(),
                    "partition": partition,
                    "term": term,
                    **_record(record),
                }
        case TableAssignments(rows):
            for partition, row in rows:
                yield {"kind": "row", "partition": partition, **msgspec.to_builtins(_named(row))}
        case Seen(view):
            members = [msgspec.to_builtins(_named(member)) for member in view.members]
            yield {"kind": "view", "number": view.number, "members": members, "state": view.state.value}
        case Began(partition, epoch):
            yield {"kind": "began", "partition": partition, "epoch": epoch}
        case Dropped(partition, name):
            yield {"kind": "dropped", "partition": partition} | ({"map": name} if name else {})
        case Checkpointed(partition, lsn, file):
            yield {"kind": "checkpoint", "partition": partition, "upto": lsn, "file": file}
        case GroupWrote(number, data):
            yield from _group_lines(number, data)
        case Meta(store, incarnation, cluster_id):
            yield {"kind": "store", "store": store, "incarnation": incarnation, "cluster_id": cluster_id}


def _group_lines(number: int, data: bytes) -> Iterator[dict[str, Any]]:
    """The changes in new entries of a zone's log; what other groups write is shown by its size."""
    changes = changes_in(number, data)
    if not changes:
        yield {"kind": "group", "partition": number, "bytes": len(data)}
    for change in changes:
        line: dict[str, Any] = {
            "kind": "zone",
            "partition": change.partition,
            "term": change.term,
            "map": change.map,
            "zone": change.zone,
            "index": change.log_index,
            "op": change.operation,
        }
        line |= {"key": plain(change.key)} if change.key else {}
        line |= {"value": plain(change.value)} if change.value else {}
        yield line | ({"ttl_ms": change.ttl_ms} if change.ttl_ms else {})


def _named(struct: msgspec.Struct) -> dict[str, Any]:
    return msgspec.structs.asdict(struct)


def _record(record: Record) -> dict[str, Any]:
    line: dict[str, Any] = {"map": record.map, "counter": record.counter}
    if record.change in {Change.SET, Change.REMOVE, Change.EXPIRY}:
        line["key"] = plain(record.key)
    if record.change is Change.SET:
        line["value"] = plain(record.value)
    elif record.change is Change.PIN:
        line["cut"] = record.key.hex()
    elif record.change is Change.CALL:
        line["update"] = _base64(record.value)
    if record.time_ms:
        line |= {"old": plain(record.old) if record.old is not None else None, "time_ms": record.time_ms}
    if record.ttl_ms:
        line["ttl_ms"] = record.ttl_ms
    if record.max_idle_ms:
        line["max_idle_ms"] = record.max_idle_ms
    return line


def plain(stored: bytes) -> Any:
    """A stored key or value for JSON: a plain value itself, otherwise its type number and bytes."""
    try:
        value = from_stored(stored)
    except (ValueError, IndexError, RecursionError, struct.error, msgspec.MsgspecError):
        return {"bytes": _base64(stored)}
    if isinstance(value, int) and value.bit_length() > INTEGER_BITS:
        return {"type": BIG_INTEGER, "bytes": _base64(stored[4:])}
    if isinstance(value, Serialized):
        return {"type": value.type_id, "bytes": _base64(stored[4:])}
    if isinstance(value, bytes):
        return {"bytes": _base64(value)}
    return value


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def as_text(line: dict[str, Any]) -> str:
    rest = {
        key: value
        for key, value in line.items()
        if key not in {"lsn", "kind", "partition", "term", "map", "counter"}
    }
    words = [f"{line['lsn']:>8}", f"{line['kind']:<10}"]
    if "partition" in line:
        words.append(f"partition {line['partition']}")
    if "term" in line:
        words.append(f"term {line['term']}")
    if "map" in line:
        words.append(f"{line['map']}" + (f" #{line['counter']}" if "counter" in line else ""))
    for key, value in rest.items():
        text = json.dumps(value, ensure_ascii=False)
        words.append(f"{key}={text if len(text) <= VALUE_CHARS else text[: VALUE_CHARS - 1] + '…'}")
    return "  ".join(words)


# -- the commands -----------------------------------------------------------------------------------------------------

directory_argument = click.argument("directory", type=LocalPath(path_type=Path), metavar="DIR")


@click.group()
def journal() -> None:
    r"""Read the directory of one member: its journal and its checkpoints. Changes nothing.

    DIR is the member's persistence.directory, or a copy of it. Stop the member first: a block that it is just writing
    would be shown as cut.

    \b
      holdfast journal list /var/lib/holdfast
      holdfast journal verify /var/lib/holdfast
      holdfast journal print /var/lib/holdfast --partition 17 --map customers --json
    """


class Segment(msgspec.Struct):
    """A file of the journal."""

    file: Annotated[str, column("segment")]
    first_lsn: Annotated[int, column("blocks from", "count")]
    last_lsn: Annotated[int | None, column("to", "count")]
    blocks: Annotated[int, column("blocks", "count")]
    used_bytes: Annotated[int, column("used", "bytes")]
    bytes: Annotated[int, column("of", "bytes")]
    begun_ms: int | None
    void: Annotated[bool, column("void", about="after a torn end, and not read")]


class MapInCheckpoint(msgspec.Struct):
    """A map in a checkpoint."""

    map: str
    entries: int
    digest: Any

    def __str__(self) -> str:
        return self.map


class Checkpoint(msgspec.Struct, kw_only=True):
    """A checkpoint of a partition; `error` says why it cannot be read."""

    file: str
    partition: Annotated[int, column("checkpoint of", right=True)]
    lsn: Annotated[int, column("up to block", "count")]
    entries: Annotated[int | UnsetType, column("entries", "count")] = UNSET
    bytes: Annotated[int, column("size", "bytes")]
    maps: Annotated[list[MapInCheckpoint] | UnsetType, column("maps", fold=True)] = UNSET
    error: Annotated[str | UnsetType, column("error", fold=True)] = UNSET


class Contents(Answer):
    """The segments and checkpoints of a directory."""

    store: str | None
    identity: dict[str, Any] | None
    next_lsn: int
    segments: list[Segment]
    checkpoints: list[Checkpoint]
    damage: list[str]
    cut: str | None

    def view(self) -> Iterable[Shown]:
        known = self.identity or {}
        named = "".join(f"   {key} {known[key]}" for key in ("member", "incarnation") if key in known)
        yield f"store {self.store or known.get('store') or 'unknown'}{named}"
        yield table_of(self.segments, Segment)
        yield table_of(self.checkpoints, Checkpoint)
        yield from (Text(f"damaged: {each}", "bold red") for each in self.damage)
        if self.cut:
            yield Text(self.cut, "yellow")
        entries = sum(each.entries for each in self.checkpoints if each.entries is not UNSET)
        used = sum(each.used_bytes for each in self.segments)
        yield Text(
            f"{used:,} bytes of journal, {len(self.checkpoints)} checkpoints with {entries:,} entries", "dim"
        )

    @property
    def exit_status(self) -> int:
        unread = any(each.error is not UNSET for each in self.checkpoints)
        return FAILED if self.damage or unread else DONE


@operator_command(journal, "list", connects=False, short_help="Show segments and checkpoints.")
@directory_argument
def list_(_: Call, directory: Path) -> Contents:
    r"""Show each segment with its blocks, and each checkpoint with its content.

    The figures of a checkpoint come from its own summary; `verify` reads the whole file.

    \b
      holdfast journal list /var/lib/holdfast
    """
    files = find(directory)
    reading = files.reading()
    for _block in reading:
        pass
    read = {each.name: each for each in reading.segments}
    # Segments after a torn end are void and not read.
    segments = [read.get(name, SegmentRead(name, segment_lsn(name) or 0)) for name in files.segments]
    for each in segments:
        each.size = each.size or (directory / each.name).stat().st_size
    return Contents(
        store=reading.store,
        identity=files.identity or None,
        next_lsn=reading.end.lsn,
        segments=[_segment(each, void=each.name in reading.void) for each in segments],
        checkpoints=[_checkpoint(name, files.load(name)) for name in files.checkpoints],
        damage=[str(each) for each in reading.damage],
        cut=str(reading.torn) if reading.torn else None,
    )


def _segment(read: SegmentRead, *, void: bool) -> Segment:
    return Segment(
        file=read.name,
        first_lsn=read.first_lsn,
        last_lsn=read.last_lsn or None,
        blocks=read.blocks,
        used_bytes=read.used,
        bytes=read.size,
        begun_ms=read.wall_ms or None,
        void=void,
    )


def _checkpoint(name: str, data: bytes) -> Checkpoint:
    place = parse_name(name)
    assert place is not None, "only such files are listed"
    found = Checkpoint(file=name, partition=place.partition, lsn=place.lsn, bytes=len(data))
    try:
        header = read_header(data)
    except JournalBroken as broken:
        found.error = str(broken)
        return found
    found.entries = header.entries
    found.maps = [MapInCheckpoint(each.name, each.entries, each.digest) for each in header.maps]
    return found


@operator_command(journal, connects=False, short_help="Read all files, and report damage.")
@directory_argument
def verify(_: Call, directory: Path) -> Findings:
    r"""Read every block and every checkpoint, and compare each with its checksum.

    A journal may end in the middle of a block that was never durable: a crash leaves it so, and the member truncates
    it. The exit status is 1 if a file is damaged or missing.

    \b
      holdfast journal verify /var/lib/holdfast
    """
    return examine(find(directory))


Line = Annotated[
    dict[str, Any],
    msgspec.Meta(description="A record, or another entry; which keys it has depends on its `kind`."),
]


@operator_command(journal, "print", connects=False, short_help="Print the records of the journal.")
@directory_argument
@click.option("--partition", type=click.IntRange(0), metavar="N", help="Only records of this partition.")
@click.option("--map", "map_name", metavar="NAME", help="Only records of this map.")
@click.option(
    "--from",
    "since",
    type=click.IntRange(1),
    default=1,
    metavar="LSN",
    help="Begin with this block.  [default: 1]",
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Maximum number of lines.")
def print_(
    call: Call,
    directory: Path,
    *,
    partition: int | None,
    map_name: str | None,
    since: int,
    limit: int | None,
) -> Generator[Line, None, int]:
    r"""Print the records of the journal, one per line, in the order in which they were written.

    Keys and values of plain types are printed as such, others as their type and bytes (base64). Damage is reported on
    standard error, with exit status 1.

    \b
      holdfast journal print /var/lib/holdfast --partition 17 --map customers
    """
    reading = find(directory).reading(since)
    wanted = Wanted(partition, map_name)
    reported = printed = 0
    for block in reading:
        reported = _report_damage(reading, reported)
        if block.lsn < since:
            continue
        for line in wanted.lines(block):
            yield line if call.as_json else as_text(line)  # type: ignore[misc]  # a text is shown as it is
            printed += 1
            if printed == limit:
                return DONE
    _report_damage(reading, reported)
    if reading.torn:
        click.echo(str(reading.torn), err=True)
    return FAILED if reading.damage else DONE


def _report_damage(reading: JournalReader, reported: int) -> int:
    """Report damage that was found since; returns the number of all."""
    for damage in reading.damage[reported:]:
        click.echo(f"damaged: {damage}", err=True)
    return len(reading.damage)
