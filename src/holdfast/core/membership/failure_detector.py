"""Suspicion from silence. The detector never decides: it only names whom this member has not heard for too long.

A member that stands still hears nobody, and what was said to it meanwhile is still to be read when it goes on. So time
in which the member itself did nothing is nobody's silence. What it knows of others is as old as it is, though.
"""

from __future__ import annotations

from holdfast.core.model.ids import SECOND, MemberId
from holdfast.core.model.views import MemberInfo


class FailureDetector:
    """When each member of the view was last heard, and whom that makes suspect."""

    __slots__ = (
        "_accusations",
        "_awake_ns",
        "_heard_ns",
        "_pause_ns",
        "_silent",
        "_stood_ns",
        "_suspect_after_ns",
    )

    def __init__(self, suspect_after_ns: int, pause_ns: int) -> None:
        """`pause_ns`: this member looks at least so often; when it does not, it has stood still."""
        self._suspect_after_ns = suspect_after_ns
        self._pause_ns = pause_ns
        self._awake_ns: int | None = None
        """When this member has last done something; None: it watches nobody yet."""
        self._heard_ns: dict[MemberId, int] = {}
        self._stood_ns: dict[MemberId, int] = {}
        """How long this member has stood still since then."""
        self._silent: set[MemberId] = set()
        self._accusations: dict[MemberId, list[MemberId]] = {}
        """Whom the others suspect, as they last said."""

    def watch(self, members: list[MemberId], now_ns: int) -> None:
        """Watch these members and no others; the new ones count as heard now."""
        self.awake(now_ns)
        self._heard_ns = {member: self._heard_ns.get(member, now_ns) for member in members}
        self._stood_ns = {member: self._stood_ns.get(member, 0) for member in members}
        self._silent &= self._heard_ns.keys()
        assert self._stood_ns.keys() == self._heard_ns.keys(), "how long it stood still counts for each"
        assert all(heard_ns <= now_ns for heard_ns in self._heard_ns.values()), (
            "nobody was heard later than now"
        )
        self._accusations = {}

    def awake(self, now_ns: int) -> None:
        """This member does something: to be called with each of its timers, and before anybody is judged."""
        before_ns, self._awake_ns = self._awake_ns, now_ns
        assert before_ns is None or before_ns <= now_ns, "this member's time goes on"
        if before_ns is not None and now_ns - before_ns > self._pause_ns:
            stood_ns = now_ns - before_ns - self._pause_ns
            for member in self._heard_ns:
                self._stood_ns[member] += stood_ns

    def heard(self, member: MemberId, now_ns: int) -> None:
        """A sign of life."""
        self.awake(now_ns)
        if member in self._heard_ns:
            self._heard_ns[member] = now_ns
            self._stood_ns[member] = 0
            self._silent.discard(member)
            assert self.hears(member, now_ns), "who was just heard is there"

    def heard_since(self, member: MemberId, time_ns: int) -> bool:
        """Whether it has given a sign of life after that time."""
        return self._heard_ns.get(member, time_ns) > time_ns

    def silent(self, member: MemberId) -> None:
        """Its process refuses connections, or an operator has seen its end: suspect at once until it is heard."""
        if member in self._heard_ns:
            self._silent.add(member)

    def unheard(self, since_ns: int) -> list[MemberId]:
        """Of whom nothing has been heard since then, in the order of the view."""
        return [member for member, heard in self._heard_ns.items() if heard < since_ns]

    def not_heard_for(self, silence_ns: int, now_ns: int) -> list[MemberId]:
        """Of whom nothing has been heard for so long, in the order of the view. Time in which this member itself stood
        still does not count.
        """
        self.awake(now_ns)
        limit = now_ns - silence_ns
        stood = self._stood_ns
        return [member for member, heard in self._heard_ns.items() if heard + stood[member] < limit]

    def suspects(self, now_ns: int) -> list[MemberId]:
        """Whom to suspect now, in the order of the view."""
        overdue = set(self.overdue(now_ns))
        return [member for member in self._heard_ns if member in overdue or member in self._silent]

    def hears(self, member: MemberId, now_ns: int) -> bool:
        """Whether this member knows it to be there: it was heard not long ago, whatever was the reason for silence."""
        return (
            member not in self._silent
            and self._heard_ns.get(member, now_ns) >= now_ns - self._suspect_after_ns
        )

    def overdue(self, now_ns: int) -> list[MemberId]:
        """What the others are told: of whom nothing was heard for so long that both may live and not hear each other.

        A process that refuses connections is not named: it is dead, which everybody finds out alone. Who had not yet
        would take the accuser for one of two that do not hear each other, and might leave out the living one.
        """
        return self.not_heard_for(self._suspect_after_ns, now_ns)

    def silence_reason(self, member: MemberId, now_ns: int) -> str:
        """What this member knows of the silence of that one, in words."""
        if member in self._silent:
            return "its port refuses connections: the process has ended"
        silent_ns = now_ns - self._heard_ns.get(member, now_ns)
        if silent_ns < self._suspect_after_ns:
            return "others do not hear it"
        return f"silent for {silent_ns / SECOND:.1f} s"

    def accuse(self, accuser: MemberId, suspects: list[MemberId]) -> None:
        """This member suspects these."""
        self._accusations[accuser] = suspects

    def unwanted(self, me: MemberId, members: list[MemberInfo], now_ns: int) -> set[MemberId]:
        """Whom to leave out: one's own suspects, and the younger of two that do not hear each other.

        `members` are those of the view, oldest first.
        """
        order = [info.uuid for info in members]
        own = set(self.suspects(now_ns))
        result = set(own)
        for accuser in order:
            if accuser in own or accuser == me:
                continue
            for accused in self._accusations.get(accuser, []):
                if accused in order and accused != me and accused not in own:
                    result.add(max(accuser, accused, key=order.index))
        return result
