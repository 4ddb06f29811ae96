"""How new is what somebody was shown? So that who reads backups is never shown less than before (routing/R-5)."""

from __future__ import annotations


class Positions:
    """How new what this member was answered is: by partition and map the highest term and counter (routing/R-5)."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[tuple[int, str], tuple[int, int]] = {}

    def see(self, partition: int, name: str, position: tuple[int, int]) -> None:
        """This was shown."""
        if position > self._seen.get((partition, name), (0, 0)):
            self._seen[partition, name] = position

    def allow(self, partition: int, name: str, position: tuple[int, int]) -> bool:
        """Whether a copy that stands here is not older than what was shown."""
        return position >= self._seen.get((partition, name), (0, 0))
