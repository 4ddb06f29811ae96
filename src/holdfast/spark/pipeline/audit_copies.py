"""The audit of copies outside of a running cluster, or of a list of members: what each of them holds, compared.

    found = audit_files(spark, ["/copies/m1", "/copies/m2", "/copies/m3"])
    found = audit_members(spark, ["10.0.0.1:5701", "10.0.0.2:5701"])
    print(found)
    assert found.sound

The work is done where the tasks are: each reads its share of the partitions from all directories, or asks all members
for it. No list of all entries is made anywhere, nor one of all copies on the driver.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import pyarrow as pa

from holdfast.client.connection import Broken, Connection, Credentials
from holdfast.client.holdings import check_names, names_on
from holdfast.client.replica_questions import CANNOT_ASK, PAGE_BYTES, PAGE_ROWS, ask_digests
from holdfast.client.verification import AT_A_TIME
from holdfast.client_core.routing import parse_addresses
from holdfast.config.local_paths import local_path
from holdfast.core.model.object_names import is_service
from holdfast.core.store.digest import RANGES
from holdfast.errors import ConfigError, NotReady, Unreachable
from holdfast.spark.files.stores import StoreState, checkpoint_bytes, read_store
from holdfast.spark.jobs import TASKS_PER_SLOT, Counted, Show, nothing, run, slots
from holdfast.spark.pipeline.loose_copies import (
    CopyFinding,
    Held,
    KeyFinding,
    Looks,
    Standing,
    compare_copies,
    differing_keys,
)
from holdfast.spark.pipeline.record_columns import Columns
from holdfast.spark.source.options import Options
from holdfast.version import __version__
from holdfast.wire import own

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEYS_MAX = 100
"""So many differing keys of a map in a partition are told one by one."""
SHARE_BYTES = 256 << 20
"""So many bytes of files are given to one task: it holds what they hold of one directory at a time."""
LISTED_MAX = 2000
"""So many copies that are not equal are listed by one task, wrong ones first; all are counted."""
LOOKS = 4
PAUSE_S = 0.2
SHOWN = 20

FINDINGS = Columns(CopyFinding)
KEYS = Columns(KeyFinding)


@dataclass(frozen=True, slots=True)
class _Sum:
    """What a task has found: a row for each verdict, each thing that could not be read, and each map that was seen."""

    kind: str
    """`sum`, `finding`, `damage` or `map`."""
    text: str
    sum_copies: int
    sum_entries: int


@dataclass(frozen=True, slots=True)
class CopiesAudit:
    """What an audit of copies has found."""

    findings: list[CopyFinding]
    """Copies that are not equal to the newest one; where there are thousands, not all of the older ones."""
    counts: dict[str, int]
    """Copies, of a map in a partition, by verdict."""
    entries: int
    """Entries of the copies that are equal to the newest one."""
    keys: list[KeyFinding]
    """What each copy holds of the keys that differ, up to `KEYS_MAX` of a map in a partition."""
    damage: list[str]
    """What could not be read, or asked."""
    sources: list[str]
    seconds: float

    @property
    def copies(self) -> int:
        """Copies that were compared with the newest one."""
        return sum(self.counts.values())

    @property
    def differs(self) -> bool:
        """Some copies hold the same updates and other entries: one of them is wrong."""
        return bool(self.counts.get("differs"))

    @property
    def sound(self) -> bool:
        """Every copy was read and compared, and none is wrong. Older ones, in files, are not wrong."""
        return not self.damage and not any(map(self.counts.get, ("differs", "behind", "uncertain")))

    def frame(self, spark: SparkSession) -> DataFrame:
        """The findings as a DataFrame."""
        return spark.createDataFrame(FINDINGS.table(self.findings))

    def keys_frame(self, spark: SparkSession) -> DataFrame:
        """The differing keys as a DataFrame, a row for each copy of each."""
        return spark.createDataFrame(KEYS.table(self.keys))

    def __str__(self) -> str:
        counts = ", ".join(f"{self.counts.get(verdict, 0)} {verdict}" for verdict in get_args(Standing))
        lines = [
            f"{self.copies} copies of {len(self.sources)} compared in {self.seconds:.1f} s: {counts}",
            *(f"  {why}" for why in self.damage[:SHOWN]),
        ]
        lines += [
            f"  partition {one.partition}, map {one.map}: {one.where} {one.verdict} from {one.reference}: {one.why}"
            for one in [each for each in self.findings if each.verdict != "older"][:SHOWN]
        ]
        return "\n".join(lines)


# -- directories


def audit_files(
    spark: SparkSession,
    folders: Sequence[str | Path],
    *,
    maps: Sequence[str] = (),
    keys_max: int = KEYS_MAX,
    progress: Show = nothing,
) -> CopiesAudit:
    """Compare what the directories of stopped (or copied) members hold, map by map and partition by partition.

    All executors must see the directories. Raises ConfigError when one is not that of a member, or of another cluster,
    or when no directory has a map of this name.
    """
    began = time.monotonic()
    paths = [str(Path(local_path(folder)).absolute()) for folder in folders]
    if len(set(paths)) < 2:
        raise ConfigError("an audit of files wants the directories of two members, or more")
    whole = sum(checkpoint_bytes(path) for path in paths)
    parts = max(slots(spark), -(-whole // SHARE_BYTES))
    labels = _labels(paths)
    source = _Files(tuple(paths), tuple(maps))
    shares = [(part, parts) for part in range(parts)]
    found, names = _audit(spark, source, shares, labels, keys_max, progress, began)
    check_names(maps, names, found.damage)
    return found


def _labels(paths: Sequence[str]) -> list[str]:
    """What the directories are called. Raises ConfigError when they cannot be compared."""
    states = [read_store(path, lambda partition: False) for path in paths]
    clusters = {state.cluster_id for state in states if state.cluster_id}
    if len(clusters) > 1:
        raise ConfigError(f"the directories are of several clusters: {', '.join(sorted(clusters))}")
    return _unlike(states)


def _unlike(states: Sequence[StoreState]) -> list[str]:
    """Labels that differ: the member's name, or the directory where two have the same."""
    labels = [state.label for state in states]
    return [
        label if labels.count(label) == 1 else state.folder
        for label, state in zip(labels, states, strict=True)
    ]


