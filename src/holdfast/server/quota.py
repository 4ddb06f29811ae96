"""Who goes when there are too many connections: the oldest one of the address that has the most."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Quota(Generic[T]):
    """Connections of one kind, by the address that they come from."""

    __slots__ = ("_by_address", "_most", "_of")

    def __init__(self, most: int) -> None:
        self._most = most
        self._of: dict[T, str] = {}
        self._by_address: dict[str, dict[T, None]] = {}
        """Each address with its connections, oldest first."""

    def allow(self, most: int) -> None:
        """Allow so many from now on. Those that are here stay: none comes before there is room again."""
        self._most = max(most, len(self._of))

    def add(self, connection: T, address: str) -> T | None:
        """Count one more; answers the one that has to go for it, which is not counted any more."""
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
        """It has gone, or is of another kind now."""
        address = self._of.pop(connection, None)
        if address is not None:
            of_address = self._by_address[address]
            del of_address[connection]
            if not of_address:
                del self._by_address[address]
        assert connection not in self._of and len(self._by_address) <= len(self._of), "each address has some"

    def of(self, address: str) -> int:
        """How many the address has."""
        return len(self._by_address.get(address, ()))

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[T]:
        return iter(self._of)

    def __contains__(self, connection: object) -> bool:
        return connection in self._of
