"""`holdfast client list` and `kill`, on members with users, clients of both protocols and open transactions."""

from __future__ import annotations

import asyncio
import json

import pytest
from click.testing import CliRunner, Result
from tests.runtime.in_process.test_embedded import member, run

from holdfast import aio
from holdfast.cli.main import holdfast
from holdfast.client.client_transaction import ClientTransaction
from holdfast.client.connection import Credentials
from holdfast.client_core.routing import parse_addresses
from holdfast.errors import HoldfastError

USERS = {
    "users__root__passwords": ["a long enough secret"],
    "users__root__roles": ["admin"],
    "users__ada__passwords": ["another long secret"],
    "users__ada__roles": ["writer"],
    "users__looker__passwords": ["a third long secret"],
    "users__looker__roles": ["looker"],
    "roles__writer__rules": ["map * any", "transaction * use"],
    "roles__looker__rules": ["cluster * status clients"],
    "maps__default__transactional": True,
}


def called(address: str, *words: str, user: str = "root", password: str = "a long enough secret") -> Result:
    environ = {"HOLDFAST_SECURITY_USERNAME": user, "HOLDFAST_SECURITY_PASSWORD": password}
    return CliRunner().invoke(holdfast, [*words, "-a", address], env=environ)


def test_clients_are_listed_and_ended() -> None:
    async def story() -> None:
        async with member(member__name="one", **USERS) as one:
            address = one.client_address
            async with aio.Client(address, username="ada", password="another long secret") as ours:
                await ours.map("m").put("k", "v")
                known = Credentials(None, "ada", "another long secret")
                transaction = ClientTransaction(parse_addresses(address), known)
                await asyncio.to_thread(transaction.__enter__)
                listed = await asyncio.to_thread(called, address, "client", "list", "--json")
                assert listed.exit_code == 0, listed.output
                (found,) = json.loads(listed.stdout)["members"]
                assert found["member"] == "one"
                rows = {row["kind"]: row for row in found["answer"]["clients"]}
                assert set(rows) == {"hazelcast", "holdfast", "operator"}
                assert {rows["hazelcast"]["user"], rows["holdfast"]["user"]} == {"ada"}
                assert rows["operator"]["user"] == "root"
                assert (rows["hazelcast"]["type"], rows["hazelcast"]["name"]) == ("PYH", "holdfast.aio")
                assert (rows["holdfast"]["transactions"], rows["hazelcast"]["transactions"]) == (1, 0)
                assert all(row["address"] == "127.0.0.1" for row in rows.values())
                assert all(row["age_ms"] >= row["idle_ms"] >= 0 for row in rows.values())
                shown = await asyncio.to_thread(called, address, "client", "list")
                assert [line.split()[0] for line in shown.stdout.splitlines()] == ["member", *["one"] * 3]
                number = str(rows["holdfast"]["id"])
                killed = await asyncio.to_thread(called, address, "client", "kill", "one", number)
                assert killed.exit_code == 0, killed.output
                assert f"the connection of client {number} has ended" in killed.stdout
                with pytest.raises(HoldfastError):
                    await asyncio.to_thread(transaction.get, "m", "k")
                again = await asyncio.to_thread(called, address, "client", "kill", "one", number)
                assert (again.exit_code, "no client with id" in again.stderr) == (1, True)
                assert await ours.map("m").get("k") == "v"

    run(story())


def test_only_those_who_may_end_clients() -> None:
    async def story() -> None:
        async with member(member__name="one", **USERS) as one:
            looker = {"user": "looker", "password": "a third long secret"}
            listed = await asyncio.to_thread(
                lambda: called(one.client_address, "client", "list", "--json", **looker)
            )
            assert listed.exit_code == 0, listed.output
            (row,) = json.loads(listed.stdout)["members"][0]["answer"]["clients"]
            number = str(row["id"])
            killed = await asyncio.to_thread(
                lambda: called(one.client_address, "client", "kill", "one", number, **looker)
            )
            assert killed.exit_code == 1
            assert "needs 'kill-client' for cluster" in killed.output
            ada = {"user": "ada", "password": "another long secret"}
            denied = await asyncio.to_thread(lambda: called(one.client_address, "client", "list", **ada))
            assert denied.exit_code == 1

    run(story())
