"""Seeds that are names: who is behind them is asked anew each time, and only what is known counts."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.core.model.ids import Address, MemberId
from holdfast.runtime.peering.dns_names import Names, NameUnanswered, NoSuchName, Place
from holdfast.runtime.peering.seed_places import GONE_S, SeedPlaces

SEED = Address("grid.example", 5751)
HERE, THERE, ELSEWHERE = (Address(f"10.0.0.{number}", 5751) for number in (1, 2, 3))


class Told:
    """What the network would hear."""

    def __init__(self) -> None:
        self.asked: list[Address] = []
        self.behind: list[tuple[MemberId, ...]] = []
        self.absent = 0
        self.troubles: list[str] = []
        self.connected: dict[Address, MemberId] = {}

    def ask_place(self, place: Place, frame: bytes) -> MemberId | None:
        assert place.name == SEED.host, "certificates are of the name"
        self.asked.append(place.address)
        return self.connected.get(place.address)

    def found_behind(self, seed: Address, members: tuple[MemberId, ...]) -> None:
        self.behind.append(members)

    def found_absent(self, seed: Address) -> None:
        self.absent += 1

    def record_failure(self, address: Address, why: str) -> None:
        self.troubles.append(why)

    def clear_failure(self, address: Address) -> None:
        self.troubles.clear()


class Dns:
    """Answers what it is told to."""

    def __init__(self, *places: Address) -> None:
        self.says: list[Address] | Exception = list(places)

    async def places(self, address: Address) -> list[Place]:
        if isinstance(self.says, Exception):
            raise self.says
        return [Place(one, address.host) for one in self.says]


class Stage:
    def __init__(self, *places: Address) -> None:
        self.dns = Dns(*places)
        self.told = Told()
        self.now_s = 0.0
        self.seeds = SeedPlaces(
            [SEED, Address("10.0.0.9", 1)],
            self.dns,  # type: ignore[arg-type]
            "me",
            self.told,
            lambda: self.now_s,
        )

    def ask(self) -> list[Address]:
        """Ask; answers who was asked."""

        async def story() -> None:
            self.seeds.ask(SEED, b"frame")
            await asyncio.gather(*self.seeds._asking.values())

        self.told.asked.clear()
        asyncio.run(story())
        return list(self.told.asked)


def test_all_that_the_dns_names_are_asked_and_again_with_each_question() -> None:
    stage = Stage(HERE, THERE)
    assert stage.seeds.has(SEED)
    assert not stage.seeds.has(Address("10.0.0.9", 1)), "an address is no name"
    assert stage.ask() == [HERE, THERE]
    stage.dns.says = [THERE, ELSEWHERE]
    assert stage.ask() == [THERE, ELSEWHERE]


def test_who_is_there_is_told_when_all_addresses_are_known() -> None:
    stage = Stage(HERE, THERE)
    stage.ask()
    stage.seeds.at(THERE, "a")
    assert stage.told.behind == []
    stage.seeds.at(HERE, "me")
    assert stage.told.behind == [(MemberId("a"),)], "one of them is this member itself"
    assert stage.ask() == [THERE], "which does not ask itself"
    stage.seeds.unknown(THERE)
    stage.seeds.refuses(THERE)
    assert stage.told.behind[-1] == (), "nobody else is there"
    stage.dns.says = [HERE, ELSEWHERE]
    stage.ask()
    told = len(stage.told.behind)
    stage.seeds.at(THERE, "a")
    assert len(stage.told.behind) == told, "who is not behind the name any more does not count"


def test_who_was_connected_before_it_was_behind_the_name_counts() -> None:
    stage = Stage(HERE)
    stage.seeds.at(THERE, "a")
    stage.told.connected[THERE] = MemberId("a")
    stage.ask()
    stage.seeds.at(HERE, "me")
    stage.dns.says = [HERE, THERE]
    stage.ask()
    assert stage.told.behind[-1] == (MemberId("a"),)


def test_a_dns_that_does_not_answer_says_nothing() -> None:
    stage = Stage(HERE)
    stage.dns.says = NameUnanswered("cannot resolve grid.example")
    for _ in range(5):
        stage.now_s += GONE_S
        assert stage.ask() == []
    assert stage.told.absent == 0
    assert stage.told.troubles


def test_a_name_without_an_address_is_absent_after_a_while() -> None:
    stage = Stage(HERE)
    stage.dns.says = NoSuchName("the DNS has no address of grid.example")
    stage.ask()
    stage.now_s += GONE_S - 1
    stage.ask()
    assert stage.told.absent == 0, "the DNS may not know it yet"
    stage.now_s += 1
    stage.ask()
    assert stage.told.absent == 1
    stage.dns.says = [HERE]
    stage.ask()
    assert stage.told.troubles == []
    stage.dns.says = NoSuchName("again")
    stage.ask()
    assert stage.told.absent == 1, "the time counts from anew"


def test_the_system_is_asked_for_all_addresses_of_a_name() -> None:
    names = Names([Address("localhost", 5751)], [])
    places = asyncio.run(names.places(Address("localhost", 5751)))
    assert Address("127.0.0.1", 5751) in {place.address for place in places}
    assert {place.name for place in places} == {"localhost"}
    with pytest.raises((NoSuchName, NameUnanswered)):
        asyncio.run(names.places(Address("a.name.that.is.invalid", 5751)))
