"""Runs the tests of one module against its mutants, as a separate process that forks for each mutant.

Everything is imported and collected once. A child then replaces the code of the mutated function and runs the tests
that reach the changed lines. Mutants of constants and default values, which the import evaluates, are judged by a child
of a process that has not imported the package yet. The checkout is never written to.

Example: for `if count < limit` in Ledger.add the child gets a new code object for Ledger.add with `<=`, and runs only
the tests whose trace contains that line. For `LIMIT = 8` -> `LIMIT = 9` the child must import the mutated module, as
other modules may already have copied LIMIT.
"""

from __future__ import annotations

import ast
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import selectors
import signal
import sys
import time
import types
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from holdfast_lab.mutants.operators import Mutant, mutants

ROOT = Path(__file__).parents[3]
SOURCE = ROOT / "src" / "holdfast"
KILLED, SURVIVED, TIMED_OUT, UNREACHED, UNJUDGED = "killed", "survived", "time-out", "unreached", "unjudged"
LATER = "later"
"""To be judged by a process that has not imported the module yet."""
WALL_SECONDS = 120
"""Ends a test that sleeps for ever; the limit of processor time ends one that loops for ever."""
MEMORY_BYTES = 2 << 30
BROKEN = 70
"""Exit status of a child that failed before its tests."""
NOT_LIVE = 71
"""Exit status of a child that could not replace the code of the live function."""


@dataclass
class Orders:
    """The task of this process, written by its parent."""

    module: str
    tests: list[str]
    keys: list[str]
    workers: int
    answers: str
    scratch: str


class Target:
    def __init__(self, module: str) -> None:
        self.path = (ROOT / "src" if module.startswith("holdfast_lab/") else SOURCE) / module
        self.name = ".".join(self.path.relative_to(ROOT / "src").with_suffix("").parts)
        self.tree = ast.parse(self.path.read_text(encoding="utf-8"))
        self.plain = compile(self.tree, str(self.path), "exec")
        self.mutants = {mutant.key: mutant for mutant in mutants(self.tree)}

    def code(self, mutant: Mutant) -> types.CodeType:
        with mutant.made():
            return compile(self.tree, str(self.path), "exec")

    def live(self, mutant: Mutant) -> types.FunctionType | None:
        """The function that the mutant changes, if its code can be replaced."""
        if not mutant.inside:
            return None
        owner: Any = importlib.import_module(self.name)
        for name in mutant.function[:-1]:
            owner = vars(owner).get(name)
            if owner is None:
                return None
        raw = vars(owner).get(mutant.function[-1])
        parts = [raw.fget, raw.fset] if isinstance(raw, property) else [getattr(raw, "__func__", raw)]
        for part in parts:
            if isinstance(part, types.FunctionType) and _find(self.plain, part) is not None:
                start = part.__code__.co_firstlineno
                if start <= mutant.first_line <= max(line for *_, line in part.__code__.co_lines() if line):
                    return part
        return None

    def exchange(self, mutant: Mutant) -> bool:
        """Replace the live function's code by the mutated one, if Python allows it.

        It does not if the mutant has other free variables: `super()` needs `__class__`, and `pass` does not.
        """
        function = self.live(mutant)
        assert function is not None
        code = _find(self.code(mutant), function)
        if code is None:
            return False
        function.__code__ = code
        return True


def _find(code: types.CodeType, function: types.FunctionType) -> types.CodeType | None:
    wanted = function.__code__
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            same = const.co_qualname == wanted.co_qualname and const.co_firstlineno == wanted.co_firstlineno
            if same and const.co_freevars == wanted.co_freevars:
                return const
            if wanted.co_qualname.startswith(f"{const.co_qualname}."):
                inner = _find(const, function)
                if inner is not None:
                    return inner
    return None


# -- children


@dataclass
class Child:
    pid: int
    key: str
    pipe: int
    until: float
    said: bytearray = field(default_factory=bytearray)


