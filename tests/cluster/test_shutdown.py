"""Members that leave, alone, together, while others die, and the cluster as a whole: real members over real sockets."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Coroutine
from functools import partial

import pytest
from tests.cluster.crew import MAP, PARTITIONS, Crew, hear, until

import holdfast
from holdfast.core import member as core
from holdfast.core.model.partition_events import Loss
from holdfast.core.model.views import ClusterState
from holdfast.errors import Closing, HoldfastError, Passive


def run(coroutine: Coroutine[None, None, None]) -> None:
    """Each test has a loop of its own."""
    asyncio.run(asyncio.wait_for(coroutine, 120))


# -- one


@pytest.mark.parametrize(
    "filled", [pytest.param(False, marks=pytest.mark.slow), True], ids=["empty", "filled"]
)
def test_a_single_member_leaves(*, filled: bool) -> None:
    async def story() -> None:
        async with Crew() as crew:
            (only,) = await crew.start()
            if filled:
                await crew.fill()
            await crew.leave(only)
            assert only._node.broken is None

    run(story())


def test_members_leave_that_hold_nothing() -> None:
    """A lite one alone, and data members before the first assignment."""

    async def story() -> None:
        async with Crew() as crew:
            await crew.start(1, lite=True, rest=False)
            await crew.leave(*crew.members)
        async with Crew(cluster__initial_members=9) as crew:
            await crew.start(3, rest=False)
            assert not crew.members[0]._node.member.table.assigned
            await crew.leave(crew.members[1])
            await crew.leave(crew.members[0])

    run(story())


# -- one of three


@pytest.mark.parametrize(
    ("who", "backups", "filled"),
    [
        ("master", 0, True),
        ("master", 1, True),
        ("another", 0, True),
        ("another", 1, True),
        ("master", 1, False),
    ],
)
def test_one_of_three_leaves(who: str, backups: int, *, filled: bool) -> None:
    async def story() -> None:
        async with Crew(maps__default__backups=backups) as crew:
            await crew.start(3)
            heard = [hear(member)[1] for member in crew.members]
            if filled:
                await crew.fill()
            await crew.leave(crew.members[0 if who == "master" else 2])
            await crew.rest()
            assert not filled or await crew.missing() == []
            assert heard == [[], [], []], "nothing is lost when a member leaves in order"

    run(story())


@pytest.mark.parametrize("who", ["lite master", "lite member", "data member under a lite master"])
def test_lite_members_and_those_beside_them_leave(who: str) -> None:
    async def story() -> None:
        async with Crew() as crew:
            if who == "lite member":
                await crew.start(2)
                (going,) = await crew.start(1, lite=True)
            else:
                await crew.start(1, lite=True, rest=False)
                await crew.start(2)
                going = crew.members[0 if who == "lite master" else 1]
            await crew.fill()
            before = crew.table(going)
            await crew.leave(going)
            await crew.rest()
            if going.lite:
                assert crew.table() == before, "nothing had to move"
            assert await crew.missing() == []

    run(story())


# -- several


@pytest.mark.parametrize(
    "who",
    [
        "all four",
        "three of six with the master",
        pytest.param("three of six without the master", marks=pytest.mark.slow),
    ],
)
def test_several_leave_at_once(who: str) -> None:
    async def story() -> None:
        async with Crew() as crew:
            await crew.start(4 if who == "all four" else 6)
            await crew.fill()
            going = {
                "all four": crew.members[:],
                "three of six with the master": [crew.members[0], *crew.members[2:4]],
                "three of six without the master": crew.members[3:],
            }[who]
            heard = [hear(member)[1] for member in crew.members if member not in going]
            await crew.leave(*going)
            if crew.members:
                await crew.rest()
                assert await crew.missing() == []
                assert not any(heard)

    run(story())


@pytest.mark.parametrize(
    ("leaver", "victim"), [(1, 2), (0, 2), (2, 0)], ids=["slave/slave", "master/slave", "slave/master"]
)
def test_one_leaves_while_another_is_killed(leaver: int, victim: int) -> None:
    async def story() -> None:
        async with Crew(maps__default__backups=1) as crew:
            await crew.start(4)
            await crew.fill()
            going, dying = crew.members[leaver], crew.members[victim]
            leaving = asyncio.create_task(crew.leave(going))
            await asyncio.sleep(0.02)
            await crew.crash(dying)
            await leaving
            await crew.rest()
            assert await crew.missing() == []

    run(story())


def test_members_leave_and_join_at_the_same_time_and_nothing_is_lost() -> None:
    async def story() -> None:
        async with Crew() as crew:
            await crew.start(4)
            await crew.fill()
            heard = hear(crew.members[1])[1]
            await asyncio.gather(crew.leave(crew.members[3]), crew.start(2, rest=False))
            await asyncio.gather(crew.leave(crew.members[0]), crew.start(1, rest=False))
            await crew.rest()
            assert heard == []
            assert await crew.missing() == []

    run(story())


@pytest.mark.slow
@pytest.mark.parametrize("backups", [0, 1, 2, 3])
def test_any_number_leaves_with_any_number_of_backups(backups: int) -> None:
    async def story() -> None:
        for going in range(1, 5):
            async with Crew(maps__default__backups=backups) as crew:
                await crew.start(5)
                await crew.fill()
                await crew.leave(*crew.members[:going])
                await crew.rest()
                assert await crew.missing() == []

    run(story())


@pytest.mark.slow
@pytest.mark.parametrize("who", ["slave", "master", "half of six"])
def test_members_leave_while_partitions_still_move(who: str) -> None:
    async def story() -> None:
        slowly = {"partitions__parallel_migrations": 1, "partitions__chunk_bytes": 1024}
        for attempt in range(3):
            async with Crew(**slowly) as crew:
                await crew.start(5)
                await crew.fill(20_000)
                await crew.start(1, rest=False)
                going = {
                    "slave": [crew.members[2]],
                    "master": [crew.members[0]],
                    "half of six": random.Random(attempt).sample(crew.members, 3),
                }[who]
                await crew.leave(*going)
                await crew.rest()
                assert await crew.missing(20_000) == []

    run(story())


# -- a frozen or passive cluster


@pytest.mark.parametrize(
    ("state", "who"),
    [
        (ClusterState.FROZEN, "another"),
        (ClusterState.PASSIVE, "master"),
        pytest.param(ClusterState.FROZEN, "master", marks=pytest.mark.slow),
        pytest.param(ClusterState.PASSIVE, "another", marks=pytest.mark.slow),
    ],
)
def test_a_frozen_table_stays_as_it_is(state: ClusterState, who: str) -> None:
    async def story() -> None:
        async with Crew() as crew:
            await crew.start(3)
            await crew.fill()
            await crew.members[1].change_cluster_state(state)
            before = crew.table()
            going = crew.members[0 if who == "master" else 2]
            await crew.leave(going)
            await asyncio.sleep(0.3)
            assert [crew.table(member) for member in crew.members] == [before, before]
            assert all("and without" in member.cluster_unsafe_reason() for member in crew.members)
            await crew.members[0].change_cluster_state(ClusterState.ACTIVE)
            await crew.rest()
            assert crew.holds(going) == 0
            assert await crew.missing() == []

    run(story())


def test_a_member_is_started_again_in_a_frozen_cluster() -> None:
    """It holds nothing until the cluster is active, and then the slots of the one before are filled anew."""

    async def story() -> None:
        async with Crew() as crew:
            await crew.start(3)
            await crew.fill()
            await crew.members[0].change_cluster_state(ClusterState.FROZEN)
            before = crew.table()
            going = crew.members[2]
            await crew.leave(going)
            again = await crew.again(going, rest=False)
            assert crew.table() == before
            assert again._node.member.copies.held == {}
            assert not again.cluster_safe
            with pytest.raises(holdfast.Refused, match=r"frozen.*holdfast cluster state active"):
                await crew.start(rest=False)
            await crew.members[0].change_cluster_state(ClusterState.ACTIVE)
            await crew.rest()
            assert crew.holds(again) > 0
            assert await crew.missing() == []

    run(story())


def test_passive_refuses_writes_and_goes_on_reading_on_every_member() -> None:
    async def story() -> None:
        async with Crew() as crew:
            await crew.start(3)
            await crew.fill()
            for member in crew.members:
                await member.change_cluster_state(ClusterState.PASSIVE)
                for one in crew.members:
                    assert one.cluster_state is ClusterState.PASSIVE, "it is so on all when it is answered"
                    with pytest.raises(Passive):
                        await one.map(MAP).put("k", 1)
                    assert await one.map(MAP).get(7) == "v7"
                await member.change_cluster_state(ClusterState.ACTIVE)
                await asyncio.gather(*(one.map(MAP).put("k", 1) for one in crew.members))

    run(story())


# -- the whole cluster


def test_the_whole_cluster_ends_and_every_member_says_why() -> None:
    async def story() -> None:
        async with Crew() as crew:
            await crew.start(4)
            await crew.fill()
            ends = [asyncio.create_task(member.wait_ended()) for member in crew.members]
            await crew.members[2].shut_down_cluster()
            assert set(await asyncio.gather(*ends)) == {"left the cluster, which was shut down as a whole"}
            with pytest.raises(Closing, match="shut down as a whole"):
                await crew.members[0].map(MAP).get(1)

    run(story())


def test_the_cluster_ends_while_one_leaves() -> None:
    async def story() -> None:
        async with Crew() as crew:
            await crew.start(4)
            await crew.fill()
            going, other = crew.members[1], crew.members[3]
            await asyncio.gather(going.leave(), other.shut_down_cluster())
            for member in crew.members:
                assert await asyncio.wait_for(member.wait_ended(), 30)

    run(story())


def test_an_ending_cluster_takes_no_orders_and_nobody_in(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with Crew() as crew:
            await crew.start(2)
            with monkeypatch.context() as held_up:
                held_up.setattr(core.Member, "can_leave", lambda self, member: False)
                ending = asyncio.create_task(crew.members[0].shut_down_cluster(timeout_s=120))
                await until(lambda: bool(crew.members[1].status().shutting_down))
                with pytest.raises(holdfast.Refused, match="shutting down"):
                    await crew.members[1].change_cluster_state(ClusterState.ACTIVE)
                with pytest.raises(holdfast.Refused, match="being shut down; start this member again when"):
                    await crew.start(rest=False)
                assert not ending.done()
            await ending

    run(story())


# -- writes all the while


@pytest.mark.parametrize("backups", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_the_last_value_written_is_read_after_rounds_of_leaving_and_starting(backups: int) -> None:
    async def story() -> None:
        async with Crew(maps__default__backups=backups) as crew:
            await crew.start(3)
            last: dict[int, int] = {}
            stop = False

            async def put(key: int, value: int) -> None:
                while True:
                    try:
                        await random.choice(crew.members).map(MAP).put(key, value)
                        return
                    except HoldfastError:
                        await asyncio.sleep(0.01)  # this member is just leaving: another one takes it

            async def write(keys: range) -> None:
                value = 0
                while not stop:
                    value += 1
                    for key in keys:
                        await put(key, value)
                        last[key] = value
                        await asyncio.sleep(0.001)

            writers = [asyncio.create_task(write(range(first, 4 * PARTITIONS, 4))) for first in range(4)]
            for round_number in range(3):
                await crew.leave(crew.members[round_number % len(crew.members)])
                await crew.start(1, rest=False)
            stop = True
            await asyncio.gather(*writers)
            await crew.rest()
            assert len(last) == 4 * PARTITIONS
            found = await crew.members[0].map(MAP).get_all(last)
            assert found == last

    run(story())


# -- lost partitions


def told_of(losses: list[Loss]) -> list[int]:
    return sorted(loss.partition for loss in losses)


def test_one_of_two_dies_and_its_partitions_are_told_once_on_every_member() -> None:
    async def story() -> None:
        async with Crew() as crew:
            await crew.start(2)
            await crew.start(1, lite=True)
            heard = [hear(member)[1] for member in crew.members]
            twice = hear(crew.members[0])[1]
            dying = crew.members[1]
            owned = crew.owned(dying)
            await crew.crash(dying)
            await crew.rest()
            del heard[1]
            for losses in (*heard, twice):
                assert told_of(losses) == owned
                assert all((loss.lost_backups, loss.all_lost, loss.maps) == (0, False, []) for loss in losses)

    run(story())


@pytest.mark.parametrize("dying", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_some_of_five_die_and_what_is_told_fits_what_was_lost(dying: int) -> None:
    async def story() -> None:
        async with Crew(maps__default__backups=1, maps__other__backups=2) as crew:
            await crew.start(5)
            before = crew.table()
            victims = crew.members[5 - dying :]
            gone = {member.uuid for member in victims}
            heard = [hear(member)[1] for member in crew.members[: 5 - dying]]
            await crew.crash(*victims)
            lost = sorted(partition for partition, row in enumerate(before) if row[0] in gone)
            await until(lambda: all({loss.partition for loss in losses} >= set(lost) for losses in heard))
            await asyncio.sleep(0.3)
            for losses in heard:
                # Their ends may be seen one after the other: then who took over from the first, or was given a
                # partition meanwhile, may be the second. What is told last counts.
                assert max(Counter(told_of(losses)).values()) <= dying, "told twice"
                for partition, loss in {loss.partition: loss for loss in losses}.items():
                    row = before[partition]
                    survivor = next(
                        (index for index, member in enumerate(row) if member not in gone), len(row)
                    )
                    # The third replica has `other` alone: with it, nothing of `default` is left, and the partition
                    # waits.
                    assert loss.all_lost == (survivor >= 2)
                    assert loss.maps == []
                    assert loss.all_lost or loss.lost_backups == 0

    run(story())


def test_all_data_members_die_and_a_lite_one_tells_it() -> None:
    async def story() -> None:
        async with Crew() as crew:
            await crew.start(2)
            await crew.start(3, lite=True)
            heard = [hear(member)[1] for member in crew.members[2:]]
            await crew.crash(*crew.members[:2])
            for losses in heard:
                await until(partial(lambda told: len(told) == PARTITIONS, losses))
                assert {loss.partition for loss in losses if loss.all_lost} == set(range(PARTITIONS))
            assert heard[0] == heard[1] == heard[2]
            assert "0 of" in crew.members[0].cluster_unsafe_reason()

    run(story())
