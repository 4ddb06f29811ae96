"""A cluster that was stopped waits for who was in it last, for nobody else may know what was acknowledged then."""

from __future__ import annotations

from tests.lab.sim.stage import Stage

from holdfast.core.model.operations import Op, Status
from holdfast_lab.sim.ablations.switching import ablated
from holdfast_lab.sim.cluster import simulated_settings

KEYS = [f"k{number}" for number in range(12)]


def found(*, waits: bool) -> list[str | None]:
    """The oldest of three goes on alone, writes, and stops; the two others start. What they answer; None: nothing."""
    stage = Stage(3, settings=simulated_settings(1, 7, journal="sync"))
    oldest = stage.processes[0]
    for key in KEYS:
        stage.put(oldest, key, "before")
    for index in (2, 1):
        stage.processes.pop(index).crash()
        stage.rest()
    for key in KEYS:
        stage.put(oldest, key, "after")
    oldest.crash()
    stage.wait(1)
    stage.world.weather.refusal = 1.0
    stage.processes = [stage.cluster.start(1, bootstrap=True), stage.cluster.start(2)]
    stage.wait(20)
    asked = [stage.ask(stage.processes[0], Op.GET, key) for key in KEYS]
    stage.wait(20)
    answers = [answer for answers in asked for answer in answers if answer.status is Status.OK]
    values = [answer.value.decode() if isinstance(answer.value, bytes) else None for answer in answers]
    if waits:
        stage.processes.append(stage.cluster.start(0))
        stage.rest(120)
        assert [stage.get(stage.processes[0], key) for key in KEYS] == ["after"] * len(KEYS)
    return values


def test_who_was_there_last_is_waited_for() -> None:
    assert found(waits=True) == []


@ablated("wait-for-stores")
def test_without_the_rule_the_past_is_served() -> None:
    assert "before" in found(waits=False)
