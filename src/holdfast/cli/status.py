"""`holdfast status`: the status of all members, as tables or JSON."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, cast

import click
import msgspec
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from holdfast.actions.show_status import ShowStatus
from holdfast.cli.addresses import address_argument
from holdfast.cli.answers import Answer
from holdfast.cli.credentials import Credentials
from holdfast.cli.operator_command import Call, declared_command
from holdfast.cli.rendering import Shown
from holdfast.cli.unit_types import Seconds
from holdfast.client_core.routing import parse_addresses
from holdfast.core.model.ids import Address
from holdfast.core.model.member_status import (
    RESTARTED,
    BaselineStatus,
    FeatureLevel,
    ListedMember,
    MemberStatus,
    MetastoreReplica,
    Rebalance,
    TableVersion,
    ZoneStatus,
)
from holdfast.core.model.result_columns import duration
from holdfast.core.partition_table.event_log import ranges_of
from holdfast.errors import ConfigError, HoldfastError, NotReady, Unreachable

ASKED_AT_A_TIME = 16
NOTABLE_STALL_MS = 100
"""A member that blocked for so long at a time within the last minute is named."""


class MemberRow(ListedMember, frozen=True, kw_only=True):
    """A member, as the queried member knows it, and its own status."""

    status: Annotated[
        MemberStatus | None, msgspec.Meta(description="its own status; null if it does not answer")
    ]
    error: str | None
    operations_per_s: float | None


class ClusterStatus(Answer):
    """The state of the cluster and of its members. With --watch one object for each sample."""

    cluster: str
    queried_member: str
    cluster_id: str
    master: str | None
    table: TableVersion
    cluster_state: Literal["active", "no-migration", "frozen", "passive"]
    level: FeatureLevel
    shutting_down: bool
    missing_members: list[str]
    baseline: BaselineStatus | None
    metastore: MetastoreReplica | None
    zones: list[ZoneStatus]
    rebalance: Rebalance | None
    delayed_ms: int
    safe: bool
    unsafe_reason: str
    members: list[MemberRow]


@dataclass(frozen=True, slots=True)
class Report:
    """One member's knowledge of the cluster, and every member's own status."""

    seen: MemberStatus
    own: dict[str, MemberStatus] = field(default_factory=dict)
    """Members that answered, by UUID."""
    silent: dict[str, str] = field(default_factory=dict)
    """Reason why a member did not answer, by UUID."""
    rates: dict[str, float] = field(default_factory=dict)
    """Operations per second by UUID, after a second sample (`rates_since`)."""
    at_s: float = field(default_factory=time.monotonic)
    """Time of the sample (monotonic)."""

    @property
    def unsafe_reason(self) -> str:
        """Why a crash now could lose data, as any member sees it; empty if the cluster is safe."""
        if self.silent:
            found = f"{len(self.silent)} of {len(self.seen.members)} members do not answer"
            seen = self.seen
            return found if seen.safe else f"{found}; {seen.name}: {seen.unsafe_reason}"
        stamps = {status.table.stamp for status in self.own.values()}
        if len(stamps) > 1:
            return f"members have {len(stamps)} different partition tables"
        return next((status.unsafe_reason for status in self.own.values() if not status.safe), "")

    @property
    def delayed_ms(self) -> int:
        """How long the master still delays the restoring of lost copies."""
        master = self.own.get(self.seen.master)
        return master.migrations.delayed_ms if master else 0

    @property
    def zones(self) -> list[ZoneStatus]:
        """State of each zone as the asked member sees it, with lags of followers from each leader."""
        lags: dict[int, int] = {}
        for status in (self.seen, *self.own.values()):
            for zone in status.zones:
                lags[zone.id] = max(lags.get(zone.id, 0), zone.lag)
        return [msgspec.structs.replace(zone, lag=lags[zone.id]) for zone in self.seen.zones]

    def named(self) -> Iterator[tuple[str, MemberStatus]]:
        """Names and statuses of the members that answered."""
        for member in self.seen.members:
            if member.uuid in self.own:
                yield member.name, self.own[member.uuid]

    def rates_since(self, before: Report) -> None:
        """Compute rates from an earlier sample. A member whose count is lower now was restarted or gave
        partitions away: it gets no rate.
        """
        seconds = self.at_s - before.at_s
        for uuid, own in self.own.items():
            earlier = before.own.get(uuid)
            if earlier is not None and seconds > 0:
                done = _operations(own) - _operations(earlier)
                if done >= 0:
                    self.rates[uuid] = done / seconds

    def plain(self) -> ClusterStatus:
        seen = self.seen
        members = [
            MemberRow(
                **msgspec.structs.asdict(member),
                status=self.own.get(member.uuid),
                error=self.silent.get(member.uuid),
                operations_per_s=self.rates.get(member.uuid),
            )
            for member in seen.members
        ]
        return ClusterStatus(
            cluster=seen.cluster,
            queried_member=seen.uuid,
            cluster_id=seen.cluster_id,
            master=seen.master,
            table=seen.table,
            cluster_state=cast("Any", seen.cluster_state),
            level=seen.level,
            shutting_down=seen.shutting_down,
            missing_members=seen.missing_members,
            baseline=seen.baseline,
            metastore=seen.metastore,
            zones=self.zones,
            rebalance=seen.migrations.process,
            delayed_ms=self.delayed_ms,
            safe=not self.unsafe_reason,
            unsafe_reason=self.unsafe_reason,
            members=members,
        )

    def view(self) -> list[Shown]:
        return [picture(self)]


def _operations(own: MemberStatus) -> int:
    """Number of operations of a member: all if it counts them, otherwise those that changed something."""
    return sum(own.operations.values()) or own.updates


def gather(address: str, credentials: Credentials) -> Report:
    """Ask the member at `address` for the list of members, and each of them for its status."""
    report = Report(ask(address, credentials))

    def own(member: ListedMember) -> None:
        try:
            found = ask(str(member.door), credentials)
        except (HoldfastError, OSError) as error:
            report.silent[member.uuid] = str(error)
        else:
            # A new process at the address of one that has ended knows nothing of what that one held.
            if found.uuid == member.uuid:
                report.own[member.uuid] = found
            else:
                report.silent[member.uuid] = RESTARTED

    with ThreadPoolExecutor(ASKED_AT_A_TIME) as threads:
        list(threads.map(own, report.seen.members))
    return report


def ask(address: str, credentials: Credentials) -> MemberStatus:
    return Call(address, credentials).status()


def doors_of(wanted: Sequence[str], address: str, credentials: Credentials) -> list[Address]:
    """Client addresses of these members, each named by member.name, the first digits of its UUID, or HOST:PORT.

    A member is asked only if there are names. Raises ConfigError for a name of no member or several.
    """
    members: list[ListedMember] | None = None
    doors: list[Address] = []
    for text in wanted:
        if ":" in text:
            doors += parse_addresses(text)
            continue
        if members is None:
            members = ask(address, credentials).members
        doors.append(find_member(text, members).door)
    return list(dict.fromkeys(doors))


UUID_DIGITS_MIN = 4


def find_member(wanted: str, members: Sequence[ListedMember]) -> ListedMember:
    """The member in a status with this name, UUID prefix or HOST:PORT of its client port. Raises ConfigError."""
    found = [one for one in members if wanted in (one.name, str(one.door))]
    if not found and len(wanted) >= UUID_DIGITS_MIN:
        found = [one for one in members if one.uuid.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    names = ", ".join(f"{one.name} ({one.uuid[:8]})" for one in members)
    raise ConfigError(
        f"{'several members are' if found else 'no member is'} called {wanted!r}; members are {names}"
    )


def picture(report: Report, notes: Sequence[str] = ()) -> Group:
    """The report as tables, for 80 columns and more. `notes`: further lines."""
    seen = report.seen
    versions = sorted({own.version for own in report.own.values() if own.version})
    head = Text.assemble(
        ("cluster ", "dim"),
        (seen.cluster, "bold"),
        "   ",
        _state(seen),
        ("   topology ", "dim"),
        str(seen.topology),
        ("   partitions ", "dim"),
        str(seen.partitions.count),
        ("   version ", "dim"),
        ", ".join(versions) or "not known",
        "   ",
        ("safe", "bold green")
        if not report.unsafe_reason
        else (f"not safe: {report.unsafe_reason}", "bold red"),
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("member", "clients at", "role"):
        table.add_column(title, overflow="fold")
    for title in ("owns", "backs", "entries", "memory", "up", *(["ops/s"] if report.rates else [])):
        table.add_column(title, justify="right", no_wrap=True)
    total = 0
    for member in seen.members:
        own = report.own.get(member.uuid)
        total += own.entries.primary if own is not None else 0
        table.add_row(*_row(report, member, own))
    below = [Text(line, "yellow") for line in (*notes, *_under_way(report))]
    rates = sum(report.rates.values())
    rate = f", {rates:,.0f} operations per second" if report.rates else ""
    foot = f"{len(seen.members)} members, {total:,} entries{rate}, feature level {seen.level.in_force}"
    return Group(head, table, *below, Text(foot, "dim"))


def _row(report: Report, member: ListedMember, own: MemberStatus | None) -> list[str | Text]:
    start = [member.name or member.uuid[:8], str(member.door)]
    owns = [str(member.primaries), str(member.backups)]
    if own is None:
        restarted = report.silent.get(member.uuid) == RESTARTED
        return [*start, Text("restarted" if restarted else "silent", "red"), *owns]
    roles = (("master", member.master), ("lite", member.lite), ("outside", member.outside))
    role = " ".join(word for word, holds in roles if holds) or "data"
    role += {"leave": " leaving", "lite": " becoming lite", "data": " to get data"}.get(own.desired_state, "")
    memory = f"{own.memory.used_bytes / own.memory.limit_bytes:.0%}" if own.memory else ""
    cells = [*start, role, *owns, f"{own.entries.primary:,}", memory, duration(own.uptime_s)]
    return [*cells, f"{report.rates[member.uuid]:,.0f}"] if member.uuid in report.rates else [*cells]


def _state(seen: MemberStatus) -> tuple[str, str]:
    if seen.shutting_down:
        return "ending", "bold red"
    return seen.cluster_state, "" if seen.cluster_state == "active" else "bold yellow"


def _under_way(report: Report) -> Iterator[str]:
    """Lines about everything of interest that is not in the table."""
    seen = report.seen
    if seen.missing_members:
        names = ", ".join(seen.missing_members)
        yield f"missing: {names}; their slots are kept while the cluster is {seen.cluster_state}"
    yield from of_baseline(seen.baseline)
    yield from of_versions(seen)
    yield from _moving(report)
    process = seen.migrations.process
    if process:
        yield (
            f"rebalance: {process.completed} of {process.planned} migrations done, "
            f"{process.failed} failed, {process.elapsed_ms / 1000:.1f} s"
        )
    if report.delayed_ms:
        yield f"lost copies are restored elsewhere in {report.delayed_ms / 1000:.0f} s, unless a member joins before"
    missing = max((own.partitions.awaited_members for own in report.own.values()), default=0)
    if missing:
        yield f"partitions are assigned when {missing} more data members are here (cluster.initial_members)"
    waiting = sum(own.partitions.without_copy for own in report.own.values())
    if waiting:
        yield f"{waiting} partitions have no copy, and wait for a member that holds one"
    for name, lost in seen.partitions.lost_by_map.items():
        yield (
            f"map {name}: {len(lost)} partitions are lost ({ranges_of(lost)}), and rejected until they are reset "
            f"(holdfast cluster reset-lost --map {name})"
        )
    if retained := sum(own.retained_change_bytes for own in report.own.values()):
        yield (
            f"{retained / 1e6:,.1f} MB of changes from before moves of maps are kept in memory for their readers, "
            "for an hour after a move"
        )
    yield from _transactions(report)
    if seen.awaited_members:
        names = ", ".join(seen.awaited_members)
        yield f"waiting for members that may hold acknowledged writes: {names} (or holdfast cluster accept-loss)"
    if seen.full_disks:
        names = ", ".join(seen.full_disks)
        yield f"disk full: {names}; writes to journalled maps in their partitions are rejected"
    for name, room in seen.low_memory.items():
        more = "; no partition is moved to it" if room == "none" else ""
        yield f"memory nearly full: {name}; writes that store entries in its partitions are refused{more}"
    yield from of_secrets(report)
    yield from of_certificates(report)
    yield from of_stalls(report)
    yield from of_ways(report)
    yield from _agreed(report)
    yield from _files(report)
    yield from _incomplete(report)
    yield from _shipped(report)
    for name, own in report.named():
        if own.leave_blocker:
            yield f"{name} cannot leave yet: {own.leave_blocker}"


def of_versions(seen: MemberStatus) -> Iterator[str]:
    """Mixed versions, and whether new features are in use."""
    level = seen.level
    by_version: dict[str, list[str]] = {}
    for member in seen.members:
        by_version.setdefault(member.version or "unknown", []).append(member.name)
    if len(by_version) > 1:
        told = "; ".join(f"{version} on {', '.join(names)}" for version, names in sorted(by_version.items()))
        yield f"versions are mixed: {told}"
    if level.possible > level.in_force:
        yield (
            f"feature level {level.in_force} is in force, and all members support {level.possible}: if you will "
            "not go back to the older version, run holdfast cluster upgrade"
        )


def _moving(report: Report) -> Iterator[str]:
    totals = Counter[str]()
    for own in report.own.values():
        totals.update(
            {key: getattr(own.migrations, key) for key in ("active", "queued", "completed", "failed")}
        )
    if totals["active"] or totals["queued"] or totals["failed"]:
        yield (
            f"migrations: {totals['active']:,} moving, {totals['queued']:,} queued, {totals['completed']:,} done, "
            f"{totals['failed']:,} failed"
        )


def of_secrets(report: Report) -> Iterator[str]:
    """Progress of a rotation of `security.member_secret`, and members rejected for another secret."""
    names = {member.uuid: member.name for member in report.seen.members}
    told = {uuid: own.member_secret for uuid, own in report.own.items()}
    rolling = {uuid: secret for uuid, secret in told.items() if secret.second and uuid in names}
    if rolling:
        where = ", ".join(sorted(names[uuid] for uuid in rolling))
        lacking = {uuid for secret in rolling.values() for uuid in secret.lacking_first}
        late = ", ".join(sorted(name for uuid, name in names.items() if uuid in lacking))
        if late:
            yield f"the member secret is being rolled: {late} do not know that of {where} yet"
        else:
            yield (
                f"the member secret is being rolled: all members know that of {where}; "
                "remove security.second_member_secret there"
            )
    refused = sorted({address for secret in told.values() for address in secret.refused})
    if refused:
        yield f"rejected because of another security.member_secret: {', '.join(refused)}"


def of_certificates(report: Report) -> Iterator[str]:
    """TLS files that changed and are invalid."""
    for name, own in report.named():
        if own.tls and own.tls.error:
            yield f"TLS of {name}: new files rejected, the old ones stay in use: {own.tls.error}"


def of_stalls(report: Report) -> Iterator[str]:
    """Members that blocked recently."""
    for name, own in report.named():
        if own.stalls and own.stalls.longest_in_last_minute_ms >= NOTABLE_STALL_MS:
            yield (
                f"{name} was blocked for {own.stalls.longest_in_last_minute_ms:.0f} ms within the last minute "
                f"(longest since its start: {own.stalls.longest_ms:.0f} ms)"
            )


def of_ways(report: Report) -> Iterator[str]:
    """Members that run without an optimisation, and why."""
    for name, own in report.named():
        if own.lane == "python":
            yield f"{name} runs the data lane uncompiled: {own.lane_reason}"
        if own.sockets == "loop" or own.sockets_reason:
            yield f"{name} serves sockets by {_WAYS[own.sockets]}: {own.sockets_reason}"


_WAYS = {"loop": "the event loop", "poll": "a poll in plain Python"}


def _transactions(report: Report) -> Iterator[str]:
    """Running transactions, and whether any needs an operator."""
    told = [own.transactions for own in report.own.values()]
    running = sum(each.running for each in told)
    if running:
        oldest_s = max(each.oldest_ms for each in told) / 1000
        yield f"transactions: {running} run, the oldest for {oldest_s:.0f} s (holdfast transactions list)"
    orphans = max((each.orphans for each in told), default=0)
    if orphans:
        yield f"transactions: the coordinators of {orphans} of them are gone; they are being finished"


def of_baseline(baseline: BaselineStatus | None) -> Iterator[str]:
    """Members that are absent or outside the baseline, with the consequences."""
    if baseline is None:
        return
    away = ", ".join(each.consistent_id for each in baseline.members if each.away)
    if away:
        yield f"away: {away}; their replicas are kept for them while they are in the baseline"
    absent = [each for each in baseline.members if not each.uuid and not each.away]
    if absent:
        names = ", ".join(each.consistent_id for each in absent)
        yield f"in the baseline, but left: {names}; no replicas are kept for them"
    if baseline.outside:
        names = ", ".join(baseline.outside)
        yield f"outside the baseline: {names}; they hold no data (holdfast cluster baseline add)"
    if baseline.adjusts_in_ms is not None:
        gone = [each.consistent_id for each in baseline.members if not each.uuid]
        why = [f"{one} joined" for one in baseline.outside] + [f"{one} left" for one in gone]
        yield (
            f"the baseline becomes the present members in {baseline.adjusts_in_ms / 1000:.0f} s because "
            f"{', '.join(why) or 'a member is lite now'}; a join or leave restarts the wait"
        )


def _agreed(report: Report) -> Iterator[str]:
    metastore = report.seen.metastore
    if metastore:
        voters = ", ".join(metastore.voters) or "not known"
        yield (
            f"metastore: leader {metastore.leader or 'not known'}, voters {voters}, revision {metastore.revision}"
        )
    if report.zones:
        yield f"zones: {'; '.join(map(_of_zone, report.zones))}"


def _of_zone(zone: ZoneStatus) -> str:
    wanted, takes = int(zone.settings["replicas"]), len(zone.eligible_members)
    short = f", {takes} members for {wanted} replicas" if takes < wanted else ""
    return (
        f"{zone.name} with {zone.settings['partitions']} partitions, {zone.leaderless} without a leader, "
        f"{zone.moving} moving, {zone.under_replicated} under-replicated, largest lag of a "
        f"follower {zone.lag}{short}"
    )


def _files(report: Report) -> Iterator[str]:
    for name, own in report.named():
        files = own.files
        if files is None:
            continue
        last_ms = files.last_checkpoint_ms
        last = time.strftime(", the last one at %H:%M:%S", time.localtime(last_ms / 1000)) if last_ms else ""
        yield (
            f"{name} keeps {files.segments} segments ({files.journal_bytes / 1e6:,.0f} MB) and "
            f"{files.checkpoints} checkpoints{last}, in {files.directory}"
        )
        for doubt in files.problems:
            yield f"{name}, of its files: {doubt}"


def _incomplete(report: Report) -> Iterator[str]:
    found = [own.incomplete for own in report.own.values()]
    filling, gaps = sum(one.filling for one in found), sum(one.gaps for one in found)
    if filling:
        yield f"{filling} copies of partitions are being filled"
    if gaps:
        yield (
            f"{gaps} maps of partitions lack updates below their newest one (LWM below HWM); these copies count as "
            "none until they are filled"
        )


def _shipped(report: Report) -> Iterator[str]:
    replicas = [own.replicas for own in report.own.values()]
    sums = (
        ("updates", sum(one.history_bytes for one in replicas)),
        ("key ranges", sum(one.ranges_bytes for one in replicas)),
        ("whole", sum(one.full_bytes for one in replicas)),
    )
    if any(total for _, total in sums):
        yield "sent to fill replicas: " + ", ".join(
            f"{kind} {total:,} bytes" for kind, total in sums if total
        )


class _Looks:
    """Successive samples; if the asked member goes away, from another one."""

    def __init__(self, address: str, credentials: Credentials) -> None:
        self._given = [str(one) for one in parse_addresses(address)]
        self._known: list[str] = []
        self._credentials = credentials
        self._asked = ""
        self.notes: list[str] = []
        """Problems of the last sample."""

    def look(self) -> Report:
        """Take a sample. Raises NotReady if no member answers, and other errors of `ask`."""
        self.notes = []
        failures: list[str] = []
        for address in dict.fromkeys([*filter(None, [self._asked]), *self._given, *self._known]):
            try:
                report = gather(address, self._credentials)
            except (NotReady, OSError) as failed:
                failures.append(str(failed).removeprefix("no member answers: "))
                continue
            if failures:
                self.notes.append(f"asking {address} now: {'; '.join(failures)}")
            self._asked = address
            self._known = [str(row.door) for row in report.seen.members]
            return report
        raise Unreachable(f"no member answers: {'; '.join(failures)}")


@declared_command(ShowStatus, address=address_argument)
@click.option("--watch", is_flag=True, help="Refresh until Ctrl-C.")
@click.option(
    "--rates", is_flag=True, help="Sample twice, and show operations per second; implied by --watch."
)
@click.option(
    "--interval",
    "interval_s",
    type=Seconds(least=0.01),
    default=1.0,
    show_default="1 s",
    metavar="TIME",
    help="Time between two samples, in seconds or as 500ms.",
)
def status(call: Call, *, watch: bool, rates: bool, interval_s: float) -> Iterator[Report]:
    """Print one sample, or a sample after the other."""
    if not watch:
        report = gather(call.address, call.credentials)
        if rates:
            time.sleep(interval_s)
            before, report = report, gather(call.address, call.credentials)
            report.rates_since(before)
        yield report
        return
    looks = _Looks(call.address, call.credentials)
    with suppress(KeyboardInterrupt):
        if call.as_json:
            for found in _samples(looks, interval_s):
                if isinstance(found, Report):
                    for note in looks.notes:
                        click.echo(note, err=True)
                    yield found
                else:
                    click.echo(str(found), err=True)
        else:
            _refresh(looks, interval_s)


def _samples(looks: _Looks, interval_s: float) -> Iterator[Report | Exception]:
    """Samples with rates, or the reason why there is none. Raises if the first one fails."""
    report = looks.look()
    yield report
    while True:
        time.sleep(interval_s)
        before = report
        try:
            report = looks.look()
        except (HoldfastError, OSError) as error:
            yield error
            continue
        report.rates_since(before)
        yield report


def _refresh(looks: _Looks, interval_s: float) -> None:
    with Live(auto_refresh=False) as shown:
        for found in _samples(looks, interval_s):
            text = picture(found, looks.notes) if isinstance(found, Report) else Text(str(found), "red")
            shown.update(text, refresh=True)
