"""A running cluster, and what would become of it if members joined, left or crashed. It is asked, never touched."""

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
"""How long a member may take to answer."""
LOOKS = 5
"""How often members and table are asked for until both are of one moment."""
PREFIX_MIN = 4
"""A UUID may be cut short to so many characters."""


@dataclass(frozen=True, slots=True)
class Events:
    """What is assumed to happen, all of it at once."""

    join: int = 0
    groups: tuple[str, ...] = ()
    """The group of every new member, or of each."""
    drain: tuple[str, ...] = ()
    """Names or UUIDs."""
    crash: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    """What the new members would be called; by rendezvous their partitions depend on it."""

    def newcomers(self) -> list[Candidate]:
        """The members that would join."""
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
    """What a member says: its status, and the rows of the table with holders by UUID."""

    status: dict[str, Any]
    rows: list[ReplicaList]
    notes: list[str] = field(default_factory=list)
    """What a reader of the plan should know."""

    @property
    def members(self) -> list[dict[str, Any]]:
        """The members, oldest first."""
        found: list[dict[str, Any]] = self.status["members"]
        return found

    @property
    def placement(self) -> Placement:
        """How the master finds the wanted rows."""
        # Members of releases before there was another one do not say.
        found: Placement = self.status["partitions"].get("placement", "even")
        return found

    def candidates(self) -> list[Candidate]:
        """The members that may hold partitions, as the master sees them: one without a group is one of its own."""
        return [
            Candidate(each["uuid"], each["group"] or each["uuid"], each.get("consistent_id", ""))
            for each in self.members
            # Members of releases before there was a baseline do not say.
            if not each["lite"] and not each["leaving"] and not each.get("outside")
        ]

    def grouped(self, candidates: Sequence[Candidate], away: int = 0) -> list[Candidate]:
        """The candidates as the master groups them. A new member without a group is on a host of its own."""
        if self.status["partitions"].get("group_by") != "host-soft":
            return list(candidates)
        hosts = {str(each["uuid"]): str(each["host"]) for each in self.members}
        return by_hosts(candidates, hosts, self.status["partitions"]["replicas"], away)

    def _owning(
        self, newcomers: list[Candidate], crashed: Sequence[str]
    ) -> tuple[list[Candidate], list[Candidate]]:
        """Which newcomers would own data, and whose places would be kept: by the baseline, as it is."""
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
        """The UUID of a member, by its name, its UUID, or the beginning of that. Raises ConfigError."""
        exact = [each for each in self.members if text in (each["uuid"], each["name"])]
        close = [each for each in self.members if len(text) >= PREFIX_MIN and each["uuid"].startswith(text)]
        found = exact or close
        if len(found) == 1:
            return str(found[0]["uuid"])
        listed = ", ".join(f"{each['name']} {each['uuid'][:8]}".strip() for each in found or self.members)
        why = "names several members" if found else "is no member"
        raise ConfigError(f"{text!r} {why}: {listed}. Give a name, a UUID, or the beginning of one")

    def label(self, uuid: str) -> str:
        """What people call the member."""
        names = Counter(each["name"] for each in self.members)
        for each in self.members:
            if each["uuid"] == uuid:
                name = str(each["name"])
                return name if name and names[name] == 1 else f"{name} {uuid[:8]}".strip()
        return uuid

    def outlooks(self, events: Events) -> Iterator[Outlook]:
        """What the master would do. Raises ConfigError when a name is unknown or nobody would be left."""
        crashed, drained = ([self.find(text) for text in texts] for texts in (events.crash, events.drain))
        if both := sorted(set(crashed) & set(drained)):
            raise ConfigError(f"{self.label(both[0])} cannot both crash and be drained: leave one out")
        owning, places = self._owning(events.newcomers(), crashed)
        present = [each["uuid"] for each in self.members if each["uuid"] not in crashed]
        candidates = [
            each for each in self.candidates() if each.uuid in present and each.uuid not in drained
        ] + owning
        if not candidates:
            raise ConfigError("nobody would be left to hold the partitions")
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
        """What a reader of the plan should know."""
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
            found.append(
                "members of this cluster have groups: say with --group which ones the new members have"
            )
        if events.join and not events.names and self.placement == "rendezvous":
            found.append(
                "which partitions a member gets depends on its name: say with --name what each new one will be called"
            )
        if self.status.get("baseline"):
            found.append(
                "the cluster has a baseline, and is planned with it as it is: nobody else gets partitions, and the "
                "places of its members that crash are kept"
            )
        if events.join + len(events.drain) + len(events.crash) > 1:
            found.append(
                "all of it is taken to happen at once; one after the other, other partitions may move"
            )
        return found


def keeping(placement: Placement, away: Sequence[Candidate]) -> LayoutOf:
    """The layout that keeps the places of those who are away, as the master does."""

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
    """Ask the master, found through the member at `address`, or this member if that one does not answer."""
    first = _ask(address, credentials)
    if first.status["is_master"]:
        return first
    master = next((each for each in first.members if each["master"]), None)
    try:
        if master is None:
            raise NotReady("nobody leads now")
        return _ask(str(Address.of_clients(master)), credentials)
    except HoldfastError as error:
        first.notes.append(f"the master does not answer ({error}); this is what {address} knows")
        return first


def _ask(address: str, credentials: Credentials) -> Cluster:
    """What this member knows."""
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
