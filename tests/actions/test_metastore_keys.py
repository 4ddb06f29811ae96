"""Keys of the metastore, as operators read and change them on a member."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.runtime.in_process.test_embedded import member, run

from holdfast.actions.registry import action_of
from holdfast.cli.main import holdfast
from holdfast.errors import ProtocolError


@pytest.mark.parametrize(
    ("name", "fields", "why"),
    [
        ("read-key", {"key": "k", "revision": -1}, ">= 0"),
        ("read-key", {"key": "k", "revision": 2**63}, "<= 9007199254740992"),
        ("key-changes", {"after": -5}, ">= 0"),
        ("put-key", {"key": "k", "value": "v", "if_revision": 2**60}, "<= 9007199254740992"),
        ("put-key", {"key": "k", "value": 1}, "got `int`"),
        ("put-key", {"key": "k"}, "missing required field `value`"),
        ("remove-key", {}, "missing required field `key`"),
    ],
)
def test_impossible_fields_are_rejected(name: str, fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        action_of(name, fields)


def called(address: str, *words: str) -> Result:
    return CliRunner().invoke(holdfast, ["metastore", *words, "-a", address], catch_exceptions=False)


def test_keys_are_changed_and_shown_by_commands() -> None:
    async def story() -> None:
        async with member(member__name="one", metastore__voters=1, partitions__count=7) as one:

            async def metastore(*words: str) -> Result:
                return await asyncio.to_thread(called, one.client_address, *words)

            put = json.loads(
                (await metastore("put", "app/flag", "on", "--if-revision", "0", "--json")).stdout
            )
            revision = put["revision"]
            assert put == {
                "message": f"key app/flag has this value as of revision {revision}",
                "done": True,
                "revision": revision,
            }
            again = await metastore("put", "app/flag", "off", "--if-revision", "0")
            assert again.exit_code == 1
            assert f"key app/flag is at revision {revision}; nothing was changed" in again.stderr
            assert (await metastore("put", "app/x", '{"a": 1}')).exit_code == 0
            assert (await metastore("get", "app/flag")).stdout == "on\n"
            scanned = await metastore("scan", "app/", "--json")
            assert [json.loads(line)["key"] for line in scanned.stdout.splitlines()] == ["app/flag", "app/x"]
            rest = await metastore("scan", "app/", "--after", "app/flag", "--json")
            assert [json.loads(line)["value"] for line in rest.stdout.splitlines()] == ['{"a": 1}']
            removed = await metastore("remove", "app/flag", "--if-revision", str(revision))
            assert (removed.exit_code, "key app/flag is not there as of" in removed.stdout) == (0, True)
            gone = await metastore("get", "app/flag")
            assert (gone.exit_code, "key app/flag has no value" in gone.stderr) == (1, True)
            before = await metastore("get", "app/flag", "--revision", str(revision), "--json")
            assert json.loads(before.stdout)["value"] == "on"
            history = await metastore("history", "app/flag", "--json")
            values = [json.loads(line)["value"] for line in history.stdout.splitlines()]
            assert values == ["on", None]
            zones = await metastore("put", "zones/x", "junk")
            assert (zones.exit_code, "only be changed with holdfast zone" in zones.stderr) == (1, True)
            reset = await metastore("reset", "--yes")
            assert (reset.exit_code, "it needs no reset" in reset.stderr) == (1, True)
            elsewhere = ["metastore", "reset", "--yes", "-a", f"127.0.0.1:1,{one.client_address}"]
            silent = await asyncio.to_thread(CliRunner().invoke, holdfast, elsewhere)
            assert silent.exit_code == 4, (
                "no other member than the first is asked to discard what others have"
            )

    run(story())
