"""Pauses of a thread between two tries."""

from __future__ import annotations

import pytest

from holdfast.client import blocking_retries
from holdfast.client.blocking_retries import BlockingRetries


def test_it_sleeps_the_pause_but_no_longer_than_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(blocking_retries.time, "sleep", slept.append)
    retries = BlockingRetries(1000.0)
    assert [retries.sleep() for _ in range(3)] == [True] * 3
    assert retries.sleep(longest_s=0.001)
    assert slept == [0.005, 0.01, 0.02, 0.001]


def test_it_does_not_sleep_when_the_patience_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking_retries.time, "sleep", None)
    assert not BlockingRetries(0.0).sleep()
