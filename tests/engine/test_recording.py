"""Events in the records of runs."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.actions.demote import Demote
from holdfast.actions.evict import Evict
from holdfast.actions.set_state import SetState
from holdfast.core.events import ActionRequested, ActionWithdrawn, Event, Received
from holdfast.core.messages import Replicated, TableFetch
from holdfast.core.model.ids import MemberId
from holdfast.core.model.views import ClusterState
from holdfast.engine.recording import RecordBroken, event_of, fields_of


@pytest.mark.parametrize(
    "event",
    [
        ActionRequested(Evict(["a"]), 7),
        ActionWithdrawn(Demote()),
        ActionRequested(SetState(ClusterState.FROZEN)),
        Received(MemberId("a"), TableFetch(1)),
        Received(MemberId("a"), Replicated([1], [0]), more=True),
    ],
)
def test_events_are_recorded_with_their_fields(event: Event) -> None:
    assert event_of(type(event).__name__, fields_of(event)) == event


@pytest.mark.parametrize(
    "fields", [(None, "explode", {}), (None, "state", {"state": "melted"}), (None, 7, {})]
)
def test_a_recording_of_another_version_is_told(fields: object) -> None:
    with pytest.raises(RecordBroken, match="is not an event of this version"):
        event_of("ActionRequested", msgspec.msgpack.encode(fields))
