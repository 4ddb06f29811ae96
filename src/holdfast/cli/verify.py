"""`holdfast verify` compares all copies of partitions; `holdfast repair` repairs those that differ."""

from __future__ import annotations

import json
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, TypeVar

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast.cli.addresses import address_option
from holdfast.cli.answers import json_option
from holdfast.cli.credentials import Credentials, credentials
from holdfast.cli.orders import EXIT_FAILED, EXIT_STANDING
from holdfast.client.blocking import Client
from holdfast.client.differences import Differences, find_differences, value_of
from holdfast.client.holdings import check_maps
from holdfast.client.repair import RepairOutcome, RepairPlan, Strategy, carry_out, make_plans
from holdfast.client.replica_questions import EntryCopy
from holdfast.client.verification import Finding, Report, verify
from holdfast.client.zone_verification import ZoneFinding, ZoneReport
from holdfast.core.model.object_names import is_service
from holdfast.errors import ConfigError, Denied, HoldfastError, Unreachable
from holdfast.wire.values import Serialized, from_stored

ANSWER_S = 20.0
TELL_S = 1.0
SHOWN = 40
KEYS_SHOWN = 10

EXIT_CLEAN = 0
EXIT_UNCHECKED = EXIT_STANDING
"""No conflict was found, but something could not be compared."""

Command = TypeVar("Command", bound=Callable[..., Any])


def _what(command: Command) -> Command:
    for option in (
        json_option,
        click.option(
            "--partition", "partitions", type=click.IntRange(0), multiple=True, help="Only this partition."
        ),
        click.option(
            "--map", "maps", metavar="NAME", multiple=True, help="Only this map. Default: all maps."
        ),
        address_option,
    ):
        command = option(command)
    return command


@click.command("verify")
@_what
@click.option("--deep", is_flag=True, help="Also find the keys that differ.")
@credentials
def verify_command(
    *,
    address: str,
    maps: tuple[str, ...],
    partitions: tuple[int, ...],
    as_json: bool,
    deep: bool,
    credentials: Credentials,
) -> None:
    r"""Compare every backup with its primary, and the partition tables of all members. Needs no Spark, and changes
    nothing.

    A counter conflict means that a copy does not have the same updates as its primary; a content conflict, that it
    does not have the same entries. The cluster may be in use: the command compares a partition again if it is written
    or moved meanwhile, and reports it as busy if that never ends. It compares the replicas of a zone at a mark in the
    log of each partition; there a replica is busy only if it does not reach the mark.

    \b
      holdfast verify
      holdfast verify --map flights --deep -a 127.0.0.1:5702
    """
    with _client(address, credentials) as client, _cannot():
        report = _verify(client, maps, partitions)
        found = _differences(client, report) if deep else []
        names = _names(client)
    if as_json:
        click.echo(json.dumps(_plain(report, found if deep else None)))
    else:
        _show(report, names, found)
    sys.exit(_status(report))


@click.command("repair")
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
@_what
@credentials
def repair_command(
    *,
    address: str,
    maps: tuple[str, ...],
    partitions: tuple[int, ...],
    strategy: Strategy,
    tie: str | None,
    dry_run: bool,
    as_json: bool,
    credentials: Credentials,
) -> None:
    r"""Find copies that differ, as `holdfast verify` does, repair them, and verify again.

    \b
      primary    the content of the primary is right
      newest     for each map, the copy with the highest update counter is right
      majority   for each key, the value of most copies is right

    If another copy than the primary is right, the command first writes its value to the primary, if the primary has
    not changed since: it never overwrites a newer write. Then it copies the primary to the backups that differ. The
    cluster may be in use. The command does not repair replicas of zones; it prints what helps.

    \b
      holdfast repair --strategy primary --dry-run
      holdfast repair --strategy majority --tie primary --map flights
    """
    if tie and strategy != "majority":
        raise ConfigError("--tie is for --strategy majority")
    with _client(address, credentials) as client, _cannot():
        report = _verify(client, maps, partitions)
        names = _names(client)
        plans = list(make_plans(client, report, strategy, tie=bool(tie)))
        if not as_json:
            _show(report, names, [])
            _show_plans(plans, names, dry_run=dry_run)
            _show_left(report.zones)
        outcome, after = RepairOutcome(), report
        if not dry_run and any(not plan.left for plan in plans):
            told = _Told("mended")
            outcome = carry_out(client, plans, progress=told.tell)
            after = _verify(client, maps, partitions)
    if as_json:
        click.echo(json.dumps(_plain_repair(report, plans, outcome, after, dry_run=dry_run)))
    elif plans and not dry_run:
        _show_outcome(plans, outcome, after, names)
    sys.exit(_status(after))


