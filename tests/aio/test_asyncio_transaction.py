"""Transactions of the asyncio client on real members."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.aio.test_hostile_members import with_one_between

from holdfast.aio import Client, NearCacheOptions, Transaction
from holdfast.aio.member_line import MemberLine
from holdfast.client_core.message_decoding import NotAnswered
from holdfast.errors import ConfigError, Refused, RolledBack, Unknown
from holdfast_lab.processes.local_cluster import LocalCluster

pytestmark = pytest.mark.interop

STEPS: list[tuple[str, tuple[Any, ...]]] = [
    ("get", ("k",)),
    ("put", ("k", "one")),
    ("get", ("k",)),
    ("get_for_update", ("k",)),
    ("put_if_absent", ("k", "two")),
    ("put_if_absent", ("l", 3)),
    ("contains_key", ("l",)),
    ("contains_key", ("none",)),
    ("set", ("m", 1.5)),
    ("replace", ("m", "x")),
    ("replace", ("none", "x")),
    ("replace_if_same", ("m", "y", "z")),
    ("replace_if_same", ("m", "x", "z")),
    ("size", ()),
    ("is_empty", ()),
    ("remove_if_same", ("m", "y")),
    ("remove_if_same", ("m", "z")),
    ("remove", ("l",)),
    ("remove", ("l",)),
    ("delete", ("k",)),
    ("size", ()),
    ("is_empty", ()),
    ("set", ("k", "last")),
]


def test_every_operation_answers_what_the_official_client_is_answered(
    cluster: LocalCluster, official: Any
) -> None:
    async def ours() -> list[Any]:
        async with Client(cluster.client_addresses()) as client:
            async with client.transaction() as transaction:
                ours = transaction.map("ours in transactions")
                answers = [await getattr(ours, name)(*rest) for name, rest in STEPS]
                assert await ours.keys() == ["k"]
                assert await ours.values() == ["last"]
            assert await client.map("ours in transactions").entries() == [("k", "last")]
        return answers

    with official.new_transaction() as transaction:
        theirs = transaction.get_map("theirs in transactions")
        expected = [getattr(theirs, name)(*rest) for name, rest in STEPS]
    assert asyncio.run(ours()) == expected


def test_all_of_it_or_nothing_is_applied(cluster: LocalCluster) -> None:
    async def run() -> None:
        async with Client(cluster.client_addresses()) as client:
            first, second = client.map("first"), client.map("second")
            await first.set("ann", 100)
            async with client.transaction() as transaction:
                assert len(transaction.id) == 32
                await transaction.map("first").set("ann", 90)
                await transaction.map("second").put("bob", 10, ttl_s=600)
                assert (await first.get("ann"), await second.get("bob")) == (100, None)
            assert (await first.get("ann"), await second.get("bob")) == (90, 10)

            async def fails(transaction: Transaction) -> None:
                await transaction.map("first").set("ann", 0)
                await transaction.map("second").remove("bob")
                raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await client.transact(fails)
            assert (await first.get("ann"), await second.get("bob")) == (90, 10)

    asyncio.run(run())


def test_transfers_at_the_same_time_keep_the_total(cluster: LocalCluster) -> None:
    async def transfer(transaction: Transaction, number: int) -> None:
        accounts = transaction.map("accounts")
        giver, taker = sorted((number % 5, (number * 3 + 1) % 5))  # one order of locks
        if giver == taker:
            return
        await accounts.set(giver, await accounts.get_for_update(giver) - 1)
        await accounts.set(taker, await accounts.get_for_update(taker) + 1)

    async def run() -> None:
        async with Client(cluster.client_addresses()) as client:
            accounts = client.map("accounts")
            await accounts.put_all(dict.fromkeys(range(5), 100))
            await asyncio.gather(
                *(client.transact(lambda each, number=number: transfer(each, number)) for number in range(60))
            )
            totals = await accounts.get_all(range(5))
            assert sum(totals.values()) == 500
            assert len(set(totals.values())) > 1, "something was transferred"

    asyncio.run(run())


def test_several_entries_of_a_transaction_are_written_and_read_together(cluster: LocalCluster) -> None:
    """More than the pending requests of a connection, and some of them wait for another transaction."""
    many = {f"k{number}": number for number in range(3000)}

    async def run() -> None:
        async with Client(cluster.client_addresses()) as client:
            together = client.map("together")
            await together.set("k7", "before")
            async with client.transaction() as first:
                await first.map("together").set("k7", "first")

                async def all_of_it(second: Transaction) -> dict[Any, Any]:
                    ours = second.map("together")
                    await ours.put_all(many)
                    found: dict[Any, Any] = await ours.get_all([*many, "none", "k7"])
                    return found

                waits = asyncio.create_task(client.transact(all_of_it))
                await asyncio.sleep(0.3)
                assert not waits.done()
            assert await waits == many
            assert await together.get_all(many) == many

    asyncio.run(run())


def test_of_writes_that_are_sent_together_all_or_none_are_committed(cluster: LocalCluster) -> None:
    async def run() -> None:
        async with Client(cluster.client_addresses()) as client, client.transaction() as first:
            await first.map("refused together").set("k", 1)

            async def goes_on(second: Transaction) -> None:
                ours = second.map("refused together")
                with pytest.raises(RolledBack):
                    await ours.put_all({"a": 1, "k": 2, "z": 3})
                with pytest.raises(RolledBack):
                    await ours.get_all(["a"])

            with pytest.raises(RolledBack):
                await client.transact(goes_on, timeout_s=0.2, attempts=1)
            assert await client.map("refused together").is_empty()

    asyncio.run(run())


def test_a_cancelled_transaction_is_rolled_back(cluster: LocalCluster) -> None:
    async def run() -> None:
        async with Client(cluster.client_addresses()) as client:
            locked = asyncio.Event()

            async def holds() -> None:
                async with client.transaction(timeout_s=600) as transaction:
                    await transaction.map("cancelled").set("k", 1)
                    locked.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(holds())
            await locked.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with client.transaction() as transaction:
                assert await transaction.map("cancelled").get_for_update("k") is None
                await transaction.map("cancelled").set("k", 2)
            assert await client.map("cancelled").get("k") == 2

    asyncio.run(run())


@pytest.mark.parametrize("ends", ["commits", "rolls back"])
def test_a_transaction_that_is_cancelled_while_its_end_waits_for_room_holds_no_locks(
    cluster: LocalCluster, ends: str
) -> None:
    """The send buffer of its connection is full when the block ends, and the task is cancelled then."""

    async def run() -> None:
        async with Client(cluster.client_addresses()) as client:
            lines: list[MemberLine] = []

            async def work() -> None:
                async with client.transaction(timeout_s=600) as transaction:
                    await transaction.map("no room").set("k", 1)
                    assert transaction._line is not None
                    lines.append(transaction._line)
                    lines[0].pause_writing()
                    if ends == "rolls back":
                        raise ValueError("an error in the block")

            task = asyncio.create_task(work())
            while not lines:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            lines[0].resume_writing()
            async with asyncio.timeout(60), client.transaction() as transaction:
                assert await transaction.map("no room").get_for_update("k") is None

    asyncio.run(run())


def test_after_a_failed_operation_nothing_is_committed(cluster: LocalCluster) -> None:
    """The second waits for an entry of the first until its time is over, and its error is caught in the block."""

    async def run() -> None:
        async with Client(cluster.client_addresses()) as client, client.transaction() as first:
            await first.map("contended").set("k", 1)

            async def goes_on(second: Transaction) -> None:
                contended = second.map("contended")
                await contended.set("other", 2)
                with pytest.raises(RolledBack):
                    await contended.set("k", 2)
                with pytest.raises(RolledBack):
                    await contended.get("other")

            with pytest.raises(RolledBack):
                await client.transact(goes_on, timeout_s=0.2, attempts=1)
            assert await client.map("contended").get("other") is None

    asyncio.run(run())


def test_after_an_operation_that_was_cancelled_nothing_is_committed(cluster: LocalCluster) -> None:
    async def gives_up(second: Transaction) -> None:
        contended = second.map("given up")
        await contended.set("other", 2)
        waits = asyncio.create_task(contended.set("k", 2))
        await asyncio.sleep(0.05)
        waits.cancel()
        await asyncio.gather(waits, return_exceptions=True)

    async def run() -> None:
        async with Client(cluster.client_addresses()) as client:
            async with client.transaction() as first:
                await first.map("given up").set("k", 1)
                with pytest.raises(RolledBack, match="an operation was cancelled"):
                    await client.transact(gives_up, attempts=1)
            assert await client.map("given up").entries() == [("k", 1)]

    asyncio.run(run())


def test_an_operation_that_a_member_rejects_alone_ends_the_transaction_too(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hazelcast's members keep a transaction after some errors; ours end it."""

    async def rejected(*_: object) -> bytes:
        raise NotAnswered(23, "a bad argument")

    async def goes_on(transaction: Transaction) -> None:
        ours = transaction.map("rejected")
        await ours.set("k", 1)
        with monkeypatch.context() as patch:
            patch.setattr(transaction, "_ask", rejected)
            with pytest.raises(Refused, match="a bad argument"):
                await ours.set("l", 2)

    async def run() -> None:
        async with Client(cluster.client_addresses()) as client:
            with pytest.raises(RolledBack, match="a bad argument"):
                await client.transact(goes_on, attempts=1)
            assert await client.map("rejected").is_empty()

    asyncio.run(run())


