"""Change streams of maps in a zone, as their reader in simulated runs judges them."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest
from tests.lab.sim.test_zone_orders import order
from tests.lab.sim.zone_stage import ZONED, ZoneStage, kept_settings, zoned_settings

from holdfast.actions.change_zone import ResetZone
from holdfast.config import Settings
from holdfast.core.model.ids import SECOND
from holdfast.core.zones.descriptors import ZoneSettings
from holdfast_lab.check.linearizability import Call, Outcome
from holdfast_lab.sim.ablations.switching import ablated
from holdfast_lab.sim.clients.simulated_doors import Doors
from holdfast_lab.sim.lies import telling
from holdfast_lab.sim.stream_readers import ZoneReader
from holdfast_lab.sim.world import Process

BYTES = 1 << 20
KEYS = [f"z{number}" for number in range(14)]


def streamed(base: Settings, changes_bytes: int = BYTES) -> Settings:
    zoned = msgspec.structs.replace(base.maps[ZONED], changes_bytes=changes_bytes)
    return msgspec.structs.replace(base, maps={**base.maps, ZONED: zoned})


class Story:
    """A stage with a map in a zone, its reader, and the writes that the reader should hear of."""

    def __init__(
        self, hosts: int = 3, settings: Settings | None = None, zone: ZoneSettings | None = None
    ) -> None:
        self.stage = ZoneStage(hosts, settings=settings or streamed(zoned_settings()), zone=zone)
        doors = Doors(self.stage.world, self.stage.cluster)
        self.reader = ZoneReader(self.stage.world, self.stage.cluster, ZONED, lambda key: ZONED, doors)
        self.calls: list[Call] = []
        self.final: dict[str, str | None] = {}

    def write(self, word: str, keys: list[str] = KEYS, through: Process | None = None) -> None:
        for key in keys:
            value, now_ns = f"{word}.{key}", self.stage.world.now_ns
            self.stage.zput(through or self.stage.living()[0], key, value)
            self.calls.append(Call("set", key, now_ns, self.stage.world.now_ns, Outcome.DONE, argument=value))
            self.final[key] = value

    def read(self, seconds: float = 30) -> None:
        self.stage.world.run_until(
            self.stage.world.now_ns + round(seconds * SECOND), stop=lambda: self.reader.caught_up
        )

    def end(self) -> list[str]:
        self.read()
        self.reader.end()
        return self.reader.judge(self.calls, self.final)


def test_a_reader_goes_on_under_another_leader() -> None:
    story = Story()
    story.reader.start()
    story.write("first")
    story.stage.leader(0).crash()
    story.stage.wait(12)
    story.write("second")
    assert story.end() == []
    assert story.reader.gone == {}
    assert len(story.reader.told) == len(story.calls)


@pytest.mark.parametrize(("checkpoint_bytes", "remembers"), [(1 << 20, True), (8192, False)])
def test_after_a_restart_of_all_members_a_reader_goes_on_or_needs_a_snapshot(
    checkpoint_bytes: int, remembers: bool
) -> None:
    """The changes are in the log, so they are known again, unless a checkpoint has the state instead."""
    base = kept_settings()
    files = msgspec.structs.replace(
        base.persistence, segment_bytes=2 * checkpoint_bytes, checkpoint_bytes=checkpoint_bytes
    )
    story = Story(settings=streamed(msgspec.structs.replace(base, persistence=files)))
    story.reader.start()
    story.write("first")
    story.read()
    story.reader.running = False
    for word in ("a", "b", "c"):
        story.write(word)
    story.stage.cluster.power_cut_everywhere()
    story.stage.world.weather.refusal = 1.0
    story.stage.processes = [story.stage.cluster.start(host, bootstrap=host == 0) for host in range(3)]
    story.stage.rest(120)
    story.stage.wait(10)
    story.reader.running = True
    story.reader.start()
    story.read()
    story.write("last")
    assert story.end() == []
    assert (story.reader.gone == {}) is remembers
    told = {change.value for change in story.reader.told}
    missing = {call.argument for call in story.calls} - told
    assert not {value for value in missing if value and value.startswith(("first", "last"))}
    assert (missing == set()) is remembers


def test_a_reader_that_needs_forgotten_changes_begins_again() -> None:
    story = Story(settings=streamed(zoned_settings(), 1500))
    keys = [key for n in range(200) if story.stage.partition(key := f"z{n}") == 0][:6]
    story.write("before", keys)
    story.reader.start()
    story.read()
    assert story.reader.gone == {}
    story.reader.running = False
    for word in ("a", "b", "c", "d"):
        story.write(word, keys)
    story.reader.running = True
    story.reader.start()
    assert story.end() == []
    assert list(story.reader.gone) == [0]


def stale_head(story: Story) -> list[str]:
    """What the reader finds when a deposed leader reports its head."""
    stage, reader = story.stage, story.reader
    reader.start()
    keys = [key for n in range(200) if stage.partition(key := f"z{n}") == 0][:6]
    story.write("first", keys)
    story.read()
    old = stage.leader(0)
    stage.isolate(old)
    # It does not notice, as if it stood still; the others elect another one.
    old.awake_at_ns = stage.world.now_ns + 30 * SECOND
    stage.wait(12)
    others = [process for process in stage.living() if process is not old]
    story.write("second", keys, through=others[0])
    story.read(5)
    assert reader.at[0][0] == 2 * len(keys)
    reader.running = False
    old.whenever_awake(partial(old.step, partial(reader._ask, old)))
    stage.wait(25)
    return [what for _, what in reader.problems]


@pytest.mark.rule("streams/G-1")
def test_a_deposed_leader_reports_no_head() -> None:
    assert stale_head(Story()) == []
    with ablated("heads-confirmed"):
        [problem, *_] = stale_head(Story())
    assert "was read before" in problem


@pytest.mark.parametrize(
    ("lie", "why"), [("zone-stream-skips", "is not told"), ("zone-stream-doubles", "twice")]
)
def test_a_change_that_is_left_out_or_told_twice_is_noticed(lie: str, why: str) -> None:
    with telling({lie}):
        story = Story()
        story.reader.start()
        keys = [key for n in range(200) if story.stage.partition(key := f"z{n}") == 0][:6]
        for word in ("a", "b"):
            story.write(word, keys)
        problems = story.end()
    assert any(why in problem for problem in problems), problems


def after_a_reset(story: Story, *, known: bool) -> list[str]:
    """Errors found when the only replica of partition 0 is gone. `known`: the judge knows that it was destroyed."""
    stage = story.stage
    keys = [key for n in range(200) if stage.partition(key := f"z{n}") == 0][:6]
    story.reader.start()
    story.write("lost", keys)
    story.read()
    assert len(story.reader.told) == len(keys)
    if known:
        stage.cluster.zone_lost += [(0, stage.world.now_ns)]
    stage.leader(0).crash()
    stage.wait(15)
    answer = order(stage, stage.living()[0], ResetZone("z"), 20)
    assert answer is None, answer
    stage.wait(10)
    for key in keys:
        assert stage.zget(stage.living()[0], key) is None
    story.write("after", keys[:3])
    story.final |= dict.fromkeys(keys[3:])
    return story.end()


def test_after_a_reset_a_reader_begins_again_or_the_loss_is_noticed() -> None:
    story = Story(4, zone=ZoneSettings("z", partitions=7, replicas=1))
    assert after_a_reset(story, known=True) == []
    assert 0 in story.reader.gone
    problems = after_a_reset(Story(4, zone=ZoneSettings("z", partitions=7, replicas=1)), known=False)
    assert any("was read before" in problem for problem in problems), problems
