"""Seeds that are names: all members behind one are asked, and it is found out anew with each question who that is.

A name counts as a seed at which nobody listens only when that is known: each of its addresses refuses, or the DNS has
had none for it for a while. A DNS that does not answer says nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from holdfast.core.model.ids import Address, MemberId
from holdfast.runtime.peering.dns_names import Names, NameUnanswered, NoSuchName, Place, is_name

GONE_S = 10.0
"""A name without an address counts as absent after this time: the DNS remembers for a while that there was none."""
NOBODY = MemberId("")
"""Nothing listens there."""


class SeedAsker(Protocol):
    """The network, as far as seeds need it."""

    def ask_place(self, place: Place, frame: bytes) -> MemberId | None:
        """Send it to whoever is there. Answers who that is, if there is a connection already."""

    def found_behind(self, seed: Address, members: tuple[MemberId, ...]) -> None:
        """Each address of the seed was tried: these members are there."""

    def found_absent(self, seed: Address) -> None:
        """The DNS has nothing under this name."""

    def trouble(self, address: Address, why: str) -> None:
        """Why nobody can be asked there."""

    def no_trouble(self, address: Address) -> None:
        """Somebody can be asked there again."""


class SeedPlaces:
    """Where the seeds of one member are that are names."""

    def __init__(
        self,
        seeds: Sequence[Address],
        names: Names,
        uuid: str,
        asker: SeedAsker,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`uuid`: of this member. `clock`: in seconds."""
        self._names = names
        self._me = MemberId(uuid)
        self._asker = asker
        self._clock = clock
        self._seeds = frozenset(seed for seed in seeds if is_name(seed))
        self._places: dict[Address, list[Place]] = {}
        """Those of each seed, as far as was found out last."""
        self._there: dict[Address, MemberId] = {}
        """Who is at which of these; `NOBODY`: it refuses connections."""
        self._asking: dict[Address, asyncio.Task[None]] = {}
        self._nameless_since_s: dict[Address, float] = {}

    def has(self, address: Address) -> bool:
        """Whether this is a seed that is a name."""
        return address in self._seeds

    def ask(self, seed: Address, frame: bytes) -> None:
        """Send this to everybody behind the seed. While it is still asked where that is, it is left out: whoever looks
        for its cluster asks again.
        """
        if seed not in self._asking:
            task = asyncio.get_running_loop().create_task(self._ask(seed, frame))
            self._asking[seed] = task
            task.add_done_callback(lambda _: self._asking.pop(seed, None))

    async def _ask(self, seed: Address, frame: bytes) -> None:
        try:
            places = await self._names.places(seed)
        except NoSuchName as error:
            self._asker.trouble(seed, str(error))
            since_s = self._nameless_since_s.setdefault(seed, self._clock())
            if self._clock() - since_s >= GONE_S:
                self._places[seed] = []
                self._asker.found_absent(seed)
            return
        except NameUnanswered as error:
            self._asker.trouble(seed, str(error))
            return
        self._nameless_since_s.pop(seed, None)
        self._asker.no_trouble(seed)
        self._places[seed] = places
        wanted = {place.address for each in self._places.values() for place in each}
        self._there = {where: who for where, who in self._there.items() if where in wanted}
        for place in places:
            if self._there.get(place.address) != self._me:
                # It may have been connected to before it was found to be behind this name.
                there = self._asker.ask_place(place, frame)
                if there is not None:
                    self._there[place.address] = there
        self._tell(place.address for place in places)

    def at(self, address: Address, member: str) -> None:
        """This member is at this address."""
        self._know(address, MemberId(member))

    def refuses(self, address: Address) -> None:
        """Nothing listens there."""
        self._know(address, NOBODY)

    def unknown(self, address: Address) -> None:
        """A connection to it has broken."""
        self._there.pop(address, None)

    def _know(self, address: Address, member: MemberId) -> None:
        if any(place.address == address for each in self._places.values() for place in each):
            self._there[address] = member
            self._tell([address])

    def _tell(self, changed: Iterable[Address]) -> None:
        """Of each seed that one of these addresses belongs to who is behind it, as soon as that is known of all."""
        addresses = set(changed)
        for seed, places in self._places.items():
            here = [place.address for place in places]
            if addresses.intersection(here) and all(each in self._there for each in here):
                found = {self._there[each] for each in here} - {NOBODY, self._me}
                self._asker.found_behind(seed, tuple(sorted(found)))

    def addresses(self, seed: Address) -> set[Address]:
        """Where others are behind this seed, as was found out last; a seed that is an address is there itself."""
        if seed not in self._seeds:
            return {seed}
        places = self._places.get(seed, [])
        found = {place.address for place in places if self._there.get(place.address) != self._me}
        return found or {seed}

    def stop(self) -> None:
        """Ask nobody any more."""
        for task in list(self._asking.values()):
            task.cancel()
