"""Reads the names of maps, and the entries and updates of each map at the primaries. For backups there is
`holdfast verify`.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from holdfast.client.action_messages import ask_status
from holdfast.client.blocking import Client
from holdfast.client.blocking_retries import BlockingRetries
from holdfast.client.connection import Connection
from holdfast.client.replica_questions import CANNOT_ASK, ask_digests
from holdfast.client_core.routing import PASSING
from holdfast.config.schema import INTERNAL
from holdfast.core.model.member_status import MemberStatus
from holdfast.core.model.object_names import is_service
from holdfast.errors import ConfigError, NotReady
from holdfast.wire import own

TIMEOUT_S = 60.0
"""Enough to detect a dead member and promote backups."""

_MASK = 0xFFFF_FFFF_FFFF_FFFF


@dataclass(frozen=True, slots=True)
class Holding:
    updates: int = 0
    """The sum of the update counters: it grows with each change by any client."""
    entries: int = 0
    digest: int = 0
    """The sum of the digests of all entries, modulo 2**64; independent of the number of partitions."""

    def __add__(self, other: Holding) -> Holding:
        return Holding(
            self.updates + other.updates, self.entries + other.entries, (self.digest + other.digest) & _MASK
        )


@dataclass(frozen=True, slots=True)
class KnownMaps:
    names: set[str] = field(default_factory=set)
    """Maps that can have entries, also the grid's own."""
    zones: dict[str, str] = field(default_factory=dict)

    def add(self, status: MemberStatus) -> None:
        self.names.update(status.maps)
        self.zones.update(status.zone_maps)

    @property
    def present(self) -> list[str]:
        return sorted(name for name in self.names if not _internal(name))

    @property
    def without_zone(self) -> dict[str, str]:
        """A member that has entries of a map knows its zone, so a zone that no member knows does not exist."""
        return {name: zone for name, zone in sorted(self.zones.items()) if name not in self.names}


def known_maps(client: Client, *, timeout_s: float = TIMEOUT_S) -> KnownMaps:
    """Raises NotReady when some member does not answer until the timeout."""
    retries = BlockingRetries(timeout_s)
    while True:
        known, silent = _known_maps(client)
        if not silent:
            return known
        if not retries.sleep():
            raise NotReady(f"cannot list the maps: {'; '.join(silent)}. Try again when the cluster is stable")


def map_names(client: Client, *, timeout_s: float = TIMEOUT_S) -> list[str]:
    """Users' maps that have an entry or are configured, sorted. Raises NotReady when a member does not
    respond within the timeout.
    """
    return known_maps(client, timeout_s=timeout_s).present


def names_on(connection: Connection) -> list[str]:
    """Every map with an entry on this member, and every configured one. Raises Broken, or the member's error."""
    known = KnownMaps()
    known.add(ask_status(connection))
    return sorted({*known.names, *known.zones})


def _known_maps(client: Client) -> tuple[KnownMaps, list[str]]:
    known = KnownMaps()
    silent: list[str] = []
    for row in client.table().data_members:
        try:
            known.add(ask_status(client.to(row.uuid)))
        except CANNOT_ASK as why:
            silent.append(str(why))
    return known, silent


def _internal(name: str) -> bool:
    return name.startswith(INTERNAL) or is_service(name)


def check_names(wanted: Iterable[str], known: Collection[str], silent: Sequence[str] = ()) -> None:
    """Raises ConfigError for an unknown map, NotReady when members that may know it are silent. `silent`: the
    errors of those.
    """
    for name in wanted:
        if name not in known:
            if silent:
                raise NotReady(f"cannot tell whether there is a map {name!r}: {'; '.join(silent)}")
            shown = sorted(found for found in known if not _internal(found))
            close = difflib.get_close_matches(name, shown, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            hint += f"there are {', '.join(shown) or 'none'}"
            raise ConfigError(f"there is no map {name!r} with entries: {hint}")


def check_maps(client: Client, wanted: Sequence[str]) -> None:
    """Check that some member knows each of these maps. Raises ConfigError, NotReady."""
    if wanted:
        known, silent = _known_maps(client)
        check_names(wanted, {*known.names, *known.zones}, silent)


def read_holdings(
    client: Client, partitions: Iterable[int], maps: Sequence[str], *, timeout_s: float = TIMEOUT_S
) -> dict[str, Holding]:
    """Totals of each of these maps over the primaries of these partitions, each read at its own moment.
    Raises NotReady when one is not served within the timeout.
    """
    wanted = list(partitions)
    return {name: _read_holding(client, wanted, name, timeout_s) for name in maps}


def _read_holding(client: Client, partitions: list[int], name: str, timeout_s: float) -> Holding:
    found = Holding()
    left = partitions
    retries = BlockingRetries(timeout_s)
    while True:
        served: set[int] = set()
        for digest in _ask_primaries(client, left, name):
            served.add(digest.partition)
            for held in digest.maps:
                found += Holding(held.counter, held.entries, held.digest)
        left = [partition for partition in left if partition not in served]
        if not left:
            return found
        if not retries.sleep():
            raise NotReady(
                f"{len(left)} partitions are not served for {timeout_s:g} s, partition {left[0]} first"
            )


def _ask_primaries(client: Client, partitions: list[int], name: str) -> list[own.PartitionDigest]:
    try:
        table = client.table(name)
    except PASSING:
        return []
    wanted: dict[str, list[int]] = {}
    for partition in partitions:
        owner = table.owner(partition)
        if owner is not None:
            wanted.setdefault(owner, []).append(partition)
    held, _ = ask_digests(client, wanted, name)
    return [digest for digest in held.values() if digest.serving]
