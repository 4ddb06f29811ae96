"""The client of a session, as operators see it."""

from __future__ import annotations

from typing import Final, NamedTuple


class SessionClient(NamedTuple):
    kind: str
    """Its protocol: `hazelcast`, or `holdfast`; `operator`: a command."""
    user: str = ""
    name: str = ""
    """The name that it gave, otherwise its UUID."""
    transactions: int = 0
    type: str = ""
    """Type of its library: `PYH`, `JVM`, …"""


STRANGER: Final = SessionClient("not logged in")


def uuid_text(sent: bytes) -> str:
    """A UUID in the form of the Hazelcast protocol: a flag, and two little-endian halves; empty if it has none."""
    if len(sent) != 17:
        return ""
    digits = (sent[8:0:-1] + sent[16:8:-1]).hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