@pytest.mark.parametrize("when", ["operation", "commit"])
def test_the_connection_ends(cluster: LocalCluster, when: str) -> None:
    """Before the commit is sent nothing is applied; after it the outcome is not known, and nothing is repeated."""

    async def run(door: str, wicked: asyncio.Event) -> None:
        async with Client([door]) as client:
            while len(client.connected) < 3 or not all(client.route):  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.02)
            (bad,) = (line for line in client.lines() if line.address[1] == int(door[10:]))
            client.line_for = lambda partition: bad  # type: ignore[method-assign]

            async def work(transaction: Transaction) -> None:
                del client.line_for  # type: ignore[method-assign]
                ours = transaction.map("cut " + when)
                await ours.set("k", 1)
                wicked.set()
                if when == "operation":
                    await ours.set("l", 1)

            with pytest.raises(RolledBack if when == "operation" else Unknown):
                await client.transact(work, attempts=1)
            wicked.clear()
            async with client.transaction() as transaction:
                ours = transaction.map("cut " + when)
                found = [await ours.get_for_update("k"), await ours.get("l")]
            assert found == [1 if when == "commit" else None, None]

    asyncio.run(with_one_between(cluster, lambda came: b"\xff" * 64, run))


def test_near_caches_forget_what_a_transaction_wrote(cluster: LocalCluster) -> None:
    async def run() -> None:
        near_caches = {"near": NearCacheOptions(invalidate_on_change=False)}
        async with Client(cluster.client_addresses(), near_caches=near_caches) as client:
            ours = client.map("near")
            await ours.set("k", 1)
            assert await ours.get("k") == 1
            async with client.transaction() as transaction:
                await transaction.map("near").set("k", 2)
                assert await ours.get("k") == 1, "it is not committed"
            assert await ours.get("k") == 2

    asyncio.run(run())


def test_mistakes_are_named(cluster: LocalCluster) -> None:
    async def run() -> None:
        client = Client(cluster.client_addresses())
        with pytest.raises(ConfigError, match="is not connected"):
            async with client.transaction():
                pass
        async with client:
            with pytest.raises(ValueError, match="timeout_s must not be negative"):
                client.transaction(timeout_s=-1)
            transaction = client.transaction()
            assert transaction.id == ""
            with pytest.raises(Refused, match="has not begun"):
                await transaction.map("m").get("k")
            with pytest.raises(ConfigError, match="cannot be a map's name"):
                transaction.map("")
            async with transaction:
                pass
            with pytest.raises(Refused, match="begins once"):
                async with transaction:
                    pass
            with pytest.raises(ValueError, match="attempts must be at least 1"):
                await client.transact(lambda transaction: transaction.map("m").get("k"), attempts=0)

    asyncio.run(run())
