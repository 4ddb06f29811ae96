"""Operator commands of one member: checks each one, starts it in the core, and waits until it has taken effect.

Serves the in-process API and commands that arrive on the client port. The core repeats a command until it has taken
effect (`core.membership.desired_state`). After a TimeoutError most commands stay in force and may still complete.
Exceptions: `demote` withdraws its command, and those that are repeated here (`reset_lost`, `change_baseline`,
`raise_level`, `evict`) are not repeated any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Protocol

from holdfast.config import Settings
from holdfast.config.schema import DEFAULT_MAP
from holdfast.core.events import (
    BaselineOrdered,
    Become,
    ChangeState,
    EvictionOrdered,
    EvictionWithoutMajorityOrdered,
    LevelOrdered,
    LossAccepted,
    LostReset,
)
from holdfast.core.member import Member
from holdfast.core.membership.baseline_orders import BaselineChange, owners_wanted
from holdfast.core.membership.next_level import raise_problem
from holdfast.core.model.ids import MemberId
from holdfast.core.model.levels import EVICTS
from holdfast.core.model.views import ClusterState, Intent
from holdfast.core.partition_table.event_log import ranges_of
from holdfast.engine.driver import Driver
from holdfast.errors import HoldfastError, NotReady, Refused
from holdfast.runtime.live_settings import LiveSettings
from holdfast.runtime.memory import Gauge
from holdfast.wire import own

POLL_S = 0.02
TAKEN_BACK = (
    own.Want.LITE,
    own.Want.RESET_LOST,
    own.Want.BASELINE,
    own.Want.LEVEL,
    own.Want.EVICT,
    own.Want.CONFIGURE,
)
"""Commands that are withdrawn on timeout."""
LAST_ANSWERS_S = 1.0
"""Time for pending commands to be answered when the member ends."""


class Operated(Protocol):
    settings: Settings
    driver: Driver
    member: Member
    ended: asyncio.Event
    ended_because: str
    broken: BaseException | None

    @property
    def gauge(self) -> Gauge:
        """The member's memory."""

    def guard(self, step: Callable[[], None]) -> None:
        """Run a step; an error in it stops the member."""

    def check(self) -> None:
        """Raise the error that has stopped the member."""

    def leave(self) -> None: ...


