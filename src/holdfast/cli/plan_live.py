"""Forecasts for a running cluster if members joined, left or crashed. The cluster is only read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.cli.credentials import Credentials
from holdfast.client.blocking import Client
from holdfast.config.schema import Placement
from holdfast.core.membership.view_agreement import is_quorum
from holdfast.core.model.baseline import BaselineMember
from holdfast.core.model.ids import Address, MemberId
from holdfast.core.model.migration import ReplicaList
from holdfast.core.model.views import MemberInfo, View
from holdfast.core.placement.affinity import LayoutOf, layout_of
from holdfast.core.placement.dryrun import Outlook, forecast
from holdfast.core.placement.kept_places import keeping_places, places_of
from holdfast.core.placement.layout import Candidate, Layout, by_hosts
from holdfast.errors import ConfigError, HoldfastError, NotReady

ANSWER_S = 5.0
LOOKS = 5
"""Number of tries to get members and table of one moment."""
PREFIX_MIN = 4
"""Least characters of an abbreviated UUID."""


@dataclass(frozen=True, slots=True)
class Events:
    """Assumed events, all at once."""

    join: int = 0
    groups: tuple[str, ...] = ()
    """Group of every new member, or one for each."""
    drain: tuple[str, ...] = ()
    """Names or UUIDs."""
    crash: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    """Names of the new members; with rendezvous placement their partitions depend on them."""

    def newcomers(self) -> list[Candidate]:
        if len(self.groups) > 1 and len(self.groups) != self.join:
            raise ConfigError(
                f"--group is given {len(self.groups)} times: give it once, or for each of {self.join}"
            )
        if self.names and len(self.names) != self.join:
            raise ConfigError(f"--name is given {len(self.names)} times: give it for each of {self.join}")
        groups = self.groups * self.join if len(self.groups) == 1 else self.groups or ("",) * self.join
        names = self.names or ("",) * self.join
        return [
            Candidate(f"join-{number}", group, name)
            for number, (group, name) in enumerate(zip(groups, names, strict=True), 1)
        ]


@dataclass(frozen=True, slots=True)
class Cluster:
    status: dict[str, Any]
    rows: list[ReplicaList]
    notes: list[str] = field(default_factory=list)

    @property
    def members(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.status["members"]
        return found

    @property
    def placement(self) -> Placement:
        """The master's method for the layout."""
        # Older releases had only one and do not report it.
        found: Placement = self.status["partitions"].get("placement", "even")
        return found

    def candidates(self) -> list[Candidate]:
        """Members that may hold partitions, as the master sees them: one without a group is its own group."""
        return [
            Candidate(each["uuid"], each["group"] or each["uuid"], each.get("consistent_id", ""))
            for each in self.members
            # Older releases had no baseline and do not report `outside`.
            if not each["lite"] and not each["leaving"] and not each.get("outside")
        ]

    def grouped(self, candidates: Sequence[Candidate], away: int = 0) -> list[Candidate]:
        """The candidates in the master's groups. A new member without a group counts as on a host of its own."""
        if self.status["partitions"].get("group_by") != "host-soft":
            return list(candidates)
        hosts = {str(each["uuid"]): str(each["host"]) for each in self.members}
        return by_hosts(candidates, hosts, self.status["partitions"]["replicas"], away)

    def _owning(
        self, newcomers: list[Candidate], crashed: Sequence[str]
    ) -> tuple[list[Candidate], list[Candidate]]:
        """Newcomers that would own data, and absent members whose places are kept, by the present baseline."""
        baseline = self.status.get("baseline")
        if not baseline or baseline["adjust_ms"] == 0:
            return newcomers, []
        names = {each["consistent_id"] for each in baseline["members"]}
        owning = [each for each in newcomers if each.consistent_id in names]
        back = {each.consistent_id for each in owning}
        away = [
            BaselineMember(each["consistent_id"], each["group"])
            for each in baseline["members"]
            if (each["away"] or each["uuid"] in crashed) and each["consistent_id"] not in back
        ]
        return owning, places_of(away)

    def find(self, text: str) -> str:
        """UUID of a member, by its name, its UUID, or a prefix of that. Raises ConfigError."""
        exact = [each for each in self.members if text in (each["uuid"], each["name"])]
        close = [each for each in self.members if len(text) >= PREFIX_MIN and each["uuid"].startswith(text)]
        found = exact or close
        if len(found) == 1:
            return str(found[0]["uuid"])
        listed = ", ".join(f"{each['name']} {each['uuid'][:8]}".strip() for each in found or self.members)
        why = "names several members" if found else "is no member"
        raise ConfigError(f"{text!r} {why}: {listed}. Give a name, a UUID, or the beginning of one")

    def label(self, uuid: str) -> str:
        names = Counter(each["name"] for each in self.members)
        for each in self.members:
            if each["uuid"] == uuid:
                name = str(each["name"])
                return name if name and names[name] == 1 else f"{name} {uuid[:8]}".strip()
        return uuid

    def outlooks(self, events: Events) -> Iterator[Outlook]:
        """The master's plans. Raises ConfigError for an unknown name, or if no member would be left."""
        crashed, drained = ([self.find(text) for text in texts] for texts in (events.crash, events.drain))
        if both := sorted(set(crashed) & set(drained)):
            raise ConfigError(f"{self.label(both[0])} cannot both crash and be drained: leave one out")
        owning, places = self._owning(events.newcomers(), crashed)
        present = [each["uuid"] for each in self.members if each["uuid"] not in crashed]
        candidates = [
            each for each in self.candidates() if each.uuid in present and each.uuid not in drained
        ] + owning
        if not candidates:
            raise ConfigError("no member would be left to hold the partitions")
        candidates = self.grouped(candidates, len(places))
        accepts = self.status["partitions"]["lost"] == "accept"
        return forecast(
            self.rows,
            {*present, *(each.uuid for each in owning)},
            candidates,
            self.status["partitions"]["replicas"],
            holders=self.status["partitions"]["holders"],
            heirs=[each.uuid for each in candidates] if accepts else (),
            layout=keeping(self.placement, places),
        )

    def warnings(self, events: Events) -> list[str]:
        """Remarks for the reader of the plan."""
        found = list(self.notes)
        moves = self.status["migrations"]
        if moving := moves["active"] + moves["queued"]:
            found.append(f"{moving} migrations are under way: the plan begins from the table as it is now")
        alive = {MemberId(each["uuid"]) for each in self.members} - {
            MemberId(self.find(t)) for t in events.crash
        }
        if self.status["quorum"] == "majority" and not is_quorum(_view(self.members), alive):
            found.append(
                "the rest would be no majority of the members: the cluster would wait for the others instead"
            )
        if events.join and not events.groups and any(each["group"] for each in self.members):
            found.append("members of this cluster have groups: give those of the new members with --group")
        if events.join and not events.names and self.placement == "rendezvous":
            found.append(
                "which partitions a member gets depends on its name: give the name of each new one with --name"
            )
        if self.status.get("baseline"):
            found.append(
                "the plan uses the present baseline of the cluster: other members get no partitions, and the "
                "places of its crashed members are kept"
            )
        if events.join + len(events.drain) + len(events.crash) > 1:
            found.append(
                "all of it is taken to happen at once; one after the other, other partitions may move"
            )
        return found


