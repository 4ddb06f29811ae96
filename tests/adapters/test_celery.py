"""Celery's results in a map: of tasks, of groups, and the counter of a chord."""

from __future__ import annotations

import os
import time

import pytest

pytest.importorskip("celery", reason="Celery is not installed: pip install '.[celery]' in the source folder")
from celery import Celery, states
from celery.result import AsyncResult, GroupResult

from holdfast.adapters.celery import HoldfastBackend

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning:kombu", "ignore::DeprecationWarning:celery"
)


@pytest.fixture
def app(addresses: str, request: pytest.FixtureRequest) -> Celery:
    # As `holdfast://...` alone, which needs the entry point of an installed package.
    backend = f"holdfast.adapters.celery:HoldfastBackend+holdfast://{addresses}/{request.node.name}"
    made = Celery("tested", broker="memory://", backend=backend, set_as_current=False)
    made.conf.result_expires = 60
    assert isinstance(made.backend, HoldfastBackend)
    return made


def test_a_result_is_stored_and_forgotten(app: Celery) -> None:
    assert app.backend.get_state("t") == states.PENDING
    app.backend.store_result("t", {"sum": [1, 2]}, states.SUCCESS)
    result = AsyncResult("t", app=app)
    assert (result.state, result.get(timeout=120)) == (states.SUCCESS, {"sum": [1, 2]})
    result.forget()
    assert app.backend.get_state("t") == states.PENDING
    app.backend.store_result("failed", ValueError("no"), states.FAILURE)
    with pytest.raises(ValueError, match="no"):
        AsyncResult("failed", app=app).get(timeout=120)


def test_the_results_of_a_group_are_asked_for_together(app: Celery) -> None:
    parts = [AsyncResult(str(number), app=app) for number in range(5)]
    for number in range(5):
        app.backend.store_result(str(number), number, states.SUCCESS)
    group = GroupResult("g", parts, app=app)
    app.backend.save_group("g", group)
    assert app.backend.restore_group("g").join_native(timeout=120) == [0, 1, 2, 3, 4]


def test_results_end_when_the_application_says(app: Celery) -> None:
    app.backend.expires = 0.05
    app.backend.set("k", "v")
    while app.backend.get("k") is not None:
        time.sleep(0.02)
    assert app.backend.incr(b"parts") == 1
    assert app.backend.incr("parts") == 2
    app.backend.expire("parts", 60)
    time.sleep(0.1)
    assert app.backend.incr("parts") == 3


def test_processes_of_a_worker_have_connections_of_their_own(app: Celery) -> None:
    """The parts of a chord, each of which ends in another process of the pool."""
    app.backend.store_result("parent", 1, states.SUCCESS)
    children = []
    for number in range(4):
        child = os.fork()
        if child == 0:
            try:
                app.backend.store_result(f"child {number}", number, states.SUCCESS)
                app.backend.incr("parts")
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    assert [AsyncResult(f"child {number}", app=app).get(timeout=120) for number in range(4)] == [0, 1, 2, 3]
    assert app.backend.incr("parts") == 5
