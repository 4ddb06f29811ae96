"""The members and the table of a running cluster, as a plan needs them. The cluster is only read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from holdfast.client.blocking import Client
from holdfast.client.connection import Credentials
from holdfast.client.replica_questions import ask_digests
from holdfast.config.schema import Placement
from holdfast.core.membership.view_agreement import is_quorum
from holdfast.core.model.ids import MemberId
from holdfast.core.model.member_status import ListedMember, MemberStatus
from holdfast.core.model.migration import ReplicaList
from holdfast.core.model.views import MemberInfo, View
from holdfast.core.placement.layout import Candidate
from holdfast.errors import ConfigError, HoldfastError, NotReady
from holdfast.planning.amounts import Sizes, measured, parse_bytes, parse_sizes
from holdfast.planning.forecast import ask
from holdfast.planning.strategies import strategy_of
from holdfast.planning.walk import Question

ANSWER_S = 5.0
LOOKS = 5
ENTRY_BYTES = 128
PREFIX_MIN = 4


@dataclass(frozen=True, slots=True)
class LiveCluster:
    status: MemberStatus
    rows: list[ReplicaList]
    notes: list[str] = field(default_factory=list)

    @property
    def members(self) -> list[ListedMember]:
        return self.status.members

    @property
    def placement(self) -> Placement:
        return cast("Placement", self.status.partitions.placement)

    @property
    def strategy(self) -> str:
        return strategy_of(self.placement)

    def question(self, scenarios: Sequence[str], sizes: Sizes | None = None, **more: Any) -> Question:
        """Scenarios may call members as people call them. Raises ConfigError."""
        holding = [
            Candidate(each.uuid, each.group, each.consistent_id)
            for each in self.members
            if not each.lite and not each.leaving and not each.outside
        ]
        held = {each.uuid for each in holding}
        partitions = self.status.partitions
        by_host = partitions.group_by == "host-soft"
        return ask(
            [self.resolved(each) for each in scenarios],
            members=holding,
            rows=self.rows,
            copies=partitions.replicas,
            others=frozenset(each.uuid for each in self.members if each.uuid not in held),
            sizes=sizes,
            block=max(1, len(self.rows)),
            holders=partitions.holders,
            accept=partitions.lost == "accept",
            hosts={each.uuid: each.host for each in self.members} if by_host else None,
            **self._baseline(),
            **more,
        )

    def _baseline(self) -> dict[str, Any]:
        """Members that own data, if new ones are not added by themselves, and those that are away."""
        baseline = self.status.baseline
        if baseline is None or baseline.adjust_ms == 0:
            return {}
        members = baseline.members
        return {
            "baseline": tuple(Candidate(each.uuid, each.group, each.consistent_id) for each in members),
            "away": frozenset(each.consistent_id for each in members if each.away),
        }

    def resolved(self, scenario: str) -> str:
        def one(step: str) -> str:
            kind, _, rest = step.strip().partition(":")
            known = kind in ("drain", "crash") and not self._is_count(rest)
            return f"{kind}:{self.find(rest)}" if known else step.strip()

        return ",".join("+".join(one(each) for each in part.split("+")) for part in scenario.split(","))

    def _is_count(self, text: str) -> bool:
        """Whether this is a number of members. The beginning of a UUID can be a number, too: `drain:21022114`."""
        return text.isdecimal() and (
            int(text) <= len(self.members) or not any(each.uuid.startswith(text) for each in self.members)
        )

    def find(self, text: str) -> str:
        """UUID of a member, by its name, UUID, or a prefix of that. Raises ConfigError."""
        exact = [each for each in self.members if text in (each.uuid, each.name)]
        close = [each for each in self.members if len(text) >= PREFIX_MIN and each.uuid.startswith(text)]
        found = exact or close
        if len(found) == 1:
            return found[0].uuid
        listed = ", ".join(f"{each.name} {each.uuid[:8]}".strip() for each in found or self.members)
        why = "names several members" if found else "is no member"
        raise ConfigError(f"{text!r} {why}: {listed}. Give a name, a UUID, or the beginning of one")

    def label(self, uuid: str) -> str:
        names = Counter(each.name for each in self.members)
        for each in self.members:
            if each.uuid == uuid:
                name = each.name
                return name if name and names[name] == 1 else f"{name} {uuid[:8]}".strip()
        return uuid

    def warnings(self, question: Question) -> list[str]:
        found = list(self.notes)
        moves = self.status.migrations
        if moving := moves.active + moves.queued:
            found.append(f"{moving} migrations are under way: the plan begins from the table as it is now")
        steps = [step for scenario in question.scenarios for step in scenario.steps]
        joined = [each for step in steps for each in step.join if each.uuid.startswith("join-")]
        alive = {MemberId(each.uuid) for each in self.members}
        if self.status.quorum == "majority" and not all(
            is_quorum(_view(self.members), alive - {MemberId(uuid) for uuid in step.crash}) for step in steps
        ):
            found.append(
                "the rest would be no majority of the members: the cluster would wait for the others instead"
            )
        if any(not each.consistent_id for each in joined) and self.placement == "rendezvous":
            found.append("which partitions a member gets depends on its name: give it as join:NAME")
        if self.status.baseline:
            found.append(
                "the plan uses the present baseline of the cluster: other members get no partitions, and the "
                "places of its crashed members are kept"
            )
        if any(len(step.join) + len(step.drain) + len(step.crash) > 1 for step in steps):
            found.append("events joined by + happen at once; one after the other, other partitions may move")
        return found


def live_sizes(size: str, cluster: LiveCluster, address: str, credentials: Credentials, seed: int) -> Sizes:
    """With `entries:BYTES` sizes from the owners' present number of entries; otherwise as given."""
    kind, _, rest = size.partition(":")
    if kind != "entries":
        return parse_sizes(size, seed)
    each = parse_bytes(rest) if rest else ENTRY_BYTES
    wanted: dict[str, list[int]] = {}
    for partition, row in enumerate(cluster.rows):
        if row and row[0] is not None:
            wanted.setdefault(row[0], []).append(partition)
    with _client(address, credentials) as client:
        held, silent = ask_digests(client, wanted)
    cluster.notes.extend(
        f"{cluster.label(uuid)} does not answer: its partitions count as empty" for uuid in sorted(silent)
    )
    sizes = [0] * len(cluster.rows)
    for (_, partition), digest in held.items():
        sizes[partition] = each * sum(one.entries for one in digest.maps)
    return measured(sizes)


