"""Settings of the whole test suite."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Generator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from tests.costly_cases import listed
from tests.costs import CostRecorder, cost
from tests.json_answers import watch_commands
from tests.rewritten import compile_tests
from tests.sampled_cases import mark_uncovering
from xdist.scheduler import LoadScopeScheduling

from holdfast_lab.processes import fork_server, local_cluster

ROOT = Path(__file__).parent.parent
ON_SPARK = PurePosixPath("tests/spark")

settings.register_profile("quick", max_examples=60, deadline=None, derandomize=True)
settings.register_profile(
    "night", max_examples=5000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# A test must not change with whoever runs it: settings in the environment are for members that people start.
for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
    del os.environ[name]


def pytest_configure(config: pytest.Config) -> None:
    """Several processes that share the tests start members at a time: each looks for free ports among its own."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if config.getoption("--record-costs"):
        if getattr(config.option, "numprocesses", None):
            raise pytest.UsageError("--record-costs measures one process: use -n 0")
        config.pluginmanager.register(CostRecorder())
    local_cluster.PORTS = local_cluster.PORTS[number::count]
    fork_server.enable_forks()
    watch_commands()
    if getattr(config.option, "dist", "no") != "no" and "PYTEST_XDIST_WORKER" not in os.environ:
        compile_tests(config, ROOT / "tests")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing that is collected or imported is garbage, and each worker collects all: without the collector that takes
    three quarters of the time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Full collections of garbage, which some tests order, need not visit all that was collected and imported."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """End the processes of which members are forks."""
    fork_server.end_servers()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--rewrite`: the stories in tests/stories tell what happens now. `--rule`: a rule of a module's docstring.
    `--record-costs`: measure what each file takes.
    """
    parser.addoption(
        "--record-costs", action="store_true", help="write processor seconds into tests/costs.toml"
    )
    parser.addoption("--rewrite", action="store_true", help="let tests/stories tell what happens now")
    parser.addoption("--rule", help="only tests of this rule: partition_table/L-2")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FilesTogether:
    """Where several processes share the tests (`make test`): what `FilesTogether` says."""
    return FilesTogether(config, log)


class FilesTogether(LoadScopeScheduling):
    """The tests of a file stay on one worker, as they share the members that they start; files with tests that start a
    Spark session are one group, as they share it. Marks of groups would say the same, but xdist 3.8 heeds none with
    pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


def scope_of(nodeid: str) -> str:
    """What one worker runs."""
    path = nodeid.partition("::")[0]
    return str(ON_SPARK) if starts_session(path) else path


@cache
def starts_session(path: str) -> bool:
    """Whether a file has tests that start a Spark session: more than half of those in `tests/spark` have none."""
    if ON_SPARK not in PurePosixPath(path).parents:
        return False
    return "pytest.mark.spark" in (ROOT / path).read_text(encoding="utf-8")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes long begins first, so that no worker is left with it at the end."""
    mark_uncovering(items)
    for item in items:
        if item.nodeid in listed():
            item.add_marker(pytest.mark.slow)
    costs = Counter[str]()
    for file in {item.nodeid.partition("::")[0] for item in items}:
        costs[scope_of(file)] += cost(file)  # type: ignore[assignment]
    items.sort(key=lambda item: -costs[scope_of(item.nodeid)])
    for item in items:
        path = item.nodeid.split("::", 1)[0]
        if "spark" in getattr(item, "fixturenames", ()) and not starts_session(path):
            raise pytest.UsageError(f"{item.nodeid} starts a Spark session: mark it with pytest.mark.spark")
    wanted = config.getoption("--rule")
    if wanted:
        items[:] = [one for one in items if any(wanted in mark.args for mark in one.iter_markers("rule"))]