FileShare = tuple[int, int]
"""Number of the share, and how many there are: it has the partitions whose remainder by that is the number."""
Told = Callable[[str, str], None]
"""Told: `damage`, and what could not be read or asked; `map`, and the name of one that was seen."""
Compared = tuple[int, list[CopyFinding]]
"""Entries of the copies of one map in one partition, and how these stand to the newest one."""


@dataclass(frozen=True)
class _Files:
    """Reads directories; pickled."""

    folders: tuple[str, ...]
    maps: tuple[str, ...]

    def compared(self, share: FileShare, told: Told) -> Iterator[Compared]:
        """The copies of each map in each partition of the share."""
        for held in self._held(share, told):
            yield sum(one.entries for one in held), compare_copies(held)

    def _held(self, share: FileShare, told: Told) -> Iterator[list[Held]]:
        part, parts = share
        found: dict[tuple[int, str], list[Held]] = {}
        for folder, label in zip(self.folders, _labels(self.folders), strict=True):
            state = read_store(folder, lambda partition: partition % parts == part)
            if part == 0:
                for damage in state.damage:
                    told("damage", f"{label}: {damage}")
            for partition, copy in state.copies.items():
                for held in copy.maps.values():
                    told("map", held.name)
                    if not self.maps or held.name in self.maps:
                        doubt = state.uncertain.get(partition, "")
                        if not held.updates.sequential:
                            doubt = doubt or "it was being filled"
                        one = Held(
                            label,
                            partition,
                            held.name,
                            copy.epoch,
                            held.counter,
                            tuple(held.proven_lineage()),
                            len(held.state.entries),
                            held.state.digest(),
                            doubt,
                        )
                        found.setdefault((partition, held.name), []).append(one)
            for partition, why in state.uncertain.items():
                if partition not in state.copies:
                    told("damage", f"{label}: partition {partition}: {why}")
        yield from found.values()

    def keys(self, findings: Sequence[CopyFinding], limit: int) -> list[KeyFinding]:
        """The keys in which these copies, all of them of one map in one partition, differ from the reference."""
        partition, name = findings[0].partition, findings[0].map
        wanted = {findings[0].reference, *(finding.where for finding in findings)}
        held: dict[str, dict[bytes, bytes]] = {}
        for folder, label in zip(self.folders, _labels(self.folders), strict=True):
            if label in wanted:
                copy = read_store(folder, lambda number: number == partition).copies.get(partition)
                found = copy.maps.get(name) if copy is not None else None
                held[label] = dict(found.state.entries) if found is not None else {}
        return differing_keys(partition, name, held, limit)[0]


