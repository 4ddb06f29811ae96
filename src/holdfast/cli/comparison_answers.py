"""Results of `holdfast verify` and `holdfast repair`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec
from rich.table import Table
from rich.text import Text

from holdfast.cli.exit_statuses import DONE, FAILED, OPEN
from holdfast.cli.rendering import Shown
from holdfast.core.store.replica_comparison import Finding
from holdfast.replica_comparison.comparison_report import ComparisonFigures, Hex, KeyFinding, Report, readable
from holdfast.replica_comparison.key_differences import value_of
from holdfast.replica_comparison.repair import KeyRepair, RepairOutcome, RepairPlan
from holdfast.replica_comparison.zone_repair import ReplicaRebuild

SHOWN = 40
KEYS_SHOWN = 20
MAPS_SHOWN = 5


class FindingShown(Finding, frozen=True, kw_only=True):
    """A replica that is not equal to its reference, or could not be compared."""

    counter_conflict: bool
    content_conflict: bool

    @classmethod
    def of(cls, finding: Finding) -> FindingShown:
        fields = msgspec.structs.asdict(finding)
        return cls(
            **fields, counter_conflict=finding.counter_conflict, content_conflict=finding.content_conflict
        )


class ComparisonShown(ComparisonFigures, kw_only=True):
    """The result of a comparison, with every replica that is not equal."""

    sound: bool
    copies: int
    entries: int
    findings: list[FindingShown]

    @classmethod
    def of(cls, report: Report) -> ComparisonShown:
        figures = {one.name: getattr(report, one.name) for one in msgspec.structs.fields(ComparisonFigures)}
        figures["seconds"] = round(report.seconds, 3)
        return cls(
            **figures,
            sound=report.sound,
            copies=report.copies,
            entries=report.entries,
            findings=[FindingShown.of(one) for one in report.findings if one.verdict != "equal"],
        )


class KeyShown(msgspec.Struct):
    """A key of a map."""

    map: str
    key: str
    stored: Hex


class WriteShown(KeyShown):
    """A key whose value at the primary is not the right one."""

    seen: Hex | None
    right: Hex | None

    @classmethod
    def of(cls, write: KeyRepair) -> WriteShown:
        values = (value_of(one) for one in (write.seen, write.right))
        return cls(write.map, readable(write.key), write.key, *values)


class PlanShown(msgspec.Struct):
    """The repair of a partition."""

    partition: int
    primary: str
    refill: list[str]
    writes: list[WriteShown]
    ties: list[KeyShown]
    skip_reason: str

    @classmethod
    def of(cls, plan: RepairPlan) -> PlanShown:
        writes = [WriteShown.of(one) for one in plan.writes]
        ties = [KeyShown(name, readable(key), key) for name, key in plan.ties]
        return cls(plan.partition, plan.owner, plan.refill, writes, ties, plan.left)


class RebuildShown(msgspec.Struct):
    """A replica of a zone that is rebuilt from its leader's state."""

    zone: str
    partition: int
    member: str
    leads: bool
    skip_reason: str


class RepairShown(msgspec.Struct):
    """The differences, what was done about each, and the differences that are left."""

    dry_run: bool
    before: ComparisonShown
    plans: list[PlanShown]
    outcome: RepairOutcome
    after: ComparisonShown
    rebuilds: list[RebuildShown]