def fork(work: Callable[[int], int], cpu_seconds: int) -> tuple[int, int]:
    """Fork a child that runs `work` with the file descriptor for its answer, and ends with the result as its
    status.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    status = BROKEN
    try:
        os.close(reading)
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
        status = work(writing)
    finally:
        os._exit(status)


class Nursery:
    """A limited number of children at a time; writes down each verdict."""

    def __init__(self, orders: Orders) -> None:
        self._workers = orders.workers
        self._answers = Path(orders.answers)
        self._children: dict[int, Child] = {}
        self._selector = selectors.DefaultSelector()

    def judge(self, key: str, work: Callable[[int], int], cpu_seconds: int) -> None:
        while len(self._children) >= self._workers:
            self._wait()
        pid, pipe = fork(work, cpu_seconds)
        # On a busy machine, one second of processor time may take many seconds.
        child = Child(pid, key, pipe, time.monotonic() + WALL_SECONDS + 10 * cpu_seconds)
        self._children[pid] = child
        self._selector.register(pipe, selectors.EVENT_READ, child)

    def end(self) -> None:
        while self._children:
            self._wait()

    def tell(self, key: str, verdict: str, by: str = "") -> None:
        with self._answers.open("a", encoding="utf-8") as answers:
            answers.write(json.dumps([key, verdict, by]) + "\n")

    def _wait(self) -> None:
        for ready, _ in self._selector.select(1.0):
            child = ready.data
            said = os.read(child.pipe, 65536)
            child.said += said
            if not said:
                self._ended(child)
        for child in list(self._children.values()):
            if time.monotonic() > child.until:
                with suppress(ProcessLookupError):
                    os.kill(child.pid, signal.SIGKILL)

    def _ended(self, child: Child) -> None:
        self._selector.unregister(child.pipe)
        os.close(child.pipe)
        _, status = os.waitpid(child.pid, 0)
        del self._children[child.pid]
        if os.WIFSIGNALED(status):
            self.tell(child.key, TIMED_OUT)
        else:
            verdicts = {0: SURVIVED, BROKEN: UNJUDGED, NOT_LIVE: LATER}
            verdict = verdicts.get(os.WEXITSTATUS(status), KILLED)
            self.tell(child.key, verdict, child.said.decode("utf-8", "replace"))


def answer_of(work: Callable[[int], int], cpu_seconds: int) -> tuple[int, bytes]:
    pid, pipe = fork(work, cpu_seconds)
    said = bytearray()
    while part := os.read(pipe, 65536):
        said += part
    os.close(pipe)
    _, status = os.waitpid(pid, 0)
    return status, bytes(said)


# -- mutants that need a new import


class Hook(importlib.abc.MetaPathFinder):
    def __init__(self, target: Target, mutant: Mutant) -> None:
        self._target = target
        self._code = target.code(mutant)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self._target.name:
            return None
        loader = _Loader(name, str(self._target.path))
        loader.mutated = self._code
        return importlib.util.spec_from_file_location(name, self._target.path, loader=loader)


class _Loader(importlib.machinery.SourceFileLoader):
    mutated: types.CodeType

    def get_code(self, fullname: str) -> types.CodeType:
        return self.mutated


def arguments(orders: Orders) -> list[str]:
    scratch = f"--basetemp={orders.scratch}/{os.getpid()}"
    quiet = ["--assert=plain", "--tb=native", "-p", "no:cacheprovider", "--capture=no"]
    return ["-x", "-q", *quiet, scratch, *orders.tests]


def judge_imported(target: Target, orders: Orders, chosen: list[Mutant], nursery: Nursery) -> None:
    """Judge mutants that only a new import applies."""
    if not chosen:
        return

    def work(mutant: Mutant | None) -> Callable[[int], int]:
        def run(pipe: int) -> int:
            if mutant is not None:
                sys.meta_path.insert(0, Hook(target, mutant))
            return int(pytest.main(arguments(orders)))

        return run

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    status, _ = answer_of(work(None), 600)
    if status:
        raise SystemExit(f"the tests of {orders.module} fail without any mutant: {orders.tests}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_seconds = 5 + 3 * int(after.ru_utime - before.ru_utime)
    for mutant in chosen:
        nursery.judge(mutant.key, work(mutant), cpu_seconds)
    nursery.end()


# -- mutants of a function's code


class Judge:
    """A plugin of pytest: after the collection it runs the tests for each mutant in a child."""

    def __init__(self, target: Target, orders: Orders, chosen: list[Mutant], nursery: Nursery) -> None:
        self._target = target
        self._orders = orders
        self._chosen = chosen
        self._nursery = nursery
        self.failed = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            self.failed = "the tests could not be collected"
            return True
        items = list(session.items)
        reached, seconds = self._look(session, items)
        if self.failed:
            return True
        gc.freeze()  # so that the children do not copy the pages of existing objects
        for mutant in self._chosen:
            if self._target.live(mutant) is None:
                self._nursery.tell(mutant.key, LATER)
                continue
            lines = set(range(mutant.first_line, mutant.last_line + 1))
            tests = [index for index, seen in enumerate(reached) if not lines.isdisjoint(seen)]
            if not tests:
                self._nursery.tell(mutant.key, UNREACHED)
                continue
            tests.sort(key=seconds.__getitem__)
            cpu_seconds = 3 + int(2 * sum(seconds[index] for index in tests))
            run = self._work(session, mutant, [items[index] for index in tests])
            self._nursery.judge(mutant.key, run, cpu_seconds)
        self._nursery.end()
        return True

    def _work(
        self, session: pytest.Session, mutant: Mutant, items: list[pytest.Item]
    ) -> Callable[[int], int]:
        def run(pipe: int) -> int:
            self._own_scratch(session)
            if not self._target.exchange(mutant):
                return NOT_LIVE
            for index, item in enumerate(items):
                following = items[index + 1] if index + 1 < len(items) else None
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if session.testsfailed:
                    os.write(pipe, item.nodeid.encode())
                    return 1
            return 0

        return run

    def _own_scratch(self, session: pytest.Session) -> None:
        factory = session.config._tmp_path_factory  # type: ignore[attr-defined]
        factory._given_basetemp = Path(self._orders.scratch) / str(os.getpid())
        factory._basetemp = None

    def _look(self, session: pytest.Session, items: list[pytest.Item]) -> tuple[list[set[int]], list[float]]:
        """The module's lines that each test reaches, and its processor time in seconds."""
        file = str(self._target.path)

        def run(pipe: int) -> int:
            self._own_scratch(session)
            found = []
            for index, item in enumerate(items):
                lines: set[int] = set()
                start = time.process_time()
                watch = _watch(file, lines)
                sys.settrace(watch)
                try:
                    following = items[index + 1] if index + 1 < len(items) else None
                    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                finally:
                    sys.settrace(None)
                found.append((sorted(lines), time.process_time() - start))
                if session.testsfailed:
                    os.write(pipe, json.dumps(item.nodeid).encode())
                    return 1
            data = json.dumps(found).encode()
            while data:
                data = data[os.write(pipe, data) :]
            return 0

        status, said = answer_of(run, 600)
        if status:
            self.failed = f"a test fails without any mutant: {said.decode()}"
            return [], []
        found = json.loads(said)
        return [set(lines) for lines, _ in found], [seconds for _, seconds in found]


