"""`holdfast status`: what the members say, as tables for people or JSON for scripts."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import click
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from holdfast.cli.credentials import Credentials, credentials
from holdfast.cli.orders import address_argument
from holdfast.client.blocking import Client
from holdfast.core.placement.event_log import ranges_of
from holdfast.errors import HoldfastError

ANSWER_S = 5.0
"""How long one member may take to answer before it is shown as silent."""
ASKED_AT_A_TIME = 16
NOTABLE_STALL_MS = 100
"""A member that served nobody for so long, in one go within the last minute, is named."""

Status = dict[str, Any]
"""One member's own words; see `holdfast.observe.status`."""


@dataclass(frozen=True, slots=True)
class Report:
    """What one member knows of the cluster, and every member of itself."""

    seen: Status
    own: dict[str, Status] = field(default_factory=dict)
    """By UUID, the members that answered."""
    silent: dict[str, str] = field(default_factory=dict)
    """By UUID, why a member of the list did not answer."""

    @property
    def why_unsafe(self) -> str:
        """Why the cluster could lose data at the next crash, as any member sees it; empty if it is safe."""
        if self.silent:
            return f"{len(self.silent)} of {len(self.seen['members'])} members do not answer"
        stamps = {status["table"]["stamp"] for status in self.own.values()}
        if len(stamps) > 1:
            return f"members have {len(stamps)} different partition tables"
        return next((str(status["why_unsafe"]) for status in self.own.values() if not status["safe"]), "")

    @property
    def delayed_ms(self) -> int:
        """How long the restoring of lost copies still waits, as the master says."""
        master = self.own.get(self.seen["master"])
        return int(master["migrations"]["delayed_ms"]) if master else 0

    @property
    def zones(self) -> list[dict[str, Any]]:
        """How each zone stands, as the member that was asked sees it; of followers' lags each leader tells its own."""
        lags: dict[int, int] = {}
        for status in (self.seen, *self.own.values()):
            for zone in status.get("zones", []):
                lags[zone["id"]] = max(lags.get(zone["id"], 0), zone.get("lag", 0))
        return [{**zone, "lag": lags[zone["id"]]} for zone in self.seen.get("zones", [])]

    def plain(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "cluster": self.seen["cluster"],
            "cluster_id": self.seen["cluster_id"],
            "master": self.seen["master"],
            "table": self.seen["table"],
            "cluster_state": self.seen["cluster_state"],
            "level": self.seen.get("level"),
            "ending": self.seen["ending"],
            "missing": self.seen["missing"],
            "baseline": self.seen.get("baseline"),
            "metastore": self.seen.get("metastore"),
            "zones": self.zones,
            "rebalance": self.seen["migrations"]["process"],
            "delayed_ms": self.delayed_ms,
            "safe": not self.why_unsafe,
            "why_unsafe": self.why_unsafe,
            "members": [
                {
                    **member,
                    "status": self.own.get(member["uuid"]),
                    "error": self.silent.get(member["uuid"]),
                }
                for member in self.seen["members"]
            ],
        }


def gather(address: str, credentials: Credentials) -> Report:
    """Ask the member at `address` for the others, and then each of them for itself."""
    report = Report(ask(address, credentials))

    def own(member: Status) -> None:
        try:
            report.own[member["uuid"]] = ask(f"{member['host']}:{member['client_port']}", credentials)
        except (HoldfastError, OSError) as error:
            report.silent[member["uuid"]] = str(error)

    with ThreadPoolExecutor(ASKED_AT_A_TIME) as threads:
        list(threads.map(own, report.seen["members"]))
    return report


def ask(address: str, credentials: Credentials) -> Status:
    """What the member at this address says of itself."""
    with Client(
        address,
        username=credentials.username,
        password=credentials.password,
        token=credentials.token,
        tls=credentials.tls,
        timeout_s=ANSWER_S,
        operates=True,
    ) as client:
        return client.status()


