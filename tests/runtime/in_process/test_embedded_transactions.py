"""Transactions of programs that are members, and of those that are not: real members, real sockets."""

from __future__ import annotations

import asyncio
import json
import time
from functools import partial

import pytest
from click.testing import CliRunner
from tests.runtime.in_process.test_embedded import cluster, run

import holdfast
from holdfast.cli.main import holdfast as command
from holdfast.client.blocking import Client
from holdfast.client.client_transaction import ClientTransaction
from holdfast.client.grouped_putting import GroupedRows, GroupSender, grouped_put_problem
from holdfast.client_core.routing import parse_addresses
from holdfast.core.model.transaction_orders import StoreTogether
from holdfast.errors import ProtocolError, Refused, RolledBack
from holdfast.wire import own
from holdfast.wire.values import to_stored

MAP = {"maps.plain.transactional": False}
ACCOUNTS = 10


async def filled(member: holdfast.Member) -> holdfast.Map:
    accounts = member.map("accounts")
    await accounts.put_all(dict.fromkeys(range(ACCOUNTS), 100))
    return accounts


def test_a_transaction_of_a_program_that_is_a_member() -> None:
    async def story() -> None:
        async with cluster(2, **MAP) as (first, second):
            accounts = await filled(first)
            async with second.transaction() as transaction:
                mine = transaction.map("accounts")
                assert await mine.put(1, 90) == 100
                await mine.set("new", 10)
                assert await mine.get("new") == 10
                assert await mine.get_for_update(2) == 100
                assert await mine.put_if_absent(2, 1) == 100
                assert await mine.put_if_absent("other", 1) is None
                assert await mine.replace("nowhere", 1) is None
                assert await mine.replace_if_same(2, 100, 101)
                assert not await mine.replace_if_same(2, 100, 102)
                assert await mine.remove(3) == 100
                assert not await mine.delete("nowhere")
                assert await mine.delete(4)
                assert await mine.contains_key("other")
                assert await mine.size() == ACCOUNTS
                assert "new" in await mine.keys()
                assert 101 in await mine.values()
                assert await accounts.get("new") is None, "nobody else sees it"
            assert await accounts.get(1) == 90
            assert await accounts.get(2) == 101
            assert await accounts.get("new") == 10
            assert await accounts.get(3) is None
            with pytest.raises(ZeroDivisionError):  # noqa: PT012
                async with first.transaction() as transaction:
                    await transaction.map("accounts").set(1, 0)
                    raise ZeroDivisionError
            assert await accounts.get(1) == 90
            with pytest.raises(Refused, match="takes no part"):
                async with first.transaction() as transaction:
                    await transaction.map("plain").set(1, 0)
            with pytest.raises(Refused, match="begins once"):
                await transaction.__aenter__()
            with pytest.raises(ValueError, match="isolation"):
                first.transaction("none")  # type: ignore[arg-type]

    run(story())


def test_transfers_of_many_at_once_keep_the_sum() -> None:
    async def story() -> None:
        async with cluster(2, **MAP, **{"transactions.deadlock_after_ms": 50}) as members:
            accounts = await filled(members[0])

            async def transfer(of: int, to: int, transaction: holdfast.MemberTransaction) -> None:
                mine = transaction.map("accounts")
                left, right = await mine.get(of), await mine.get(to)
                assert isinstance(left, int)
                assert isinstance(right, int)
                await mine.set(of, left - 1)
                await mine.set(to, right + 1)

            works = [
                members[number % 2].transact(
                    partial(transfer, number % ACCOUNTS, (number * 3 + 1) % ACCOUNTS),
                    isolation="serializable" if number % 3 else "repeatable-read",
                    attempts=100,
                )
                for number in range(60)
                if number % ACCOUNTS != (number * 3 + 1) % ACCOUNTS
            ]
            await asyncio.gather(*works)
            assert sum((await accounts.entries()).values()) == 100 * ACCOUNTS  # type: ignore[arg-type]

    run(story())


