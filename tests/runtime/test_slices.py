"""Operations on whole maps are done in slices, and answer as if they were not."""

from __future__ import annotations

import pytest
from tests.runtime.in_process.test_embedded import cluster, run

from holdfast.core.primary_backup import primary_copy
from holdfast.core.routing import gatherings
from holdfast.errors import TooLarge


def test_a_whole_map_is_gone_through_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (gatherings, primary_copy):
        monkeypatch.setattr(module, "SLICE_ENTRIES", 20)
    entries = {number: f"v{number}" for number in range(500)}

    async def story() -> None:
        async with cluster(3) as members:
            here = members[0].map("m")
            await here.put_all(entries)
            sent = members[0]._node.member.router.tickets
            assert await here.size() == 500
            assert sorted(await here.keys()) == sorted(entries)
            assert members[0]._node.member.router.tickets - sent > 30, "in many slices"
            await members[1].map("m").clear()
            assert await here.size() == 0
            assert not any(members[0]._node.member.router.leftovers.values())

    run(story())


def test_what_would_be_too_large_an_answer_is_refused() -> None:
    async def story() -> None:
        async with cluster(2, limits__answer_bytes=65_536) as members:
            here = members[0].map("m")
            await here.put_all(dict.fromkeys(range(200), "v" * 1000))
            for many in (here.values(), here.entries()):
                with pytest.raises(TooLarge, match=r"limits\.answer_bytes"):
                    await many
            assert await here.size() == 200
            assert len(await here.keys()) == 200

    run(story())