def picture(report: Report) -> Group:
    """The report for people."""
    seen = report.seen
    head = Text.assemble(
        ("cluster ", "dim"),
        (str(seen["cluster"]), "bold"),
        "   ",
        _state(seen),
        ("   topology ", "dim"),
        "{major}.{minor}".format(**seen["topology"]),
        ("   partitions ", "dim"),
        str(seen["partitions"]["count"]),
        "   ",
        ("safe", "bold green") if not report.why_unsafe else (f"not safe: {report.why_unsafe}", "bold red"),
    )
    table = Table(header_style="bold")
    for title in ("member", "clients at", "role"):
        table.add_column(title, no_wrap=True)
    for title in ("primaries", "backups", "entries", "memory", "moving", "queued", "moved", "failed"):
        table.add_column(title, justify="right")
    total = 0
    for member in seen["members"]:
        own = report.own.get(member["uuid"])
        name = f"{member['name'] or 'member'} {member['uuid'][:8]}"
        role = (
            " ".join(
                word
                for word, holds in (
                    ("master", member["master"]),
                    ("lite", member["lite"]),
                    ("outside the baseline", member.get("outside")),
                )
                if holds
            )
            or "data"
        )
        where = f"{member['host']}:{member['client_port']}"
        if own is None:
            table.add_row(
                name, where, Text("silent", "red"), str(member["primaries"]), str(member["backups"])
            )
            continue
        moves = own["migrations"]
        total += own["entries"]["primary"]
        table.add_row(
            name,
            where,
            role
            + {"leave": " leaving", "lite": " becoming lite", "data": " to get data"}.get(own["wish"], ""),
            str(member["primaries"]),
            str(member["backups"]),
            f"{own['entries']['primary']:,}",
            _memory(own),
            *(
                f"{moves[key]:,}" if key in moves else ""
                for key in ("active", "queued", "completed", "failed")
            ),
        )
    below = [Text(line, "yellow") for line in _under_way(report)]
    foot = f"{len(seen['members'])} members, {total:,} entries{_version(seen)}"
    return Group(head, table, *below, Text(foot, "dim"))


def _version(seen: Status) -> str:
    """Which Holdfast all members run, and at which feature level; of several `of_versions` tells."""
    versions = {member.get("version", "") for member in seen["members"]}
    level = seen.get("level")
    return (
        f", Holdfast {versions.pop()} at feature level {level['in_force']}"
        if level and len(versions) == 1
        else ""
    )


def _state(seen: Status) -> tuple[str, str]:
    if seen["ending"]:
        return "ending", "bold red"
    return seen["cluster_state"], "" if seen["cluster_state"] == "active" else "bold yellow"


def _memory(own: Status) -> str:
    """How much of the memory that the member may take is used."""
    memory = own.get("memory")
    return f"{memory['used_bytes'] / memory['limit_bytes']:.0%}" if memory else ""


def _under_way(report: Report) -> Iterator[str]:
    """What a person should know that is not in the table: one line each."""
    seen = report.seen
    if seen["missing"]:
        names = ", ".join(seen["missing"])
        yield f"missing: {names}; their slots are kept while the cluster is {seen['cluster_state']}"
    yield from of_baseline(seen)
    yield from of_versions(seen)
    process = seen["migrations"]["process"]
    if process:
        yield (
            f"rebalance: {process['completed']} of {process['planned']} migrations done, "
            f"{process['failed']} failed, {process['elapsed_ms'] / 1000:.1f} s"
        )
    if report.delayed_ms:
        yield f"lost copies are restored elsewhere in {report.delayed_ms / 1000:.0f} s, unless somebody joins before"
    missing = max((own["partitions"].get("waits_for_members", 0) for own in report.own.values()), default=0)
    if missing:
        yield f"partitions are assigned when {missing} more data members are here (cluster.initial_members)"
    waiting = sum(own["partitions"]["waiting_for_copies"] for own in report.own.values())
    if waiting:
        yield f"{waiting} partitions have lost every copy, and wait for a member that holds one to return"
    for name, lost in seen["partitions"].get("lost_to_maps", {}).items():
        yield (
            f"map {name}: {len(lost)} partitions are lost ({ranges_of(lost)}), and refused until they are reset "
            f"(holdfast cluster reset-lost --map {name})"
        )
    yield from _transactions(report)
    if seen.get("waits_for"):
        names = ", ".join(seen["waits_for"])
        yield f"waiting for members that may hold acknowledged writes: {names} (or holdfast cluster accept-loss)"
    if seen.get("full_disks"):
        names = ", ".join(seen["full_disks"])
        yield f"disk full: {names}; writes to journalled maps in their partitions are refused"
    for name, room in seen.get("short_of_memory", {}).items():
        more = "; no partition is moved to it" if room == "none" else ""
        yield f"memory nearly full: {name}; writes that store entries in its partitions are refused{more}"
    yield from of_secrets(report)
    yield from of_certificates(report)
    yield from of_stalls(report)
    yield from of_ways(report)
    yield from _agreed(report)
    yield from _files(report)
    yield from _shipped(report)
    for member in seen["members"]:
        why = report.own.get(member["uuid"], {}).get("why_kept")
        if why:
            yield f"{member['name']} cannot leave yet: {why}"


