"""How long requests took that the data lane does not serve."""

from __future__ import annotations

from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.model.zone_batches import ZoneBatchDone
from holdfast.observe.latency_histogram import bucket_of
from holdfast.server.operation_times import OperationTimes


def test_each_request_is_timed_until_its_answer() -> None:
    now = 100
    times = OperationTimes(lambda: now)
    heard: list[Outcome] = []
    first = times.timed(Request(Op.PUT_IF_ABSENT, "m", [0]), heard.append)
    second = times.timed(Request(Op.PUT_IF_ABSENT, "m", [0]), heard.append)
    batch = times.timed_batch(lambda done: None)
    assert times.latencies() == {}
    now = 1_000_100
    first(Outcome(Status.OK, None))
    now = 5_000_100
    second(Outcome(Status.NO_MEMORY, None, "full"))
    batch(ZoneBatchDone())
    assert [outcome.status for outcome in heard] == [Status.OK, Status.NO_MEMORY]
    told = times.latencies()
    assert sorted(told) == ["put-if-absent", "zone-batch"]
    assert (told["put-if-absent"].count, told["put-if-absent"].sum_ns) == (2, 6_000_000)
    assert told["zone-batch"].counts[bucket_of(5_000_000)] == 1
    assert times.failures() == {("put-if-absent", "no-memory"): 1}
