"""Django's cache in a map: what it answers, what it stores, and in an application with sessions and cached pages."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("django", reason="Django is not installed: pip install '.[django]' in the source folder")
from django.conf import settings

if not settings.configured:
    settings.configure(DEFAULT_CHARSET="utf-8")

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse, StreamingHttpResponse

from holdfast.adapters.django import HoldfastCache
from holdfast.adapters.process_clients import close_all

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def cache(addresses: str, request: pytest.FixtureRequest) -> Iterator[HoldfastCache]:
    yield HoldfastCache(addresses, {"OPTIONS": {"map": request.node.name}})
    close_all()


def test_every_operation_does_what_django_says(cache: HoldfastCache) -> None:
    assert cache.get("k") is None
    assert cache.get("k", "default") == "default"
    cache.set("k", None)
    assert cache.get("k", "default") is None
    assert not cache.add("k", 1)
    assert cache.add("l", 1, version=2)
    assert "l" not in cache
    assert cache.has_key("l", version=2)
    assert cache.incr("l", 4, version=2) == 5
    assert cache.decr("l", version=2) == 4
    with pytest.raises(ValueError, match="not found"):
        cache.incr("none")
    assert cache.set_many({"a": 1, "b": "two"}) == []
    assert cache.get_many(["a", "b", "c"]) == {"a": 1, "b": "two"}
    cache.delete_many(["a", "none"])
    assert cache.get_many(iter(["a", "b"])) == {"b": "two"}
    assert cache.incr_version("b") == 2
    assert cache.get("b", version=2) == "two"
    assert cache.get_or_set("m", lambda: "made") == "made"
    assert cache.get_or_set("m", "other") == "made"
    assert cache.delete("m")
    assert not cache.delete("m")
    cache.clear()
    assert not cache.has_key("l", version=2)


def test_times_to_live(cache: HoldfastCache) -> None:
    cache.set("soon", 1, 0.05)
    cache.set_many({"soon_too": 1, "and_this": 2}, timeout=0.05)
    cache.set("never", 1, None)
    cache.set("at_once", 1, 0)
    cache.set("negative", 1, -5)
    assert not cache.has_key("at_once")
    assert not cache.has_key("negative")
    assert cache.touch("never", 60)
    assert not cache.touch("none", 60)
    while cache.get_many(["soon", "soon_too", "and_this"]):
        time.sleep(0.02)
    assert cache.touch("never", 0)
    assert not cache.has_key("never")


@pytest.mark.parametrize(
    "value",
    [
        "text", "", b"bytes", 0, True, 1 << 70, 1.5, None, [1, None, "x"], (1, (2,)), {"a": [1]}, {1: {2, 3}},
        dt.datetime(2026, 1, 2, 3, 4, 5, 6),  # noqa: DTZ001 - it has none, and keeps none
        dt.datetime(2026, 1, 2, tzinfo=dt.UTC), dt.date(2026, 1, 2), Decimal("1.50"), UUID(int=5),
    ],
    ids=repr,
)  # fmt: skip
def test_values_come_back_as_what_they_were(cache: HoldfastCache, value: Any) -> None:
    for timeout in (None, 60):
        cache.set("k", value, timeout)
        found = cache.get("k", "absent")
        assert (found, type(found)) == (value, type(value))


def test_what_cannot_be_stored_is_refused_and_named(cache: HoldfastCache) -> None:
    cache.set("k", "before")
    for value in (object(), cache.set, StreamingHttpResponse(["a"])):
        with pytest.raises(TypeError, match=r"cannot be stored|JSON|serializ|encod"):
            cache.set("k", value)
        with pytest.raises(TypeError):
            cache.set_many({"l": 1, "k": value})
    assert cache.get_many(["k", "l"]) == {"k": "before"}


def test_a_response_is_stored_without_its_class(cache: HoldfastCache) -> None:
    response = HttpResponse(b"<p>\xff", status=201, reason="Made", headers={"X-One": "1", "ETag": '"a"'})
    response.set_cookie("name", "a value", max_age=60, httponly=True)
    cache.set("k", response)
    found = cache.get("k")
    assert (found.status_code, found.reason_phrase, found.content) == (201, "Made", b"<p>\xff")
    assert dict(found.headers) == dict(response.headers)
    assert found.cookies == response.cookies


class Reversed:
    """A serializer of one's own."""

    def dumps(self, value: str) -> str:
        return value[::-1]

    def loads(self, stored: str) -> str:
        return stored[::-1]


def test_a_serializer_of_ones_own_is_used(addresses: str) -> None:
    options = {"map": "reversed", "serializer": Reversed}
    cache = HoldfastCache(addresses, {"OPTIONS": options})
    cache.set("k", "abc")
    assert cache.get("k") == "abc"
    assert HoldfastCache(addresses, {"OPTIONS": {"map": "reversed"}}).get("k") == "cba"
    close_all()


def test_wrong_settings_are_found_at_once(addresses: str) -> None:
    with pytest.raises(ImproperlyConfigured, match="colour is not an option"):
        HoldfastCache(addresses, {"OPTIONS": {"colour": 1}})
    with pytest.raises(ImproperlyConfigured, match="host:port"):
        HoldfastCache("", {})


def test_the_asynchronous_methods_do_the_same(cache: HoldfastCache) -> None:
    async def use() -> list[Any]:
        await cache.aset("k", 1, 60)
        await cache.aset_many({"l": 2})
        return [
            await cache.aget("k"),
            await cache.aincr("k"),
            await cache.aget_many(["k", "l"]),
            await cache.atouch("k", 5),
            await cache.aadd("k", 3),
            await cache.ahas_key("l"),
            await cache.adelete("l"),
            await cache.aget_or_set("m", lambda: 4),
            await cache.aclear(),
        ]

    assert asyncio.run(use()) == [1, 2, {"k": 2, "l": 2}, True, False, True, True, 4, None]


APPLICATION = """
import django
from django.conf import settings
django.setup()
from django.contrib.sessions.backends.cache import SessionStore
from django.core.cache import cache, caches
from django.http import HttpResponse
from django.test import Client
from django.urls import path

count = 0

def page(request):
    global count
    count += 1
    return HttpResponse(f"page {count}")

urlpatterns = [path("", page)]
settings.ROOT_URLCONF = "__main__"
settings.ALLOWED_HOSTS = ["testserver"]
session = SessionStore()
session["basket"] = [1, 2]
session.save()
print(SessionStore(session.session_key)["basket"], Client().get("/").content, Client().get("/").content, count)
"""


def test_the_settings_of_the_example_keep_sessions_and_pages(addresses: str) -> None:
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "django_settings",
        "HOLDFAST": addresses,
        "PYTHONPATH": os.pathsep.join([str(EXAMPLES), *sys.path]),
    }
    told = subprocess.run(
        [sys.executable, "-c", APPLICATION],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout.split("\n")[0] == "[1, 2] b'page 1' b'page 1' 1"
