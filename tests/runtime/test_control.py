"""The in-process API of an operator: states, lite members, safety, listeners, delays, and a member that breaks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.cluster.crew import MAP, PARTITIONS, Crew, hear, until

import holdfast
from holdfast.actions.drain import Drain
from holdfast.actions.list_clients import ClientList
from holdfast.actions.operator_action import AnsweredAction, Declaration, MachineQuery, OperatorAction
from holdfast.actions.reset_lost import ResetLost
from holdfast.actions.show_status import ShowStatus
from holdfast.cli.configuration import config
from holdfast.config.permissions import Action as Permission
from holdfast.core.membership.membership_status import MembershipState
from holdfast.core.model.partition_events import Kind, News
from holdfast.core.model.views import ClusterState
from holdfast.errors import Closing, InvariantBroken, NotReady, PartitionLost, Unknown, Unsupported
from holdfast.runtime.in_process.embedded import Member
from holdfast.wire.answers import Fate
from holdfast_lab.check import convergence


def run(coroutine: Coroutine[None, None, None]) -> None:
    """Each test has a loop of its own."""
    asyncio.run(asyncio.wait_for(coroutine, 240))


# -- orders


def test_an_order_that_is_not_so_in_time_says_why_and_stands() -> None:
    async def story() -> None:
        async with Crew(maps__default__backups=0) as crew:
            await crew.start(2)
            await crew.fill()
            one, two = crew.members
            await one.change_cluster_state(ClusterState.FROZEN)
            with pytest.raises(
                TimeoutError, match=r"replicas are still here; the cluster is frozen: set the state"
            ):
                await one.demote(0.3)
            assert not one._node.member.membership.intents.mine, "it was taken back"
            with pytest.raises(
                TimeoutError, match=r"frozen: this member holds the only copy of \d+ partitions"
            ):
                await two._node.control.run(Drain(), 0.3)
            await one.change_cluster_state(ClusterState.ACTIVE)
            await until(two._node.ended.is_set)  # this one stood
            assert await one.map(MAP).size() == 500

    run(story())


def test_a_member_that_has_just_left_still_answers_queries() -> None:
    """Commands follow a member to its end: a rejected status would make them fail."""

    async def story() -> None:
        async with Crew() as crew:
            await crew.start(2)
            node = crew.members[1]._node
            await node.control.run(Drain(), 30)
            assert node.ended.is_set()
            answers: list[tuple[object, ...]] = []
            node.control.take(ShowStatus(), 1000, lambda *answer: answers.append(answer))
            await until(lambda: bool(answers))
            assert answers[0][0] is Fate.DONE

    run(story())


class Answered(AnsweredAction, frozen=True):
    """An action that the member answers at once; with None never."""

    declared = Declaration("answered", Permission.STATE)
    answer: Any

    def apply(self, member: object, reply: Callable[[object], None]) -> None:
        if self.answer is not None:
            reply(self.answer)

    def answer_text(self, answer: Any) -> str:
        return f"it has {len(answer.clients)} clients"


class AnsweredOnce(Answered, frozen=True):
    declared = Declaration("answered", Permission.STATE, sent_once=True)


class Asked(MachineQuery, frozen=True):
    declared = Declaration("asked", Permission.STATUS)
    result = ClientList
    answer: Any

    def apply(self, member: object, reply: Callable[[object], None]) -> None:
        reply(self.answer)


NONE_CONNECTED = ClientList([])


@pytest.mark.parametrize(
    ("action", "told"),
    [
        (Answered(NONE_CONNECTED), (Fate.DONE, "it has 0 clients", NONE_CONNECTED)),
        (Answered(NotReady("wait")), (Fate.REJECTED, "wait", None, "NotReady")),
        (Answered(Unknown("who knows")), (Fate.UNKNOWN, "who knows", None, "Unknown")),
        (Answered(None), (Fate.ACCEPTED, "not within 0.05 s: it is still being carried out")),
        (
            AnsweredOnce(None),
            (Fate.UNKNOWN, "not within 0.05 s: it is still being carried out", None, "Unknown"),
        ),
        (Asked(NONE_CONNECTED), (Fate.DONE, "", NONE_CONNECTED)),
        (Asked(Unsupported("there is none")), (Fate.REJECTED, "there is none", None, "Unsupported")),
    ],
)
def test_a_machine_answers_an_action_or_a_query_once(action: OperatorAction, told: tuple[Any, ...]) -> None:
    async def story() -> None:
        async with Crew() as crew:
            await crew.start(1)
            answers: list[tuple[object, ...]] = []
            crew.members[0]._node.control.take(action, 50, lambda *answer: answers.append(answer))
            await until(lambda: bool(answers))
            told_first = answers[0]
            while told_first[-1] is None:
                told_first = told_first[:-1]
            assert told_first == told
            assert len(answers) == 1

    run(story())


def test_orders_to_who_is_in_no_cluster_are_refused() -> None:
    async def story() -> None:
        async with Crew() as crew:
            await crew.start(2)
            membership = crew.members[1]._node.member.membership
            membership.state = MembershipState.EXILED
            with pytest.raises(NotReady, match="this member is exiled; send the command to a member"):
                await crew.members[1].change_cluster_state(ClusterState.FROZEN)
            membership.state = MembershipState.MEMBER
            await crew.leave(crew.members[1])
            gone = crew._started[1]
            for order in (gone.change_cluster_state(ClusterState.FROZEN), gone.promote(), gone.demote()):
                with pytest.raises(Closing, match="this member has ended: left the cluster"):
                    await order

    run(story())


def test_a_member_becomes_lite_and_data_again() -> None:
    async def story() -> None:
        async with Crew() as crew:
            await crew.start(3)
            await crew.fill()
            for going in crew.members[:2]:  # the master too
                await going.demote()
                assert going.lite
                await crew.rest()
                assert crew.holds(going) == 0
                assert await going.map(MAP).get(1) == "v1"
            with pytest.raises(holdfast.Refused, match="this is the last data member"):
                await crew.members[2].demote()
            for coming in crew.members[:2]:
                await coming.promote()
                assert not coming.lite
            await until(lambda: all(crew.holds(member) for member in crew.members))
            await crew.rest()
            assert await crew.missing() == []

    run(story())


def test_lost_partitions_are_refused_until_they_are_reset() -> None:
    async def story() -> None:
        lossy: dict[str, object] = {
            "maps__default__backups": 0,
            "maps__default__loss_policy": "read-only-safe",
        }
        async with Crew(partitions__lost="accept", **lossy) as crew:
            await crew.start(3)
            await crew.fill()
            one = crew.members[0]
            control = one._node.control
            with pytest.raises(holdfast.Refused, match="there is nothing to reset"):
                await control.run(ResetLost(), 5)
            lost = crew.owned(crew.members[2])
            await crew.crash(crew.members[2])
            numbers = one.map(MAP)
            await until(lambda: one._node.member.picture.lost_partitions)
            for call in (numbers.size(), numbers.set(1, "v"), numbers.clear()):
                with pytest.raises(PartitionLost, match="loss_policy is 'read-only-safe'"):
                    await call
            with pytest.raises(holdfast.Refused, match="map 'other' has no settings of its own"):
                await control.run(ResetLost(maps=["other"]), 5)
            await control.run(ResetLost(lost[:1], ["default"]), 20)
            assert list(one._node.member.picture.lost_partitions) == lost[1:]
            assert one.status().partitions.lost_by_map == {"default": lost[1:]}
            await control.run(ResetLost(), 20)
            assert await numbers.size() > 0
            await numbers.set(1, "v")

    run(story())


def test_what_nobody_here_holds_is_not_reset() -> None:
    async def story() -> None:
        async with Crew(maps__default__backups=0, maps__default__loss_policy="read-write-safe") as crew:
            await crew.start(3)
            await crew.crash(crew.members[2])
            one = crew.members[0]
            await until(lambda: one._node.member.picture.lost_partitions)
            with pytest.raises(
                holdfast.Refused, match=r"no copy of partitions .* is here: start the members"
            ):
                await one._node.control.run(ResetLost(), 5)
            assert one._node.member.picture.lost_partitions

    run(story())


def test_what_is_not_reset_in_time_stays_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with Crew(
            partitions__lost="accept", maps__default__backups=0, maps__default__loss_policy="read-write-safe"
        ) as crew:
            await crew.start(2)
            await crew.crash(crew.members[1])
            (one,) = crew.members
            await until(lambda: one._node.member.picture.lost_partitions)
            one._node.member.migrations.under_way.all.update(
                dict.fromkeys(range(PARTITIONS))  # type: ignore[arg-type]
            )
            with pytest.raises(TimeoutError, match=r"not within 0\.3 s: partitions .* are still lost"):
                await one._node.control.run(ResetLost(), 0.3)
            one._node.member.migrations.under_way.all.clear()

    run(story())


# -- safety


def test_safety_is_answered_to_many_while_members_come_and_go() -> None:
    """Polled every 50 ms by many tasks: each question is answered, and what is called safe is."""

    async def story() -> None:
        async with Crew(cluster__initial_members=2) as crew:
            (first,) = await crew.start(rest=False)
            assert first.status().partitions.awaited_members == 1
            asked = 0
            wrong: list[str] = []
            stop = False

            async def ask() -> None:
                nonlocal asked
                while not stop:
                    for member in list(crew.members):
                        asked += 1
                        if member.cluster_safe != (not member.cluster_unsafe_reason()):
                            wrong.append("two answers in one moment")
                        if member.safe and all(one.safe for one in crew.members):
                            rows = crew.table(member)
                            here = {info.uuid for info in member._node.member.membership.members()}
                            if any(not here.issuperset(row[: min(2, len(here))]) for row in rows):
                                wrong.append("safe without all copies")
                    await asyncio.sleep(0.05)

            askers = [asyncio.create_task(ask()) for _ in range(20)]
            await crew.start(2)
            await crew.fill()
            await crew.crash(crew.members[2])
            await crew.rest()
            await crew.start(1)
            await crew.crash(crew.members[0])  # the master
            # Until somebody has noticed, nobody can say so.
            await until(
                lambda: all(len(member._node.member.membership.members()) == 2 for member in crew.members)
            )
            for member in crew.members:
                await member.wait_safe(120)
            await until(lambda: all(member.safe for member in crew.members))
            assert convergence.judge([member._node.member.picture for member in crew.members]) == []
            stop = True
            await asyncio.wait_for(asyncio.gather(*askers), 120)
            assert wrong == []
            assert asked > 100

    run(story())


def test_one_data_member_among_lite_ones_is_safe() -> None:
    async def story() -> None:
        async with Crew() as crew:
            await crew.start(1)
            await crew.start(2, lite=True)
            assert all(member.cluster_safe for member in crew.members)

    run(story())


def test_waiting_for_safety_says_in_the_end_what_is_wrong() -> None:
    async def story() -> None:
        async with Crew() as crew:
            await crew.start(3)
            await crew.members[0].change_cluster_state(ClusterState.NO_MIGRATION)
            await crew.crash(crew.members[2])
            await until(lambda: len(crew.members[0].status().members) == 2)
            with pytest.raises(
                TimeoutError, match=r"not within 0\.2 s: partition \d+ has 1 of 2.*no-migration"
            ):
                await crew.members[0].wait_safe(0.2)

    run(story())


# -- listeners


def test_one_join_is_told_to_every_listener_from_start_to_end() -> None:
    async def story() -> None:
        async with Crew() as crew:
            await crew.start(2)
            heard = [hear(member)[0] for member in crew.members]
            await crew.start(1)
            await until(lambda: all(told and told[-1].kind is Kind.FINISHED for told in heard))
            assert heard[0] == heard[1]
            kinds = [news.kind for news in heard[0]]
            assert kinds.count(Kind.STARTED) == kinds.count(Kind.FINISHED) == 1
            last = heard[0][-1]
            assert (last.completed, last.remaining, last.failed) == (last.planned, 0, 0)
            assert kinds.count(Kind.COMPLETED) == last.planned > 0
            heard[0].clear()
            await crew.start(1, lite=True)
            assert heard[0] == [], "a lite member is given nothing"

    run(story())


def test_listeners_are_added_twice_removed_once_and_silent_then() -> None:
    async def story() -> None:
        async with Crew() as crew:
            await crew.start(2)
            member = crew.members[0]
            heard: list[News] = []
            first, second = member.on_migration(heard.append), member.on_migration(heard.append)
            await crew.leave(crew.members[1])
            await until(lambda: bool(heard) and heard[-1].kind is Kind.FINISHED)
            once = len(heard) // 2
            assert heard[::2] == heard[1::2]
            assert first() is True
            assert first() is False
            heard.clear()
            await crew.start(1)
            await until(lambda: bool(heard) and heard[-1].kind is Kind.FINISHED)
            assert len({news.number for news in heard}) == len(heard) > once > 0
            assert second() is True
            heard.clear()
            await crew.leave(crew.members[1])
            assert heard == []

    run(story())


@pytest.mark.parametrize("listener", [None, 7, "heard"])
def test_what_cannot_be_called_is_no_listener(listener: Any) -> None:
    async def story() -> None:
        async with Crew() as crew:
            (member,) = await crew.start()
            for register in (member.on_migration, member.on_partition_lost, member.map(MAP).listen):
                with pytest.raises(TypeError, match="a listener must be callable"):
                    register(listener)

    run(story())


def test_an_error_in_a_listener_is_the_programs_and_the_member_goes_on() -> None:
    async def story() -> None:
        errors: list[BaseException] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: errors.append(context["exception"])
        )

        def broken(what: object) -> None:
            raise KeyError("mine")

        async with Crew() as crew:
            await crew.start(2)
            member = crew.members[0]
            member.on_migration(broken)
            member.on_partition_lost(broken)
            member.map(MAP).listen(broken)
            after = hear(member)[0]
            await member.map(MAP).put("k", 1)
            await crew.start(1)
            await until(lambda: bool(after) and after[-1].kind is Kind.FINISHED)
            assert len(errors) > len(after)
            assert {type(error) for error in errors} == {KeyError}
            assert await member.map(MAP).get("k") == 1
            await crew.rest()

    run(story())


# -- settings


def test_the_first_assignment_awaited_members_and_requests_wait_with_it() -> None:
    async def story() -> None:
        async with Crew(cluster__initial_members=3) as crew:
            await crew.start(2, rest=False)
            writing = asyncio.create_task(crew.members[1].map(MAP).put("k", 1))
            await asyncio.sleep(0.3)
            assert not crew.members[0]._node.member.table.assigned
            assert not writing.done()
            assert crew.members[0].status().partitions.awaited_members == 1
            assert crew.members[0].cluster_safe, "there is nothing to lose yet"
            heard = hear(crew.members[0])[0]
            await crew.start(1)
            await asyncio.wait_for(writing, 120)
            assert {len(crew.owned(member)) for member in crew.members} <= {10, 11}
            assert heard == [], "it was assigned at once, not moved afterwards"

    run(story())


def test_after_a_crash_copies_are_restored_when_the_delay_is_over() -> None:
    async def story() -> None:
        async with Crew(partitions__rebalance_delay_ms=1500) as crew:
            await crew.start(3)
            await crew.fill()
            before = asyncio.get_running_loop().time()
            await crew.crash(crew.members[2])
            await until(lambda: "restoring waits" in crew.members[0].unsafe_reason())
            assert crew.members[0].status().migrations.delayed_ms > 0
            assert await crew.missing() == [], "what is left serves meanwhile"
            await crew.rest()
            assert asyncio.get_running_loop().time() - before > 1.4
            await crew.crash(crew.members[1])
            await crew.start(1)
            assert await crew.missing() == [], "who joins ends the delay"

    run(story())


def test_a_request_for_a_partition_that_nobody_serves_ends_in_time() -> None:
    async def story() -> None:
        async with Crew(maps__default__backups=0, limits__call_timeout_ms=400) as crew:
            await crew.start(3)
            await crew.fill()
            await crew.crash(crew.members[2])
            outcomes = await asyncio.gather(
                *(crew.members[0].map(MAP).get(number) for number in range(60)), return_exceptions=True
            )
            refused = [outcome for outcome in outcomes if isinstance(outcome, NotReady)]
            assert refused
            assert "had no serving primary" in str(refused[0])
            assert len(refused) < 60, "the others are read"

    run(story())


@pytest.mark.parametrize(
    "key", ["initial_members", "rebalance_delay_ms", "call_timeout_ms", "drain_timeout_s"]
)
def test_the_settings_are_explained(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    config.main([], standalone_mode=False)
    lines = capsys.readouterr().out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.lstrip("# ").startswith(f"{key} ="))
    assert lines[at - 1].startswith("#")
    assert len(lines[at - 1]) > 20


# -- a member that breaks


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.CRITICAL, "holdfast")
    return caplog


def break_at_next_step(member: Member) -> None:
    """Let an invariant of the member fail, in a callback of the loop, as a bug would."""

    def broken() -> None:
        raise InvariantBroken("partition 4 diverged")

    member._node.member.activation.flush = broken  # type: ignore[method-assign]


def test_an_error_inside_a_member_stops_it_and_every_call_says_so(quiet: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with Crew() as crew:
            await crew.start(3)
            await crew.fill()
            broken = crew.members.pop(2)
            ended = asyncio.create_task(broken.wait_ended())
            break_at_next_step(broken)
            assert "partition 4 diverged" in await asyncio.wait_for(ended, 120)
            for call in (
                broken.map(MAP).get(1),
                broken.change_cluster_state(ClusterState.FROZEN),
                broken.leave(),
            ):
                with pytest.raises(
                    InvariantBroken, match=r"because of an error inside it.*partition 4 diverged"
                ):
                    await call
            with pytest.raises(InvariantBroken):
                broken.status()
            assert not broken.safe
            assert "partition 4 diverged" in broken.cluster_unsafe_reason()
            await crew.rest()  # to the others it was a crash
            assert await crew.missing() == []
        assert "this member stops, because of an error inside it: partition 4 diverged" in quiet.text

    run(story())


def test_a_call_that_waits_when_its_member_stops_is_unknown(quiet: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with Crew(cluster__initial_members=2) as crew:
            (member,) = await crew.start(rest=False)
            waiting = asyncio.create_task(member.map(MAP).put("k", 1))
            await asyncio.sleep(0.05)
            break_at_next_step(member)
            with pytest.raises(Unknown, match="stopped before the answer came"):
                await asyncio.wait_for(waiting, 120)
            assert not member._node.calls

    run(story())


def test_an_error_in_a_call_itself_stops_the_member_too(quiet: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with Crew() as crew:
            (member,) = await crew.start()

            def broken(*arguments: object) -> None:
                raise AssertionError("a promise is broken")

            member._node.member.router.execute = broken  # type: ignore[method-assign, assignment]
            with pytest.raises(Unknown, match="stopped before the answer came"):
                await member.map(MAP).get(1)
            with pytest.raises(InvariantBroken, match="a promise is broken"):
                await member.map(MAP).get(1)

    run(story())


def test_what_is_asked_of_a_member_that_was_crashed_is_refused() -> None:
    async def story() -> None:
        async with Crew() as crew:
            (member,) = await crew.start()
            await crew.crash(member)
            with pytest.raises(Closing, match="this member has ended: it was stopped"):
                await member.map(MAP).get(1)
            assert not member.safe

    run(story())