def _watch(file: str, lines: set[int]) -> Callable[..., Any]:
    def inside(frame: types.FrameType, event: str, argument: object) -> Any:
        lines.add(frame.f_lineno)
        return inside

    def enter(frame: types.FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename == file:
            lines.add(frame.f_lineno)
            return inside
        return None

    return enter


def main(orders: Orders) -> None:
    # No shrinking and no database: the first failure decides.
    quick = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
    hypothesis.settings.register_profile(
        "mutants", max_examples=60, deadline=None, derandomize=True, phases=quick
    )
    os.environ["HYPOTHESIS_PROFILE"] = "mutants"
    target = Target(orders.module)
    chosen = [target.mutants[key] for key in orders.keys]
    functions = [mutant for mutant in chosen if mutant.inside]
    if functions:
        pid = os.fork()
        if not pid:
            os._exit(judge_functions(target, orders, functions))
        _, status = os.waitpid(pid, 0)
        if status:
            raise SystemExit(1)
    answers = Path(orders.answers)
    told = [json.loads(line) for line in answers.read_text(encoding="utf-8").splitlines()]
    later = {key for key, verdict, _ in told if verdict == LATER}
    again = [mutant for mutant in chosen if not mutant.inside or mutant.key in later]
    judge_imported(target, orders, again, Nursery(orders))


def judge_functions(target: Target, orders: Orders, chosen: list[Mutant]) -> int:
    judge = Judge(target, orders, chosen, Nursery(orders))
    status = pytest.main(arguments(orders), plugins=[judge])
    if judge.failed or status:
        print(
            f"{orders.module}: {judge.failed or f'pytest ended with {status!r}'}", file=sys.stderr, flush=True
        )
        return 1
    return 0


if __name__ == "__main__":
    main(Orders(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))))