class Compared:
    """The result of `holdfast verify`."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self.exit_status = status_of(report)

    def plain(self) -> ComparisonShown:
        return ComparisonShown.of(self._report)

    def view(self) -> Iterable[Shown]:
        return report_view(self._report)


class Repaired:
    """The result of `holdfast repair`."""

    def __init__(
        self, report: Report, plans: list[RepairPlan], rebuilds: list[ReplicaRebuild], *, dry_run: bool
    ) -> None:
        self._report = self.after = report
        self._plans = plans
        self._rebuilds = rebuilds
        self._dry_run = dry_run
        self.outcome = RepairOutcome()

    @property
    def exit_status(self) -> int:
        return status_of(self.after)

    def plain(self) -> RepairShown:
        rebuilds = [
            RebuildShown(one.zone, one.partition, one.member, one.leads, one.left) for one in self._rebuilds
        ]
        before, after = ComparisonShown.of(self._report), ComparisonShown.of(self.after)
        plans = [PlanShown.of(plan) for plan in self._plans]
        return RepairShown(self._dry_run, before, plans, self.outcome, after, rebuilds)

    def intentions(self) -> Iterator[Shown]:
        """Shown before anything is repaired."""
        yield from report_view(self._report)
        if self._plans or not self._rebuilds:
            yield from _plans_view(self._plans, self._report, dry_run=self._dry_run)
        yield from _rebuilds_view(self._rebuilds, self._report, dry_run=self._dry_run)

    def view(self) -> Iterable[Shown]:
        if (self._plans or self._rebuilds) and not self._dry_run:
            yield from _outcome_view(self._plans, self.outcome, self.after)


def status_of(report: Report) -> int:
    return FAILED if report.differs else DONE if report.sound else OPEN


def report_view(report: Report) -> Iterator[Shown]:
    """The report for people."""
    shown = sorted(
        (finding for finding in report.findings if finding.verdict != "equal"),
        key=lambda one: (one.verdict == "older", bool(one.zone)),
    )
    if shown:
        table = Table(
            "partition", "map", "verdict", "replica", "holds", "reference", "holds", "reason", box=None
        )
        for one in shown[:SHOWN]:
            table.add_row(*map(Text, _row(one, report)))
        yield table
        if len(shown) > SHOWN:
            yield f"… and {len(shown) - SHOWN} more"
        yield "(term/counter of the last update; of zones the counter, at this index of the log)"
    for row in report.tables[:SHOWN]:
        what = f"partition {row.partition}" if row.partition >= 0 else "something in the rows"
        yield (
            f"the table of {report.name(row.member)} differs in {what}: "
            f"version {row.version} instead of {row.expected_version}"
        )
    for member in report.unreachable_members:
        yield f"{report.name(member)} did not return its partition table"
    yield from _keys_view(report)
    for damage in report.damage[:SHOWN]:
        yield f"not everything could be read: {damage}"
    for name, zone in report.maps_without_zone.items():
        yield f"map {name} lives in zone {zone}, which does not exist: there is nothing to compare"
    if report.zones_unknown:
        yield f"zones could not be compared: {report.zones_unknown}"
    for zone, partitions in report.zones.items():
        found = [one for one in report.findings if one.zone == zone and one.map]
        copies = sum(not one.undecided for one in found)
        names = sorted({one.map for one in found})
        maps = f"{len(names)} maps ({', '.join(names[:MAPS_SHOWN])}{'…' if len(names) > MAPS_SHOWN else ''})"
        yield f"zone {zone}: {partitions} partitions, {maps}, {copies} copies compared"
    yield _summary(report)


def _row(one: Finding, report: Report) -> Sequence[str]:
    place = f"{one.zone} {one.partition}" if one.zone else str(one.partition)
    verdict = _kind(one)
    member = report.name(one.member) + (" (leader)" if one.leads else "")
    if not one.reference_digest:
        return place, one.map, verdict, member or "none", "", report.name(one.reference), "", one.reason
    holds = _holds(one.term, one.counter, one.entries, one.index)
    expected = _holds(one.reference_term, one.reference_counter, one.reference_entries, one.index)
    return place, one.map, verdict, member, holds, report.name(one.reference), expected, one.reason


def _holds(term: int, counter: int, entries: int, index: int) -> str:
    point = f"{counter} at {index}" if index else f"{term}/{counter}"
    return f"{point}, {entries} entries"


def _kind(finding: Finding) -> str:
    kinds = {"counter": finding.counter_conflict, "content": finding.content_conflict}
    kind = " and ".join(name for name, so in kinds.items() if so)
    return f"{finding.verdict} ({kind})" if kind else finding.verdict


def _summary(report: Report) -> str:
    counters = sum(1 for finding in report.findings if finding.counter_conflict)
    contents = sum(1 for finding in report.findings if finding.content_conflict)
    conflicts = (
        f"{counters} counter conflicts, {contents} content conflicts, {len(report.tables)} different rows"
    )
    sources = f" of {', '.join(report.sources)}" if report.sources else ""
    return f"{report.summary()}{sources}; {conflicts}"


def _keys_view(report: Report) -> Iterator[Shown]:
    groups: dict[tuple[int, str, str], list[KeyFinding]] = {}
    for one in report.keys:
        groups.setdefault((one.partition, one.map, one.text), []).append(one)
    for (partition, name, text), held in list(groups.items())[:KEYS_SHOWN]:
        words = [
            f"{report.name(one.member)} {f'has {one.value_bytes} bytes' if one.held else 'has none'}"
            for one in held
        ]
        yield f"partition {partition}, map {name}, key {text}: {', '.join(words)}"
    if len(groups) > KEYS_SHOWN:
        yield f"… and {len(groups) - KEYS_SHOWN} more keys (all of them: --json)"
    if report.keys_open:
        yield (f"the keys of {report.keys_open} maps in partitions kept changing, or could not be read")


def _rebuilds_view(rebuilds: list[ReplicaRebuild], report: Report, *, dry_run: bool) -> Iterator[Shown]:
    would = "would be" if dry_run else "will be"
    for one in rebuilds[:SHOWN]:
        where = f"partition {one.partition} of zone {one.zone}: {report.name(one.member)}"
        first = " It leads: its leadership goes to another member first." if one.leads else ""
        yield (
            f"{where} is left alone: {one.left}"
            if one.left
            else f"{where} {would} rebuilt from its leader's state.{first}"
        )


def _plans_view(plans: list[RepairPlan], report: Report, *, dry_run: bool) -> Iterator[Shown]:
    names = report.names
    if not plans:
        yield f"nothing to repair: {report.copies} copies were compared"
        return
    would = "would be" if dry_run else "will be"
    for plan in plans[:SHOWN]:
        words = [f"{len(plan.writes)} keys {would} written to {names.get(plan.owner)}"] if plan.writes else []
        words += [f"{names.get(member)} {would} refilled" for member in plan.refill if not plan.left]
        words += [f"{len(plan.ties)} keys without a majority: left alone"] if plan.ties else []
        words += [f"left alone: {plan.left}"] if plan.left and not plan.ties else []
        yield f"partition {plan.partition}: {'; '.join(words)}"
    if len(plans) > SHOWN:
        yield f"… and {len(plans) - SHOWN} partitions more"
    if dry_run:
        writes, refills = _volume(plans)
        yield f"dry run: {writes} keys would be written, {refills} copies refilled"


def _volume(plans: list[RepairPlan]) -> tuple[int, int]:
    doing = [plan for plan in plans if not plan.left]
    return sum(len(plan.writes) for plan in doing), sum(len(plan.refill) for plan in doing)


def _outcome_view(plans: list[RepairPlan], outcome: RepairOutcome, after: Report) -> Iterator[Shown]:
    for failed in outcome.failed[:SHOWN]:
        yield f"failed: {failed}"
    left = sum(1 for plan in plans if plan.left or plan.ties)
    yield (
        f"{outcome.written} keys written, {outcome.overtaken} overtaken by newer writes, {outcome.refilled} copies "
        f"refilled, {left} partitions left alone, {len(outcome.failed)} failures"
    )
    if after.conflicts:
        yield from report_view(after)
    else:
        yield f"now: {_summary(after)}"