def of_versions(seen: Status) -> Iterator[str]:
    """Which versions are mixed, and whether what is new is used."""
    level = seen.get("level")
    if not level:
        return
    by_version: dict[str, list[str]] = {}
    for member in seen["members"]:
        by_version.setdefault(member["version"] or "unknown", []).append(member["name"])
    if len(by_version) > 1:
        told = "; ".join(f"{version} on {', '.join(names)}" for version, names in sorted(by_version.items()))
        yield f"versions are mixed: {told}"
    if level["possible"] > level["in_force"]:
        yield (
            f"feature level {level['in_force']} is in force, and all members can do {level['possible']}: when nobody "
            "is to go back any more, holdfast cluster upgrade"
        )


def of_secrets(report: Report) -> Iterator[str]:
    """How far the rolling of `security.member_secret` is, and who is not let in because of another one."""
    names = {member["uuid"]: member["name"] for member in report.seen["members"]}
    told = {uuid: own["member_secret"] for uuid, own in report.own.items() if "member_secret" in own}
    rolling = {uuid: secret for uuid, secret in told.items() if secret["second"] and uuid in names}
    if rolling:
        where = ", ".join(sorted(names[uuid] for uuid in rolling))
        lacking = {uuid for secret in rolling.values() for uuid in secret["not_the_first"]}
        late = ", ".join(sorted(name for uuid, name in names.items() if uuid in lacking))
        if late:
            yield f"the member secret is being rolled: that of {where} is not yet known to {late}"
        else:
            yield (
                f"the member secret is being rolled: all members know that of {where}, where "
                "security.second_member_secret can be taken out"
            )
    refused = sorted({address for secret in told.values() for address in secret["refused"]})
    if refused:
        yield f"not let in, for its security.member_secret is another one: {', '.join(refused)}"


def of_certificates(report: Report) -> Iterator[str]:
    """Whose files of TLS have changed, and are not good."""
    for member in report.seen["members"]:
        tls = report.own.get(member["uuid"], {}).get("tls")
        if tls and tls["trouble"]:
            yield f"TLS of {member['name']}: the old files stay in force: {tls['trouble']}"


def of_stalls(report: Report) -> Iterator[str]:
    """Who kept everybody waiting lately."""
    for member in report.seen["members"]:
        stalls = report.own.get(member["uuid"], {}).get("stalls")
        if stalls and stalls["longest_in_last_minute_ms"] >= NOTABLE_STALL_MS:
            yield (
                f"{member['name']} served nobody for {stalls['longest_in_last_minute_ms']:.0f} ms in one go within the "
                f"last minute (the longest since its start: {stalls['longest_ms']:.0f} ms)"
            )


def of_ways(report: Report) -> Iterator[str]:
    """Who does without what could be faster, and why."""
    for member in report.seen["members"]:
        own = report.own.get(member["uuid"], {})
        if own.get("lane") == "python":
            yield f"{member['name']} has its data lane in plain Python: {own['why_not_compiled']}"
        if own.get("sockets") == "loop" or own.get("why_these_sockets"):
            yield f"{member['name']} serves sockets by {_WAYS[own['sockets']]}: {own['why_these_sockets']}"


_WAYS = {"loop": "the event loop", "poll": "a poll in plain Python"}


def _transactions(report: Report) -> Iterator[str]:
    """How many run, and whether any may need somebody."""
    told = [own["transactions"] for own in report.own.values() if "transactions" in own]
    running = sum(each["running"] for each in told)
    if running:
        oldest_s = max(each["oldest_ms"] for each in told) / 1000
        yield f"transactions: {running} run, the oldest for {oldest_s:.0f} s (holdfast transactions list)"
    orphans = max((each["orphans"] for each in told), default=0)
    if orphans:
        yield f"transactions: the members that ran {orphans} of them have gone; they are being ended"


