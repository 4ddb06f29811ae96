"""`holdfast verify` compares replicas; `holdfast repair` repairs those that differ."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast.cli.exit_statuses import DONE, FAILED, OPEN
from holdfast.cli.operator_command import Call, operator_command
from holdfast.cli.paths import LocalPath
from holdfast.cli.rendering import tell_json
from holdfast.cli.spark import SparkSettings, optional_spark, show_progress, spark_job
from holdfast.client.blocking import Client
from holdfast.client.holdings import check_maps
from holdfast.client.replica_questions import EntryCopy
from holdfast.core.store.replica_comparison import Finding
from holdfast.errors import ConfigError, Denied, HoldfastError, Unreachable
from holdfast.replica_comparison.comparison_report import KeyFinding, Report, readable
from holdfast.replica_comparison.files_source import FilesSource
from holdfast.replica_comparison.key_differences import find_differences, value_of
from holdfast.replica_comparison.live import verify
from holdfast.replica_comparison.repair import RepairOutcome, RepairPlan, Strategy, carry_out, make_plans
from holdfast.replica_comparison.sources import Access, ListedSource, find_keys, verify_source
from holdfast.replica_comparison.zone_repair import ReplicaRebuild, plan_rebuilds, rebuild
from holdfast.version import __version__

ANSWER_S = 20.0
TELL_S = 1.0
SHOWN = 40
KEYS_SHOWN = 20
MAPS_SHOWN = 5
REBUILD_LOOKS = 10
REBUILD_PAUSE_S = 1.0
WIDTH = 140
"""Width of a table without a terminal, so that it is not folded at 80 columns."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The replicas that a command is about."""

    call: Call
    maps: tuple[str, ...]
    partitions: tuple[int, ...]

    def client(self) -> Client:
        return self.call.client(ANSWER_S)


