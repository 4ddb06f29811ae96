"""What a program has of a member in itself: values, types, turns of its loop, iteration, and messages."""

from __future__ import annotations

import asyncio
import datetime as dt
import inspect
import re
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any, get_type_hints

import hazelcast
import pytest
from tests.runtime.in_process.test_embedded import cluster, member

from holdfast import ChangeKind, ConfigError, EntryChange, Map, Member, Serialized, Serializers, Unknown
from holdfast.config import load
from holdfast.config.schema import ClusterSettings, MemberSettings
from holdfast.core.model.operations import Op, Outcome, Request
from holdfast.errors import Closing, NotReady, Refused, TooLarge
from holdfast.runtime.in_process import embedded_maps
from holdfast.runtime.in_process.bulk_turns import PORTION, REQUEST, TURN, BulkTurns
from holdfast.runtime.in_process.member_keywords import MemberKeywords

K = ChangeKind


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as one:
        yield one


@pytest.fixture(scope="module")
def two(runner: asyncio.Runner) -> Iterator[list[Member]]:
    """Two members in one process, for all tests of this module."""
    context = cluster(2, limits__answer_bytes=65_536)
    members = runner.run(context.__aenter__())
    yield members
    runner.run(context.__aexit__(None, None, None))


# -- values

VALUES = [
    dt.datetime(2026, 2, 28, 1, 2, 3, 4, dt.timezone(dt.timedelta(hours=5, minutes=30))),
    dt.datetime.fromisoformat("2026-02-28T01:02:03.000004"),
    dt.date(2026, 2, 28),
    dt.time(23, 59, 58, 123456),
    uuid.UUID("01020304-0506-0708-090a-0b0c0d0e0f10"),
    Decimal("-12345678901234567890.125"),
    [1, dt.date(2026, 1, 1), Decimal("1.50")],
]
NOT_THEIRS: list[Any] = [(1, ("two", None)), {1, 2}, {"when": dt.date(2026, 1, 1)}, {7: "seven"}, b"\0\xff"]
"""Of types that the official client does not have, or reads as another one."""


def test_values_stay_what_they_are_and_other_clients_read_them(
    runner: asyncio.Runner, two: list[Member]
) -> None:
    here, there = two[0].map("values"), two[1].map("values")

    async def write() -> None:
        for value in VALUES + NOT_THEIRS:
            await here.put(repr(value), value)
            found = await there.get(repr(value))
            assert (type(found), found) == (type(value), value)
        for key in (VALUES[0], VALUES[4], VALUES[5], (1, "a"), ((dt.date(2026, 1, 1),), "b")):
            await here.set(key, "found")
            assert await there.get(key) == "found"
            assert await there.replace_if_same(key, "found", "again")

    runner.run(write())

    def read() -> dict[str, Any]:
        client = hazelcast.HazelcastClient(
            cluster_name="dev", cluster_members=[one.client_address for one in two]
        )
        try:
            theirs = client.get_map("values").blocking()
            theirs.set("theirs", VALUES[5])
            assert theirs.get(VALUES[4]) == "again", "a key of theirs is one of ours"
            return {repr(value): theirs.get(repr(value)) for value in VALUES}
        finally:
            client.shutdown()

    found = runner.run(asyncio.to_thread(read))  # type: ignore[arg-type]
    assert found == {repr(value): value for value in VALUES}
    assert runner.run(here.get("theirs")) == VALUES[5]


def test_transactions_and_services_write_the_same_values() -> None:
    async def story() -> None:
        settings = {"maps.t.transactional": True, "member.member_port": 0, "member.client_port": 0}
        async with Member(settings, serializers=Serializers(integers="long")) as only:
            async with only.transaction() as transaction:
                await transaction.map("t").set(7, (dt.date(2026, 1, 1), 1))
                assert await transaction.map("t").get(7) == (dt.date(2026, 1, 1), 1)
            raw = Map[Any, Any](only._node, "t", Serializers(integers="byte"), BulkTurns())
            assert await raw.get(7) is None, "written as a long, so that a byte is another key"
            assert await only.map("t").entries() == {7: (dt.date(2026, 1, 1), 1)}

    asyncio.run(story())


# -- listeners


