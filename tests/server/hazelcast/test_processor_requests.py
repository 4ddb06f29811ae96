"""Entry processors as the official client asks for them: which function is meant, and what is answered."""

from __future__ import annotations

from struct import pack

import pytest
from hazelcast.protocol.codec import (
    map_execute_on_all_keys_codec,
    map_execute_on_key_codec,
    map_execute_on_keys_codec,
    map_execute_with_predicate_codec,
)
from hazelcast.serialization.data import Data
from tests.server.hazelcast.one_member import OneMemberGrid
from tests.server.hazelcast.wire import AnsweredError, Wire, data

from holdfast.core.model.keys import partition_of
from holdfast.core.model.levels import STRUCTURES
from holdfast.core.model.map_locks import owner_of
from holdfast.core.model.operations import Op, Outcome, Status
from holdfast.core.model.processors import ProcessorCall
from holdfast.server.hazelcast import processor_requests
from holdfast.server.hazelcast.maps import TRUE_PREDICATE
from holdfast.wire.hazelcast.named_processors import HOLDFAST_FACTORY, NAMED_CLASS, write_processor
from holdfast.wire.hazelcast.refusals import BAD_STATE, HAZELCAST, INDETERMINATE, SERIALIZATION, UNSUPPORTED


def stored(text: str) -> bytes:
    return pack(">ii", -11, len(text)) + text.encode()


def named(argument: bytes = b"", name: str = "sell") -> Data:
    return data(write_processor(name, argument))


def identified(factory_id: int = 66, class_id: int = 1, payload: bytes = b"fields") -> Data:
    return data(pack(">i?ii", -2, True, factory_id, class_id) + payload)


KEY = data(stored("k"))


def fill(grid: OneMemberGrid, *keys: str) -> None:
    for key in keys:
        partition = partition_of(stored(key), 0, grid.partition_count)
        grid.lane.set(grid.copies[partition], "m", stored(key), stored("old"), 0, 0, 0)


def content(entries: list[tuple[Data, Data]]) -> dict[bytes, bytes]:
    return {key.buffer[4:]: value.buffer[4:] for key, value in entries}


def test_a_processor_by_numbers(wire: Wire, grid: OneMemberGrid) -> None:
    fill(grid, "k")
    old = wire.ask(map_execute_on_key_codec, "m", identified(), KEY, 5)
    assert old.buffer[4:] == stored("old")
    assert grid.calls == [ProcessorCall("sell", payload=b"fields")]
    [request] = [one for one in grid.requests if one.op is Op.PROCESS]
    assert request.key == stored("k")
    assert request.holder == owner_of(request.holder[:17], 5)


def test_a_processor_by_name(wire: Wire, grid: OneMemberGrid) -> None:
    assert wire.ask(map_execute_on_key_codec, "m", named(stored("x")), KEY, 5) is None
    assert grid.calls == [ProcessorCall("sell", stored("x"))]


@pytest.mark.parametrize(
    ("processor", "problem"),
    [
        (identified(67, 2), "no entry processor has factory id 67 and class id 2: set processors.NAME"),
        (named(name="buy"), "there is no entry processor 'buy'"),
        (identified(HOLDFAST_FACTORY, NAMED_CLASS, b"\0\0\0\x7fab"), "name of an entry processor is broken"),
        (identified(HOLDFAST_FACTORY, NAMED_CLASS, b"\0\0\0\1\xff"), "name of an entry processor is broken"),
        (identified(HOLDFAST_FACTORY, NAMED_CLASS, b"\0"), "name of an entry processor is broken"),
    ],
)
def test_a_processor_that_members_do_not_have(
    wire: Wire, grid: OneMemberGrid, processor: Data, problem: str
) -> None:
    with pytest.raises(AnsweredError, match=problem) as refused:
        wire.ask(map_execute_on_key_codec, "m", processor, KEY, 5)
    assert refused.value.code == SERIALIZATION.number
    assert not grid.calls


def test_another_object_is_refused(wire: Wire) -> None:
    with pytest.raises(AnsweredError, match=r"Map\.executeOnKey with an object other than") as refused:
        wire.ask(map_execute_on_key_codec, "m", data(stored("sell")), KEY, 5)
    assert refused.value.code == UNSUPPORTED.number


def test_an_older_cluster_is_named(wire: Wire, grid: OneMemberGrid) -> None:
    grid.level = STRUCTURES - 1
    with pytest.raises(AnsweredError, match="holdfast cluster upgrade") as refused:
        wire.ask(map_execute_on_key_codec, "m", named(), KEY, 5)
    assert refused.value.code == BAD_STATE.number


