"""Settings of the whole test suite."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from tests.json_answers import watch_commands

from holdfast.demo import local_cluster

settings.register_profile("quick", max_examples=60, deadline=None, derandomize=True)
settings.register_profile(
    "night", max_examples=5000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# A test must not change with whoever runs it: settings in the environment are for members that people start.
for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
    del os.environ[name]


def pytest_configure() -> None:
    """Several processes that share the tests start members at a time: each looks for free ports among its own."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    local_cluster.PORTS = local_cluster.PORTS[number::count]
    watch_commands()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--rewrite`: the stories in tests/stories tell what happens now. `--rule`: a rule of a module's docstring."""
    parser.addoption("--rewrite", action="store_true", help="let tests/stories tell what happens now")
    parser.addoption("--rule", help="only tests of this rule: placement/L-2")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where several processes share the tests (`make test`): those of one file should stay together, as they share what
    they start; and those that share the Spark session. With pytest 9.2 xdist heeds no group.
    """
    for item in items:
        shares_spark = "spark" in getattr(item, "fixturenames", ())
        item.add_marker(pytest.mark.xdist_group("spark" if shares_spark else str(item.path)))
    wanted = config.getoption("--rule")
    if wanted:
        items[:] = [one for one in items if any(wanted in mark.args for mark in one.iter_markers("rule"))]