# -- questions


def _client(address: str, credentials: Credentials) -> Client:
    return Client(
        address,
        username=credentials.username,
        password=credentials.password,
        token=credentials.token,
        tls=credentials.tls,
        timeout_s=ANSWER_S,
    )


@contextmanager
def _cannot() -> Iterator[None]:
    """Exit with `EXIT_UNCHECKED` if the cluster cannot be asked: nothing was checked, which is no conflict."""
    try:
        yield
    except (ConfigError, Denied, Unreachable):
        raise
    except HoldfastError as failed:
        click.echo(f"Error: {failed}", err=True)
        sys.exit(EXIT_UNCHECKED)


def _verify(client: Client, maps: tuple[str, ...], partitions: tuple[int, ...]) -> Report:
    count = client.partition_count
    if any(partition >= count for partition in partitions):
        raise ConfigError(f"partitions are 0 to {count - 1}")
    told = _Told("compared")
    chosen = sorted(set(partitions)) or None
    report = verify(
        client,
        maps=maps,
        partitions=chosen,
        progress=told.tell,
    )
    # An unknown map must not count as consistent. Members do not list maps without entries, but such a map may have
    # copies, so a map that was compared is known.
    compared = {finding.map for finding in report.findings} | report.zones.homeless.keys()
    check_maps(client, [name for name in maps if name not in compared])
    return report


class _Told:
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


def _differences(client: Client, report: Report) -> list[Differences]:
    found: list[Differences] = []
    told = _Told("read")
    wrong = sorted(
        {
            (one.partition, one.map)
            for one in report.findings
            if one.content_conflict and not is_service(one.map)
        }
    )
    for done, (partition, name) in enumerate(wrong):
        findings = [
            one
            for one in report.findings
            if (one.partition, one.map) == (partition, name) and one.verdict in ("equal", "differs")
        ]
        keys = find_differences(client, [one for one in findings if one.kept or one.content_conflict])
        if keys is not None:
            found.append(keys)
        told.tell(done, len(wrong))
    return found


def _names(client: Client) -> dict[str, str]:
    return {uuid: row.address for uuid, row in client.table().members.items()}


def _status(report: Report) -> int:
    zones = report.zones
    if report.conflicts or report.rows or zones.conflicts:
        return EXIT_FAILED
    unchecked = report.undecided or report.silent or zones.undecided or zones.unknown
    return EXIT_UNCHECKED if unchecked else EXIT_CLEAN


# -- output


def _readable(key: bytes) -> str:
    """A key of a common type as text, another one in hexadecimal."""
    try:
        value = from_stored(key)
    except (ValueError, IndexError, UnicodeDecodeError, msgspec.MsgspecError, struct.error):
        return f"0x{key.hex()}"
    return f"0x{key.hex()}" if isinstance(value, Serialized) else repr(value)


def _summary(report: Report) -> str:
    findings = report.findings
    counters = sum(1 for finding in findings if finding.counter_conflict)
    contents = sum(1 for finding in findings if finding.content_conflict)
    return (
        f"{report.partitions} partitions, {report.compared} copies compared in {report.seconds:.1f} s: "
        f"{counters} counter conflicts, {contents} content conflicts, {len(report.rows)} different rows, "
        f"{len(report.of('busy'))} busy, {len(report.of('unreachable')) + len(report.silent)} unreachable"
    )


