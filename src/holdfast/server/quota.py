"""A limit of connections: a new one replaces the oldest of the address that has the most.

Before a client is authenticated its requests cannot be told from an attack, so nothing of it is parsed beyond a bounded
login message, and it occupies one of few places (server/D-4). Example: 100 places, all held by one address that sends
nothing. Each client that connects from another address takes the place of that address's oldest connection, and keeps
it until it has logged in.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Quota(Generic[T]):
    __slots__ = ("_by_address", "_most", "_of")

    def __init__(self, most: int) -> None:
        self._most = most
        self._of: dict[T, str] = {}
        self._by_address: dict[str, dict[T, None]] = {}
        """Connections of each address, oldest first."""

    def allow(self, most: int) -> None:
        """Change the limit. Present connections stay; new ones wait until there is room."""
        self._most = max(most, len(self._of))

    def add(self, connection: T, address: str) -> T | None:
        """Add a connection; returns the one to close for it, which is removed already."""
        assert connection not in self._of, "a connection has one place of a kind"
        self._of[connection] = address
        self._by_address.setdefault(address, {})[connection] = None
        if len(self._of) <= self._most:
            return None
        greediest = max(self._by_address.values(), key=len)
        oldest = next(iter(greediest))
        self.remove(oldest)
        assert len(self._of) <= self._most, "one comes, and one goes"
        return oldest

    def remove(self, connection: T) -> None:
        address = self._of.pop(connection, None)
        if address is not None:
            of_address = self._by_address[address]
            del of_address[connection]
            if not of_address:
                del self._by_address[address]
        assert connection not in self._of and len(self._by_address) <= len(self._of), "each address has some"

    def of(self, address: str) -> int:
        return len(self._by_address.get(address, ()))

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[T]:
        return iter(self._of)

    def __contains__(self, connection: object) -> bool:
        return connection in self._of
