"""Failure detector: names members that were silent for too long, and decides nothing.

Time in which this process itself was suspended does not count as silence. Example: it is stopped for 30 s, and the
heartbeats of those 30 s lie unread in its sockets. Without this rule it would suspect every member. Its knowledge is 30
s old all the same, which `hears` respects.
"""

from __future__ import annotations

from holdfast.core.model.ids import SECOND, MemberId
from holdfast.core.model.views import MemberInfo


class FailureDetector:
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
        """`pause_ns`: the longest pause of this member's timers, unless it is suspended."""
        self._suspect_after_ns = suspect_after_ns
        self._pause_ns = pause_ns
        self._awake_ns: int | None = None
        """When this member last ran; None: it watches no members yet."""
        self._heard_ns: dict[MemberId, int] = {}
        self._stood_ns: dict[MemberId, int] = {}
        """Suspension of this member since the last message of each."""
        self._silent: set[MemberId] = set()
        self._accusations: dict[MemberId, list[MemberId]] = {}
        """Suspects of each other member."""

    def watch(self, members: list[MemberId], now_ns: int) -> None:
        """Watch exactly these members; new ones count as heard now."""
        self.awake(now_ns)
        self._heard_ns = {member: self._heard_ns.get(member, now_ns) for member in members}
        self._stood_ns = {member: self._stood_ns.get(member, 0) for member in members}
        self._silent &= self._heard_ns.keys()
        assert self._stood_ns.keys() == self._heard_ns.keys(), "how long it stood still counts for each"
        assert all(heard_ns <= now_ns for heard_ns in self._heard_ns.values()), (
            "no message is from the future"
        )
        self._accusations = {}

    def awake(self, now_ns: int) -> None:
        """Call it with each timer, and before any judgement."""
        before_ns, self._awake_ns = self._awake_ns, now_ns
        assert before_ns is None or before_ns <= now_ns, "this member's time goes on"
        if before_ns is not None and now_ns - before_ns > self._pause_ns:
            stood_ns = now_ns - before_ns - self._pause_ns
            for member in self._heard_ns:
                self._stood_ns[member] += stood_ns

    def heard(self, member: MemberId, now_ns: int) -> None:
        self.awake(now_ns)
        if member in self._heard_ns:
            self._heard_ns[member] = now_ns
            self._stood_ns[member] = 0
            self._silent.discard(member)
            assert self.hears(member, now_ns), "who was just heard is there"

    def heard_since(self, member: MemberId, time_ns: int) -> bool:
        return self._heard_ns.get(member, time_ns) > time_ns

    def silent(self, member: MemberId) -> None:
        """Suspect at once: its port refuses connections, or an operator has evicted it."""
        if member in self._heard_ns:
            self._silent.add(member)

    def unheard(self, since_ns: int) -> list[MemberId]:
        return [member for member, heard in self._heard_ns.items() if heard < since_ns]

    def not_heard_for(self, silence_ns: int, now_ns: int) -> list[MemberId]:
        """Members without messages for so long, in the order of the view. Suspension of this member does not count."""
        self.awake(now_ns)
        limit = now_ns - silence_ns
        stood = self._stood_ns
        return [member for member, heard in self._heard_ns.items() if heard + stood[member] < limit]

    def suspects(self, now_ns: int) -> list[MemberId]:
        overdue = set(self.overdue(now_ns))
        return [member for member in self._heard_ns if member in overdue or member in self._silent]

    def hears(self, member: MemberId, now_ns: int) -> bool:
        """Whether it was heard recently, suspended time included."""
        return (
            member not in self._silent
            and self._heard_ns.get(member, now_ns) >= now_ns - self._suspect_after_ns
        )

    def overdue(self, now_ns: int) -> list[MemberId]:
        """Suspects to report: they may be alive although this member does not hear them.

        A process that refuses connections is dead and not reported; the others will notice. One that has not yet would
        take the report for two members that do not hear each other, and might remove the accuser.
        """
        return self.not_heard_for(self._suspect_after_ns, now_ns)

    def silence_reason(self, member: MemberId, now_ns: int) -> str:
        if member in self._silent:
            return "its port refuses connections: the process has ended"
        silent_ns = now_ns - self._heard_ns.get(member, now_ns)
        if silent_ns < self._suspect_after_ns:
            return "other members suspect it"
        return f"silent for {silent_ns / SECOND:.1f} s"

    def accuse(self, accuser: MemberId, suspects: list[MemberId]) -> None:
        self._accusations[accuser] = suspects

    def unwanted(self, me: MemberId, members: list[MemberInfo], now_ns: int) -> set[MemberId]:
        """Members to remove: this member's suspects, and the younger of any two that do not hear each other. `members`:
        oldest first.

        Example: the link between 2 and 3 is broken, and 1 hears both. 2 suspects 3 and 3 suspects 2. 1 removes 3;
        otherwise partitions with replicas on 2 and 3 could not be written.
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