class Control:
    """Operator commands. They raise Refused if rejected, TimeoutError if accepted but unfinished."""

    def __init__(self, node: Operated) -> None:
        self._node = node
        self.live = LiveSettings(node)
        self._driver = node.driver
        self._member = node.member
        self._ended = node.ended
        self._tasks: set[asyncio.Task[None]] = set()

    # -- commands

    async def change_state(self, state: ClusterState, timeout_s: float) -> None:
        """Set the cluster state; returns when every member has acknowledged it."""
        picture = self._member.picture
        self._must_be_member()
        self._must_go_on()
        self._node.guard(lambda: self._driver.handle(ChangeState(state)))

        def reached() -> bool:
            self._must_go_on()
            return picture.cluster_state is state and picture.known_by_all

        def why() -> str:
            if picture.cluster_state is state:
                return "not every member has confirmed it; " + (
                    self._member.picture.silence_problem() or "wait"
                )
            return f"the cluster is {picture.cluster_state}" + self._whom_it_waits_for()

        await self.until(reached, timeout_s, why)

    def _must_go_on(self) -> None:
        if self._member.picture.ending:
            raise Refused("the cluster is shutting down: its state cannot be changed")

    async def accept_loss(self, timeout_s: float) -> None:
        """Give up missing members and files; returns when every partition has an owner."""
        self._must_be_member()
        if rejection := self._member.picture.accept_loss_rejection():
            raise Refused(rejection)
        asked_s = 0.0

        def served() -> bool:
            # Repeated, because a new master does not know of it.
            nonlocal asked_s
            now_s = asyncio.get_running_loop().time()
            if now_s - asked_s >= 1 and self._member.picture.unserved_reason():
                asked_s = now_s
                self._node.guard(partial(self._driver.handle, LossAccepted()))
            return not self._member.picture.unserved_reason()

        await self.until(served, timeout_s, self._member.picture.unserved_reason)

    async def evict(
        self, members: Sequence[str], timeout_s: float, *, without_majority: bool = False
    ) -> None:
        """Remove ended members without waiting until they are suspected (membership/V-9), or even without a majority
        (membership/V-6); returns when the view does not contain them.
        """
        picture = self._member.picture
        self._must_be_member()
        ended = [MemberId(member) for member in members]
        if why := picture.eviction_rejection(ended, without_majority=without_majority):
            raise Refused(why)
        if not without_majority and picture.level < EVICTS:
            raise Refused(
                f"eviction needs feature level {EVICTS} (holdfast cluster upgrade); without it a member is removed "
                "after cluster.suspect_after_ms of silence"
            )
        asked_s = 0.0

        def gone() -> bool:
            # Repeated: a new view drops the command, and a member that was heard at first may be silent by now.
            nonlocal asked_s
            now_s = asyncio.get_running_loop().time()
            left = [uuid for uuid in ended if picture.is_member(uuid)]
            if left and now_s - asked_s >= 1:
                asked_s = now_s
                if not without_majority and not set(left) <= set(picture.unheard()):
                    raise Refused(
                        "it sent a heartbeat within the last three intervals, so it runs: end its process first, or "
                        "drain it (holdfast member drain)"
                    )
                if not without_majority and (why := picture.eviction_rejection(left, without_majority=False)):
                    raise Refused(why)
                order = EvictionWithoutMajorityOrdered if without_majority else EvictionOrdered
                self._node.guard(lambda: self._driver.handle(order(tuple(left))))
            return not left

        await self.until(
            gone,
            timeout_s,
            lambda: "the other members have not agreed to the eviction" + self._whom_it_waits_for(),
        )

    async def reset_lost(self, partitions: Sequence[int], maps: Sequence[str], timeout_s: float) -> None:
        """Clear the loss of these partitions for these maps, empty: for all; returns when the table shows no loss."""
        self._must_be_member()
        picture = self._member.picture
        unknown = [name for name in maps if name not in {DEFAULT_MAP, *self._node.settings.maps}]
        if unknown:
            raise Refused(f"map {unknown[0]!r} has no settings of its own: it is reset with {DEFAULT_MAP!r}")
        left = self._lost(partitions, maps)
        if not left:
            raise Refused("no such partition is lost: there is nothing to reset")
        gone = [p for p in left if not picture.is_member(picture.assignment(p).owner)]
        if gone:
            raise Refused(
                f"no copy of partitions {ranges_of(gone)} is here: start the members that held them, or accept the "
                "loss (holdfast cluster accept-loss); then reset them"
            )
        asked_s = 0.0

        def reset() -> bool:
            # Repeated, because a new master does not know of it, and a moving partition is skipped. A partition that
            # was reset and is lost again is a new loss, and stays.
            nonlocal asked_s
            now_s = asyncio.get_running_loop().time()
            for partition in left.keys() - self._lost(partitions, maps).keys():
                del left[partition]
            if left and now_s - asked_s >= 1:
                asked_s = now_s
                names = sorted(set[str]().union(*left.values()))
                self._node.guard(lambda: self._driver.handle(LostReset(tuple(sorted(left)), tuple(names))))
            return not left

        await self.until(reset, timeout_s, lambda: f"partitions {ranges_of(sorted(left))} are still lost")

    def _lost(self, partitions: Sequence[int], maps: Sequence[str]) -> dict[int, set[str]]:
        """Lost partitions, each with the maps that lost it; empty arguments select all."""
        return {
            partition: names
            for partition, lost in self._member.picture.lost_partitions.items()
            if (names := {name for name in lost if not maps or name in maps})
            and (not partitions or partition in partitions)
        }

    async def change_baseline(
        self, change: BaselineChange, names: Sequence[str], adjust_ms: int, timeout_s: float
    ) -> None:
        """Change the owners of data; returns when every member has acknowledged."""
        picture = self._member.picture
        self._must_be_member()
        self._must_go_on()
        if unserved := picture.unserved_reason():
            raise Refused(
                f"{unserved}: start the members that hold them, or accept the loss (holdfast cluster accept-loss), "
                "before you change the baseline"
            )
        asked_s = 0.0

        def changed() -> bool:
            # Repeated, because a new master does not know of it; based on the present view, which others may change.
            nonlocal asked_s
            self._must_go_on()
            view, now_s = picture.view, asyncio.get_running_loop().time()
            if view is None:
                return False
            owners = wanted if wanted.are_in(view) else owners_wanted(view, change, names, adjust_ms)
            if not owners.are_in(view) and now_s - asked_s >= 1:
                asked_s = now_s
                self._node.guard(
                    lambda: self._driver.handle(
                        BaselineOrdered(view.baseline_point, tuple(sorted(owners.members)), owners.adjust_ms)
                    )
                )
            return owners.are_in(view) and picture.known_by_all

        assert picture.view is not None, "a member is in a view"
        wanted = owners_wanted(picture.view, change, names, adjust_ms)
        await self.until(
            changed, timeout_s, lambda: "the baseline has not changed yet" + self._whom_it_waits_for()
        )

    async def raise_level(self, level: int, timeout_s: float) -> None:
        """Raise the feature level; returns when every member has acknowledged it."""
        picture = self._member.picture
        self._must_be_member()
        self._must_go_on()
        asked_s = 0.0

        def reached() -> bool:
            # Repeated, because a new master does not know of it. A member that has just joined may prevent it.
            nonlocal asked_s
            self._must_go_on()
            view, now_s = picture.view, asyncio.get_running_loop().time()
            if view is None:
                return False
            if view.level < level and now_s - asked_s >= 1:
                if why := raise_problem(view, level):
                    raise Refused(why)
                asked_s = now_s
                self._node.guard(lambda: self._driver.handle(LevelOrdered(level)))
            return view.level >= level and picture.known_by_all

        assert picture.view is not None, "a member is in a view"
        if why := raise_problem(picture.view, level):
            raise Refused(why)
        await self.until(
            reached, timeout_s, lambda: f"not every member is at level {level}" + self._whom_it_waits_for()
        )

    async def configure(self, given: Mapping[str, str]) -> None:
        """Change settings of the running member: all or none."""
        self._node.check()
        if not given:
            raise Refused("name at least one setting")
        self.live.change(given)

    async def shut_down_cluster(self, timeout_s: float) -> None:
        """Make the cluster passive and let all members leave."""
        if not self._ended.is_set() and not self._member.picture.ending:
            self._must_be_member()
            self._node.guard(lambda: self._driver.handle(ChangeState(ClusterState.PASSIVE, ending=True)))
        await self._until_ended(timeout_s)

    async def leave(self, timeout_s: float) -> None:
        self._node.leave()
        await self._until_ended(timeout_s)

    async def promote(self, timeout_s: float) -> None:
        self._must_not_leave()
        settings = self._node.settings
        journalled = [
            f"maps.{name}.journal" for name, chosen in settings.maps.items() if chosen.journal != "off"
        ]
        journalled += [
            f"service {name}: journal" for name, one in settings.services.items() if one.journal != "off"
        ]
        if journalled and self._driver.journal is None:
            raise Refused(
                f"{journalled[0]} is set, and this member has no files open: start it as a data member, "
                "with a persistence.directory"
            )
        self._become(Intent.DATA)
        picture = self._member.picture

        def why() -> str:
            return "it is still a lite member" + self._whom_it_waits_for()

        await self.until(lambda: not picture.info.lite, timeout_s, why)

    async def demote(self, timeout_s: float) -> None:
        """Make this a lite member when its partitions are safe elsewhere; withdrawn on timeout."""
        picture = self._member.picture
        self._must_not_leave()
        if [info.uuid for info in picture.data_members()] == [self._member.me]:
            raise Refused("this is the last data member: without it no member would hold the partitions")
        self._become(Intent.LITE)
        try:
            await self.until(lambda: picture.info.lite, timeout_s, self._not_lite_reason)
        except BaseException:
            self._become(Intent.NONE)
            raise

    async def refill(self, partition: int, member: str, timeout_s: float) -> None:
        """Refill a backup of a partition that this member serves; returns when it holds the same."""
        self._must_be_member()
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def told(why: str) -> None:
            if not ended.done():
                ended.set_result(why)

        self._node.guard(lambda: self._driver.refill(partition, MemberId(member), told))
        try:
            async with asyncio.timeout(timeout_s):
                why = await ended
        except TimeoutError:
            raise TimeoutError(
                f"not within {timeout_s:g} s: the copy of partition {partition} on {member} is being filled"
            ) from None
        if why:
            raise Refused(why)

    def _become(self, wish: Intent) -> None:
        self._node.guard(lambda: self._driver.handle(Become(wish)))

    def _not_lite_reason(self) -> str:
        left = sum(1 for row in self._member.picture.assignments if self._member.me in row.replicas)
        state = self._member.picture.cluster_state
        still = (
            f"{left} partition replicas are still here" if left else "the other members have not agreed yet"
        )
        hint = f"; the cluster is {state}: set the state to active to move them"
        return still + ("" if state.migrates else hint) + self._whom_it_waits_for()

    # -- waiting

    async def until(self, reached: Callable[[], bool], timeout_s: float, why: Callable[[], str]) -> None:
        """Wait. Raises TimeoutError with the text of `why`; Closing or InvariantBroken if the member ends."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while not reached():
            self._node.check()
            if asyncio.get_running_loop().time() >= deadline:
                raise TimeoutError(f"not within {timeout_s:g} s: {why()}")
            await asyncio.sleep(POLL_S)

    async def _until_ended(self, timeout_s: float) -> None:
        def why() -> str:
            return (
                self._member.picture.leave_blocker()
                or "the other members have not agreed yet that it may leave"
            )

        await self.until(self._ended.is_set, timeout_s, why)
        if self._node.broken is not None:
            self._node.check()

    def _whom_it_waits_for(self) -> str:
        silent = self._member.picture.silence_problem()
        return f"; {silent}" if silent else ""

    def _must_be_member(self) -> None:
        self._node.check()
        state = self._member.picture.state
        if state != "member":
            raise NotReady(f"this member is {state}; send the command to a member of the cluster")

    def _must_not_leave(self) -> None:
        self._must_be_member()
        if self._member.picture.leaving:
            raise Refused("this member is leaving")

    # -- commands of clients

    def take(self, order: own.Order, done: Callable[[own.Fate, str], None]) -> None:
        """Execute a client's command; calls `done` once."""
        task = asyncio.get_running_loop().create_task(self._answer(order, done))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, order: own.Order, done: Callable[[own.Fate, str], None]) -> None:
        try:
            await self._carry_out(order)
        except HoldfastError as refused:
            done(own.Fate.REJECTED, str(refused))
        except TimeoutError as late:
            fate = own.Fate.REJECTED if order.want in TAKEN_BACK else own.Fate.ACCEPTED
            done(fate, str(late))
        else:
            done(own.Fate.DONE, self._node.ended_because if self._ended.is_set() else "")

    def _carry_out(self, order: own.Order) -> Coroutine[None, None, None]:
        timeout_s = order.timeout_ms / 1000
        match order.want:
            case own.Want.STATE:
                return self.change_state(ClusterState(order.state), timeout_s)
            case own.Want.ACCEPT_LOSS:
                return self.accept_loss(timeout_s)
            case own.Want.RESET_LOST:
                return self.reset_lost(order.partitions, order.maps, timeout_s)
            case own.Want.BASELINE:
                change = BaselineChange(order.state)
                return self.change_baseline(change, order.members, order.adjust_ms, timeout_s)
            case own.Want.LEVEL:
                return self.raise_level(order.level, timeout_s)
            case own.Want.END:
                return self.shut_down_cluster(timeout_s)
            case own.Want.LEAVE:
                return self.leave(timeout_s)
            case own.Want.LITE:
                return self.demote(timeout_s)
            case own.Want.DATA:
                return self.promote(timeout_s)
            case own.Want.REFILL:
                return self.refill(order.partition, order.member, timeout_s)
            case own.Want.EVICT:
                return self.evict(
                    order.members or [order.member],
                    timeout_s,
                    without_majority=order.state == own.WITHOUT_MAJORITY,
                )
            case own.Want.CONFIGURE:
                return self.configure(order.settings)

    async def stop(self) -> None:
        """The member ends: answer commands that this fulfils, cancel the others."""
        tasks = list(self._tasks)
        if tasks and self._ended.is_set():
            await asyncio.wait(tasks, timeout=LAST_ANSWERS_S)
        for task in tasks:
            task.cancel()
