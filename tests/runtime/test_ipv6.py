"""A member on the IPv6 loopback is reached by every client under the address that it shows."""

from __future__ import annotations

import asyncio
import socket

import pytest
from click.testing import CliRunner
from tests.runtime.in_process.test_embedded import member, run

from holdfast import aio
from holdfast.cli.main import holdfast as command


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")
def test_a_member_on_the_ipv6_loopback() -> None:
    async def story() -> None:
        async with member(member__host="::1") as first:
            address = first.client_address
            assert address.startswith("[::1]:")
            async with (
                member(first.member_address, member__host="::1"),
                aio.Client(address) as client,
            ):
                await client.map("m").set("a", 1)
                assert await client.map("m").get("a") == 1
                while len(client.connected) < 2:  # noqa: ASYNC110 - pytest's own limit ends a wait in vain
                    await asyncio.sleep(0.01)
                assert all(one.startswith("[::1]:") for one in client.connected)
                await first.wait_safe()
                for words in (["status"], ["cluster", "safe"], ["data", "get", "m", "a"]):
                    told = await asyncio.to_thread(CliRunner().invoke, command, [*words, "-a", address])
                    assert (told.exit_code, "silent" in told.output) == (0, False), told.output

    run(story())