def keeping(placement: Placement, away: Sequence[Candidate]) -> LayoutOf:
    """The master's layout, which keeps the places of absent members."""

    def of(partitions: Sequence[int]) -> Layout:
        def wanted(
            rows: Sequence[ReplicaList], candidates: Sequence[Candidate], replicas: int
        ) -> list[ReplicaList]:
            targets = layout_of(placement)(partitions)(rows, [*candidates, *away], replicas)
            return keeping_places(partitions, rows, targets, candidates, away, placement)

        return wanted

    return of


def _view(members: Sequence[dict[str, Any]]) -> View:
    return View(0, "", [MemberInfo(MemberId(each["uuid"]), 1, "", 0, "", 0, "") for each in members])


def look(address: str, credentials: Credentials) -> Cluster:
    """Read the cluster from its master, found through the member at `address`, or else from that member."""
    first = _ask(address, credentials)
    if first.status["is_master"]:
        return first
    master = next((each for each in first.members if each["master"]), None)
    try:
        if master is None:
            raise NotReady("no leader")
        return _ask(str(Address.of_clients(master)), credentials)
    except HoldfastError as error:
        first.notes.append(f"the master does not answer ({error}); this is what {address} knows")
        return first


def _ask(address: str, credentials: Credentials) -> Cluster:
    with Client(
        address,
        username=credentials.username,
        password=credentials.password,
        token=credentials.token,
        tls=credentials.tls,
        timeout_s=ANSWER_S,
    ) as client:
        for _ in range(LOOKS):
            status = client.status()
            table = client.table()
            found = Cluster(status, [row.replicas for row in table])
            if [each["uuid"] for each in found.members] == list(table.members):
                break
        else:
            raise NotReady(f"the members of the cluster change all the time; ask {address} again")
    if not any(found.rows):
        raise NotReady(f"the cluster of {address} has not assigned its partitions yet; ask again")
    return found
