"""Actions and queries about zones: their fields, and what becomes of them on a member."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.runtime.http.test_http_door import OPEN, asked, door_of
from tests.runtime.in_process.test_embedded import member, run

from holdfast.actions.change_zone import AlterZone, CreateZone, RenameZone
from holdfast.actions.registry import action_of
from holdfast.cli.main import holdfast
from holdfast.core.zones import descriptors
from holdfast.core.zones.descriptors import Adjustment
from holdfast.errors import ProtocolError


def test_settings_that_are_given_are_those_of_the_zone() -> None:
    given = CreateZone(
        "z",
        replicas=3,
        filter="rack=a|b, host=c",
        scale_up_s="never",
        scale_down_s=0,
        adjustment=Adjustment.CANCEL,
    )
    assert given.settings() == {
        "replicas": 3,
        "filter": {"rack": ("a", "b"), "host": ("c",)},
        "scale_up_s": descriptors.NEVER,
        "scale_down_s": 0,
        "adjustment": Adjustment.CANCEL,
    }
    assert AlterZone("z", filter="").settings() == {"filter": {}}


@pytest.mark.parametrize(
    ("name", "fields", "why"),
    [
        ("create-zone", {"replicas": 0}, "Expected `int` >= 1"),
        ("create-zone", {"replicas": "many"}, "Expected `int | null`, got `str`"),
        ("create-zone", {"colour": 1}, "unknown field `colour`"),
        ("create-zone", {"scale_up_s": "seldom"}, "Invalid enum value 'seldom'"),
        ("create-zone", {"scale_up_s": -1}, "Expected `int` >= 0"),
        ("create-zone", {"consistency": "weak"}, "Invalid enum value 'weak'"),
        ("create-zone", {"filter": "x" * 5000}, "length <= 4096"),
        ("alter-zone", {"partitions": 5}, "unknown field `partitions`"),
        ("alter-zone", {"consistency": "ha"}, "unknown field `consistency`"),
        ("drop-zone", {"name": "z" * 257}, "length <= 256"),
        ("rename-zone", {"wanted": "z" * 257}, "length <= 256"),
        ("reset-zone", {"partitions": [0] * 65_537}, "length <= 65536"),
        ("rebuild-replica", {"zone": 0, "partition": 1}, "Expected `int` >= 1"),
    ],
)
def test_impossible_fields_are_rejected_by_both_carriers(name: str, fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ProtocolError, match=why.replace("|", r"\|")):
        action_of(name, {"name": "z", **fields} if name != "rebuild-replica" else fields)


@pytest.mark.parametrize(
    ("action", "why"),
    [
        (CreateZone("z", filter="group"), "attribute=value"),
        (AlterZone("z"), "name at least one setting to alter"),
        (AlterZone("z", replicas=3), ""),
        (RenameZone("z", "y"), ""),
    ],
)
def test_faults_that_no_type_shows(action: CreateZone | AlterZone | RenameZone, why: str) -> None:
    found = action.problem(7)
    assert (why in found) if why else (found == "")


def called(address: str, *words: str) -> Result:
    return CliRunner().invoke(holdfast, [*words, "-a", address], catch_exceptions=False)


def test_zones_are_changed_and_shown_by_commands() -> None:
    async def story() -> None:
        async with member(member__name="one", metastore__voters=1, partitions__count=7) as one:

            async def zone(*words: str) -> Result:
                return await asyncio.to_thread(called, one.client_address, "zone", *words)

            async def until_served() -> dict[str, Any]:
                for _ in range(100):
                    found: dict[str, Any] = json.loads((await zone("show", "z", "--json")).stdout)
                    if all(part["leader"] for part in found["partitions"]):
                        return found
                    await asyncio.sleep(0.1)
                raise AssertionError(found)

            made = await zone("create", "z", "--partitions", "3", "--scale-up-s", "never", "--replicas", "2")
            assert (made.exit_code, made.stdout) == (0, "zone z is created: 3 partitions, 2 replicas\n")
            assert "Warning: zone z: 1 members may hold its replicas" in made.stderr
            twice = await zone("create", "z")
            assert (twice.exit_code, "there is a zone z already" in twice.stderr) == (1, True)
            altered = await zone("alter", "z", "--replicas", "1", "--json")
            assert json.loads(altered.stdout) == {
                "message": "zone z is altered",
                "done": True,
                "partitions": 3,
                "replicas": 1,
                "warnings": [],
            }
            shown = await until_served()
            assert (shown["zone"]["settings"]["scale_up_s"], len(shown["partitions"])) == ("never", 3)
            assert list(shown["members"].values()) == ["one"]
            reset = await zone("reset", "z", "--partition", "2", "--partition", "0", "--yes")
            assert reset.stdout.startswith("zone z: partitions 0, 2 without a majority continue")
            assert (await zone("rename", "z", "y")).stdout == "zone z is called y now\n"
            listed = json.loads((await zone("list", "--json")).stdout)["zones"]
            assert [each["name"] for each in listed] == ["y"]
            unknown = await zone("show", "z")
            assert (unknown.exit_code, "there is no zone z" in unknown.stderr) == (1, True)
            declined = await zone("drop", "y")
            assert (declined.exit_code, "Drop zone y" in declined.stderr) == (1, True)
            dropped = await zone("drop", "y", "--yes")
            assert dropped.stdout == "zone y is dropped, with everything in it\n"

    run(story())


def test_without_a_metastore_a_command_names_the_one_that_starts_it() -> None:
    async def story() -> None:
        async with member() as one:
            for words in (("create", "z"), ("list",)):
                told = await asyncio.to_thread(called, one.client_address, "zone", *words)
                assert (told.exit_code, "holdfast metastore start" in told.stderr) == (1, True)

    run(story())


def test_zones_and_keys_are_changed_and_shown_over_http() -> None:
    async def story() -> None:
        token = "a token of an operator"
        settings: dict[str, Any] = {**OPEN, "http__token": token, "metastore__voters": 1}
        async with member(member__name="one", partitions__count=7, **settings) as one:

            async def http(path: str, body: object = None) -> tuple[int, Any]:
                headers = {"authorization": f"Bearer {token}", "content_type": "application/json"}
                how = () if body is None else ("POST", json.dumps(body))
                status, text = await asked(door_of(one), f"/v1/{path}", *how, **headers)
                return status, json.loads(text)

            made = await http("actions/create-zone", {"name": "z", "partitions": 3})
            assert made == (
                200,
                {
                    "result": "done",
                    "message": "zone z is created: 3 partitions, 1 replicas",
                    "value": {"partitions": 3, "replicas": 1, "warnings": []},
                },
            )
            status, again = await http("actions/create-zone", {"name": "z"})
            assert (status, again) == (409, {"result": "rejected", "message": "there is a zone z already"})
            _, listed = await http("queries/zones")
            assert [zone["name"] for zone in listed["zones"]] == ["z"]
            _, shown = await http("queries/show-zone?name=z")
            assert [one["partition"] for one in shown["partitions"]] == [0, 1, 2]
            _, leaders = await http("queries/zone-leaders")
            assert list(leaders["members"].values()) == ["one"]
            assert (await http("actions/put-key", {"key": "k", "value": "v"}))[0] == 200
            _, found = await http("queries/read-key?key=k")
            assert (found["keys"][0]["key"], found["keys"][0]["value"]) == ("k", "v")
            _, running = await http("queries/transactions?member=all")
            assert running["members"][0]["answer"] == {"transactions": [], "waits": [], "orphans": 0}

    run(story())
