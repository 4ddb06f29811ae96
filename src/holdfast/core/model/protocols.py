"""Versions of the member protocol that this build supports.

It covers frames, packets of links and the encoding; the content of messages depends on the feature level
(`core.model.levels`). Two members use the highest common version.

| version | content |
|---------|---------|
| 1 | frames of a length, a kind and a packet or message; messages in MessagePack |
"""

from __future__ import annotations

from typing import Final, NamedTuple

LOWEST: Final = 1
HIGHEST: Final = 1


class ProtocolRange(NamedTuple):
    lowest: int = LOWEST
    highest: int = HIGHEST
    build: str = ""

    def __str__(self) -> str:
        which = f"{self.lowest}" if self.lowest == self.highest else f"{self.lowest} to {self.highest}"
        build = "".join(one if one.isprintable() else "?" for one in self.build)
        return f"Holdfast {build}, which speaks the member protocol {which}"


def common_version(one: ProtocolRange, other: ProtocolRange) -> int:
    """0: none."""
    highest = min(one.highest, other.highest)
    return highest if highest >= max(one.lowest, other.lowest) else 0


def protocol_mismatch(here: ProtocolRange, there: ProtocolRange) -> str:
    """Why two builds have no common version, with advice."""
    older, newer = ("there", "here") if there.highest < here.highest else ("here", "there")
    return (
        f"there is {there}, and here {here}: they have no version in common. Start a version {older} that is closer to "
        f"the one {newer}; the other members continue"
    )
