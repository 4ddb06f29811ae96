"""Seeds that are DNS names: every member behind a name is contacted, and the name is resolved again each
time.

A named seed counts as absent only on evidence: each of its addresses refuses connections, or the DNS has had
no address for a while. A silent DNS is no evidence. Otherwise a member could form a second cluster because of
a short failure of the DNS.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from holdfast.core.model.ids import Address, MemberId
from holdfast.runtime.peering.dns_names import Names, NameUnanswered, NoSuchName, Place, is_name

GONE_S = 10.0
"""A name without an address counts as absent after this time, because the DNS caches negative answers."""
ABSENT = MemberId("")


class SeedAsker(Protocol):
    def ask_place(self, place: Place, frame: bytes) -> MemberId | None: ...

    def found_behind(self, seed: Address, members: tuple[MemberId, ...]) -> None:
        """All addresses of the seed are known."""

    def found_absent(self, seed: Address) -> None: ...

    def record_failure(self, address: Address, problem: str) -> None: ...

    def clear_failure(self, address: Address) -> None: ...


class SeedPlaces:
    def __init__(
        self,
        seeds: Sequence[Address],
        names: Names,
        uuid: str,
        asker: SeedAsker,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._names = names
        self._me = MemberId(uuid)
        self._asker = asker
        self._clock = clock
        self._seeds = frozenset(seed for seed in seeds if is_name(seed))
        self._places: dict[Address, list[Place]] = {}
        self._there: dict[Address, MemberId] = {}
        self._asking: dict[Address, asyncio.Task[None]] = {}
        self._nameless_since_s: dict[Address, float] = {}

    def has(self, address: Address) -> bool:
        return address in self._seeds

    def ask(self, seed: Address, frame: bytes) -> None:
        """Send this to all members behind the seed. Skipped during a lookup; a joining member repeats it."""
        if seed not in self._asking:
            task = asyncio.get_running_loop().create_task(self._ask(seed, frame))
            self._asking[seed] = task
            task.add_done_callback(lambda _: self._asking.pop(seed, None))

    async def _ask(self, seed: Address, frame: bytes) -> None:
        try:
            places = await self._names.places(seed)
        except NoSuchName as error:
            self._asker.record_failure(seed, str(error))
            since_s = self._nameless_since_s.setdefault(seed, self._clock())
            if self._clock() - since_s >= GONE_S:
                self._places[seed] = []
                self._asker.found_absent(seed)
            return
        except NameUnanswered as error:
            self._asker.record_failure(seed, str(error))
            return
        self._nameless_since_s.pop(seed, None)
        self._asker.clear_failure(seed)
        self._places[seed] = places
        wanted = {place.address for each in self._places.values() for place in each}
        self._there = {where: who for where, who in self._there.items() if where in wanted}
        for place in places:
            if self._there.get(place.address) != self._me:
                # The connection may be older than the lookup that found this address.
                there = self._asker.ask_place(place, frame)
                if there is not None:
                    self._there[place.address] = there
        self._tell(place.address for place in places)

    def at(self, address: Address, member: str) -> None:
        self._know(address, MemberId(member))

    def refuses(self, address: Address) -> None:
        self._know(address, ABSENT)

    def unknown(self, address: Address) -> None:
        self._there.pop(address, None)

    def _know(self, address: Address, member: MemberId) -> None:
        if any(place.address == address for each in self._places.values() for place in each):
            self._there[address] = member
            self._tell([address])

    def _tell(self, changed: Iterable[Address]) -> None:
        addresses = set(changed)
        for seed, places in self._places.items():
            here = [place.address for place in places]
            if addresses.intersection(here) and all(each in self._there for each in here):
                found = {self._there[each] for each in here} - {ABSENT, self._me}
                self._asker.found_behind(seed, tuple(sorted(found)))

    def addresses(self, seed: Address) -> set[Address]:
        """Addresses of other members behind this seed, by the latest lookup; a numeric seed is its own
        address.
        """
        if seed not in self._seeds:
            return {seed}
        places = self._places.get(seed, [])
        found = {place.address for place in places if self._there.get(place.address) != self._me}
        return found or {seed}

    def stop(self) -> None:
        for task in list(self._asking.values()):
            task.cancel()
