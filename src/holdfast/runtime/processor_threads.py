"""Threads that run entry processors.

- runtime/E-1: A result that comes after the member has ended is dropped. A function that does not return keeps its
  thread; its caller gets an error at the time limit, and so do others, once all threads are kept.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from queue import SimpleQueue
from threading import Thread

from holdfast.config import ProcessorSettings, Settings
from holdfast.core.model.processors import ProcessorResult, ProcessorRun
from holdfast.errors import ConfigError
from holdfast.serialization.entry_processors import Processor, run_processor
from holdfast.serialization.serializers import Serializers

Done = Callable[[ProcessorResult], None]
Guard = Callable[[Callable[[], None]], None]
_Job = tuple[Processor, ProcessorRun, Done, float]
OVERDUE = ProcessorResult(error="its time limit was over before a thread was free")


def load_processors(settings: Settings) -> dict[str, Processor]:
    """The functions of `[processors.NAME]`. Raises ConfigError."""
    member = settings.member.name or "this member"
    return {name: _load(name, chosen, member) for name, chosen in settings.processors.items()}


def _load(name: str, chosen: ProcessorSettings, member: str) -> Processor:
    if not chosen.function:
        raise ConfigError(f"{member}: processors.{name}.function must be set: MODULE:FUNCTION")
    module, _, path = chosen.function.partition(":")
    where = f"{member}: processors.{name}.function = {chosen.function!r}"
    try:
        found: object = import_module(module)
    except Exception as error:
        raise ConfigError(
            f"{where}: module {module!r} cannot be imported ({type(error).__name__}: {error}). It must be "
            "installed, or in a folder of PYTHONPATH, on this member"
        ) from error
    for part in path.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ConfigError(f"{where}: module {module!r} has no function {path!r}")
    return found


def processor_threads(
    settings: Settings, loop: asyncio.AbstractEventLoop, guard: Guard
) -> ProcessorThreads | None:
    """None: the settings have no entry processors. Raises ConfigError."""
    functions = load_processors(settings)
    if not functions:
        return None
    limits = settings.limits
    return ProcessorThreads(
        functions,
        Serializers(),
        loop,
        guard,
        threads=limits.processor_threads,
        waiting=limits.waiting_processors,
    )


class ProcessorThreads:
    """Implements `engine.ports.ProcessorRunner`."""

    def __init__(
        self,
        functions: Mapping[str, Processor],
        serializers: Serializers,
        loop: asyncio.AbstractEventLoop,
        guard: Guard,
        *,
        threads: int,
        waiting: int,
    ) -> None:
        """`waiting`: runs that may wait for a thread."""
        self._functions = functions
        self._serializers = serializers
        self._loop = loop
        self._guard = guard
        self._threads_most, self._waiting_most = threads, waiting
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._unfinished = 0
        self._ended = False

    def run(self, asked: ProcessorRun, done: Done) -> None:
        call = asked.call
        function = self._functions.get(call.name)
        if function is None:
            error = f"the primary of the entry has no entry processor {call.name!r}: set [processors.{call.name}] there"
            self._answer_soon(done, ProcessorResult(error=error))
        elif self._unfinished >= self._threads_most + self._waiting_most:
            error = f"{self._unfinished} entry processors wait or run (limits.waiting_processors); nothing was done"
            self._answer_soon(done, ProcessorResult(error=error, busy=True))
        else:
            self._unfinished += 1
            if len(self._threads) < min(self._unfinished, self._threads_most):
                thread = Thread(target=self._work, name=f"processors {len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._jobs.put((function, asked, done, time.monotonic() + call.limit_ms / 1000))

    def _answer_soon(self, done: Done, result: ProcessorResult) -> None:
        self._loop.call_soon(self._guard, lambda: done(result))

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            function, asked, done, until_s = job
            late = self._ended or time.monotonic() >= until_s
            result = OVERDUE if late else run_processor(function, asked, self._serializers)
            try:
                self._loop.call_soon_threadsafe(self._guard, _Finish(self, done, result))
            except RuntimeError:  # The loop is closed.
                return

    def finished(self) -> None:
        self._unfinished -= 1

    def end(self) -> None:
        """Start no more; threads end when their functions return."""
        self._ended = True
        for _ in self._threads:
            self._jobs.put(None)


class _Finish:
    __slots__ = ("_done", "_result", "_threads")

    def __init__(self, threads: ProcessorThreads, done: Done, result: ProcessorResult) -> None:
        self._threads = threads
        self._done = done
        self._result = result

    def __call__(self) -> None:
        self._threads.finished()
        self._done(self._result)
