"""Every lost majority has a way out that the members themselves name, and that ends (DESIGN §4, rule 14).

All combinations of lost members: of the metastore's majority, a zone's, both or neither; the lost come back with their
files, without them or never; the survivors run on or are started again; the cluster has a majority or not; a zone moves
at that time or not. In most of them all copies of some partitions are lost, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import msgspec
import pytest
from tests.lab.sim.way_out import Operator
from tests.lab.sim.zone_stage import ZoneStage, kept_settings

from holdfast.actions.change_zone import AlterZone
from holdfast.core.model.operations import Op, Status
from holdfast.core.zones.descriptors import ZoneSettings

HOSTS = 5
KEYS = [f"k{number}" for number in range(8)]
KILLED = {
    # What has lost its majority, and whether the cluster has: places of the zone's replicas, and those that are lost.
    # Places 0, 1 and 2 are the hosts of the metastore's voters.
    ("metastore and zone", False): ("012", "12"),
    ("metastore", False): ("234", "01"),
    ("zone", False): ("234", "34"),
    ("neither", False): ("234", "14"),
    ("metastore and zone", True): ("012", "123"),
    ("metastore", True): ("234", "012"),
    ("zone", True): ("234", "134"),
    ("neither", True): ("012", "234"),
}


@dataclass(frozen=True, slots=True)
class Case:
    lost: str
    cluster_too: bool
    back: str
    restarted: bool
    moving: bool

    def __str__(self) -> str:
        parts = [self.lost, "no majority" if self.cluster_too else "majority", self.back]
        parts += ["restarted"] if self.restarted else []
        parts += ["moving"] if self.moving else []
        return "-".join(parts).replace(" ", "_")


CASES = [
    Case(*case)
    for case in product(
        ["metastore and zone", "metastore", "zone", "neither"],
        [False, True],
        ["with files", "without files", "never"],
        [False, True],
        [False, True],
    )
]
FIRST = ("", "metastore reset", "zone reset z", "cluster accept-loss")
"""What an operator may try first."""


class WalkStage(ZoneStage):
    """The zone is placed beside the metastore's voters, or away from them."""

    def __init__(self, places: str) -> None:
        self._places = places
        self.hosts: list[int] = []
        """The host of each place."""
        super().__init__(HOSTS, settings=kept_settings())

    def create(self, zone: ZoneSettings) -> None:
        groups = [process.driver.member.agreed.groups.me for process in self.processes]
        configuration = self.processes[0].driver.member.agreed.voters.configuration
        assert configuration is not None
        assert len(configuration.voters) == 3
        self.hosts = sorted(range(HOSTS), key=lambda host: groups[host] not in configuration.voters)
        super().create(msgspec.structs.replace(zone, filter={"host": self.names(self._places)}))

    def names(self, places: str) -> tuple[str, ...]:
        return tuple(self.processes[self.hosts[int(place)]].address.host for place in places)


class Walk:
    """One case, from the loss to a cluster that works."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.zone, lost = KILLED[case.lost, case.cluster_too]
        self.stage = WalkStage(self.zone)
        self.lost = [self.stage.hosts[int(place)] for place in lost]
        self.rest = [host for host in range(HOSTS) if host not in self.lost]
        self.operator = Operator(self.stage, self.rest)
        self.acknowledged: dict[tuple[str, str], str] = {}
        """By map and key: the last value that was answered."""

    def write(self, value: str) -> None:
        """Write all keys of both maps through members that live in turn."""
        living = self.stage.cluster.living()
        for number, key in enumerate(KEYS):
            process = living[number % len(living)]
            zoned, plain = (
                self.stage.request(process, Op.SET, key, value),
                self.stage.ask(process, Op.SET, key, value),
            )
            self.stage.wait(2)
            for name, answers in (("zoned", zoned), ("plain", plain)):
                assert [answer.status for answer in answers] == [Status.OK], (name, key, self.operator.told)
                self.acknowledged[name, key] = value

    def read(self, *, all_of_it: bool) -> None:
        """Nothing is there that was not written; `all_of_it`: and all that was acknowledged is."""
        living = self.stage.cluster.living()
        for number, key in enumerate(KEYS):
            process = living[number % len(living)]
            found = {
                "zoned": self.stage.request(process, Op.GET, key),
                "plain": self.stage.ask(process, Op.GET, key),
            }
            self.stage.wait(2)
            for name, answers in found.items():
                [answer] = answers
                assert answer.status is Status.OK, (name, key, answer)
                value = answer.value.decode() if isinstance(answer.value, bytes) else None
                allowed = [self.acknowledged[name, key], *([] if all_of_it else [None])]
                assert value in allowed, (name, key, value, self.operator.told)

    def lose(self) -> None:
        if self.case.moving:
            # Towards other members, in the middle of which those that are lost are.
            places = "".join(place for place in "01234" if place != self.zone[0])[:3]
            order = AlterZone("z", filter=f"host={'|'.join(self.stage.names(places))}")
            process = self.stage.processes[0]
            process.step(lambda: process.driver.act(order, lambda answer: None))
            self.stage.wait(0.4)
        for process in list(self.stage.cluster.living()):
            host = self.stage.cluster.addresses.index(process.address)
            if host in self.lost or self.case.restarted:
                process.crash()
                if host in self.lost and self.case.back == "without files":
                    self.wipe(host)
        # A port that nobody listens at refuses connections.
        self.stage.world.weather.refusal = 1.0
        self.stage.wait(30)
        if self.case.restarted:
            self.start(self.rest)
        if self.case.back != "never":
            self.start(self.lost)
        self.stage.wait(30)

    def wipe(self, host: int) -> None:
        disk = self.stage.cluster.disks[host]
        process = next(
            one for one in self.stage.cluster.everyone if one.address == self.stage.cluster.addresses[host]
        )
        disk.wipe()
        self.stage.cluster.distrust(process, wiped=True)

    def start(self, hosts: list[int]) -> None:
        for host in hosts:
            self.stage.cluster.start(host)

    def whole(self) -> None:
        """All that live are one cluster, and say that it is safe."""
        living = self.stage.cluster.living()
        assert {process.picture.cluster_unsafe_reason() for process in living} == {""}, self.operator.told
        assert len({process.picture.view.number for process in living if process.picture.view}) == 1
        assert all(len(process.picture.members()) == len(living) for process in living)

    def run(self, first: str) -> None:
        self.write("before")
        self.lose()
        self.operator.follow(first)
        self.whole()
        all_back = self.case.back == "with files"
        if all_back and first == "":
            assert not self.operator.lossy, self.operator.told
        self.read(all_of_it=not self.operator.lossy)
        self.write("after")
        if self.case.back == "never":
            given = len(self.operator.given)
            self.start(self.lost)
            self.stage.wait(30)
            self.operator.follow()
            assert self.operator.given[given:] == [], "who was given up joins as a new member"
            self.whole()
        self.read(all_of_it=True)


SHORT = (
    "metastore_and_zone-no_majority-with_files",
    "metastore_and_zone-no_majority-never-moving",
    "zone-no_majority-without_files",
    "metastore-majority-never-restarted",
)
"""Cases of every run; all others belong to the campaign."""


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=str(case), marks=[] if str(case) in SHORT else pytest.mark.campaign)
        for case in CASES
    ],
)
def test_following_what_members_say_ends_every_loss(case: Case) -> None:
    """The first order is one of four in turn: wherever the operator begins, he is led on."""
    Walk(case).run(FIRST[CASES.index(case) % len(FIRST)])
