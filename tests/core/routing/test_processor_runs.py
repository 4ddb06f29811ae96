"""Entry processors at a primary: the lock of the entry, the result, and what ends a run."""

from __future__ import annotations

import pytest
from tests.core.routing.test_collection_waits import BEN, ME, OTHER, Stage
from tests.core.routing.test_lock_waits import ADA, lock, unlock
from tests.core.routing.test_lock_waits import BEN as ANOTHER

from holdfast.config import TRANSACTIONS_MAP, LimitSettings
from holdfast.core.effects import RunProcessor
from holdfast.core.messages import Answer, Forward, Replicate, Replicated
from holdfast.core.model.ids import MILLISECOND
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.processors import (
    EntryChange,
    ProcessorCall,
    ProcessorResult,
    ProcessorRun,
    begin_run,
    call_problem,
    encode_call,
    finish_run,
)
from holdfast.core.model.records import Record
from holdfast.core.model.transactions import LockKeys, StepFate, decode_result, encode
from holdfast.core.routing.pending import Parked
from holdfast.core.store.partition_copy import PartitionCopy

MAP, KEY, LIMIT_MS = "m", b"k", 500
STORED = ProcessorResult(EntryChange.STORE, b"new", b"answer")


def process(*, request_id: bytes = b"", holder: bytes = b"", only_present: bool = False) -> Request:
    call = ProcessorCall("sell", b"argument", limit_ms=LIMIT_MS, only_present=only_present)
    return Request(Op.PROCESS, MAP, [0], KEY, encode_call(call), id=request_id, holder=holder)


def put(value: bytes = b"v", **more: int) -> Request:
    return Request(Op.SET, MAP, [0], KEY, value, **more)  # type: ignore[arg-type]


GET = Request(Op.GET, MAP, [0], KEY)


class RunStage(Stage):
    def begun(self) -> list[tuple[int, ProcessorRun]]:
        effects = [effect for effect in self.taken() if isinstance(effect, RunProcessor)]
        return [(effect.run, effect.asked) for effect in effects]

    def begin(self, request: Request | None = None) -> int:
        self.ask(request or process())
        [(run, _)] = self.begun()
        return run

    def end(self, run: int, result: ProcessorResult = STORED) -> None:
        self.router.runs.on_ended(run, result)
        self.end_step()

    def value(self) -> object:
        self.ask(GET)
        return self.values.pop()


@pytest.fixture
def stage() -> RunStage:
    return RunStage()


def test_a_processor_gets_the_entry_and_its_result_is_stored(stage: RunStage) -> None:
    stage.ask(put())
    stage.ask(process())
    [(run, asked)] = stage.begun()
    assert (asked.call.name, asked.call.argument, asked.map, asked.key, asked.value) == (
        "sell",
        b"argument",
        MAP,
        KEY,
        b"v",
    )
    assert len(stage.told) == 1, "it runs"
    stage.end(run)
    assert stage.values[1:] == [b"answer"]
    assert stage.value() == b"new"


@pytest.mark.parametrize(
    ("result", "left"),
    [
        (ProcessorResult(answer=b"a"), b"v"),
        (ProcessorResult(EntryChange.REMOVE, answer=b"a"), None),
        (ProcessorResult(error="ValueError: no"), b"v"),
        (ProcessorResult(error="busy", busy=True), b"v"),
    ],
)
def test_what_becomes_of_a_result(stage: RunStage, result: ProcessorResult, left: bytes | None) -> None:
    stage.ask(put())
    stage.end(stage.begin(), result)
    expected = Status.NOT_READY if result.busy else Status.PROCESSOR_FAILED if result.error else b"a"
    assert stage.values[1:] == [expected]
    assert stage.told[1].detail == result.error
    assert stage.value() == left
    assert not stage.lane.leading[0].locks.held  # type: ignore[union-attr]


@pytest.mark.rule("primary_backup/A-2")
def test_all_changes_of_the_entry_wait_for_the_run_and_reads_do_not(stage: RunStage) -> None:
    stage.ask(put())
    run = stage.begin()
    stage.ask(put(b"later"))
    stage.ask(process())
    lock = LockKeys(b"t" * 16, ME, [(MAP, KEY)], 60_000)
    stage.ask(Request(Op.TRANSACT, TRANSACTIONS_MAP, [0], value=encode(lock)))
    assert stage.values == [None]
    assert stage.value() == b"v"
    stage.values.clear()
    stage.end(run)
    assert stage.values[-2:] == [b"answer", None], "the result, then the put that came first"
    [(second, asked)] = stage.begun()
    assert asked.value == b"later"
    stage.end(second)
    answer = stage.told[-1].value
    assert isinstance(answer, bytes)
    assert decode_result(answer).values == [b"new"]
    assert decode_result(answer).fate is StepFate.DONE


