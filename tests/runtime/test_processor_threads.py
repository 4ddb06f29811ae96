"""Threads that run entry processors, and how their functions are found."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from threading import Event
from types import ModuleType

import pytest

from holdfast.config import ProcessorSettings, Settings, load
from holdfast.core.model.processors import EntryChange, ProcessorCall, ProcessorResult, ProcessorRun
from holdfast.errors import ConfigError
from holdfast.runtime.processor_threads import ProcessorThreads, load_processors
from holdfast.serialization.entry_processors import Entry, Processor
from holdfast.serialization.serializers import Serializers

SERIALIZERS = Serializers()


def run(name: str = "do", limit_ms: int = 60_000) -> ProcessorRun:
    return ProcessorRun(ProcessorCall(name, limit_ms=limit_ms), "m", SERIALIZERS.dump("k"), None)


def in_threads(
    functions: dict[str, Processor], use: Callable[[ProcessorThreads], object], results: int, **limits: int
) -> list[ProcessorResult]:
    """The first results, in the order in which they come."""

    async def go() -> list[ProcessorResult]:
        loop = asyncio.get_running_loop()
        chosen = {"threads": 2, "waiting": 10, **limits}
        threads = ProcessorThreads(functions, SERIALIZERS, loop, lambda deed: deed(), **chosen)
        found: asyncio.Queue[ProcessorResult] = asyncio.Queue()
        execute = threads.run
        threads.run = lambda asked, done=found.put_nowait: execute(asked, done)  # type: ignore[method-assign]
        use(threads)
        try:
            return [await asyncio.wait_for(found.get(), 60) for _ in range(results)]
        finally:
            threads.end()

    return asyncio.run(go())


def add(entry: Entry) -> int:
    entry.value = (entry.value or 0) + 1
    return 7


def test_a_function_runs_and_its_result_comes_back() -> None:
    [result] = in_threads({"do": add}, lambda threads: threads.run(run()), 1)  # type: ignore[call-arg]
    assert result == ProcessorResult(EntryChange.STORE, SERIALIZERS.dump(1), SERIALIZERS.dump(7))


def test_an_error_is_a_result_and_so_is_an_unknown_name() -> None:
    def fail(entry: Entry) -> None:
        raise ValueError("sold out")

    def use(threads: ProcessorThreads) -> None:
        threads.run(run("fail"))  # type: ignore[call-arg]
        threads.run(run("what"))  # type: ignore[call-arg]

    errors = sorted(result.error for result in in_threads({"fail": fail}, use, 2))
    assert errors == [
        "entry processor 'fail' raised ValueError: sold out",
        "the primary of the entry has no entry processor 'what': set [processors.what] there",
    ]


def test_runs_wait_for_a_thread_and_too_many_are_rejected() -> None:
    go_on = Event()

    def wait(entry: Entry) -> None:
        go_on.wait(60)

    def use(threads: ProcessorThreads) -> None:
        for _ in range(4):
            threads.run(run())  # type: ignore[call-arg]
        go_on.set()

    results = in_threads({"do": wait}, use, 4, threads=1, waiting=2)
    assert sorted(result.busy for result in results) == [False, False, False, True]
    assert "limits.waiting_processors" in next(result.error for result in results if result.busy)


@pytest.mark.rule("runtime/E-1")
def test_a_run_whose_limit_is_over_before_a_thread_is_free_does_not_begin() -> None:
    begun: list[Entry] = []
    [result] = in_threads({"do": begun.append}, lambda threads: threads.run(run(limit_ms=0)), 1)  # type: ignore[call-arg]
    assert "before a thread was free" in result.error
    assert not begun


@pytest.mark.rule("runtime/E-1")
def test_a_result_after_the_end_of_the_loop_is_dropped() -> None:
    begun, go_on, ended = Event(), Event(), Event()

    def wait(entry: Entry) -> None:
        begun.set()
        go_on.wait(60)
        ended.set()

    def use(threads: ProcessorThreads) -> None:
        threads.run(run())  # type: ignore[call-arg]
        assert begun.wait(60)

    assert in_threads({"do": wait}, use, 0) == []
    go_on.set()
    assert ended.wait(60)


# -- which functions there are


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("shop")
    module.sell = add  # type: ignore[attr-defined]
    module.PRICE = 5  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop", module)
    return module


def with_function(function: str) -> Settings:
    return Settings(processors={"sell": ProcessorSettings(function=function)})


def test_functions_are_loaded_by_name(shop: ModuleType) -> None:
    assert load_processors(with_function("shop:sell")) == {"sell": add}


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("nowhere:sell", "module 'nowhere' cannot be imported .*PYTHONPATH"),
        ("shop:buy", "module 'shop' has no function 'buy'"),
        ("shop:PRICE", "has no function 'PRICE'"),
    ],
)
def test_a_function_that_is_missing_is_named(shop: ModuleType, function: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"this member: processors.sell.function = '{function}'.*{problem}"):
        load_processors(with_function(function))


def test_a_function_must_be_set() -> None:
    with pytest.raises(ConfigError, match=r"processors.sell.function must be set"):
        load_processors(with_function(""))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[processors.a]\nfunction = "shop.sell"', "processors.a.function = 'shop.sell' is not allowed"),
        ('[processors.a]\nfunction = "a:b"\ntime_limit_ms = 3_600_000', "half of limits.call_timeout_ms"),
        (
            '[processors.a]\nfunction = "a:b"\nclass_id = 1\n[processors.b]\nfunction = "a:c"\nclass_id = 1',
            "processors.b.factory_id and class_id are those of processors.a",
        ),
    ],
)
def test_wrong_settings_are_named(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        load(text)
