"""Listeners of maps in zones after members come back with their files."""

from __future__ import annotations

import pytest
from tests.lab.sim.zone_stage import ZONED, ZoneStage, kept_settings

from holdfast.core.model.operations import EntryEvent


@pytest.mark.rule("raft_partition/Z-10")
def test_entries_of_the_log_that_are_applied_again_are_no_events() -> None:
    """A replica comes back with a log whose entries were applied, and notified, before it ended."""
    stage = ZoneStage(3, settings=kept_settings())
    for number in range(12):
        stage.zput(stage.living()[0], f"k{number}", "before")
    stage.cluster.power_cut_everywhere()
    stage.world.weather.refusal = 1.0
    stage.processes = [stage.cluster.start(host, bootstrap=not host) for host in range(3)]
    heard: list[EntryEvent] = []
    for process in stage.living():
        process.driver.callers.listen(ZONED, key=None, local_only=True, on_event=heard.append)
    stage.wait(30)
    assert [event.value for event in heard] == []
    stage.zput(stage.living()[0], "k1", "after")
    assert [(event.old, event.value) for event in heard] == [(b"before", b"after")]
