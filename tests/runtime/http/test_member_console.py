"""The console of real members without a browser: what it writes down, and what the others are asked."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections import Counter
from typing import Any

import msgspec
import pytest
from tests.runtime.http.test_http_door import OPEN, asked, door_of, values
from tests.runtime.in_process.test_embedded import cluster, member, run

from holdfast import aio
from holdfast.core.model.member_status import RunningMigration
from holdfast.errors import Unknown
from holdfast.runtime.http import console_errands, every_member


def test_a_forwarded_action_without_an_answer_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """It must not be reported as rejected: the other member may have carried it out."""

    def lost(*_: object, **__: object) -> None:
        raise Unknown("the connection broke")

    async def story() -> None:
        async with cluster(2, **OPEN) as (one, two):
            monkeypatch.setattr(console_errands, "carry_out", lost)
            path = f"/v1/actions/promote?member={two.uuid}"
            status, body = await asked(door_of(one), path, "POST", "{}", content_type="application/json")
            told = {"result": "unknown", "message": "the connection broke"}
            assert (status, json.loads(body)) == (504, told)

    run(story())


async def of_all(door: Any, query: str, **headers: str) -> list[dict[str, Any]]:
    """The answers of all members to a query."""
    status, body = await asked(door, f"/v1/queries/{query}?member=all", **headers)
    assert status == 200, body
    found: list[dict[str, Any]] = json.loads(body)["members"]
    return found


def test_a_restarted_process_does_not_answer_for_the_member_that_was_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask = every_member.ask

    def restarted(*asked: Any, **more: Any) -> Any:
        return msgspec.structs.replace(ask(*asked, **more), uuid="another")

    async def story() -> None:
        async with cluster(2, **OPEN) as (first, second):
            monkeypatch.setattr(every_member, "ask", restarted)
            told = {one["uuid"]: one for one in await of_all(door_of(first), "status")}
            assert told[first.uuid]["answer"]["uuid"] == first.uuid
            assert told[second.uuid]["answer"] is None
            assert "was restarted" in told[second.uuid]["error"]

    run(story())


async def reads(door: Any) -> dict[str, int]:
    """Reads of each map at all members."""
    found = Counter[str]()
    for one in await of_all(door, "maps"):
        found.update(one["answer"]["reads"])
    return dict(found)


def test_what_happens_is_written_down_and_every_member_is_asked() -> None:
    async def story() -> None:
        async with cluster(2, **OPEN) as (first, _):
            await first.map("m").put_all(dict.fromkeys(range(200), "value"))
            door, node = door_of(first), first._node
            before = json.loads((await asked(door, "/console/api/history"))[1])
            assert len(before["base"]) == 31
            running: dict[int, RunningMigration] = {}

            async def watch() -> None:
                while True:
                    running.update({one.partition: one for one in node.member.picture.running_migrations()})
                    await asyncio.sleep(0)

            # From before it joins: all may be over when it is there.
            watching = asyncio.ensure_future(watch())
            async with member(first.member_address, **OPEN) as third:
                await asyncio.gather(first.wait_safe(), third.wait_safe())
                watching.cancel()
                assert {one.destination for one in running.values()} >= {third.uuid}
                statuses = await of_all(door, "status")
                assert [one["error"] for one in statuses] == ["", "", ""]
                assert sum(one["answer"]["entries"]["primary"] for one in statuses) == 200
                counted = [one["answer"]["maps"]["m"] for one in await of_all(door, "maps")]
                assert [sum(one[what] for one in counted) for what in ("entries", "updates")] == [200, 200]
                after = json.loads((await asked(door, f"/console/api/history?since={before['number']}"))[1])
                assert after["base"] is None
                assert any(name for uuid, name in after["members"] if uuid == third.uuid)
                kinds = [one.kind for one in node._http._console.cluster_events.since(0)[0]]  # type: ignore[union-attr]
                assert {"joined", "master", "rebalance", "migrated", "rebalanced"} <= set(kinds)
            await asyncio.sleep(1.1)
            assert len(await of_all(door, "status")) == 2
            lines = node._http._console.cluster_events.since(0)[0]  # type: ignore[union-attr]
            assert [one.kind for one in lines if one.kind in ("left", "gone")] == ["left"]

    run(story())


def test_reads_of_a_map_are_counted_whichever_way_they_come() -> None:
    """By the data lane or by requests of their own."""

    async def story() -> None:
        async with cluster(2, **OPEN) as (first, second):
            ours = first.map("m")
            await ours.put_all({n: n for n in range(40)})
            await second.map("left alone").set(1, 1)
            async with aio.Client([first.client_address, second.client_address]) as client:
                theirs = client.map("m")
                assert await reads(door_of(first)) == {}
                for n in range(30):
                    assert await theirs.get(n) == n
                assert await theirs.contains_key(1)
                assert len(await theirs.get_all(range(20))) == 20
                assert await ours.get(3) == 3
                async with asyncio.timeout(120):
                    while await reads(door_of(first)) != {"m": 30 + 1 + 20 + 1}:  # noqa: ASYNC110
                        await asyncio.sleep(0.1)
                pages = [values((await asked(door_of(one), "/metrics"))[1]) for one in (first, second)]
                assert sum(page["holdfast_map_reads_total"].get(("m",), 0) for page in pages) == 52

    run(story())


def test_a_member_that_does_not_answer_is_shown_as_silent() -> None:
    async def story() -> None:
        async with cluster(2, **OPEN) as (first, second):
            # Its door for clients is shut; members hear it as before.
            node: Any = second._node
            await node._ports.close_client_port()
            statuses = await of_all(door_of(first), "status")
            silent = {one["uuid"]: one["error"] for one in statuses if one["answer"] is None}
            assert set(silent) == {second.uuid}
            assert silent[second.uuid]

    run(story())


def test_the_page_is_for_everybody_and_what_it_shows_for_who_has_the_token() -> None:
    async def story() -> None:
        async with cluster(2, **OPEN, http__token="open sesame") as (first, _):
            door = door_of(first)
            assert (await asked(door, "/console"))[0] == 200
            assert (await asked(door, "/console/app.js"))[0] == 200
            for path in ("me", "history", "events"):
                assert (await asked(door, f"/console/api/{path}"))[0] == 401
            assert (await asked(door, "/v1/queries/status?member=all"))[0] == 401
            token = "Basic " + b64encode(b"token:open sesame").decode()
            statuses = await of_all(door, "status", authorization=token)
            assert [one["error"] for one in statuses] == ["", ""], "doors for clients ask for none"

    run(story())