def test_an_error_of_the_function_is_the_answer(wire: Wire, grid: OneMemberGrid) -> None:
    with pytest.raises(AnsweredError, match=r"nothing was changed.*sold out") as refused:
        wire.ask(map_execute_on_key_codec, "m", named(grid.failing), KEY, 5)
    assert refused.value.code == HAZELCAST.number


def test_listed_keys(wire: Wire, grid: OneMemberGrid) -> None:
    fill(grid, "a", "b")
    keys = [data(stored(key)) for key in ("a", "b", "c", "a")]
    answer = content(wire.ask(map_execute_on_keys_codec, "m", named(stored("new")), keys))
    assert answer == {stored("a"): stored("old"), stored("b"): stored("old")}, "null results are left out"
    assert len(grid.calls) == 3, "each key once"
    assert wire.ask(map_execute_on_keys_codec, "m", named(), []) == []


@pytest.mark.parametrize("predicate", [None, TRUE_PREDICATE])
def test_all_keys(wire: Wire, grid: OneMemberGrid, predicate: bytes | None) -> None:
    names = [f"k{number}" for number in range(100)]
    fill(grid, *names)
    if predicate is None:
        answer = wire.ask(map_execute_on_all_keys_codec, "m", named(stored("new")))
    else:
        answer = wire.ask(map_execute_with_predicate_codec, "m", named(stored("new")), data(predicate))
    assert content(answer) == {stored(name): stored("old") for name in names}
    assert all(call.only_present for call in grid.calls)


def test_other_predicates_are_refused(wire: Wire, grid: OneMemberGrid) -> None:
    with pytest.raises(AnsweredError, match="other than TruePredicate"):
        wire.ask(map_execute_with_predicate_codec, "m", named(), data(stored("sql")))


@pytest.mark.rule("server/E-1")
def test_one_request_runs_few_at_a_time(wire: Wire, grid: OneMemberGrid) -> None:
    fill(grid, *(f"k{number}" for number in range(100)))
    grid.holds_runs = True
    wire.tell(map_execute_on_all_keys_codec.encode_request("m", named(stored("new"))))
    running = []
    while grid.running:
        running.append(len(grid.running))
        grid.end_runs()
        wire.resume()
    assert max(running) <= processor_requests.WINDOW
    assert len(grid.calls) == 100


@pytest.mark.rule("server/E-1", "server/F-1")
def test_a_client_with_many_such_requests_is_not_read_meanwhile(wire: Wire, grid: OneMemberGrid) -> None:
    """Each of them may keep many keys and results."""
    fill(grid, "k")
    grid.holds_runs = True
    flow = wire.session._flow
    flow.most = 1 << 20
    requests = [map_execute_on_keys_codec.encode_request("m", named(stored("new")), [KEY]) for _ in range(20)]
    wire.session.receive(b"".join(wire.number(request)[1] for request in requests))
    assert 0 < len(grid.running) < 10
    while grid.running:
        grid.end_runs()
        wire.session.resume()
    assert len(wire.take()) == 20
    assert flow.expected == 0


def test_a_failure_ends_the_rest_and_says_what_was_done(
    wire: Wire, grid: OneMemberGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor_requests, "WINDOW", 1)
    fill(grid, "a", "b", "c")
    done = grid.end_runs

    def end_runs() -> None:
        if grid.calls:
            grid.failing = stored("new")
        done()

    monkeypatch.setattr(grid, "end_runs", end_runs)
    keys = [data(stored(key)) for key in ("a", "b", "c")]
    with pytest.raises(AnsweredError, match="has run on 1 entries, and then failed: sold out") as refused:
        wire.ask(map_execute_on_keys_codec, "m", named(stored("new")), keys)
    assert refused.value.code == INDETERMINATE.number
    assert len(grid.calls) == 2


def test_keys_that_cannot_be_listed_are_the_answer(wire: Wire, grid: OneMemberGrid) -> None:
    grid.answer_with = Outcome(Status.NOT_READY, None, "no primary")
    with pytest.raises(AnsweredError, match="no primary"):
        wire.ask(map_execute_on_all_keys_codec, "m", named())


def test_too_many_keys_are_refused(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor_requests, "LISTED_MAX", 2)
    keys = [data(stored(key)) for key in "abc"]
    with pytest.raises(AnsweredError, match="at most 2 keys"):
        wire.ask(map_execute_on_keys_codec, "m", named(), keys)
