"""Pauses and patience of retries, on a clock of the test."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from holdfast.client_core.retries import LONGEST_PAUSE_S, Retries


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def pauses(retries: Retries, clock: Clock) -> list[float]:
    """All pauses of a request that fails at once each time."""
    found: list[float] = []
    while (pause_s := retries.pause_s()) is not None:
        found.append(round(pause_s, 6))
        clock.now_s += pause_s
    return found


def test_pauses_double_and_the_last_try_is_at_the_end_of_the_patience() -> None:
    clock = Clock()
    assert pauses(Retries(1.0, clock), clock) == [0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.365]
    assert clock.now_s == pytest.approx(101.0)


def test_no_pause_is_longer_than_the_longest() -> None:
    clock = Clock()
    found = pauses(Retries(60.0, clock), clock)
    assert max(found) == LONGEST_PAUSE_S
    assert sum(found) == pytest.approx(60.0)


def test_without_patience_there_is_no_second_try() -> None:
    assert Retries(0.0, Clock()).pause_s() is None


def test_progress_gives_the_whole_patience_again() -> None:
    clock = Clock()
    retries = Retries(1.0, clock)
    pauses(retries, clock)
    retries.progressed()
    assert pauses(retries, clock)[0] == 0.005
    assert clock.now_s == pytest.approx(102.0)


def test_importing_the_clients_loads_no_member() -> None:
    script = (
        "import importlib, json, pkgutil, sys\n"
        "import holdfast.client_core\n"
        "for found in pkgutil.iter_modules(holdfast.client_core.__path__):\n"
        "    importlib.import_module(f'holdfast.client_core.{found.name}')\n"
        "import holdfast.aio, holdfast.client.blocking, holdfast.client.operator\n"
        "print(json.dumps([name for name in sys.modules if name.startswith('holdfast')]))"
    )
    loaded = json.loads(
        subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout
    )
    member = ("engine", "observe", "runtime", "server")
    assert [name for name in loaded if name.startswith(tuple(f"holdfast.{one}" for one in member))] == []
    core = {name.split(".")[2] for name in loaded if name.startswith("holdfast.core.")}
    assert core == {"model"}, "of core, clients share the model's nouns alone"