def test_another_entry_is_not_locked(stage: RunStage) -> None:
    stage.begin()
    stage.ask(Request(Op.SET, MAP, [0], b"other", b"v"))
    assert stage.values == [None]


def test_the_owner_of_a_lock_may_run_a_processor_and_others_wait(stage: RunStage) -> None:
    stage.ask(lock(ADA))
    stage.ask(process(holder=ANOTHER))
    assert stage.begun() == []
    stage.end(stage.begin(process(holder=ADA)))
    stage.ask(unlock(ADA))
    assert len(stage.begun()) == 1, "the other one's turn"


@pytest.mark.rule("routing/R-25")
def test_a_run_ends_at_its_time_limit_and_its_late_result_is_dropped(stage: RunStage) -> None:
    stage.ask(put())
    run = stage.begin()
    stage.ask(put(b"later"))
    stage.pass_ms(LIMIT_MS - 1)
    stage.router.runs.on_timer()
    assert len(stage.told) == 1
    stage.out.now_ns += MILLISECOND
    stage.router.runs.on_timer()
    stage.end_step()
    late, stored = stage.told[1:]
    assert late.status is Status.PROCESSOR_FAILED
    assert "processors.sell.time_limit_ms" in late.detail
    assert stored == Outcome(Status.OK)
    stage.end(run)
    assert stage.value() == b"later"


@pytest.mark.rule("routing/R-26", "primary_backup/A-2")
def test_a_result_does_not_count_when_the_partition_has_moved_meanwhile(stage: RunStage) -> None:
    """It was another member's, where the entry changed, and is this one's again."""
    stage.ask(put())
    run = stage.begin()
    stage.lane.leading[0] = None
    copy = stage.lead(PartitionCopy(0, 0))
    stage.ask(put(b"from the other"))
    stage.end(run)
    assert stage.value() == b"from the other"
    assert not copy.locks.held
    stage.pass_ms(1000)
    [(_, asked)] = stage.begun()
    assert asked.value == b"from the other", "it runs again"


@pytest.mark.rule("routing/R-26")
def test_a_request_goes_to_the_next_primary_without_its_result(stage: RunStage) -> None:
    run = stage.begin()
    copy = stage.lane.leading[0]
    assert copy is not None
    stage.lane.leading[0] = None
    stage.rows[0] = Assignment(5, (OTHER,))
    stage.end(run)
    [(to, message)] = stage.sent()
    assert to == OTHER
    assert isinstance(message, Forward)
    assert call_problem(message.request) == ""
    assert message.request.id
    assert not copy.locks.held, "also if the handover is given up"


class OtherEngine:
    """Gets the requests for maps that have moved to it."""

    def __init__(self) -> None:
        self.parked: list[Parked] = []

    def rehome(self, parked: Parked) -> None:
        self.parked.append(parked)

    def rehome_gathering(self, gathering: object) -> None: ...


@pytest.mark.rule("model/P-1", "routing/R-26")
def test_a_request_goes_to_the_next_engine_of_its_map_without_its_result(stage: RunStage) -> None:
    """It might send it to another member, which would take it for a fault of this one."""
    run = stage.begin()
    other = OtherEngine()
    stage.router.depart(frozenset({MAP}), other)
    stage.end(run)
    [parked] = other.parked
    assert call_problem(parked.request) == ""
    assert parked.request == process()
    assert not stage.lane.leading[0].locks.held  # type: ignore[union-attr]


@pytest.mark.rule("model/P-1")
def test_a_member_accepts_no_result_of_another_one() -> None:
    finished = finish_run(begin_run(process(), 7), STORED, found=True)
    assert "comes from the member itself" in call_problem(finished)
    assert "unreadable" in call_problem(Request(Op.PROCESS, MAP, [0], KEY, b"?"))