# -- members


def audit_members(
    spark: SparkSession,
    addresses: Sequence[str],
    *,
    maps: Sequence[str] = (),
    keys_max: int = KEYS_MAX,
    progress: Show = nothing,
    **options: str,
) -> CopiesAudit:
    """Compare what these members hold, and nobody else, whoever is the primary. They may be in use.

    A copy that has not heard of the last updates yet is looked at again, until it has stood at the update of the newest
    one; if it never does, it is `behind`, and the audit is not sound. `options` are those of the data source. Raises
    ConfigError for members of several clusters and for a map that none of them knows, NotReady when one is silent.
    """
    began = time.monotonic()
    given = [str(address) for address in parse_addresses(addresses)]
    if len(given) < 2:
        raise ConfigError("an audit of some members wants the addresses of two of them, or more")
    source = _Members(
        Options.parse({"address": ",".join(given), "map": "any", **options}), tuple(given), tuple(maps)
    )
    hellos = {}
    names: set[str] = set()
    for address in given:
        connection = source.connect(address)
        try:
            hellos[address] = connection.hello
            names.update(names_on(connection))
        finally:
            connection.close()
    if len({hello.cluster_id for hello in hellos.values()}) > 1:
        raise ConfigError(
            "the members are of several clusters: "
            + ", ".join(f"{address} of {hello.cluster_id}" for address, hello in hellos.items())
        )
    check_names(maps, names)
    count = hellos[given[0]].partition_count
    parts = min(count, TASKS_PER_SLOT * slots(spark))
    shares = [(part, parts) for part in range(parts)]
    return _audit(spark, source, shares, given, keys_max, progress, began)[0]


