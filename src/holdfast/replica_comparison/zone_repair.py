"""Repairs replicas of zones that a comparison has found to differ. The member that has such a replica gets the whole
state from the group's leader; no single entries are written to it.

- replica_comparison/R-5: Only a replica that differs from a majority of its partition is rebuilt, or, with `tie`, one
  that differs from the leader. If not every replica could be compared, all stay: the right one may be missing.
- replica_comparison/R-6: A leader that differs first transfers its leadership, and is rebuilt as a follower.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from holdfast.actions.rebuild_replica import RebuildReplica
from holdfast.actions.show_zones import ListZones
from holdfast.client.action_messages import ask_on
from holdfast.client.blocking import Client
from holdfast.client.connection import Broken
from holdfast.client.replica_questions import CANNOT_ASK
from holdfast.core.model.zone_answers import ZoneList
from holdfast.core.store.replica_comparison import Finding
from holdfast.errors import NotReady, RequestError
from holdfast.replica_comparison.comparison_report import Report
from holdfast.replica_comparison.key_differences import Pause

TRIES = 40
PAUSE_S = 0.25
"""Between two tries: a leader that is to be rebuilt rejects the first one, and transfers its leadership."""


@dataclass(slots=True)
class ReplicaRebuild:
    zone: str
    partition: int
    """The partition, as clients number them, in which the replica differs."""
    member: str
    leads: bool
    left: str = ""
    """The reason why the replica is not rebuilt; empty: it is."""


def plan_rebuilds(report: Report, *, tie: bool = False) -> Iterator[ReplicaRebuild]:
    """Plan the repair of each replica of a zone that differs. `tie`: without a majority the leader is right."""
    groups: dict[tuple[str, int], list[Finding]] = {}
    for finding in report.findings:
        if finding.zone:
            groups.setdefault((finding.zone, finding.partition), []).append(finding)
    for (zone, partition), findings in sorted(groups.items()):
        wrong = {one.member: one for one in findings if one.verdict == "differs"}
        for member, one in sorted(wrong.items()):
            left = ""
            if any(each.undecided for each in findings):
                left = "not every replica could be compared"
            elif not tie and not _has_majority([each for each in findings if each.map == one.map]):
                left = "no majority of the replicas is equal; with --tie primary the leader is right"
            yield ReplicaRebuild(zone, partition, member, one.leads, left)


def _has_majority(findings: Sequence[Finding]) -> bool:
    """Whether most replicas of a map in a partition are equal. The one that the others are compared with has no finding
    itself.
    """
    equal = 1 + sum(one.verdict == "equal" for one in findings)
    return 2 * equal > len(findings) + 1


def rebuild(client: Client, plans: Sequence[ReplicaRebuild], *, pause: Pause = time.sleep) -> list[str]:
    """Have these replicas rebuilt; returns the failures as texts. The states arrive soon after."""
    if not plans:
        return []
    answer: ZoneList = client.query(ListZones())
    zones = {zone.name: (zone.id, int(zone.settings["partitions"])) for zone in answer.zones}
    failed: list[str] = []
    done: set[tuple[str, int, str]] = set()
    for plan in plans:
        if plan.zone not in zones:
            failed.append(f"zone {plan.zone} is not there any more")
            continue
        zone, count = zones[plan.zone]
        group = plan.partition % count
        if plan.left or (plan.zone, group, plan.member) in done:
            continue
        done.add((plan.zone, group, plan.member))
        why = _rebuild_one(client, plan.member, RebuildReplica(zone, group), pause)
        if why:
            failed.append(f"partition {plan.partition} of zone {plan.zone} on {plan.member}: {why}")
    return failed


def _rebuild_one(client: Client, member: str, order: RebuildReplica, pause: Pause) -> str:
    why = ""
    for _ in range(TRIES):
        try:
            connection = client.to(member)
        except CANNOT_ASK as failed:
            return str(failed)
        try:
            ask_on(connection, order)
        except NotReady as leads:
            why = str(leads)
        except (Broken, RequestError) as failed:
            return str(failed)
        else:
            return ""
        pause(PAUSE_S)
    return why