def test_changes_are_values(runner: asyncio.Runner, two: list[Member]) -> None:
    async def story() -> None:
        here, there = two[0].map("heard"), two[1].map("heard")
        heard: list[EntryChange] = []
        of_one: list[EntryChange] = []
        bare: list[EntryChange] = []
        ends = [
            here.listen(heard.append),
            here.listen(of_one.append, key=(1, "b")),
            here.listen(bare.append, include_value=False),
        ]
        async with asyncio.timeout(120):
            while not two[1]._node.member.picture.subscribers("heard"):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        await there.put("a", dt.date(2026, 1, 1))
        await there.put("a", dt.date(2026, 1, 2))
        await there.remove("a")
        await there.put((1, "b"), Decimal("1.5"))
        await there.evict((1, "b"))
        await there.put("bad", Serialized(b"\xff\xff\xff\xeb12"))
        await there.clear()
        async with asyncio.timeout(120):
            while len(heard) < 7:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        for end in ends:
            end()
        assert all(change.member in {one.uuid for one in two} for change in heard)
        told = [(change.kind, change.key, change.value, change.old) for change in heard]
        assert [one for one in told if one[1] == "a"] == [
            (K.ADDED, "a", dt.date(2026, 1, 1), None),
            (K.UPDATED, "a", dt.date(2026, 1, 2), dt.date(2026, 1, 1)),
            (K.REMOVED, "a", None, dt.date(2026, 1, 2)),
        ]
        assert [(one.kind, one.value, one.old) for one in of_one if one.key is not None] == [
            (K.ADDED, Decimal("1.5"), None),
            (K.EVICTED, None, Decimal("1.5")),
        ]
        broken = next(one for one in heard if one.key == "bad")
        assert isinstance(broken.value, Serialized), "what cannot be read ends no listener"
        cleared = next(one for one in heard if one.kind is K.CLEARED)
        assert (cleared.key, cleared.count) == (None, 1)
        assert {(one.value, one.old) for one in bare} == {(None, None)}

    runner.run(story())


# -- everything, page by page