@dataclass(frozen=True)
class _Members:
    """Asks members; pickled."""

    options: Options
    addresses: tuple[str, ...]
    maps: tuple[str, ...]

    def connect(self, address: str) -> Connection:
        """A connection to this member. Raises NotReady when it does not answer, and what it says at its door.

        Unsupported: it has another version of Holdfast.
        """
        options = self.options
        token = options.token.encode() if options.token else None
        credentials = Credentials(options.cluster, options.user, options.password, token, tls=options.tls)
        try:
            connection = Connection(parse_addresses(address)[0], credentials, options.timeout_s)
        except Broken as broken:
            raise Unreachable(str(broken)) from broken
        connection.check_release(__version__)
        return connection

    def compared(self, share: FileShare, told: Told) -> Iterator[Compared]:
        """The copies of each map in each partition of the share, looked at until they have stood at one update."""
        part, parts = share
        listed = _Listed(self)
        silent: set[str] = set()
        seen: dict[tuple[int, str], Looks] = {}
        try:
            partitions = list(range(part, self._count(listed, silent), parts))
            # All at the first look; later ones take a partition at a time: the nearer the answers of the members are
            # in time, the likelier they are of the same update.
            left, size, look = partitions, AT_A_TIME, 1
            while left:
                open_: dict[int, None] = {}
                for at in range(0, len(left), size):
                    groups = self._ask(listed, left[at : at + size], silent)
                    for key in groups if look == 1 else [key for key in seen if key[0] == left[at]]:
                        held = groups.get(key, [])
                        looks = seen.pop(key, None) or Looks()
                        if looks.hear(held):
                            yield sum(one.entries for one in held), looks.findings()
                        else:
                            seen[key] = looks
                            open_[key[0]] = None
                left, size = list(open_), 1
                if left:
                    time.sleep(PAUSE_S * look)
                look += 1
        finally:
            listed.close()
        for address in sorted(silent):
            told("damage", f"{address}: {listed.why.get(address, 'it stopped answering')}")

    def _count(self, listed: _Listed, silent: set[str]) -> int:
        """How many partitions there are, as the first member says that answers; 0 when none does."""
        for address in self.addresses:
            try:
                return listed.to(address).hello.partition_count
            except CANNOT_ASK:
                silent.add(address)
        return 0

    def _ask(
        self, listed: _Listed, partitions: list[int], silent: set[str]
    ) -> dict[tuple[int, str], list[Held]]:
        """What the members say, all asked before the first answer is waited for, by partition and map."""
        only = self.maps[0] if len(self.maps) == 1 else None
        wanted = {address: partitions for address in self.addresses if address not in silent}
        told, without = ask_digests(listed, wanted, only)
        silent |= without
        found: dict[tuple[int, str], list[Held]] = {}
        for (address, partition), digest in told.items():
            for held in digest.maps:
                # What a service holds is no entries: `audit` compares it, by the primary's word on who has it.
                if (not self.maps or held.map in self.maps) and not is_service(held.map):
                    lineage = tuple((term, start) for term, start in held.lineage)
                    one = Held(
                        address,
                        partition,
                        held.map,
                        digest.epoch,
                        held.counter,
                        lineage,
                        held.entries,
                        held.digest,
                    )
                    found.setdefault((partition, held.map), []).append(one)
        return found

    def keys(self, findings: Sequence[CopyFinding], limit: int) -> list[KeyFinding]:
        """The keys in which these copies differ from the reference; none if they never stand at one counter."""
        partition, name = findings[0].partition, findings[0].map
        wanted = list(dict.fromkeys([findings[0].reference, *(finding.where for finding in findings)]))
        for look in range(LOOKS):
            held: dict[str, dict[bytes, bytes]] = {}
            counters: set[int] = set()
            for address in wanted:
                counter, held[address] = self._entries(address, partition, name)
                counters.add(counter)
            if len(counters) == 1:
                return differing_keys(partition, name, held, limit)[0]
            time.sleep(PAUSE_S * (look + 1))
        return []

    def _entries(self, address: str, partition: int, name: str) -> tuple[int, dict[bytes, bytes]]:
        connection = self.connect(address)
        try:
            number = connection.next_number()
            every = list(range(RANGES))
            scan = own.Scan(number, name, partition, PAGE_ROWS, PAGE_BYTES, any_copy=True, ranges=every)
            page = connection.ask(scan, own.Page)
            held = dict(zip(*page.columns.split(), strict=True))
            counter = page.counter
            while page.more:
                page = connection.ask(own.NextPage(connection.next_number(), number), own.Page)
                held.update(zip(*page.columns.split(), strict=True))
        finally:
            connection.close()
        return counter, held


class _Listed:
    """Connections to listed members, by their addresses."""

    def __init__(self, members: _Members) -> None:
        self._members = members
        self._open: dict[str, Connection] = {}
        self.why: dict[str, str] = {}
        """Who cannot be reached, and why."""

    def to(self, member: str) -> Connection:
        """A connection to this one. Raises NotReady when it does not answer."""
        found = self._open.get(member)
        if found is None or found.closed:
            try:
                found = self._open[member] = self._members.connect(member)
            except NotReady as silent:
                self.why[member] = str(silent)
                raise
        return found

    def close(self) -> None:
        """End all of them."""
        for connection in self._open.values():
            connection.close()


