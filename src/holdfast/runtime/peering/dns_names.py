"""DNS lookups of seeds: by the system, or by given name servers and for SRV records by dnspython. Nothing is cached."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.config.addresses import SRV
from holdfast.core.model.ids import Address
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from dns.asyncresolver import Resolver

PLACES_MAX = 64
PATIENCE_S = 5.0
NO_SUCH = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}


class NoSuchName(Exception):
    pass


class NameUnanswered(Exception):
    """The lookup failed; the name may exist."""


@dataclass(frozen=True, slots=True)
class Place:
    """An address behind a name, with the name to expect in its certificate."""

    address: Address
    name: str


def is_name(address: Address) -> bool:
    try:
        ipaddress.ip_address(address.host)
    except ValueError:
        return True
    return False


def shown(address: Address) -> str:
    return address.host if address.host.startswith(SRV) else str(address)


class Names:
    def __init__(self, seeds: Sequence[Address], servers: Sequence[tuple[str, int]]) -> None:
        """`servers`: name servers; empty: the system's. Raises ConfigError if dnspython is needed and missing."""
        self._resolver: Resolver | None = None
        self._searches = not servers
        if not servers and not any(seed.host.startswith(SRV) for seed in seeds):
            return
        try:
            import dns.asyncresolver
            import dns.nameserver
        except ImportError:
            raise ConfigError(
                "cluster.seeds with srv:, and cluster.dns_servers, need dnspython: pip install '.[dns]' in the "
                "source folder"
            ) from None
        self._resolver = dns.asyncresolver.Resolver(configure=not servers)
        self._resolver.lifetime = PATIENCE_S
        if servers:
            self._resolver.nameservers = [dns.nameserver.Do53Nameserver(host, port) for host, port in servers]

    async def places(self, address: Address) -> list[Place]:
        """Raises NoSuchName, NameUnanswered."""
        if address.host.startswith(SRV):
            targets = await self._targets(address.host.removeprefix(SRV))
        else:
            targets = [(address.host, address.port)]
        found: dict[Address, Place] = {}
        missing: NoSuchName | None = None
        for host, port in targets:
            try:
                for one in await self._addresses(host):
                    where = Address(one, port)
                    found.setdefault(where, Place(where, host))
            except NoSuchName as error:
                missing = error
        if not found:
            raise missing or NoSuchName(f"{address.host} has no address")
        return list(found.values())[:PLACES_MAX]

    async def _targets(self, record: str) -> list[tuple[str, int]]:
        assert self._resolver is not None, "it was needed, so it is there"
        async with _told(record):
            answer = await self._resolver.resolve(record, "SRV", search=self._searches)
            records = sorted(answer, key=lambda each: (each.priority, -each.weight))
            return [(each.target.to_text(omit_final_dot=True), each.port) for each in records]

    async def _addresses(self, host: str) -> list[str]:
        with contextlib.suppress(ValueError):
            return [str(ipaddress.ip_address(host))]
        if self._resolver is not None and not self._searches:
            async with _told(host):
                return sorted((await self._resolver.resolve_name(host)).addresses())
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(PATIENCE_S):
                found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            if error.errno in NO_SUCH:
                raise NoSuchName(f"there is no address of {host}") from None
            raise NameUnanswered(f"cannot resolve {host}: {error.strerror}") from None
        except TimeoutError:
            raise NameUnanswered(f"cannot resolve {host}: no answer within {PATIENCE_S:g} s") from None
        except (OSError, UnicodeError) as error:
            raise NameUnanswered(f"cannot resolve {host}: {error}") from None
        return list(dict.fromkeys(str(each[4][0]) for each in found))


@contextlib.asynccontextmanager
async def _told(name: str) -> AsyncIterator[None]:
    import dns.exception
    import dns.resolver

    try:
        yield
    except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
        raise NoSuchName(f"the DNS has no record of {name}") from None
    except (dns.exception.DNSException, OSError) as error:
        raise NameUnanswered(f"cannot resolve {name}: {error}") from None
