"""Real members of two feature levels, and an operator who raises the level."""

from __future__ import annotations

import asyncio

import pytest
from tests.runtime.in_process.test_embedded import member, run
from tests.statuses import status

from holdfast.actions.evict import Evict
from holdfast.actions.upgrade import Upgrade
from holdfast.cli.levels import levels_of
from holdfast.cli.status import of_versions
from holdfast.core.model import views
from holdfast.core.model.levels import EVICTS, HIGHEST, LOWEST, FeatureLevels
from holdfast.core.model.member_status import FeatureLevel
from holdfast.errors import Refused
from holdfast.runtime.in_process.embedded import Member
from holdfast.version import __version__

OLDER = FeatureLevels(LOWEST, LOWEST)


async def order(one: Member, level: int, timeout_s: float = 10) -> None:
    await one._node.control.run(Upgrade(level), timeout_s)


def level_of(one: Member) -> FeatureLevel:
    return one.status().level


def test_it_rises_when_all_can_do_it_and_somebody_orders_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(views, "OF_THIS_BUILD", OLDER)
            first = member()
            await first.start()
        async with member(first.member_address) as second:
            await second.wait_safe()
            await second.map("m").put_all({n: n for n in range(500)})
            assert level_of(second) == FeatureLevel(1, 1, HIGHEST, 1)
            with pytest.raises(Refused, match=rf"not all members support feature level {HIGHEST}: .*\(1\)"):
                await order(second, HIGHEST)
            with pytest.raises(Refused, match=f"eviction needs feature level {EVICTS}"):
                await second._node.control.run(Evict([first._node.member_uuid]), 5)
            await first.leave()
            async with member(second.member_address) as third:
                await third.wait_safe()
                seen = third.status()
                assert level_of(third).in_force == LOWEST
                assert any("holdfast cluster upgrade" in line for line in of_versions(seen))
                await asyncio.gather(order(second, HIGHEST), order(third, HIGHEST))
                assert [level_of(one).in_force for one in (second, third)] == [HIGHEST] * 2
                with pytest.raises(Refused, match="a level never falls"):
                    await order(third, LOWEST)
                assert await third.map("m").size() == 500
                assert list(of_versions(third.status())) == []
                async with member(second.member_address) as fourth:
                    await fourth.wait_safe()
                    assert await fourth.map("m").get_all(list(range(500))) == {n: n for n in range(500)}

    run(story())


def test_what_people_are_shown() -> None:
    async def story() -> None:
        async with member(member__name="one") as only:
            lines = list(levels_of(only.status()).view())
            assert lines == [
                f"feature level {HIGHEST} in force; all members support {HIGHEST}",
                f"  one: Holdfast {__version__}, levels {LOWEST} to {HIGHEST}",
            ]

    run(story())
    mixed = {
        "level": {"in_force": 1, "possible": 1},
        "members": [
            {"name": name, "version": version} for name, version in (("a", "0.1"), ("b", "0.2"), ("c", "0.2"))
        ],
    }
    assert list(of_versions(status(mixed))) == ["versions are mixed: 0.1 on a; 0.2 on b, c"]
