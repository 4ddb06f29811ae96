"""Entry processors that run for requests of this member's partitions.

The function runs outside the member, and may take long. Meanwhile the engine keeps the entry locked, and the router
gets the result.

- routing/R-25: A run ends once: with its result, at its time limit, or because the member that has forwarded its
  request has gone. A later result is dropped.
- routing/R-26: If this member does not lead the partition any more when the result comes, the result is dropped, and
  the request goes to the next primary, which lets the processor run again. So two runs are possible, and one effect.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from holdfast.config import LimitSettings
from holdfast.core.effects import RunProcessor
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.operations import Outcome, Status
from holdfast.core.model.processors import (
    ProcessorResult,
    ProcessorRun,
    RunBegun,
    decode_call,
    finish_run,
    without_run,
)
from holdfast.core.outbox import Outbox
from holdfast.core.replication_engine import ReplicationEngine
from holdfast.core.routing.pending import Parked, Waiting, asks_again

NOT_HERE = Outcome(Status.MOVED, None, "this member does not serve the partition any more")


class RunOwner(Protocol):
    """A router."""

    def adopt(self, parked: Parked) -> None:
        """Carry the request out, wherever its partition lives."""

    def drop(self, parked: Parked, outcome: Outcome) -> None:
        """Answer it, and unlock its entry."""


@dataclass(slots=True)
class _Running:
    owner: RunOwner
    engine: ReplicationEngine
    parked: Parked
    found: bool
    deadline_ns: int
    late: ProcessorResult


class ProcessorRuns:
    """One for all routers of a member."""

    def __init__(self, out: Outbox, waiting: Waiting, limits: LimitSettings) -> None:
        self._out = out
        self._limits = limits
        self._waiting = waiting
        self._running: dict[int, _Running] = {}

    def __len__(self) -> int:
        return len(self._running)

    def begin(self, owner: RunOwner, engine: ReplicationEngine, parked: Parked, begun: RunBegun) -> None:
        request = parked.request
        call, run = decode_call(request.value), int.from_bytes(request.expected, "big")
        assert run not in self._running, "a run has a number of its own"
        limit_ns = call.limit_ms * MILLISECOND
        late = ProcessorResult(
            error=f"entry processor {call.name!r} took longer than {call.limit_ms} ms "
            f"(processors.{call.name}.time_limit_ms); the entry was not changed"
        )
        found = begun.value is not None
        self._running[run] = _Running(owner, engine, parked, found, self._out.now_ns + limit_ns, late)
        asked = ProcessorRun(call, request.map, request.key, begun.value)
        self._out.effects.append(RunProcessor(run, asked))
        self._waiting.look_in(limit_ns)

    def on_ended(self, run: int, result: ProcessorResult) -> None:
        running = self._running.pop(run, None)
        if running is None:
            return
        owner, engine, parked = running.owner, running.engine, running.parked
        refused = self._refusal(result)
        if refused is not None:
            owner.drop(parked, refused)
        elif engine.leads(parked.request.partitions[0]):
            parked.request = finish_run(parked.request, result, found=running.found)
            owner.adopt(parked)
        else:
            engine.end_run(parked.request)
            parked.request = without_run(parked.request)
            if asks_again(parked.asker):
                owner.drop(parked, NOT_HERE)
            else:
                owner.adopt(parked)

    def _refusal(self, result: ProcessorResult) -> Outcome | None:
        if result.error:
            status = Status.NOT_READY if result.busy else Status.PROCESSOR_FAILED
            return Outcome(status, None, result.error)
        sizes, limits = (len(result.value), len(result.answer or b"")), self._limits
        if sizes[0] <= limits.value_bytes and sizes[1] <= limits.answer_bytes:
            return None
        detail = f"has a value of {sizes[0]} bytes (limits.value_bytes), and returns {sizes[1]} (limits.answer_bytes)"
        return Outcome(Status.TOO_LARGE, None, f"the entry processor {detail}")

    def on_timer(self) -> None:
        if not self._running:
            return
        now_ns = self._out.now_ns
        for run in [run for run, one in self._running.items() if one.deadline_ns <= now_ns]:
            self.on_ended(run, self._running[run].late)
        if self._running:
            first_ns = min(one.deadline_ns for one in self._running.values())
            self._waiting.look_in(max(1, first_ns - now_ns))

    def take_from(self, owner: RunOwner, gone: set[MemberId] | None = None) -> list[Parked]:
        """End runs of this router: those for members that have gone; None: all."""
        found = [
            run
            for run, one in self._running.items()
            if one.owner is owner and (gone is None or one.parked.comes_from(gone))
        ]
        return [self._running.pop(run).parked for run in found]
