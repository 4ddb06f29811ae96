"""Actions of operators at one member: checks each one, starts it, and waits until it is done.

Serves the in-process API, and actions that arrive on the client and HTTP ports. Most actions stay in force after a
TimeoutError, because the core repeats them (`core.membership.desired_state`); those that are `withdrawn` have no effect
later.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import msgspec

from holdfast.actions.drain import Drain
from holdfast.actions.member_process import ClientConnection, MemberLoad
from holdfast.actions.operator_action import (
    ActionDone,
    AnsweredAction,
    OperatorAction,
    OperatorQuery,
    ProcessAction,
)
from holdfast.config import Settings
from holdfast.core.events import ActionRequested, ActionWithdrawn, MemberAction
from holdfast.core.member import Member
from holdfast.core.model.member_status import MemberCount, MemberStatus
from holdfast.engine.driver import Driver
from holdfast.errors import HoldfastError, RequestError, Unknown
from holdfast.observe.latency_histogram import LatencyHistogram
from holdfast.observe.status import Counted
from holdfast.runtime.live_settings import LiveSettings
from holdfast.runtime.memory import Gauge
from holdfast.runtime.supervision import RESTART
from holdfast.server.door import Door
from holdfast.server.hazelcast.lane_tally import LaneTally
from holdfast.server.operation_times import OperationTimes, latencies_of
from holdfast.wire.answers import Fate

POLL_S = 0.02
LAST_ANSWERS_S = 1.0


class Operated(Protocol):
    settings: Settings
    driver: Driver
    member: Member
    ended: asyncio.Event
    ended_because: str
    broken: BaseException | None
    times: OperationTimes
    tally: LaneTally

    def count_entries(self, done: Callable[[Counted], None]) -> None: ...

    def status(self, count: Counted | None = None) -> MemberStatus: ...

    def count_maps(self, done: Callable[[MemberCount], None]) -> None: ...

    @property
    def stall_s(self) -> float: ...

    @property
    def gauge(self) -> Gauge: ...

    @property
    def door(self) -> Door: ...

    def guard(self, step: Callable[[], None]) -> None:
        """Run a step; an error in it stops the member."""

    def check(self) -> None: ...


class Control:
    def __init__(self, node: Operated) -> None:
        self._node = node
        self.live = LiveSettings(node)
        self._driver = node.driver
        self._view = node.member.picture
        self._tasks: set[asyncio.Task[None]] = set()
        self._begun_s = time.monotonic()
        self.supervisor = ""
        """The program that starts the process again when it ends; empty: none."""
        self.exit_status = 0

    # -- what actions see of the process

    @property
    def settings(self) -> Settings:
        return self._node.settings

    @property
    def has_files(self) -> bool:
        return self._driver.journal is not None

    def restart_at_end(self) -> None:
        self.exit_status = RESTART

    def change_settings(self, given: Mapping[str, str]) -> None:
        self.live.change(given)

    def clients(self) -> list[ClientConnection]:
        return self._node.door.described()

    def load(self) -> MemberLoad:
        node, whole = self._node, LatencyHistogram()
        for one in latencies_of(node.times, node.tally).values():
            whole.absorb(one.counts, one.sum_ns)
        memory, picture = node.gauge, self._view
        return MemberLoad(
            round((time.monotonic() - self._begun_s) * 1000),
            whole.count,
            whole.sum_ns,
            whole.counts,
            round(time.process_time() * 1000),
            round(1000 * node.stall_s, 1),
            memory.used,
            memory.limit.size,
            len(node.door.connections),
            picture.is_master,
            picture.info.lite,
        )

    def ask_machine(self, query: MemberAction, reply: Callable[[Any], None]) -> None:
        self._node.guard(lambda: self._driver.act(query, reply))

    def status(self, reply: Callable[[MemberStatus], None]) -> None:
        self._node.count_entries(lambda count: reply(self._node.status(count)))

    def cluster_unsafe_reason(self) -> str:
        self._driver.enter()
        return self._view.cluster_unsafe_reason()

    def count_maps(self, reply: Callable[[MemberCount], None]) -> None:
        self._node.count_maps(reply)

    def end_client(self, number: int, reason: str) -> bool:
        return self._node.door.end(number, reason)

    # -- carrying out

    async def run(self, action: OperatorAction, timeout_s: float) -> str:
        """Carry out an action; returns the message for the operator when it is done.

        Raises Refused or NotReady if it is rejected, Unknown if it may or may not be done, and TimeoutError
        if it was accepted but is unfinished.
        """
        message, _ = await self._run(action, timeout_s)
        return message

    async def _run(self, action: OperatorAction, timeout_s: float) -> tuple[str, msgspec.Struct | None]:
        ends = action.declared.ends_member
        if not (ends and self._node.ended.is_set()):
            self._node.check()
            action.check(self._view, self)
            action.begin(self)
        if isinstance(action, ProcessAction):
            action.carry_out(self)
        elif isinstance(action, AnsweredAction):
            answer = await self._answered(action, timeout_s)
            return action.answer_text(answer), answer
        else:
            action = await self._carried_out(action.remaining(self._view), timeout_s)
        return self._node.ended_because if ends else action.done_text(self._view), None

    def drain(self) -> None:
        self._node.guard(lambda: self._driver.handle(ActionRequested(Drain())))

    async def _carried_out(self, action: OperatorAction, timeout_s: float) -> OperatorAction:
        declared, view, clock = action.declared, self._view, asyncio.get_running_loop().time
        left, applied_s = action, float("-inf")

        def ended() -> bool:
            return declared.ends_member and self._node.ended.is_set()

        def done() -> bool:
            nonlocal left, applied_s
            if ended():
                return True
            left = left.remaining(view)
            if declared.repeat_s and not left.waits_for(view):
                return True
            if applied_s < 0 or (declared.repeat_s and clock() - applied_s >= declared.repeat_s):
                applied_s = clock()
                self._node.guard(lambda: self._driver.handle(ActionRequested(left)))
            return ended() or not left.waits_for(view)

        try:
            await self.until(done, timeout_s, lambda: left.waits_for(view))
        except BaseException:
            if declared.withdrawn:
                self._node.guard(lambda: self._driver.handle(ActionWithdrawn(left)))
            raise
        if declared.ends_member and self._node.broken is not None:
            self._node.check()
        return action

    async def _answered(self, action: AnsweredAction, timeout_s: float) -> Any:
        """Raises the error that the answer is, or TimeoutError."""
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def on_answer(answer: Any) -> None:
            if not answered.done():
                answered.set_result(answer)

        self._node.guard(lambda: self._driver.act(action, on_answer))
        try:
            async with asyncio.timeout(timeout_s):
                answer = await answered
        except TimeoutError:
            late = f"not within {timeout_s:g} s: {action.unfinished_reason()}"
            raise (Unknown(late) if action.declared.sent_once else TimeoutError(late)) from None
        if isinstance(answer, RequestError):
            raise answer
        return answer

    async def until(self, reached: Callable[[], bool], timeout_s: float, why: Callable[[], str]) -> None:
        deadline = asyncio.get_running_loop().time() + timeout_s
        while not reached():
            self._node.check()
            if asyncio.get_running_loop().time() >= deadline:
                raise TimeoutError(f"not within {timeout_s:g} s: {why()}")
            await asyncio.sleep(POLL_S)

    # -- requests of clients

    def take(self, action: OperatorAction, timeout_ms: int, done: ActionDone) -> None:
        if isinstance(action, OperatorQuery):
            self._ask(action, done)
            return
        task = asyncio.get_running_loop().create_task(self._answer(action, timeout_ms, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _ask(self, query: OperatorQuery, done: ActionDone) -> None:
        """A member that has ended by itself still answers for a moment: commands follow it to its end."""
        try:
            if self._node.broken is not None or not self._node.ended.is_set():
                self._node.check()
            query.ask(self, partial(_answer_query, done))
        except HoldfastError as refused:
            _fail(done, refused)

    async def _answer(self, action: OperatorAction, timeout_ms: int, done: ActionDone) -> None:
        try:
            message, answer = await self._run(action, timeout_ms / 1000)
        except HoldfastError as failed:
            _fail(done, failed)
        except TimeoutError as late:
            done(Fate.REJECTED if action.declared.withdrawn else Fate.ACCEPTED, str(late))
        else:
            done(Fate.DONE, message, answer)

    async def stop(self) -> None:
        """The member ends: answer actions that this fulfils, cancel the others."""
        tasks = list(self._tasks)
        if tasks and self._node.ended.is_set():
            await asyncio.wait(tasks, timeout=LAST_ANSWERS_S)
        for task in tasks:
            task.cancel()


def _answer_query(done: ActionDone, answer: Any) -> None:
    if isinstance(answer, RequestError):
        _fail(done, answer)
    else:
        done(Fate.DONE, "", answer)


def _fail(done: ActionDone, error: HoldfastError) -> None:
    fate = Fate.UNKNOWN if isinstance(error, Unknown) else Fate.REJECTED
    done(fate, str(error), None, type(error).__name__)
