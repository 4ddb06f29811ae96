from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.engine.lives import TERM, Life, State, content
from tests.engine.memory_disk import Platter

from holdfast.config.schema import PersistenceSettings
from holdfast.core.events import CheckpointDone
from holdfast.core.journal.recovery import Recovered
from holdfast.core.model.journal_entries import Dropped
from holdfast.core.model.update_counter import UpdateCounter
from holdfast.core.store.partition_copy import PartitionCopy


@pytest.mark.rule("engine/W-7")
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), lives=st.integers(1, 4), power=st.booleans())
def test_what_was_durable_is_there_after_any_crash(seed: int, lives: int, power: bool) -> None:
    draw = random.Random(seed)
    platter = Platter()
    chosen = PersistenceSettings(
        directory="x",
        segment_bytes=65_536,
        checkpoint_bytes=draw.choice([65_536, 200_000]),
        history_bytes=draw.choice([0, 200_000]),
        sync_interval_ms=20,
    )
    states: dict[int, list[tuple[int, State]]] = {}
    """By partition: what it held after each append of the last life."""
    last = 0
    for _ in range(lives):
        life = Life(platter, chosen, random.Random(draw.random()))
        assert life.recovered.damage == [] or all("never durable" in each for each in life.recovered.damage)
        assert life.recovered.uncertain == {}
        if states:
            check(life.recovered, states, last)
        states = {p: [(0, content(copy))] for p, copy in life.copies.items()}
        for _ in range(draw.randint(0, 120)):
            act(life, draw, states)
            for _ in range(draw.choice([0, 1, 5, 40])):
                life.disk.step()
        last = life.durable
        platter.crash(draw, power=power)
    final = Life(platter, chosen)
    assert final.recovered.uncertain == {}
    check(final.recovered, states, last)


def act(life: Life, draw: random.Random, states: dict[int, list[tuple[int, State]]]) -> None:
    partition = draw.randrange(4)
    urgent = draw.random() < 0.7
    if partition not in life.copies and draw.random() < 0.3:
        fill(life, draw, states, partition)
        return
    if partition not in life.copies:
        life.begin(partition, epoch=draw.randrange(3))
        states.setdefault(partition, [(0, None)]).append((life.number, {}))
        return
    match draw.randrange(20):
        case 0:
            life.checkpoint(partition)
            return
        case 1:
            life.append(Dropped(partition), urgent=urgent)
            del life.copies[partition]
            states[partition].append((life.number, None))
            return
        case 2:
            for index in range(3):
                value = bytes([draw.randrange(256)]) * 30_000
                term = max(TERM, life.copies[partition].open("m").term)
                life.put(partition, f"b{index}", value, term=term, urgent=urgent)
                states[partition].append((life.number, content(life.copies[partition])))
            return
        case 3:
            fill(life, draw, states, partition)
            return
    size = draw.choice([1, 10, 1000, 5000])
    name = draw.choice(["m", "n"])
    held = life.copies[partition].open(name)
    term = max(TERM, held.term + draw.choice([0, 0, 0, 1]))
    value = bytes([draw.randrange(256)]) * size
    life.put(partition, f"k{draw.randrange(6)}", value, name, term=term, urgent=urgent)
    states[partition].append((life.number, content(life.copies[partition])))


def fill(life: Life, draw: random.Random, states: dict[int, list[tuple[int, State]]], partition: int) -> None:
    """A copy that has come from another member takes the place of the present one, or of none: no block tells of it."""
    present = life.copies.get(partition, PartitionCopy(partition, 0))
    filled = PartitionCopy(partition, present.epoch)
    held = filled.open("m")
    before = present.open("m")
    held.updates = UpdateCounter(before.counter + draw.randrange(1, 5))
    held.lineage = [*before.lineage, (max(TERM, before.term + 1), before.counter)]
    held.state.entries = {b"filled": b"%d" % held.counter}
    filled.maps.update((name, map_) for name, map_ in present.maps.items() if name != "m")
    life.copies[partition] = filled
    ticket = life.checkpoint(partition)
    number = life.number
    history = states.setdefault(partition, [(0, None)])
    history.append((-number, content(filled)))
    for _ in range(draw.choice([0, 0, 8])):
        other = draw.randrange(4)
        if other != partition and other in life.copies:
            term = max(TERM, life.copies[other].open("m").term)
            life.put(other, "b", bytes([draw.randrange(256)]) * 20_000, term=term)
            states[other].append((life.number, content(life.copies[other])))
    life.disk.until(lambda: any(isinstance(e, CheckpointDone) and e.ticket == ticket for e in life.events))
    history.append((number, content(filled)))


def check(found: Recovered, states: dict[int, list[tuple[int, State]]], durable: int) -> None:
    """Each partition is as it was after some append that is not before what was durable."""
    for partition in {**states, **found.copies}:
        is_now = content(found.copies[partition]) if partition in found.copies else None
        history = states.get(partition, [(0, None)])
        oldest = max(index for index, (number, _) in enumerate(history) if 0 <= number <= durable)
        assert is_now in [state for _, state in history[oldest:]], (partition, durable)


@pytest.mark.rule("journal/R-5")
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), restarted=st.booleans())
def test_damage_is_told_and_nothing_is_invented(seed: int, restarted: bool) -> None:
    draw = random.Random(seed)
    platter = Platter()
    chosen = PersistenceSettings(
        directory="x", segment_bytes=65_536, checkpoint_bytes=200_000, history_bytes=0, sync_interval_ms=20
    )
    life = Life(platter, chosen, random.Random(draw.random()))
    states: dict[int, list[tuple[int, State]]] = {}
    for _ in range(draw.randint(1, 120)):
        act(life, draw, states)
        for _ in range(draw.choice([0, 1, 5, 40])):
            life.disk.step()
    life.settle()
    life.journal.close()
    name = draw.choice([name for name in sorted(platter.seen) if name not in {"identity.json", "next.seg"}])
    data = platter.seen[name]
    at = draw.choice([at for at, byte in enumerate(data) if byte])
    data[at] ^= 1 << draw.randrange(8)
    again = Life(platter, chosen)
    if restarted:
        again.settle()
        again.journal.close()
        platter.crash(draw)
        again = Life(platter, chosen)
    found = again.recovered
    for partition in {**states, **found.copies}:
        is_now = content(found.copies[partition]) if partition in found.copies else None
        history = states.get(partition, [(0, None)])
        if partition in found.uncertain:
            for name, held in (is_now or {}).items():
                assert held in [state[name] for _, state in history if state and name in state], partition
        elif is_now is not None or found.whole:
            assert is_now == history[-1][1], (partition, found.damage)
    if found.uncertain and not restarted:
        assert found.damage