def of_baseline(seen: Status) -> Iterator[str]:
    """Who is not here, or not in the baseline, and what becomes of that."""
    baseline = seen.get("baseline")
    if not baseline:
        return
    away = ", ".join(each["consistent_id"] for each in baseline["members"] if each["away"])
    if away:
        yield f"away: {away}; what they held is kept for them while they are in the baseline"
    absent = [each for each in baseline["members"] if not each["uuid"] and not each["away"]]
    if absent:
        names = ", ".join(each["consistent_id"] for each in absent)
        yield f"in the baseline, and not here: {names}; they have left, and nothing is kept for them"
    if baseline["outside"]:
        names = ", ".join(baseline["outside"])
        yield f"outside the baseline: {names}; they hold nothing (holdfast cluster baseline add)"
    if baseline["adjusts_in_ms"] is not None:
        gone = [each["consistent_id"] for each in baseline["members"] if not each["uuid"]]
        why = [f"{one} came" for one in baseline["outside"]] + [f"{one} went" for one in gone]
        yield (
            f"the baseline becomes who is here in {baseline['adjusts_in_ms'] / 1000:.0f} s because "
            f"{', '.join(why) or 'a member is lite now'}, unless somebody comes or goes before"
        )


def _agreed(report: Report) -> Iterator[str]:
    """The metastore and the zones, where there are any."""
    metastore = report.seen.get("metastore")
    if metastore:
        voters = ", ".join(metastore["voters"]) or "not known"
        yield (
            f"metastore: leader {metastore['leader'] or 'not known'}, voters {voters}, "
            f"revision {metastore['revision']}"
        )
    if report.zones:
        yield f"zones: {'; '.join(map(_of_zone, report.zones))}"


def _of_zone(zone: dict[str, Any]) -> str:
    wanted, takes = zone["settings"]["replicas"], len(zone["takes"])
    short = f", {takes} members for {wanted} replicas" if takes < wanted else ""
    return (
        f"{zone['name']} with {zone['settings']['partitions']} partitions, {zone['leaderless']} without a leader, "
        f"{zone['moving']} moving, {zone['lacking']} with a replica on a member that is not here, largest lag of a "
        f"follower {zone['lag']}{short}"
    )


def _files(report: Report) -> Iterator[str]:
    """What each member keeps on its disk."""
    for member in report.seen["members"]:
        files = report.own.get(member["uuid"], {}).get("files")
        if not files:
            continue
        last_ms = files["last_checkpoint_ms"]
        last = time.strftime(", the last one at %H:%M:%S", time.localtime(last_ms / 1000)) if last_ms else ""
        yield (
            f"{member['name']} keeps {files['segments']} segments ({files['journal_bytes'] / 1e6:,.0f} MB) and "
            f"{files['checkpoints']} checkpoints{last}, in {files['directory']}"
        )
        for doubt in files["doubts"]:
            yield f"{member['name']}, of its files: {doubt}"


def _shipped(report: Report) -> Iterator[str]:
    """How much was sent to fill replicas, by how it was done."""
    kinds = (
        ("updates", "history_bytes"),
        ("key ranges", "ranges_bytes"),
        ("whole", "full_bytes"),
    )
    replicas = [own.get("replicas", {}) for own in report.own.values()]
    sums = [(kind, sum(one.get(key, 0) for one in replicas)) for kind, key in kinds]
    if any(total for _, total in sums):
        yield "sent to fill replicas: " + ", ".join(
            f"{kind} {total:,} bytes" for kind, total in sums if total
        )


@click.command(short_help="Show members, partitions and safety.")
@address_argument
@click.option("--json", "as_json", is_flag=True, help="Plain JSON, for scripts.")
@click.option("--watch", is_flag=True, help="Show it again and again until Ctrl-C.")
@click.option(
    "--interval", default=1.0, show_default=True, metavar="SECONDS", help="Pause between two looks."
)
@credentials
def status(
    address: str,
    *,
    as_json: bool,
    watch: bool,
    interval: float,
    credentials: Credentials,
) -> None:
    """Show members, master, partitions, entries, migrations and safety.

    ADDRESS is the client door of any member; the others are found from there. The exit status is 1 if nobody answers.
    """
    if not watch:
        _print(gather(address, credentials), as_json=as_json)
        return
    if as_json:
        while True:
            _print(gather(address, credentials), as_json=True)
            time.sleep(interval)
    with Live(picture(gather(address, credentials)), auto_refresh=False) as live:
        while True:
            time.sleep(interval)
            try:
                live.update(picture(gather(address, credentials)), refresh=True)
            except (HoldfastError, OSError) as error:
                live.update(Text(f"{address} does not answer: {error}", "red"), refresh=True)


def _print(report: Report, *, as_json: bool) -> None:
    if as_json:
        json.dump(report.plain(), sys.stdout)
        sys.stdout.write("\n")
        sys.stdout.flush()
    else:
        # Piped into a file a table keeps its width, instead of being folded at 80 columns.
        Console(width=None if sys.stdout.isatty() else 140).print(picture(report), highlight=False)