def _kind(finding: Finding) -> str:
    kinds = {"counter": finding.counter_conflict, "content": finding.content_conflict}
    return " and ".join(kind for kind, so in kinds.items() if so) or finding.verdict


def _show(report: Report, names: dict[str, str], found: list[Differences]) -> None:
    shown = [finding for finding in report.findings if finding.verdict != "equal"]
    if shown:
        table = Table("partition", "map", "conflict", "primary", "holds", "backup", "holds", box=None)
        for finding in shown[:SHOWN]:
            table.add_row(
                str(finding.partition),
                Text(finding.map),
                _kind(finding),
                names.get(finding.owner, finding.owner or "nobody"),
                f"{finding.owner_term}/{finding.owner_counter}, {finding.owner_entries} entries",
                names.get(finding.member, finding.member),
                f"{finding.term}/{finding.counter}, {finding.entries} entries",
            )
        Console(highlight=False).print(table)
        if len(shown) > SHOWN:
            click.echo(f"… and {len(shown) - SHOWN} more")
        click.echo("(term/counter of the last update)")
    for row in report.rows[:SHOWN]:
        what = f"partition {row.partition}" if row.partition >= 0 else "something in the rows"
        click.echo(
            f"the table of {names.get(row.member, row.member)} differs in {what}: "
            f"version {row.version} instead of {row.expected_version}"
        )
    for member in report.silent:
        click.echo(f"{names.get(member, member)} did not return its partition table")
    for differences in found:
        _show_keys(differences, names)
    _show_zones(report.zones)
    click.echo(_summary(report))


def _show_zones(zones: ZoneReport) -> None:
    shown = [finding for finding in zones.findings if finding.verdict != "equal"]
    if shown:
        table = Table(
            "zone", "partition", "map", "verdict", "member", "index", "lag", "holds", "others", box=None
        )
        for one in shown[:SHOWN]:
            held = (
                (
                    f"{one.counter} updates, {one.entries} entries",
                    f"{one.expected_counter}, {one.expected_entries}",
                )
                if one.map
                else (one.why, "")
            )
            member = f"{one.member} (leader)" if one.leads else one.member
            numbers = str(one.index), str(one.lag)
            table.add_row(
                one.zone,
                str(one.partition),
                Text(one.map),
                one.verdict,
                member or "nobody",
                *numbers,
                *map(Text, held),
            )
        Console(highlight=False).print(table)
        if len(shown) > SHOWN:
            click.echo(f"… and {len(shown) - SHOWN} more")
    for name, zone in zones.homeless.items():
        click.echo(f"map {name} lives in zone {zone}, which does not exist: there is nothing to compare")
    if zones.unknown:
        click.echo(f"zones could not be looked at: {zones.unknown}")
    if zones.zones:
        verdicts = Counter(finding.verdict for finding in zones.findings)
        click.echo(
            f"zones {', '.join(zones.zones)}: {zones.partitions} partitions, {zones.compared} copies in replicas "
            f"compared: {verdicts['differs']} differ, {verdicts['busy']} busy, {verdicts['unreachable']} unreachable"
        )


def _show_left(zones: ZoneReport) -> None:
    """Print why replicas of zones are not repaired, and what to do instead."""
    for one in zones.conflicts[:SHOWN]:
        click.echo(
            f"left alone: partition {one.partition} of zone {one.zone} on {one.member}: {_skip_reason(one)}"
        )


def _skip_reason(one: ZoneFinding) -> str:
    begin = "replicas of zones are changed only by their logs; take a member out of the zone to rebuild its replica. "
    if one.leads:
        return (
            begin
            + "It is the leader, and would copy its data to others: end its process, so that another one leads; let "
            "the partition move (holdfast zone alter --scale-down-s 0), and start the member with no files"
        )
    return begin + f"Let {one.member} leave (holdfast member drain), and start it again"