def _view(members: Sequence[ListedMember]) -> View:
    return View(0, "", [MemberInfo(MemberId(each.uuid), 1, "", 0, "", 0, "") for each in members])


def look(address: str, credentials: Credentials) -> LiveCluster:
    """Read the cluster from its master, found through the member at `address`, or else from that member."""
    first = _ask(address, credentials)
    if first.status.is_master:
        return first
    master = next((each for each in first.members if each.master), None)
    try:
        if master is None:
            raise NotReady("no leader")
        return _ask(str(master.door), credentials)
    except HoldfastError as error:
        first.notes.append(f"the master does not answer ({error}); this is what {address} knows")
        return first


def _client(address: str, credentials: Credentials) -> Client:
    return Client(
        address,
        username=credentials.username,
        password=credentials.password,
        token=credentials.token,
        tls=credentials.tls,
        timeout_s=ANSWER_S,
    )


def _ask(address: str, credentials: Credentials) -> LiveCluster:
    with _client(address, credentials) as client:
        for _ in range(LOOKS):
            status = client.status()
            table = client.table()
            found = LiveCluster(status, [row.replicas for row in table])
            if [each.uuid for each in found.members] == list(table.members):
                break
        else:
            raise NotReady(f"the members of the cluster change all the time; ask {address} again")
    if not any(found.rows):
        raise NotReady(f"the cluster of {address} has not assigned its partitions yet; ask again")
    return found