def _scope_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `scope`, from its call and options."""

    @functools.wraps(command)
    def with_scope(call: Call, *, maps: tuple[str, ...], partitions: tuple[int, ...], **others: Any) -> Any:
        return command(scope=Scope(call, maps, partitions), **others)

    partition = click.option(
        "--partition", "partitions", type=click.IntRange(0), multiple=True, help="Only this partition."
    )
    only = click.option(
        "--map", "maps", metavar="NAME", multiple=True, help="Only this map. Default: all maps."
    )
    return only(partition(with_scope))


@operator_command(name="verify")
@_scope_options
@click.option("--keys", is_flag=True, help="Also find the keys that differ.")
@click.option(
    "--member",
    "members",
    metavar="HOST:PORT",
    multiple=True,
    help="Compare only the replicas of these members, primaries or not. At least two.",
)
@click.option(
    "--files",
    "folders",
    metavar="DIR",
    type=LocalPath(path_type=Path),
    multiple=True,
    help="Compare the files of stopped members: persistence.directory, or a copy of it. At least two.",
)
@optional_spark("Compare on Spark: for many partitions, or large files.")
def verify_command(
    *,
    scope: Scope,
    members: tuple[str, ...],
    folders: tuple[Path, ...],
    spark: SparkSettings | None,
    keys: bool,
) -> int:
    r"""Compare every backup with its primary, the replicas of zones with each other, and the partition tables of all
    members. Changes nothing.

    A counter conflict means that a replica does not have the same updates as its primary; a content conflict, that it
    does not have the same entries. The cluster may be in use: a partition that is written or moved is compared again,
    and reported as busy if that never ends. Replicas of a zone are compared at a cut, an entry of each partition's log.

    With --member and --files, replicas with the same updates must have the same entries. In files, a replica with fewer
    updates is older, which is no error.

    \b
      holdfast verify --map flights --keys -a 127.0.0.1:5702
      holdfast verify --files /copies/m1 --files /copies/m2
    """
    if members and folders:
        raise ConfigError("give --member or --files, not both")
    if scope.partitions and (members or folders or spark):
        raise ConfigError("--partition is for a comparison of the cluster without Spark")
    if spark:
        report = _on_spark(spark, scope, members, folders, keys=keys, quiet=scope.call.as_json)
    elif folders:
        files = FilesSource.of(folders, scope.maps)
        report = verify_source(files)
        if keys:
            find_keys(report, files.differences)
    else:
        with _unchecked():
            report = _compare(scope, members, keys=keys)
    if scope.call.as_json:
        tell_json(report)
    else:
        _show(report)
    return _status(report)


@operator_command(name="repair")
@click.option(
    "--strategy",
    required=True,
    type=click.Choice(["primary", "newest", "majority"]),
    help="Which copy is right.",
)
@click.option(
    "--tie",
    type=click.Choice(["primary"]),
    help="With majority: the copy that is right where there is none. Default: skip such partitions.",
)
@click.option("--dry-run", is_flag=True, help="Show the repairs, and do not make them.")
@_scope_options
def repair_command(
    *,
    scope: Scope,
    strategy: Strategy,
    tie: str | None,
    dry_run: bool,
) -> int:
    r"""Find copies that differ, as `holdfast verify` does, repair them, and verify again.

    \b
      primary    the content of the primary is right
      newest     for each map, the copy with the highest update counter is right
      majority   for each key, the value of most copies is right

    If another copy than the primary is right, the command first writes its value to the primary, if the primary has
    not changed since: it never overwrites a newer write. Then it copies the primary to the backups that differ. The
    cluster may be in use. A replica of a zone that differs from the majority is rebuilt from its leader's state,
    whatever the strategy.

    \b
      holdfast repair --strategy primary --dry-run
      holdfast repair --strategy majority --tie primary --map flights
    """
    if tie and strategy != "majority":
        raise ConfigError("--tie is for --strategy majority")
    with _unchecked(), scope.client() as client:
        report = _verify(client, scope)
        plans = list(make_plans(client, report, strategy, tie=bool(tie)))
        rebuilds = list(plan_rebuilds(report, tie=bool(tie)))
        if not scope.call.as_json:
            _show(report)
            if plans or not rebuilds:
                _show_plans(plans, report, dry_run=dry_run)
            _show_rebuilds(rebuilds, report, dry_run=dry_run)
        outcome, after = RepairOutcome(), report
        if not dry_run and not all([*(plan.left for plan in plans), *(one.left for one in rebuilds)]):
            outcome = carry_out(client, plans, progress=_Progress("repaired").tell)
            after = _rebuild(client, scope, rebuilds, outcome)
    if scope.call.as_json:
        tell_json(_plain_repair(report, plans, rebuilds, outcome, after, dry_run=dry_run))
    elif (plans or rebuilds) and not dry_run:
        _show_outcome(plans, outcome, after)
    return _status(after)


def _rebuild(client: Client, scope: Scope, rebuilds: list[ReplicaRebuild], outcome: RepairOutcome) -> Report:
    """Rebuild replicas of zones, and compare everything again until they have their states."""
    wanted = {(one.zone, one.partition, one.member) for one in rebuilds if not one.left}
    left = wanted
    for look in range(1, REBUILD_LOOKS + 1):
        # A group may have another leader before the state has arrived: request it again.
        failed = rebuild(client, [one for one in rebuilds if (one.zone, one.partition, one.member) in left])
        after = _verify(client, scope)
        left = wanted & {(one.zone, one.partition, one.member) for one in after.conflicts}
        if not left or look == REBUILD_LOOKS:
            break
        time.sleep(REBUILD_PAUSE_S)
    outcome.failed += failed
    outcome.refilled += len(wanted - left)
    return after


# -- questions


def _compare(scope: Scope, members: tuple[str, ...], *, keys: bool) -> Report:
    """Compare the cluster, or only these members, in this process."""
    told = _Progress("read")
    if members:
        known = replace(scope.call.credentials.for_client(), operates=False)
        listed = ListedSource(Access(members, known, ANSWER_S, __version__), scope.maps)
        report = verify_source(listed)
        if keys:
            find_keys(report, listed.differences, told.tell)
        return report
    with scope.client() as client:
        report = _verify(client, scope)
        if keys:
            find_keys(report, lambda findings: find_differences(client, findings), told.tell)
    return report


def _on_spark(
    spark: SparkSettings,
    scope: Scope,
    members: tuple[str, ...],
    folders: tuple[Path, ...],
    *,
    keys: bool,
    quiet: bool,
) -> Report:
    with spark_job(spark.master, spark.memory, "verify") as session:
        from holdfast.spark.pipeline.verify import verify as verify_on_spark

        return verify_on_spark(
            session,
            scope.call.address,
            members=members,
            files=folders,
            maps=scope.maps,
            keys=keys,
            progress=show_progress(quiet=quiet),
            **scope.call.credentials.options(),
        )


@contextmanager
def _unchecked() -> Iterator[None]:
    """Exit with `OPEN` if the cluster cannot be asked: nothing was checked, which is no conflict."""
    try:
        yield
    except (ConfigError, Denied, Unreachable):
        raise
    except HoldfastError as failed:
        click.echo(f"Error: {failed}", err=True)
        sys.exit(OPEN)


def _verify(client: Client, scope: Scope) -> Report:
    maps, partitions, count = scope.maps, scope.partitions, client.partition_count
    if any(partition >= count for partition in partitions):
        raise ConfigError(f"partitions are 0 to {count - 1}")
    chosen = sorted(set(partitions)) or None
    report = verify(client, maps=maps, partitions=chosen, progress=_Progress("compared").tell)
    # An unknown map must not count as consistent. Members do not list maps without entries, but such a map may have
    # replicas, so a map that was compared is known.
    compared = {finding.map for finding in report.findings} | report.maps_without_zone.keys()
    check_maps(client, [name for name in maps if name not in compared])
    return report


class _Progress:
    """Reports progress on standard error if a command takes long."""

    def __init__(self, done: str) -> None:
        self._done = done
        self._at_s = time.monotonic()

    def tell(self, decided: int, total: int, looks: int = 0) -> None:
        if time.monotonic() - self._at_s < TELL_S:
            return
        self._at_s = time.monotonic()
        again = f"; the rest is looked at again ({looks})" if looks > 1 else ""
        print(f"{decided} of {total} partitions {self._done}{again}", file=sys.stderr, flush=True)


def _status(report: Report) -> int:
    return FAILED if report.differs else DONE if report.sound else OPEN


# -- output


def _print(table: Table) -> None:
    Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False).print(table)


def _show(report: Report) -> None:
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
        _print(table)
        if len(shown) > SHOWN:
            click.echo(f"… and {len(shown) - SHOWN} more")
        click.echo("(term/counter of the last update; of zones the counter, at this index of the log)")
    for row in report.tables[:SHOWN]:
        what = f"partition {row.partition}" if row.partition >= 0 else "something in the rows"
        click.echo(
            f"the table of {report.name(row.member)} differs in {what}: "
            f"version {row.version} instead of {row.expected_version}"
        )
    for member in report.unreachable_members:
        click.echo(f"{report.name(member)} did not return its partition table")
    _show_keys(report)
    for damage in report.damage[:SHOWN]:
        click.echo(f"not everything could be read: {damage}")
    for name, zone in report.maps_without_zone.items():
        click.echo(f"map {name} lives in zone {zone}, which does not exist: there is nothing to compare")
    if report.zones_unknown:
        click.echo(f"zones could not be compared: {report.zones_unknown}")
    for zone, partitions in report.zones.items():
        found = [one for one in report.findings if one.zone == zone and one.map]
        copies = sum(not one.undecided for one in found)
        names = sorted({one.map for one in found})
        maps = f"{len(names)} maps ({', '.join(names[:MAPS_SHOWN])}{'…' if len(names) > MAPS_SHOWN else ''})"
        click.echo(f"zone {zone}: {partitions} partitions, {maps}, {copies} copies compared")
    click.echo(_summary(report))


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


def _show_keys(report: Report) -> None:
    groups: dict[tuple[int, str, str], list[KeyFinding]] = {}
    for one in report.keys:
        groups.setdefault((one.partition, one.map, one.text), []).append(one)
    for (partition, name, text), held in list(groups.items())[:KEYS_SHOWN]:
        words = [
            f"{report.name(one.member)} {f'has {one.value_bytes} bytes' if one.held else 'has none'}"
            for one in held
        ]
        click.echo(f"partition {partition}, map {name}, key {text}: {', '.join(words)}")
    if len(groups) > KEYS_SHOWN:
        click.echo(f"… and {len(groups) - KEYS_SHOWN} more keys (all of them: --json)")
    if report.keys_open:
        click.echo(
            f"the keys of {report.keys_open} maps in partitions never stood still, or could not be read"
        )


def _show_rebuilds(rebuilds: list[ReplicaRebuild], report: Report, *, dry_run: bool) -> None:
    would = "would be" if dry_run else "will be"
    for one in rebuilds[:SHOWN]:
        where = f"partition {one.partition} of zone {one.zone}: {report.name(one.member)}"
        first = " It leads: its leadership goes to another member first." if one.leads else ""
        click.echo(
            f"{where} is left alone: {one.left}"
            if one.left
            else f"{where} {would} rebuilt from its leader's state.{first}"
        )


def _show_plans(plans: list[RepairPlan], report: Report, *, dry_run: bool) -> None:
    names = report.names
    if not plans:
        click.echo(f"nothing to repair: {report.copies} copies were compared")
        return
    would = "would be" if dry_run else "will be"
    for plan in plans[:SHOWN]:
        words = [f"{len(plan.writes)} keys {would} written to {names.get(plan.owner)}"] if plan.writes else []
        words += [f"{names.get(member)} {would} refilled" for member in plan.refill if not plan.left]
        words += [f"{len(plan.ties)} keys without a majority: left alone"] if plan.ties else []
        words += [f"left alone: {plan.left}"] if plan.left and not plan.ties else []
        click.echo(f"partition {plan.partition}: {'; '.join(words)}")
    if len(plans) > SHOWN:
        click.echo(f"… and {len(plans) - SHOWN} partitions more")
    if dry_run:
        writes, refills = _volume(plans)
        click.echo(f"dry run: {writes} keys would be written, {refills} copies refilled")


def _volume(plans: list[RepairPlan]) -> tuple[int, int]:
    doing = [plan for plan in plans if not plan.left]
    return sum(len(plan.writes) for plan in doing), sum(len(plan.refill) for plan in doing)


def _show_outcome(plans: list[RepairPlan], outcome: RepairOutcome, after: Report) -> None:
    for failed in outcome.failed[:SHOWN]:
        click.echo(f"failed: {failed}")
    left = sum(1 for plan in plans if plan.left or plan.ties)
    click.echo(
        f"{outcome.written} keys written, {outcome.overtaken} overtaken by newer writes, {outcome.refilled} copies "
        f"refilled, {left} partitions left alone, {len(outcome.failed)} failures"
    )
    if after.conflicts:
        _show(after)
    else:
        click.echo(f"now: {_summary(after)}")


# -- for scripts


def _plain_repair(
    report: Report,
    plans: list[RepairPlan],
    rebuilds: list[ReplicaRebuild],
    outcome: RepairOutcome,
    after: Report,
    *,
    dry_run: bool,
) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "before": report.plain(),
        "plans": [
            {
                "partition": plan.partition,
                "primary": plan.owner,
                "refill": plan.refill,
                "writes": [
                    {
                        "map": write.map,
                        "key": readable(write.key),
                        "stored": write.key.hex(),
                        "seen": _plain_value(write.seen),
                        "right": _plain_value(write.right),
                    }
                    for write in plan.writes
                ],
                "ties": [{"map": name, "key": readable(key), "stored": key.hex()} for name, key in plan.ties],
                "skip_reason": plan.left,
            }
            for plan in plans
        ],
        "outcome": asdict(outcome),
        "after": after.plain(),
        "rebuilds": [
            {"zone": one.zone, "partition": one.partition, "member": one.member, "leads": one.leads}
            | {"skip_reason": one.left}
            for one in rebuilds
        ],
    }


def _plain_value(entry: EntryCopy | None) -> str | None:
    value = value_of(entry)
    return value.hex() if value is not None else None
