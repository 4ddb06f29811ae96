"""`holdfast cluster restart`: only where something starts members again, and with the status after which it does."""

from __future__ import annotations

import asyncio

import pytest
from click.testing import CliRunner, Result
from tests.runtime.in_process.test_embedded import cluster, run

from holdfast.actions.restart import Restart
from holdfast.cli.main import holdfast
from holdfast.errors import Refused
from holdfast.runtime.in_process.embedded import Member
from holdfast.runtime.supervision import RESTART, supervisor_of


def called(one: Member, *words: str) -> Result:
    return CliRunner().invoke(holdfast, ["cluster", "restart", "--yes", "-a", one.client_address, *words])


@pytest.mark.parametrize(
    ("environ", "supervisor"),
    [
        ({}, ""),
        ({"SUPERVISED_BY": "holdfast", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "holdfast"),
        ({"INVOCATION_ID": "1", "SYSTEMD_EXEC_PID": "17"}, "systemd"),
        ({"INVOCATION_ID": "1", "SYSTEMD_EXEC_PID": "16"}, ""),
        ({"INVOCATION_ID": "1"}, ""),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({"SUPERVISED_BY": "me"}, ""),
    ],
)
def test_a_process_knows_its_supervisor(environ: dict[str, str], supervisor: str) -> None:
    assert supervisor_of(environ, 17) == supervisor


def test_without_a_supervisor_the_steps_are_printed_and_nothing_is_done() -> None:
    async def story() -> None:
        async with cluster(2) as members:
            one, two = members
            two._node.control.supervisor = "holdfast"
            told = await asyncio.to_thread(called, one)
            assert told.exit_code == 1
            assert "holdfast member drain" in told.stderr
            assert f"nothing starts {one.status().name} again" in told.stderr
            with pytest.raises(Refused, match="no supervisor would start this member again"):
                await one._node.control.run(Restart(), 5)
            assert not any(member._node.ended.is_set() for member in members)

    run(story())


def test_a_member_ends_with_the_status_of_a_restart_when_it_has_left() -> None:
    async def story() -> None:
        async with cluster(2) as members:
            one, two = members
            for member in members:
                member._node.control.supervisor = "holdfast"
            await one.map("m").put_all({n: n for n in range(100)})
            late = await asyncio.to_thread(called, one, "--timeout", "0", str(two.status().name))
            assert late.exit_code == 3, late.output
            await two.wait_ended()
            assert two._node.control.exit_status == RESTART
            assert await one.map("m").size() == 100
            with pytest.raises(Refused, match="the last data member"):
                await one._node.control.run(Restart(), 5)
            assert one._node.control.exit_status == 0

    run(story())
