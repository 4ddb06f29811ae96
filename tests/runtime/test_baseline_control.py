"""Orders about the baseline, to members in this process: waited for, refused by name, given up."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

import pytest
from tests.cluster.crew import Crew, until

import holdfast
from holdfast.actions.accept_loss import AcceptLoss
from holdfast.actions.change_baseline import AddToBaseline, AdjustBaseline, RemoveFromBaseline, SetBaseline
from holdfast.core.membership.baseline_orders import BaselineChange
from holdfast.core.model.baseline import FIXED
from holdfast.core.model.views import ClusterState
from holdfast.runtime.in_process.embedded import Member

SET, ADD, REMOVE, AUTO = BaselineChange


def run(coroutine: Coroutine[None, None, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 240))


async def change(
    member: Member, how: BaselineChange, *names: str, adjust_ms: int = FIXED, timeout_s: float = 20
) -> None:
    actions = {SET: SetBaseline, ADD: AddToBaseline, REMOVE: RemoveFromBaseline}
    action = AdjustBaseline(adjust_ms) if how is AUTO else actions[how](list(names))
    await member._node.control.run(action, timeout_s)


def ids(member: Member) -> list[str]:
    view = member._node.member.picture.view
    assert view is not None
    assert view.baseline is not None
    return [one.consistent_id for one in view.baseline.members]


def test_orders_are_so_on_every_member_when_they_are_answered() -> None:
    async def story() -> None:
        async with Crew() as crew:
            await crew.start(3)
            await crew.fill()
            one, two, three = crew.members
            await change(two, SET)
            assert [ids(member) for member in crew.members] == [["m1", "m2", "m3"]] * 3
            (four,) = await crew.start(1)
            assert crew.holds(four) == 0
            told = one.status()
            assert told.baseline is not None and told.baseline.outside == ["m4"]
            assert [each.outside for each in told.members] == [False, False, False, True]
            await change(four, ADD, "m4")
            await crew.rest()
            assert crew.holds(four)
            await crew.leave(three)
            assert ids(one) == ["m1", "m2", "m3", "m4"]
            await crew.rest()
            await change(one, REMOVE, "m3")
            assert ids(four) == ["m1", "m2", "m4"]
            await change(one, AUTO, adjust_ms=5000)
            await change(one, AUTO, adjust_ms=5000)  # It is so already.
            assert one.status().baseline.adjust_ms == 5000
            await change(one, SET, "m1", "m2", "m4")
            assert one.status().baseline.adjust_ms is None
            assert await crew.missing() == []

    run(story())


def test_what_is_refused_says_what_to_do() -> None:
    async def story() -> None:
        async with Crew(maps__default__backups=0) as crew:
            await crew.start(3)
            await crew.fill()
            one, _, three = crew.members
            for how in (ADD, REMOVE):
                with pytest.raises(holdfast.Refused, match=r"there is no baseline.*baseline set"):
                    await change(one, how, "m1")
            with pytest.raises(
                holdfast.Refused, match="'m7' is not a present data member; these are: m1, m2, m3"
            ):
                await change(one, SET, "m7")
            with pytest.raises(
                holdfast.Refused, match=r"m3 is present and holds data: .*member drain 127.0.0.1:\d+"
            ):
                await change(one, SET, "m1", "m2")
            await change(one, SET)
            with pytest.raises(holdfast.Refused, match="name members"):
                await change(one, ADD)
            with pytest.raises(holdfast.Refused, match="'m9' is not in the baseline"):
                await change(one, REMOVE, "m9")
            with pytest.raises(holdfast.Refused, match="no present member would own data"):
                await change(one, REMOVE, "m1", "m2", "m3")
            await crew.crash(three)
            await until(lambda: bool(one._node.member.picture.unserved_reason()))
            with pytest.raises(holdfast.Refused, match=r"partitions have no owner.*accept-loss"):
                await change(one, REMOVE, "m3")
            await one._node.control.run(AcceptLoss(), 20)
            await change(one, REMOVE, "m3")
            assert ids(one) == ["m1", "m2"]

    run(story())


def test_an_order_that_cannot_be_carried_out_in_time_is_given_up() -> None:
    async def story() -> None:
        async with Crew() as crew:
            await crew.start(2)
            one, two = crew.members
            two._node.member.membership.orders.on_baseline_wanted = lambda order: None  # type: ignore[method-assign]
            one._node.member.membership.orders.on_baseline_wanted = lambda order: None  # type: ignore[method-assign]
            with pytest.raises(TimeoutError, match="the baseline has not changed yet"):
                await change(one, SET, timeout_s=0.3)
            await one.change_cluster_state(ClusterState.FROZEN)
            assert one._node.member.picture.view.baseline is None

    run(story())