def _show_keys(found: Differences, names: dict[str, str]) -> None:
    click.echo(
        f"partition {found.partition}, map {found.map}: {len(found.entries)} keys differ, "
        f"in {found.ranges} of 64 ranges"
    )
    for key, held in list(found.entries.items())[:KEYS_SHOWN]:
        words = ", ".join(f"{names.get(member, member)} {_says(held, member)}" for member in found.members)
        click.echo(f"  {_readable(key)}: {words}")
    if len(found.entries) > KEYS_SHOWN:
        click.echo(f"  … and {len(found.entries) - KEYS_SHOWN} more keys (all of them: --json)")


def _says(held: dict[str, EntryCopy], member: str) -> str:
    value = value_of(held.get(member))
    return "has none" if value is None else f"has {len(value)} bytes"


def _show_plans(plans: list[RepairPlan], names: dict[str, str], *, dry_run: bool) -> None:
    if not plans:
        click.echo("nothing to mend")
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


def _show_outcome(
    plans: list[RepairPlan], outcome: RepairOutcome, after: Report, names: dict[str, str]
) -> None:
    for failed in outcome.failed[:SHOWN]:
        click.echo(f"failed: {failed}")
    left = sum(1 for plan in plans if plan.left or plan.ties)
    click.echo(
        f"{outcome.written} keys written, {outcome.overtaken} overtaken by newer writes, {outcome.refilled} copies "
        f"refilled, {left} partitions left alone, {len(outcome.failed)} failures"
    )
    if after.conflicts:
        _show(after, names, [])
    else:
        click.echo(f"now: {_summary(after)}")


# -- for scripts


def _plain_finding(finding: Finding) -> dict[str, Any]:
    plain = asdict(finding)
    plain["counter_conflict"] = finding.counter_conflict
    plain["content_conflict"] = finding.content_conflict
    return plain


def _plain(report: Report, found: list[Differences] | None = None) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "clean": _status(report) == EXIT_CLEAN,
        "partitions": report.partitions,
        "copies": report.compared,
        "seconds": round(report.seconds, 3),
        "counter_conflicts": [_plain_finding(one) for one in report.findings if one.counter_conflict],
        "content_conflicts": [_plain_finding(one) for one in report.findings if one.content_conflict],
        "rows": [asdict(row) for row in report.rows],
        "undecided": [asdict(finding) for finding in report.undecided],
        "unreachable_members": list(report.silent),
        "zones": _plain_zones(report.zones),
    }
    if found is not None:
        plain["differences"] = [
            {
                "partition": one.partition,
                "map": one.map,
                "members": one.members,
                "ranges": one.ranges,
                "keys": [
                    {
                        "key": _readable(key),
                        "stored": key.hex(),
                        "values": {member: entry.value.hex() for member, entry in held.items()},
                    }
                    for key, held in one.entries.items()
                ],
            }
            for one in found
        ]
    return plain


def _plain_zones(zones: ZoneReport) -> dict[str, Any]:
    return {
        "zones": list(zones.zones),
        "partitions": zones.partitions,
        "copies": zones.compared,
        "conflicts": [asdict(one) for one in zones.conflicts],
        "undecided": [asdict(one) for one in zones.undecided],
        "maps_without_zone": dict(zones.homeless),
        "unknown": zones.unknown,
    }


def _plain_repair(
    report: Report, plans: list[RepairPlan], outcome: RepairOutcome, after: Report, *, dry_run: bool
) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "before": _plain(report),
        "plans": [
            {
                "partition": plan.partition,
                "primary": plan.owner,
                "refill": plan.refill,
                "writes": [
                    {
                        "map": write.map,
                        "key": _readable(write.key),
                        "stored": write.key.hex(),
                        "seen": _plain_value(write.seen),
                        "right": _plain_value(write.right),
                    }
                    for write in plan.writes
                ],
                "ties": [
                    {"map": name, "key": _readable(key), "stored": key.hex()} for name, key in plan.ties
                ],
                "skip_reason": plan.left,
            }
            for plan in plans
        ],
        "outcome": asdict(outcome),
        "after": _plain(after),
        "skipped": [{**asdict(one), "reason": _skip_reason(one)} for one in report.zones.conflicts],
    }


def _plain_value(entry: EntryCopy | None) -> str | None:
    value = value_of(entry)
    return value.hex() if value is not None else None