@pytest.mark.rule("routing/R-25", "routing/R-10")
def test_a_run_for_a_member_that_has_gone_is_dropped(stage: RunStage) -> None:
    stage.router.on_forward(BEN, Forward(3, process(request_id=b"id")))
    [(run, _)] = stage.begun()
    stage.router.askers_gone({BEN})
    assert not stage.lane.leading[0].locks.held  # type: ignore[union-attr]
    stage.end(run)
    assert stage.sent() == []
    assert stage.value() is None
    assert stage.router.leftovers["entry processors"] == 0


def test_a_repeated_request_gets_the_first_answer_and_runs_nothing() -> None:
    stage = RunStage(backups=1)
    stage.router.on_forward(OTHER, Forward(3, process(request_id=b"id")))
    [(run, _)] = stage.begun()
    stage.end(run)
    [(to, message)] = stage.sent()
    assert to == BEN
    assert isinstance(message, Replicate)
    [record] = message.sections[0].records
    assert isinstance(record, Record)
    assert (record.value, record.request != b"") == (b"new", True)
    backup = PartitionCopy(0, 0)
    backup.requests.note(record.request)
    stage.lane.leading[0] = None
    stage.lead(backup)
    stage.router.on_forward(OTHER, Forward(4, process(request_id=b"id")))
    assert stage.begun() == []
    stage.lane.on_replicated(BEN, Replicated(message.batches, [0]))
    answers = {message.ticket: message.outcome for _, message in stage.sent() if isinstance(message, Answer)}
    assert answers == dict.fromkeys((3, 4), Outcome(Status.OK, b"answer"))


def test_an_absent_entry_may_be_skipped(stage: RunStage) -> None:
    stage.ask(process(only_present=True))
    assert stage.begun() == []
    assert stage.values == [None]


def test_an_entry_keeps_its_time_to_live(stage: RunStage) -> None:
    stage.ask(put(ttl_ms=10_000))
    run = stage.begin()
    stage.out.now_ns += 100 * MILLISECOND
    stage.end(run)
    expiry = stage.lane.leading[0].maps[MAP].state.expiries.get(KEY)  # type: ignore[union-attr]
    assert expiry is not None
    assert expiry.remaining_ttl_ms(stage.out.now_ns) == 9_900


def test_an_entry_that_expires_while_the_processor_runs_is_not_stored_again(stage: RunStage) -> None:
    stage.ask(put(ttl_ms=50))
    run = stage.begin()
    stage.out.now_ns += 100 * MILLISECOND
    stage.end(run)
    assert stage.told[-1].status is Status.PROCESSOR_FAILED
    assert "expired" in stage.told[-1].detail
    assert stage.value() is None


def test_values_and_results_are_limited() -> None:
    stage = RunStage(limits=LimitSettings(value_bytes=1024))
    stage.end(stage.begin(), ProcessorResult(EntryChange.STORE, b"x" * 1025))
    assert stage.told[-1].status is Status.TOO_LARGE
    assert stage.value() is None


def test_a_run_is_rejected_when_too_many_requests_wait() -> None:
    stage = RunStage(limits=LimitSettings(waiting_requests=1))
    stage.begin()
    stage.ask(Request(Op.PROCESS, MAP, [0], b"other", process().value))
    assert stage.begun() == []
    assert stage.told[-1].status is Status.NOT_READY
    assert len(stage.lane.leading[0].locks.held) == 1  # type: ignore[union-attr]


def test_runs_end_with_their_router(stage: RunStage) -> None:
    run = stage.begin()
    stage.router.end("the zone was dropped")
    assert [outcome.detail for outcome in stage.told] == ["the zone was dropped"]
    stage.end(run)
    assert len(stage.told) == 1


@pytest.mark.rule("store/K-5")
def test_the_lock_of_a_run_is_not_stored_and_belongs_to_no_transaction(stage: RunStage) -> None:
    stage.begin()
    copy = stage.lane.leading[0]
    assert copy is not None
    assert len(copy.locks.held) == 1
    assert list(copy.locks.one_of_each()) == []
    assert copy.locks.unstored == 0
    assert copy.locks.take_unstored(10) == []
    stage.ask(Request(Op.PROCESS, MAP, [0], b"other", process().value))
    assert copy.locks.take_unstored(10) == [], "a handover has begun"
    stage.engine.store_locks(0)
    assert TRANSACTIONS_MAP not in copy.maps
