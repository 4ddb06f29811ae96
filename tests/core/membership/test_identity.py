"""What a member knows of itself before it joins."""

from __future__ import annotations

from holdfast.config import ClusterSettings
from holdfast.core.membership.identity import Timing
from holdfast.core.model.ids import MILLISECOND


def test_times_of_the_settings_are_milliseconds() -> None:
    timing = Timing.of(ClusterSettings(heartbeat_ms=300, suspect_after_ms=7000))
    assert timing == Timing(heartbeat_ns=300 * MILLISECOND, suspect_after_ns=7000 * MILLISECOND)