# -- the job

_ROWS = Columns(_Sum)
_DDL = f"{_ROWS.ddl}, {FINDINGS.ddl}"
_ARROW = pa.schema([*_ROWS.arrow, *FINDINGS.arrow])


@dataclass(frozen=True)
class _Work:
    """Compares a share; pickled. The answer holds the sums of what is equal, and each copy that is not."""

    source: _Files | _Members
    counted: Counted

    def __call__(self, share: FileShare) -> Iterator[pa.RecordBatch]:
        sums: dict[str, list[int]] = {}
        rows: list[dict[str, object]] = []
        wrong: list[CopyFinding] = []
        older: list[CopyFinding] = []

        said: dict[tuple[str, str], None] = {}

        def told(kind: str, text: str) -> None:
            said[kind, text] = None

        for seen, findings in self.source.compared(share, told):
            self.counted.add(seen)
            for finding in findings:
                total = sums.setdefault(finding.verdict, [0, 0])
                total[0] += 1
                total[1] += finding.entries
                if finding.verdict == "older":
                    older.append(finding)
                elif finding.verdict != "equal":
                    wrong.append(finding)
            del older[LISTED_MAX:]
        listed = [*wrong, *older][:LISTED_MAX]
        rows += [{"kind": kind, "text": text} for kind, text in said]
        rows += [{"kind": "finding", **row} for row in FINDINGS.table(listed).to_pylist()]
        rows += [
            {"kind": "sum", "text": verdict, "sum_copies": copies, "sum_entries": entries}
            for verdict, (copies, entries) in sums.items()
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=_ARROW)


@dataclass(frozen=True)
class _KeysWork:
    """Finds the keys in which copies differ; pickled."""

    source: _Files | _Members
    limit: int

    def __call__(self, findings: list[CopyFinding]) -> Iterator[pa.RecordBatch]:
        yield from KEYS.table(self.source.keys(findings, self.limit)).to_batches()


def _audit(
    spark: SparkSession,
    source: _Files | _Members,
    shares: Sequence[FileShare],
    labels: list[str],
    keys_max: int,
    progress: Show,
    began: float,
) -> tuple[CopiesAudit, set[str]]:
    """What was found, and the names of the maps that were seen."""
    counted = Counted(spark)
    told = run(spark, shares, _Work(source, counted), _DDL, title="audit", progress=progress, counted=counted)
    rows = told.to_pylist()
    counts: dict[str, int] = {}
    entries = 0
    for row in rows:
        if row["kind"] == "sum":
            counts[row["text"]] = counts.get(row["text"], 0) + row["sum_copies"]
            entries += row["sum_entries"] if row["text"] == "equal" else 0
    names = FINDINGS.arrow.names
    findings = [
        CopyFinding(**{name: row[name] for name in names}) for row in rows if row["kind"] == "finding"
    ]
    findings.sort(key=lambda finding: (finding.partition, finding.map, finding.where))
    groups: dict[tuple[int, str], list[CopyFinding]] = {}
    for finding in findings:
        if finding.verdict == "differs":
            groups.setdefault((finding.partition, finding.map), []).append(finding)
    keys: list[KeyFinding] = []
    if groups and keys_max:
        wrong = list(groups.values())
        found = run(
            spark, wrong, _KeysWork(source, keys_max), KEYS.ddl, title="differing keys", progress=progress
        )
        keys = sorted(KEYS.rows(found), key=lambda key: (key.partition, key.map, key.key, key.where))
    damage = sorted({str(row["text"]) for row in rows if row["kind"] == "damage"})
    names_seen = {str(row["text"]) for row in rows if row["kind"] == "map"}
    return CopiesAudit(findings, counts, entries, keys, damage, labels, time.monotonic() - began), names_seen
