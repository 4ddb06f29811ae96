"""Faults of the crash matrix and their keys: kind, victim, and boundary."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.core.model.ids import MILLISECOND, SECOND
from holdfast_lab.sim.matrix.stage import Boundary, Stage
from holdfast_lab.sim.world import STRAIGHT, Process

CRASHES = {
    "crash": "The process dies right after the packet has left, and is not restarted.",
    "crash-before": "The process that was about to send the packet dies instead, and is not restarted.",
    "restart": "The process dies right after the packet has left; a new one starts at its address.",
    "restart-before": "The process that was about to send the packet dies instead; a new one starts at its address.",
}
MESSAGES = {
    "lost": "The packet does not arrive; the link sends it again.",
    "late": "The packet arrives 3 s later, long after the link has sent it again.",
    "twice": "The packet arrives twice at once, and a third time 4 s later.",
    "stall": "From this packet on, one direction of the link stands still for 4 s; heartbeats pass.",
    "cut-1s": "From this packet on, nothing passes between the two hosts for 1 s.",
    "cut-6s": "The same for 6 s, which makes each suspect the other.",
}
KINDS = CRASHES | MESSAGES

RESTART_NS = 700 * MILLISECOND
LATE_NS = 3 * SECOND
AGAIN_NS = 4 * SECOND
STALL_NS = 4 * SECOND
CUT_NS = {"cut-1s": 1 * SECOND, "cut-6s": 6 * SECOND}
SLACK_NS = 300 * MILLISECOND

WRITTEN = re.compile(r"(?P<kind>[a-z0-9-]+)(?::(?P<role>[a-z]+))?@(?P<at>\d+)")


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `role`: victim of a crash; empty for faults of a message."""

    kind: str
    at: int
    role: str = ""

    def __str__(self) -> str:
        return f"{self.kind}{':' if self.role else ''}{self.role}@{self.at}"


def parse(text: str) -> Fault:
    """The fault of a text such as `crash:source@17`. Raises ValueError if it is invalid."""
    found = WRITTEN.fullmatch(text)
    if found is None or found["kind"] not in KINDS or bool(found["role"]) != (found["kind"] in CRASHES):
        raise ValueError(
            f"{text!r} is no fault: write one of {', '.join(CRASHES)} as KIND:ROLE@BOUNDARY, "
            f"or one of {', '.join(MESSAGES)} as KIND@BOUNDARY"
        )
    return Fault(found["kind"], int(found["at"]), found["role"] or "")


class Director:
    def __init__(self, stage: Stage, roles: dict[str, str], faults: Sequence[Fault]) -> None:
        self.stage = stage
        self.letters = {role: letter for letter, role in roles.items()} | {"master": stage.letters[0]}
        self.faults = {fault.at: fault for fault in faults}
        self.struck = 0
        self.refused = ""
        self.over_ns = stage.world.now_ns + SLACK_NS
        self.seen: list[tuple[str, str, str]] = []
        stage.strike = self._strike

    def close(self) -> None:
        """End all faults: later packets are no boundaries."""
        self.faults = {}
        self.stage.strike = lambda boundary: STRAIGHT

    def _strike(self, boundary: Boundary) -> Sequence[int]:
        stage = self.stage
        self.seen.append((stage.letter(boundary.sender), boundary.receiver, boundary.message))
        fault = self.faults.get(boundary.number)
        if fault is None:
            return STRAIGHT
        stage.world.log(
            f"FAULT {fault} when {stage.letter(boundary.sender)} sends {boundary.message} to {boundary.receiver}"
        )
        if fault.kind in CRASHES:
            return self._crash(fault, boundary)
        self.struck += 1
        return self._message(fault.kind, boundary)

    def _crash(self, fault: Fault, boundary: Boundary) -> Sequence[int]:
        victim = self.stage.living(self.letters[fault.role])
        if victim is None:
            self.refused = f"{fault}: it is dead already"
            return STRAIGHT
        if not self.stage.cluster.may_die(victim):
            self.refused = f"{fault}: the rest could not go on, or has no copy"
            return STRAIGHT
        self.struck += 1
        victim.crash()
        if fault.kind.startswith("restart"):
            index = self.stage.letters.index(self.letters[fault.role])
            self._ends_in(RESTART_NS)
            self.stage.world.after(RESTART_NS, lambda: self._start(index))
        return () if fault.kind.endswith("before") else STRAIGHT

    def _start(self, index: int) -> None:
        self.stage.start(index)

    def _message(self, kind: str, boundary: Boundary) -> Sequence[int]:
        if kind == "lost":
            return ()
        if kind == "late":
            self._ends_in(LATE_NS)
            return (LATE_NS,)
        if kind == "twice":
            self._ends_in(AGAIN_NS)
            return (0, 0, AGAIN_NS)
        if kind == "stall":
            self._ends_in(STALL_NS)
            self.stage.stall(boundary.sender.host, boundary.target.host, STALL_NS)
            return STRAIGHT
        self._cut(boundary.sender, boundary.target.host, CUT_NS[kind])
        return STRAIGHT

    def _cut(self, sender: Process, host: str, length_ns: int) -> None:
        cut = self.stage.world.weather.cut
        self._ends_in(length_ns)
        added = [pair for pair in ((sender.host, host), (host, sender.host)) if not cut.get(pair)]
        for pair in added:
            cut[pair] = True

        def heal() -> None:
            for pair in added:
                cut.pop(pair, None)
            self.stage.world.log("HEALED")

        self.stage.world.after(length_ns, heal)

    def _ends_in(self, length_ns: int) -> None:
        self.over_ns = max(self.over_ns, self.stage.world.now_ns + length_ns + SLACK_NS)
