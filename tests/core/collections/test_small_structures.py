"""Steps of counters, generators of ids, cardinality estimators and topics."""

from __future__ import annotations

import random

import pytest
from tests.core.collections.structures import Structure

from holdfast.core.collections.counter_steps import read_count
from holdfast.core.collections.id_steps import AHEAD_MS, EPOCH_MS, ID_STEP, LANES
from holdfast.core.model.collections import (
    CollectionKind,
    CollectionStep,
    StepKind,
    encode_step,
    step_problem,
)
from holdfast.core.model.decisions import Decision
from holdfast.core.model.operations import Op, Request

COUNTER = CollectionKind.PN_COUNTER
GENERATOR = CollectionKind.FLAKE_ID_GENERATOR


def test_a_counter_counts_its_changes_as_versions() -> None:
    counter = Structure(COUNTER)
    assert read_count(counter.do(StepKind.COUNT)) == (0, 0)
    assert read_count(counter.do(StepKind.INCREASE, index=5)) == (5, 1)
    counter.fail_over()
    assert read_count(counter.do(StepKind.INCREASE, index=-7)) == (-2, 2)
    assert read_count(counter.do(StepKind.COUNT)) == (-2, 2)


def test_a_counter_overflows_as_numbers_of_java() -> None:
    counter = Structure(COUNTER)
    counter.do(StepKind.INCREASE, index=2**63 - 1)
    assert read_count(counter.do(StepKind.INCREASE, index=1)) == (-(2**63), 2)
    assert read_count(counter.do(StepKind.INCREASE, index=-1)) == (2**63 - 1, 3)


@pytest.mark.rule("collections/P-1")
def test_a_counter_that_has_lost_changes_is_not_changed() -> None:
    counter = Structure(COUNTER)
    counter.do(StepKind.INCREASE, index=5)
    assert counter.do(StepKind.INCREASE, index=5, end=2) is None
    assert read_count(counter.do(StepKind.INCREASE, index=5, end=1)) == (10, 2)


def ids(generator: Structure, count: int) -> range:
    first = generator.do(StepKind.RESERVE_IDS, count=count)
    return range(first, first + count * ID_STEP, ID_STEP)


@pytest.mark.rule("collections/I-1")
def test_ids_are_given_once_whatever_the_clock_does() -> None:
    generator = Structure(GENERATOR)
    given: set[int] = set()
    draw = random.Random(7)
    count = 0
    for _ in range(300):
        size = draw.choice((1, 3, 100, 2000))
        generator.wall_ms += draw.choice((0, 0, 1, 50, 3000, -2500, -1))
        given.update(ids(generator, size))
        count += size
        if draw.random() < 0.1:
            generator.fail_over()
    assert len(given) == count
    assert all(0 <= one < 2**63 for one in given)


def test_ids_ascend_and_carry_the_time() -> None:
    generator = Structure(GENERATOR)
    first = ids(generator, 10)
    assert first[0] >> 22 == generator.wall_ms - EPOCH_MS
    assert ids(generator, 10)[0] == first[-1] + ID_STEP
    generator.wall_ms -= 1000
    assert ids(generator, 1)[0] == first[-1] + 11 * ID_STEP


@pytest.mark.rule("collections/I-2")
def test_ids_are_never_far_ahead_of_the_clock() -> None:
    generator = Structure(GENERATOR)
    latest = (generator.wall_ms - EPOCH_MS + AHEAD_MS) << 22
    most, refused = AHEAD_MS * 64 // 100_000 * LANES, None
    for _ in range(most):
        assert ids(generator, 100_000)[-1] < latest
    refused = generator.decide(StepKind.RESERVE_IDS, count=100_000)
    assert isinstance(refused, Decision)
    assert "ahead of the clock" in refused.refused
    generator.wall_ms -= 60_000
    refused = generator.decide(StepKind.RESERVE_IDS, count=1)
    assert isinstance(refused, Decision)
    assert "the clock was set back" in refused.refused


def test_so_many_ids_in_one_request() -> None:
    def problem(count: int) -> str:
        value = encode_step(CollectionStep(StepKind.RESERVE_IDS, count=count))
        return step_problem(Request(Op.ADD_TO_COLLECTION, GENERATOR.map_of("g"), [0], value=value))

    assert problem(1) == problem(131_072) == ""
    assert problem(0) and problem(131_073)


@pytest.mark.parametrize("count", [0, 1, 10, 1000, 50_000])
def test_an_estimate_is_near_the_number_of_different_values(count: int) -> None:
    estimator = Structure(CollectionKind.CARDINALITY_ESTIMATOR)
    draw = random.Random(count)
    hashes = [draw.randrange(-(2**63), 2**63) for _ in range(count)]
    for hashed in (*hashes, *hashes[:100]):
        estimator.do(StepKind.OBSERVE, index=hashed)
    estimator.fail_over()
    assert abs(estimator.do(StepKind.ESTIMATE) - count) <= 0.03 * count
    assert len(estimator.states[0].entries) <= 64


def test_an_extreme_hash_is_counted() -> None:
    estimator = Structure(CollectionKind.CARDINALITY_ESTIMATOR)
    for hashed in (0, -1, 2**63 - 1, -(2**63)):
        estimator.do(StepKind.OBSERVE, index=hashed)
    assert estimator.do(StepKind.ESTIMATE) == 4


def test_a_message_is_published_and_not_stored() -> None:
    topic = Structure(CollectionKind.TOPIC)
    assert topic.decide(StepKind.PUBLISH, b"a", b"b") == Decision(published=[b"a", b"b"], unconfirmed=True)
