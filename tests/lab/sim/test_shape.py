"""What a seed has is drawn before it begins, told in one line, and covers what users run."""

from __future__ import annotations

from collections import Counter

import pytest

from holdfast.core.model.ids import SECOND
from holdfast_lab.sim.marks import FEATURES, MARKS, Marks, missing
from holdfast_lab.sim.run import simulate
from holdfast_lab.sim.shape import KEPT_SEEDS, Shape, drawn

SEEDS = 400


@pytest.fixture(scope="module")
def shapes() -> list[Shape]:
    return [drawn(seed, "mixed") for seed in range(SEEDS)]


def test_the_same_seed_has_the_same_shape() -> None:
    assert drawn(5, "mixed") == drawn(5, "mixed")
    assert drawn(5, "mixed") != drawn(6, "mixed")


def test_every_feature_is_drawn_by_some_seed_and_has_a_mark(shapes: list[Shape]) -> None:
    found = Counter(feature for shape in shapes for feature in shape.features())
    assert found.keys() == FEATURES.keys()
    assert min(found.values()) > 4, found


def test_what_is_large_is_rare_or_short(shapes: list[Shape]) -> None:
    assert {shape.hosts for shape in shapes} >= {1, 2, 3, 4, 5, 7, 15}
    counts = {shape.settings.partitions.count for shape in shapes}
    assert {1, 3, 271} <= counts
    large = [shape for shape in shapes if shape.hosts >= 9 or shape.settings.partitions.count >= 100]
    assert 0.05 < len(large) / SEEDS < 0.2
    assert max(shape.run_ns for shape in large) <= 15 * SECOND


def test_every_second_run_reads_a_change_stream(shapes: list[Shape]) -> None:
    streamed = ["change streams" in shape.features() for shape in shapes]
    assert 0.45 < sum(streamed[KEPT_SEEDS:]) / (SEEDS - KEPT_SEEDS) < 0.55
    assert sum(streamed[:KEPT_SEEDS]) < KEPT_SEEDS / 3, "kept seeds stay what they were"


def test_every_shape_can_work(shapes: list[Shape]) -> None:
    for shape in shapes:
        data = shape.hosts - len([index for index in shape.lite if index < shape.hosts])
        assert data >= 1
        if shape.loss:
            assert data >= 5, "a majority must be left when the holders of a partition are gone"
        if shape.groups:
            assert len(shape.groups) == shape.hosts + shape.spare
        if shape.settings.replication.unknown_writes == "retry":
            assert shape.settings.replication.request_ids >= 1000, "what is forgotten is applied twice"
        if shape.service_backups is not None:
            assert shape.journal == "off", "services are not written down"
        assert str(shape.settings.partitions.count) in shape.line()
        assert "\n" not in shape.line()


def test_power_cuts_need_every_write_on_disk() -> None:
    for seed in range(100):
        shape = drawn(seed, "mixed", power_cuts=True)
        assert shape.journal == "sync"
        assert not shape.split
        assert not shape.loss


def test_the_story_begins_with_the_shape() -> None:
    lines: list[str] = []
    simulate(3, story=lines.append)
    assert drawn(3).line() in lines[0]


def test_a_mark_must_be_declared() -> None:
    marks = Marks()
    marks.hit("lite members")
    assert marks.figures() == {"mark_lite members": 1}
    with pytest.raises(KeyError, match="declare it"):
        marks.hit("light members")


def test_a_mark_that_nobody_hits_is_missing() -> None:
    every = {f"mark_{name}": 1 for name in MARKS}
    assert missing(every, disks=True) == []
    del every["mark_answer MOVED"]
    del every["mark_fault rot"]
    assert missing(every, disks=True) == ["fault rot", "answer MOVED"]
    assert missing(every, disks=False) == ["answer MOVED"], "without files nothing rots"
    assert "answer FAILED" not in missing({}, disks=True), "it ends a run before anybody hears of it"
