"""`holdfast verify` compares replicas; `holdfast repair` repairs those that differ."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from holdfast.cli.comparison_answers import Compared, Repaired
from holdfast.cli.exit_statuses import OPEN
from holdfast.cli.operator_command import Call, operator_command
from holdfast.cli.paths import LocalPath
from holdfast.cli.rendering import print_shown
from holdfast.cli.spark import SparkSettings, optional_spark, show_progress, spark_job
from holdfast.client.blocking import Client
from holdfast.client.holdings import check_maps
from holdfast.errors import ConfigError, Denied, HoldfastError, Unreachable
from holdfast.replica_comparison.comparison_report import Report
from holdfast.replica_comparison.files_source import FilesSource
from holdfast.replica_comparison.key_differences import find_differences
from holdfast.replica_comparison.live import verify
from holdfast.replica_comparison.repair import RepairOutcome, Strategy, carry_out, make_plans
from holdfast.replica_comparison.sources import Access, ListedSource, find_keys, verify_source
from holdfast.replica_comparison.zone_repair import ReplicaRebuild, plan_rebuilds, rebuild
from holdfast.version import __version__

ANSWER_S = 20.0
TELL_S = 1.0
REBUILD_LOOKS = 10
REBUILD_PAUSE_S = 1.0


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
) -> Compared:
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
    return Compared(report)


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
) -> Repaired:
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
        repaired = Repaired(report, plans, rebuilds, dry_run=dry_run)
        if not scope.call.as_json:
            print_shown(repaired.intentions())
        if not dry_run and not all([*(plan.left for plan in plans), *(one.left for one in rebuilds)]):
            repaired.outcome = carry_out(client, plans, progress=_Progress("repaired").tell)
            repaired.after = _rebuild(client, scope, rebuilds, repaired.outcome)
    return repaired


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
