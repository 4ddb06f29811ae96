"""Records of runs keep their form: what was written by an older build is read, and the other way round."""

from __future__ import annotations

import pytest

from holdfast.core.events import Event, EvictionOrdered, EvictionWithoutMajorityOrdered
from holdfast.core.model.ids import MemberId
from holdfast.engine.recording import event_name, event_of, fields_of

MEMBERS = (MemberId("a"), MemberId("b"))


@pytest.mark.parametrize(
    ("name", "event"),
    [
        ("SuspicionOrdered", EvictionOrdered(MEMBERS)),
        ("DeadDeclared", EvictionWithoutMajorityOrdered(MEMBERS)),
    ],
)
def test_renamed_events_are_recorded_under_their_first_names(name: str, event: Event) -> None:
    assert event_name(type(event)) == name
    assert event_of(name, fields_of(event)) == event
