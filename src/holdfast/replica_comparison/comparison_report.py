"""The report of a comparison of replicas, whichever feeder it had."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, get_args

import msgspec

from holdfast.core.model.object_names import is_service
from holdfast.core.store.digest import entry_digest
from holdfast.core.store.replica_comparison import Finding, Verdict
from holdfast.wire.values import Serialized, from_stored

TEXT_MAX = 200

Hex = Annotated[bytes, msgspec.Meta(extra_json_schema={"contentEncoding": "base16"})]


class Total(msgspec.Struct, frozen=True):
    """Replicas, of a map in a partition, with one verdict."""

    verdict: Verdict
    kept: bool
    """Whether they must hold the map."""
    replicas: int
    entries: int


class KeyFinding(msgspec.Struct, frozen=True):
    """A key in one replica, if not all replicas hold it with the same value."""

    partition: int
    map: str
    key: Hex
    text: str
    """The key as its writer knows it, if it is of a common type."""
    member: str
    held: bool
    value_bytes: int
    digest: str
    """Digest of key and value, 16 hexadecimal digits; empty if there is no value."""
    value: Hex = b""
    """Only of a comparison in this process; Spark does not gather values."""


class TableFinding(msgspec.Struct, frozen=True):
    """A member whose partition table is not the one that most others have. Partition -1: only the stamps differ."""

    partition: int
    member: str
    version: int
    replicas: tuple[str | None, ...]
    expected_version: int
    expected: tuple[str | None, ...]
    stamp: str
    expected_stamp: str


@dataclass(slots=True)
class Notes:
    damage: list[str] = field(default_factory=list)
    maps: set[str] = field(default_factory=set)


class ComparisonFigures(msgspec.Struct, kw_only=True):
    totals: list[Total] = []
    partitions: int = 0
    """Partitions of the cluster that were looked at; 0 for files."""
    zones: dict[str, int] = {}
    """Zones that were looked at, with the number of partitions."""
    maps_without_zone: dict[str, str] = {}
    """Maps in a zone that does not exist, with its name: there is nothing to compare."""
    zones_unknown: str = ""
    """Why it is unknown which zones there are; empty: it is known."""
    tables: list[TableFinding] = []
    unreachable_members: tuple[str, ...] = ()
    """Members that did not return their table."""
    keys: list[KeyFinding] = []
    keys_open: int = 0
    """Maps in partitions whose differing keys could not be found, because they never stood still."""
    damage: list[str] = []
    sources: list[str] = []
    """Directories or listed members that were compared; empty: all members of the cluster."""
    names: dict[str, str] = {}
    seconds: float = 0.0


class Report(ComparisonFigures, kw_only=True):
    findings: list[Finding] = []
    """All of a comparison in this process; of one on Spark those that are not equal, wrong ones first."""

    def count(self, verdict: Verdict) -> int:
        return sum(each.replicas for each in self.totals if each.verdict == verdict)

    @property
    def conflicts(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.verdict == "differs"]

    @property
    def undecided(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.undecided]

    @property
    def copies(self) -> int:
        """Replicas, of a map in a partition, that were compared with another one."""
        compared = ("equal", "differs", "older")
        return sum(each.replicas for each in self.totals if each.kept and each.verdict in compared)

    @property
    def not_kept(self) -> int:
        """Replicas that need not hold the map, because it has fewer backups than others; they hold nothing of
        it.
        """
        return sum(each.replicas for each in self.totals if not each.kept and each.verdict == "equal")

    @property
    def entries(self) -> int:
        return sum(each.entries for each in self.totals if each.verdict == "equal")

    @property
    def differs(self) -> bool:
        return bool(self.count("differs") or self.tables)

    @property
    def sound(self) -> bool:
        """Every replica was compared, and none is wrong. Older ones, in files, are not wrong."""
        compared = all(each.verdict in ("equal", "older") for each in self.totals)
        complete = not (self.damage or self.unreachable_members or self.zones_unknown)
        return compared and complete and not self.tables

    def name(self, member: str) -> str:
        return self.names.get(member, member)

    def summary(self) -> str:
        counts = ", ".join(f"{self.count(verdict)} {verdict}" for verdict in get_args(Verdict))
        what = f"{self.partitions} partitions, " if self.partitions else ""
        return f"{what}{self.copies} copies compared in {self.seconds:.1f} s: {counts}"

    def __str__(self) -> str:
        wrong = [finding for finding in self.findings if finding.verdict not in ("equal", "older")]
        return "\n".join(
            [self.summary(), *self.damage[:20], *(describe(finding, self.names) for finding in wrong[:20])]
        )


def describe(finding: Finding, names: dict[str, str]) -> str:
    zone = f" of zone {finding.zone}" if finding.zone else ""
    return (
        f"partition {finding.partition}{zone}, map {finding.map or '-'}: "
        f"{names.get(finding.member, finding.member)} {finding.verdict}: {finding.reason}".rstrip(": ")
    )


def totals_of(findings: Iterable[Finding]) -> list[Total]:
    return add_totals(Total(one.verdict, one.kept, 1, one.entries) for one in findings)


def add_totals(parts: Iterable[Total]) -> list[Total]:
    replicas: Counter[tuple[Verdict, bool]] = Counter()
    entries: Counter[tuple[Verdict, bool]] = Counter()
    for part in parts:
        replicas[part.verdict, part.kept] += part.replicas
        entries[part.verdict, part.kept] += part.entries
    return [Total(*key, count, entries[key]) for key, count in sorted(replicas.items())]


def groups_with_other_entries(findings: Sequence[Finding]) -> list[list[Finding]]:
    """All findings of each map in a partition where some replica has other entries. Services have no keys."""
    groups: dict[tuple[int, str], list[Finding]] = {}
    for finding in findings:
        if finding.map and not is_service(finding.map):
            groups.setdefault((finding.partition, finding.map), []).append(finding)
    return [group for _, group in sorted(groups.items()) if any(one.content_conflict for one in group)]


def key_finding(partition: int, name: str, key: bytes, member: str, value: bytes | None) -> KeyFinding:
    """`value` None: the replica holds nothing of this key."""
    text = readable(key)
    if value is None:
        return KeyFinding(partition, name, key, text, member, False, 0, "")
    digest = f"{entry_digest(key, value):016x}"
    return KeyFinding(partition, name, key, text, member, True, len(value), digest, value)


def readable(key: bytes) -> str:
    """A key of a common type as text, another one in hexadecimal."""
    try:
        value = from_stored(key)
    except (ValueError, IndexError, UnicodeDecodeError, RecursionError, msgspec.MsgspecError, struct.error):
        return f"0x{key.hex()}"[:TEXT_MAX]
    return (f"0x{key.hex()}" if isinstance(value, Serialized) else repr(value))[:TEXT_MAX]