def test_one_that_was_rolled_back_says_so_and_is_tried_again() -> None:
    async def story() -> None:
        async with cluster(1, **MAP) as (member,):
            accounts = await filled(member)
            tries = 0

            async def read_and_write(transaction: holdfast.MemberTransaction) -> int:
                nonlocal tries
                tries += 1
                before = await transaction.map("accounts").get(1)
                assert isinstance(before, int)
                if tries == 1:
                    await accounts.set(1, before // 2)
                await transaction.map("accounts").set(2, before)
                return before

            assert await member.transact(read_and_write, isolation="serializable") == 50
            assert tries == 2
            tries = 0
            with pytest.raises(RolledBack, match="changed by another writer"):
                await member.transact(read_and_write, isolation="serializable", attempts=1)
            with pytest.raises(RolledBack, match="timeout"):  # noqa: PT012
                async with member.transaction(timeout_s=0.3) as transaction:
                    await transaction.map("accounts").set(1, 1)
                    await asyncio.sleep(1)

    run(story())


def test_rows_are_stored_in_groups_again_and_again_until_they_are_there() -> None:
    def rows(first: int, count: int, word: str) -> GroupedRows:
        numbers = range(first, first + count)
        values = [to_stored(f"{word}{number}") for number in numbers]
        return GroupedRows([to_stored(number) for number in numbers], values, [0] * count)

    def outside(address: str) -> None:
        with Client(address, timeout_s=20) as client:
            assert grouped_put_problem(client, "m") == ""
            assert "takes no part" in grouped_put_problem(client, "plain")
            sender = GroupSender(client, "m", 4)
            with ClientTransaction(parse_addresses(address)) as transaction:
                transaction.set("m", 5, "locked")
                sender.send(rows(0, 3, "a"))
                assert sender.count.messages == 0, "no group is full"
                sender.send(rows(3, 7, "a"))
                assert sender.count.messages == 2
                # The second group is rolled back as long as somebody else has locked one of its entries.
                deadline_s = time.monotonic() + 120
                while client.get("m", to_stored(0)) is None:
                    assert time.monotonic() < deadline_s
                    time.sleep(0.02)
                time.sleep(0.2)
                assert [client.get("m", to_stored(number)) is None for number in (0, 4, 7)] == [
                    False,
                    True,
                    True,
                ]
            done = sender.finish()
            assert (done.rows, done.messages >= 4, done.rows_resent % 4) == (10, True, 0)
            assert done.rows_resent >= 4
            assert client.get("m", to_stored(5)) == to_stored("a5")
            assert client.size("m") == 10
            wrong = GroupSender(client, "plain", 4)
            wrong.send(rows(0, 4, "a"))
            with pytest.raises(Refused, match="takes no part"):
                wrong.finish()
            assert client.size("plain") == 0
            with pytest.raises(ProtocolError, match="columns"):
                _post(client, StoreTogether("m", [b"k"], []))
            with pytest.raises(ProtocolError, match="at most"):
                _post(client, StoreTogether("m", [b"k"] * 10_001, [b""] * 10_001))
            with pytest.raises(ProtocolError, match="lifetime"):
                _post(client, StoreTogether("m", [b"k"], [b""], ttls_ms=[-2]))

    def _post(client: Client, order: StoreTogether) -> None:
        connection = client.to(client.table().data_members[0].uuid)
        connection.ask(own.OrderTransaction(connection.next_number(), order), own.TransactionSays)

    async def story() -> None:
        async with cluster(2, **MAP) as (first, _):
            await asyncio.to_thread(outside, first.client_address)

    run(story())


def test_a_program_that_is_no_member_and_the_operator() -> None:
    def outside(address: str) -> None:
        addresses = parse_addresses(address)
        with ClientTransaction(addresses, label="payroll") as transaction:
            assert transaction.put("accounts", 1, 70) == 100
            transaction.set("accounts", 2, 130)
            listed = CliRunner().invoke(command, ["transactions", "list", "-a", address, "--json"])
            assert listed.exit_code == 0, listed.output
            [running] = json.loads(listed.stdout)["transactions"]
            assert (running["label"], running["entries"], running["phase"]) == ("payroll", 2, "active")
            shown = CliRunner().invoke(command, ["transactions", "list", "-a", address])
            assert "payroll" in shown.stdout
            one = running["transaction"]
            shown = CliRunner().invoke(command, ["transactions", "show", one[:20], "-a", address])
            assert "accounts[1]" in shown.stdout
        with ClientTransaction(addresses) as transaction:
            assert transaction.get("accounts", 1) == 70
            assert transaction.remove("accounts", 2) == 130
            raise_in = CliRunner().invoke(command, ["transactions", "kill", "ffff", "-a", address])
            assert raise_in.exit_code == 1
        with pytest.raises(RolledBack, match="operator"), ClientTransaction(addresses) as transaction:  # noqa: PT012
            transaction.set("accounts", 1, 0)
            listed = CliRunner().invoke(command, ["transactions", "list", "-a", address, "--json"])
            one = json.loads(listed.stdout)["transactions"][0]["transaction"]
            killed = CliRunner().invoke(command, ["transactions", "kill", one, "-a", address])
            assert killed.exit_code == 0, killed.output
        with pytest.raises(ZeroDivisionError), ClientTransaction(addresses) as transaction:  # noqa: PT012
            transaction.set("accounts", 1, 0)
            raise ZeroDivisionError
        gone = ClientTransaction(addresses)
        gone.__enter__()
        gone.set("accounts", 1, 0)
        assert gone._connection is not None
        gone._connection.close()
        with ClientTransaction(addresses) as transaction:
            transaction.set("accounts", 1, 71)  # waits until that one is rolled back
        empty = CliRunner().invoke(command, ["transactions", "list", "-a", address])
        assert "no transactions run" in empty.stdout

    async def story() -> None:
        async with cluster(2, **MAP) as (first, _):
            accounts = await filled(first)
            await asyncio.to_thread(outside, first.client_address)
            assert await accounts.get(1) == 71
            assert await accounts.get(2) is None

    run(story())
