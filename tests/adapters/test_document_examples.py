"""The programs in docs/adapters.md and docs/transactions.md run as they are pasted."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest
from django.core.cache.backends.base import BaseCache
from django.utils.module_loading import import_string

from holdfast.adapters.process_clients import close_all
from holdfast_lab.processes.local_cluster import LocalCluster

DOCS = Path(__file__).parents[2] / "docs"

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:kombu"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:celery"),
]


def examples(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


def named(page: str) -> list[Any]:
    """The examples of a page, each with the first line that it imports from elsewhere as its name."""
    return [pytest.param(text, id=f"{page} {number}") for number, text in enumerate(examples(page), 1)]


def promised(example: str) -> list[str]:
    """What its comments say that it prints."""
    return re.findall(r"print\(.*\)  # (.+)", example)


@pytest.mark.parametrize("example", [*named("transactions.md"), *named("adapters.md")])
def test_an_example_runs_as_pasted(example: str, cluster: LocalCluster) -> None:
    one, other = cluster.alive
    for written, real in (
        ("127.0.0.1:5701", one.client_address),
        ("127.0.0.1:5702", other.client_address),
        ("127.0.0.1:5751", one.member_address),
    ):
        example = example.replace(written, real)
    example = example.replace(
        "holdfast.Member(seeds=", "holdfast.Member(client_port=0, member_port=0, seeds="
    )
    run: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(example, "example", "exec"), run)
    try:
        assert printed.getvalue().splitlines() == promised(example)
        use(run)
    finally:
        close_all()


def use(made: dict[str, Any]) -> None:
    """Do what a reader would do next with what the example defines."""
    if "CACHES" in made:
        chosen = made["CACHES"]["default"]
        cache: BaseCache = import_string(chosen["BACKEND"])(chosen["LOCATION"], chosen)
        value = made["Money"](5) if "Money" in made else 5
        cache.set("k", value)
        assert cache.get("k") == value
    elif "region" in made:
        made["region"].set("k", 7)
        assert made["region"].get("k") == 7
    elif "index" in made:
        assert made["app"].test_client().get("/").json == {"hello": "world"}
        assert made["app"].test_client().get("/").json == {"hello": "world"}
    elif "add" in made:
        made["app"].backend.store_result("t", 3, "SUCCESS")
        assert made["app"].backend.get_result("t") == 3
