"""Entry processors on real members: by the in-process API, by our clients and by the official one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from types import ModuleType

import hazelcast
import pytest
from hazelcast.serialization.api import IdentifiedDataSerializable
from tests.runtime.in_process.test_embedded import cluster

from holdfast import Member
from holdfast.aio import BlockingClient, Client
from holdfast.errors import ConfigError, ProcessorFailed, Refused
from holdfast.serialization.entry_processors import Entry


def add(entry: Entry) -> int:
    total: int = (entry.value or 0) + entry.argument
    entry.value = total
    return total


def take(entry: Entry) -> object:
    taken = entry.value
    entry.remove()
    return taken


def refuse(entry: Entry) -> None:
    entry.value = 0
    raise ValueError("sold out")


def put_text(entry: Entry) -> str:
    entry.value = entry.argument.read_string()
    text: str = entry.value
    return text


class PutText(IdentifiedDataSerializable):  # type: ignore[misc]
    def __init__(self, value: str) -> None:
        self._value = value

    def write_data(self, output: object) -> None:
        output.write_string(self._value)  # type: ignore[attr-defined]

    def read_data(self, given: object) -> None: ...

    def get_factory_id(self) -> int:
        return 66

    def get_class_id(self) -> int:
        return 1


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as one:
        yield one


@pytest.fixture(scope="module")
def two(runner: asyncio.Runner) -> Iterator[list[Member]]:
    module = ModuleType("processors_of_this_test")
    for function in (add, take, refuse, put_text):
        setattr(module, function.__name__, function)
    sys.modules[module.__name__] = module
    chosen: dict[str, object] = {
        f"processors__{name}__function": f"{module.__name__}:{name}"
        for name in ("add", "take", "refuse", "put_text")
    }
    numbers = {"processors__put_text__factory_id": 66, "processors__put_text__class_id": 1}
    context = cluster(2, **chosen, **numbers)
    members = runner.run(context.__aenter__())
    yield members
    runner.run(context.__aexit__(None, None, None))
    del sys.modules[module.__name__]


def test_many_callers_add_and_none_is_lost(two: list[Member], runner: asyncio.Runner) -> None:
    async def run() -> None:
        maps = [member.map("counts") for member in two]
        answers = await asyncio.gather(*(maps[at % 2].execute("k", "add", 1) for at in range(40)))
        assert sorted(answers) == list(range(1, 41))
        assert await maps[0].get("k") == 40
        assert await maps[1].execute("k", "take") == 40
        assert await maps[0].get("k") is None
        with pytest.raises(ProcessorFailed, match="'refuse' raised ValueError: sold out"):
            await maps[0].execute("k", "refuse")
        assert await maps[0].get("k") is None
        with pytest.raises(ConfigError, match=r"set \[processors.none\]"):
            await maps[0].execute("k", "none")

    runner.run(run())


def test_clients_run_processors(two: list[Member], runner: asyncio.Runner) -> None:
    addresses = [str(member.client_address) for member in two]

    def blocking() -> None:
        with BlockingClient(addresses) as client:
            assert client.map("mine").execute("b", "add", 5) == 5
            assert client.map("mine").execute("b", "take") == 5
        theirs = hazelcast.HazelcastClient(cluster_members=addresses)
        try:
            texts = theirs.get_map("texts").blocking()
            assert texts.execute_on_key("k", PutText("new")) == "new"
            texts.put("l", "old")
            assert sorted(texts.execute_on_entries(PutText("all"))) == [("k", "all"), ("l", "all")]
            assert texts.execute_on_keys(["l", "m"], PutText("some"))
            assert texts.get_all(["k", "l", "m"]) == {"k": "all", "l": "some", "m": "some"}
        finally:
            theirs.shutdown()

    async def run() -> None:
        async with Client(addresses) as client:
            ours = client.map("mine")
            answers = await asyncio.gather(*(ours.execute("a", "add", 1) for _ in range(20)))
            assert sorted(answers) == list(range(1, 21))
            with pytest.raises(ProcessorFailed, match="sold out"):
                await ours.execute("a", "refuse")
            with pytest.raises(Refused, match="there is no entry processor 'none'"):
                await ours.execute("a", "none")
            assert await ours.get("a") == 20
        await asyncio.to_thread(blocking)

    runner.run(run())


def test_a_member_without_the_function_does_not_start() -> None:
    async def run() -> None:
        with pytest.raises(ConfigError, match=r"processors\.p\.function = 'no_such_module:f'"):
            async with cluster(1, processors__p__function="no_such_module:f"):
                pass

    asyncio.run(run())