def test_a_map_is_gone_through_in_bounded_memory(
    runner: asyncio.Runner, two: list[Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = {f"k{number}": "v" * (10_000 if number % 2 else 10) for number in range(300)}
    pages: list[int] = []
    node = two[0]._node
    ask = node.execute

    def watched(request: Request, done: Callable[[Outcome], None]) -> None:
        def told(outcome: Outcome) -> None:
            if request.op is Op.GET_ALL and isinstance(outcome.value, list):
                pages.append(sum(len(part) for part in outcome.value if isinstance(part, bytes)))
            done(outcome)

        ask(request, told)

    async def story() -> None:
        here: Map[str, str] = two[0].map("big")
        await here.put_all(entries)
        with pytest.raises(TooLarge, match=r"async for … in map\.values"):
            await here.values()
        with pytest.raises(TooLarge, match=r"limits\.answer_bytes"):
            await here.entries()
        monkeypatch.setattr(node, "execute", watched)
        assert {key: value async for key, value in here.entries()} == entries
        assert await here.get_all(entries) == entries, (
            "asked for in parts that are no longer than an answer may be"
        )
        assert sorted([value async for value in here.values()]) == sorted(entries.values())
        keys = [key async for key in here]
        assert sorted(keys) == sorted(entries)
        assert sorted([key async for key in here.keys()]) == sorted(await here.keys()) == sorted(entries)  # noqa: SIM118
        assert len(pages) > 30
        assert max(pages) <= 65_536 < sum(pages)
        await here.clear()
        assert [key async for key in here] == []

    runner.run(story())


def test_what_stays_is_shown_once_whatever_else_happens(runner: asyncio.Runner, two: list[Member]) -> None:
    async def story() -> None:
        here = two[0].map("moving")
        await here.put_all(dict.fromkeys(range(400), 0))
        shown: Counter[int] = Counter()
        async for key, value in here.entries():
            shown[key] += 1
            assert value == 0 or key >= 1000 or key % 2 == 0
            if sum(shown.values()) % 10 == 0:
                await here.set(1000 + key, 1)
                await here.delete(key | 1 if key < 1000 else key)
            await here.set(key & ~1, 5)
        assert set(shown.values()) == {1}, "no key is shown twice"
        assert set(range(0, 400, 2)) <= shown.keys(), "what was there all the time is shown"

    runner.run(story())


# -- turns


class Counting(Serializers):
    """How many values were written or read in each turn of the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = 0
        self.done: Counter[int] = Counter()

    def dump(self, value: object) -> bytes:
        self.done[self.turn] += 1
        return super().dump(value)

    def load(self, stored: bytes | None) -> Any:
        self.done[self.turn] += 1
        return super().load(stored)

    async def count(self) -> None:
        while True:
            self.turn += 1
            await asyncio.sleep(0)


@asynccontextmanager
async def counted(node: Any) -> AsyncIterator[tuple[Counting, Counter[int]]]:
    """And how many entries were asked for."""
    values = Counting()
    asked: Counter[int] = Counter()
    ask = node.execute

    def watched(request: Request, done: Callable[[Outcome], None]) -> None:
        asked[values.turn] += max(1, len(request.items) // (1 + (request.op is Op.PUT_ALL)))
        ask(request, done)

    node.execute = watched
    counting = asyncio.create_task(values.count())
    try:
        yield values, asked
    finally:
        counting.cancel()
        node.execute = ask


def test_calls_about_many_entries_leave_the_loop_its_turns(runner: asyncio.Runner, two: list[Member]) -> None:
    """Counted in entries, not in time; `src/holdfast_lab/bench/in_process.py` measures. Two calls at once share the
    turns.
    """
    node, entries = two[0]._node, {number: number for number in range(4000)}

    async def story() -> None:
        async with counted(node) as (values, asked):
            here: Map[int, int] = Map(node, "many", values, two[0]._turns)
            calls: list[Callable[[], Awaitable[Any]]] = [
                lambda: here.put_all(entries),
                lambda: here.put_all(iter(entries.items())),
                lambda: here.get_all(entries),
                here.keys,
                lambda: here.remove_all(range(3500, 4000)),
            ]
            for call in calls:
                values.done.clear()
                asked.clear()
                answers = await asyncio.gather(call(), call())
                most = TURN + 2 * PORTION
                assert max(values.done.values()) <= 2 * most, "a key and a value at most for each"
                assert max(asked.values()) <= TURN
                assert len(values.done) >= 8 if call != calls[-1] else max(asked.values()) <= TURN // REQUEST
            assert sum(answers) == 500, "each was taken out by one of them"
            assert await here.get_all(range(3499, 3502)) == {3499: 3499}
            assert await here.size() == 3500

    runner.run(story())


def test_turns_are_given_in_the_order_of_asking() -> None:
    async def story() -> None:
        turns, order = BulkTurns(), []

        async def wants(name: str, cost: int) -> None:
            await turns.take(cost)
            order.append(name)

        first = asyncio.gather(*(wants(f"a{number}", TURN) for number in range(3)))
        cancelled = asyncio.create_task(wants("never", TURN))
        later = asyncio.create_task(wants("huge", 10 * TURN))
        await asyncio.sleep(0)
        cancelled.cancel()
        small = asyncio.create_task(wants("small", 1))
        await asyncio.gather(first, later, small)
        assert order == ["a0", "a1", "a2", "huge", "small"]

    asyncio.run(story())


def test_a_part_that_was_stored_makes_the_outcome_unknown(
    runner: asyncio.Runner, two: list[Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        here = two[0].map("partly")
        large = {"large": "x" * (two[0].settings.limits.value_bytes + 1)}
        with pytest.raises(Refused) as refused:
            await here.put_all({"large": "x" * (two[0].settings.limits.value_bytes + 1)})
        assert not isinstance(refused.value, Unknown)
        with pytest.raises(Unknown, match=r"1 of \d+ requests were not carried out"):
            await here.put_all({**dict.fromkeys(range(50), 1), **large})
        assert await here.size() == 50
        monkeypatch.setattr(embedded_maps, "WINDOW_BYTES", 1000)
        with pytest.raises(Unknown):
            await here.put_all([*((number, "y" * 2000) for number in range(300)), *large.items()])
        with pytest.raises(TypeError, match="None"):
            await here.put_all({"a": None})
        with pytest.raises(TypeError, match="object cannot be stored"):
            await here.remove_all(["a", object()])
        await here.put_all({"short": 1}, ttl_s=0.01)
        await asyncio.sleep(0.05)
        assert await here.get("short") is None
        assert await here.get_all([]) == {}
        assert await here.remove_all([]) == 0

    runner.run(story())


# -- before, after, and elsewhere

CALLS: dict[str, Callable[[Member], Any]] = {
    "get": lambda one: one.map("m").get("a"),
    "put_all": lambda one: one.map("m").put_all({1: 2}),
    "keys": lambda one: one.map("m").keys(),
    "iterate": lambda one: anext(aiter(one.map("m"))),
    "clear": lambda one: one.map("m").clear(),
    "listen": lambda one: one.map("m").listen(print),
    "wait_safe": lambda one: one.wait_safe(1),
    "change_cluster_state": lambda one: one.change_cluster_state("frozen", 1),
    "promote": lambda one: one.promote(1),
    "demote": lambda one: one.demote(1),
    "evict_without_majority": lambda one: one.evict_without_majority("x"),
    "on_migration": lambda one: one.on_migration(print),
    "on_partition_lost": lambda one: one.on_partition_lost(print),
    "transaction": lambda one: one.transaction().__aenter__(),
    "transact": lambda one: one.transact(lambda transaction: asyncio.sleep(0)),
}
BEFORE: dict[str, Callable[[Member], Any]] = {
    **CALLS,
    "client_address": lambda one: one.client_address,
    "member_address": lambda one: one.member_address,
    "status": lambda one: one.status(),
    "safe": lambda one: one.safe,
    "cluster_safe": lambda one: one.cluster_safe,
    "cluster_state": lambda one: one.cluster_state,
    "shut_down_cluster": lambda one: one.shut_down_cluster(1),
    "lite": lambda one: one.lite,
    "wait_ended": lambda one: one.wait_ended(),
}
"""After the end these still tell how it was."""


async def refused(call: Callable[[Member], Any], one: Member, kind: type[Refused], said: str) -> None:
    async def called() -> None:
        found = call(one)
        assert inspect.isawaitable(found), "it has to raise"
        await found

    with pytest.raises(kind, match=said):
        await called()


def test_a_member_says_when_it_is_used_too_early_or_too_late_and_is_unharmed() -> None:
    async def story() -> None:
        one = member()
        for call in BEFORE.values():
            await refused(call, one, NotReady, re.escape("not started yet: await its start()"))
        await one.leave()
        starts = await asyncio.gather(one.start(), one.start(), return_exceptions=True)
        assert [type(each) for each in starts] == [type(None), Refused]
        here = one.map("m")
        await here.put("a", 1)
        assert await here.get("a") == 1
        assert await here.entries() == {"a": 1}
        with pytest.raises(Refused, match="started before"):
            await one.start()

        def elsewhere() -> None:
            asyncio.run(refused(CALLS["get"], one, Refused, "another event loop"))
            asyncio.run(refused(CALLS["transaction"], one, Refused, "another event loop"))

        await asyncio.to_thread(elsewhere)
        assert await here.get("a") == 1, "unharmed"
        await one.leave()
        for call in CALLS.values():
            await refused(call, one, Closing, "this member has ended: left the cluster")
        assert "left the cluster" in one.unsafe_reason()
        await one.leave()

    asyncio.run(story())


# -- settings


def test_the_keywords_are_the_settings_of_two_sections() -> None:
    hints = get_type_hints(MemberKeywords)
    schema = {
        ("cluster_name" if (table, key) == (ClusterSettings, "name") else key): kind
        for table in (ClusterSettings, MemberSettings)
        for key, kind in get_type_hints(table).items()
        if key in table.__struct_fields__
    }
    assert hints == schema
    one = Member(
        {"maps.flights.backups": 2, "partitions.count": 31},
        cluster_name="other",
        name="ann",
        seeds=["127.0.0.1:1"],
        client_port=0,
    )
    assert one.settings.cluster.name == "other"
    assert one.settings.member.name == "ann"
    assert one.settings.cluster.seeds == ["127.0.0.1:1"]
    assert one.settings.map("flights").backups == 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"client_prot": 1}, "holdfast.Member: there is no keyword 'client_prot'; did you mean client_port?"),
        ({"client_port": 70_000}, "holdfast.Member: member.client_port = 70000 is not allowed"),
        (
            {"settings": {"maps.m.backup": 1}},
            "holdfast.Member: unknown key maps.m.backup; did you mean backups?",
        ),
        ({"settings": {"maps.m.backups": 99}}, "holdfast.Member: maps.m.backups = 99 is not allowed"),
    ],
)
def test_messages_are_for_whoever_calls(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as told:
        Member(**given)
    assert "command line" not in str(told.value)
    with pytest.raises(TypeError):
        Member(load(), client_port=0)
