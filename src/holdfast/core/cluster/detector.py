"""Suspicion from silence. The detector never decides: it only names whom this member has not heard for too long."""

from __future__ import annotations

from holdfast.core.machine import MemberId


class Detector:
    """When each member of the view was last heard, and whom that makes suspect."""

    __slots__ = ("_heard_ns", "_silent", "_suspect_after_ns")

    def __init__(self, suspect_after_ns: int) -> None:
        self._suspect_after_ns = suspect_after_ns
        self._heard_ns: dict[MemberId, int] = {}
        self._silent: set[MemberId] = set()

    def watch(self, members: list[MemberId], now_ns: int) -> None:
        """Watch these members and no others; the new ones count as heard now."""
        self._heard_ns = {member: self._heard_ns.get(member, now_ns) for member in members}
        self._silent &= self._heard_ns.keys()

    def heard(self, member: MemberId, now_ns: int) -> None:
        """A sign of life."""
        if member in self._heard_ns:
            self._heard_ns[member] = now_ns
            self._silent.discard(member)

    def silent(self, member: MemberId) -> None:
        """Its process refuses connections: suspect at once, until it is heard again."""
        if member in self._heard_ns:
            self._silent.add(member)

    def unheard(self, since_ns: int) -> list[MemberId]:
        """Of whom nothing has been heard since then, in the order of the view."""
        return [member for member, heard in self._heard_ns.items() if heard < since_ns]

    def suspects(self, now_ns: int) -> list[MemberId]:
        """Whom to suspect now, in the order of the view."""
        limit = now_ns - self._suspect_after_ns
        return [member for member, heard in self._heard_ns.items() if heard < limit or member in self._silent]
