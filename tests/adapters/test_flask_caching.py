"""Flask-Caching in a map: cached views and functions, and what the backend answers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

pytest.importorskip(
    "flask_caching",
    reason="Flask-Caching is not installed: pip install '.[flask]' in the source folder",
)
from flask import Flask
from flask_caching import Cache

from holdfast.adapters.process_clients import close_all


@pytest.fixture
def cache(addresses: str, request: pytest.FixtureRequest) -> Iterator[Cache]:
    app = Flask("tested")
    config = {
        "CACHE_TYPE": "holdfast.adapters.flask_caching.HoldfastCache",
        "CACHE_HOLDFAST_ADDRESSES": addresses,
        "CACHE_HOLDFAST_MAP": request.node.name,
        "CACHE_KEY_PREFIX": "tested:",
        "CACHE_OPTIONS": {"patience_s": 5},
    }
    with app.app_context():
        yield Cache(app, config=config)
    close_all()


def test_views_and_functions_are_cached(cache: Cache) -> None:
    made: list[str] = []
    app = cache.app

    @app.route("/")
    @cache.cached(timeout=60)
    def page() -> str:
        made.append("page")
        return f"page {len(made)}"

    @cache.memoize(60)
    def twice(number: int) -> list[int]:
        made.append("twice")
        return [number, number]

    browser = app.test_client()
    assert [browser.get("/").text, browser.get("/").text] == ["page 1", "page 1"]
    assert [twice(1), twice(1), twice(2)] == [[1, 1], [1, 1], [2, 2]]
    cache.delete_memoized(twice, 1)
    assert twice(1) == [1, 1]
    assert made == ["page", "twice", "twice", "twice"]


def test_the_backend_does_what_flask_caching_says(cache: Cache) -> None:
    backend = cache.cache
    assert cache.set("k", {"a": 1}, timeout=timedelta(milliseconds=50))
    assert cache.get("k") == {"a": 1}
    while cache.has("k"):
        time.sleep(0.02)
    assert cache.add("k", 1)
    assert not cache.add("k", 2)
    assert cache.set_many({"a": 1, "b": None}) == ["a", "b"]
    assert cache.get_many("a", "none", "k") == [1, None, 1]
    assert cache.get_dict("a", "none") == {"a": 1, "none": None}
    assert [backend.inc("n"), backend.inc("n", 5), backend.dec("n")] == [1, 6, 5]
    assert cache.delete_many("a", "none") == ["a"]
    assert cache.delete("k")
    with pytest.raises(TypeError):
        cache.set("k", object())
    assert cache.clear()
    assert not cache.has("n")
