"""The secret of the members: rolled without a gap, and what whoever has another one is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from tests.runtime.in_process.test_embedded import cannot_join, cluster, member, run

from holdfast.cli.main import holdfast as command
from holdfast.errors import Closing
from holdfast_lab.processes.local_cluster import LocalCluster, ManagedMember


class Rolling(LocalCluster):
    """Members whose secrets are told to each when it starts."""

    secrets: dict[str, str]

    def environment(self, name: str) -> dict[str, str]:
        return self.secrets


@pytest.fixture
def grid(request: pytest.FixtureRequest) -> Iterator[Rolling]:
    running = Rolling(request.param, "[cluster]\nsuspect_after_ms = 10000\nheartbeat_ms = 300")
    running.secrets = secrets("old")
    with running:
        yield running


def secrets(first: str, second: str = "") -> dict[str, str]:
    return {"HOLDFAST_SECURITY_MEMBER_SECRET": first, "HOLDFAST_SECURITY_SECOND_MEMBER_SECRET": second}


def status(grid: LocalCluster, *flags: str) -> str:
    asked = CliRunner().invoke(command, ["status", grid.client_addresses()[-1], *flags])
    assert asked.exit_code == 0, asked.output
    return asked.stdout


def again(grid: Rolling, one: ManagedMember) -> ManagedMember:
    """Restart a member in order."""
    grid.drain(one)
    [back] = grid.restart([one])
    return back


@pytest.mark.slow
@pytest.mark.parametrize("grid", [3], indirect=True)
def test_a_secret_is_rolled_member_by_member(grid: Rolling) -> None:
    grid.wait_safe(120)
    assert "secret" not in status(grid)
    first, second, third = grid.alive
    grid.secrets = secrets("new", "old")
    first = again(grid, first)
    grid.wait_safe(120)
    shown = status(grid)
    assert f"{second.name}, {third.name} do not know that of {first.name} yet" in " ".join(shown.split())
    assert "silent" not in shown
    second, third = again(grid, second), again(grid, third)
    grid.wait_safe(120)
    shown = " ".join(status(grid).split())
    assert "all members know that of" in shown and "remove security.second_member_secret there" in shown
    grid.secrets = secrets("new")
    for one in (first, second, third):
        again(grid, one)
    grid.wait_safe(120)
    assert "secret" not in status(grid)
    seen: dict[str, Any] = json.loads(status(grid, "--json"))
    assert len(seen["members"]) == 3 and seen["safe"]


@pytest.mark.parametrize("grid", [1], indirect=True)
def test_a_joiner_with_another_secret_is_told_so(grid: Rolling) -> None:
    grid.secrets = secrets("wrong")
    stranger = grid.start_member(wait=False)
    assert stranger.process.wait(120) == 2
    told = stranger.log_tail()
    assert "security.member_secret is not the one that the members at" in told
    assert "do not start it with --bootstrap" in told
    assert "or start one member with --bootstrap" not in told
    shown = " ".join(status(grid).split())
    assert f"rejected because of another security.member_secret: {stranger.member_address}" in shown
    assert "not safe" not in shown
    assert "differs from this member's" in grid.alive[0].log_tail()


def test_members_with_the_old_the_new_and_both_are_one_cluster() -> None:
    """What a roll comes through, without the restarts."""

    async def story() -> None:
        async with cluster(1, security__member_secret="old") as (old,):
            rolled = {"security__member_secret": "new", "security__second_member_secret": "old"}
            async with member(old.member_address, **rolled) as both:
                for one in (old, both):
                    await one.wait_safe()
                told = both.status().member_secret
                assert told.second and told.lacking_first == [old.uuid]
                assert not told.lacking_second and not told.refused
                other = old.status().member_secret
                assert not other.second and not other.lacking_first
                await old.leave()
                async with member(both.member_address, security__member_secret="new") as new:
                    told = both.status().member_secret
                    assert told.lacking_second == [new.uuid] and not told.lacking_first

    run(story())


def test_whoever_is_refused_by_all_seeds_forms_no_second_cluster() -> None:
    async def story() -> None:
        async with cluster(1, security__member_secret="one") as (first,):
            reason = r"security.member_secret is not the one .* --bootstrap"
            await cannot_join(Closing, reason, first.member_address, security__member_secret="two")

    run(story())
