"""Plays one case of the crash matrix: a stage, its faults, a verdict.

The key of a case, such as `move-owner/neither/0/crash:source@17`, has the form of the migration, the role of
the master, the seed (which shuffles the effects of each step and decides delays), and the faults, joined by
`+`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.core.model.ids import SECOND
from holdfast.core.placement.planner import plan
from holdfast_lab.check import convergence
from holdfast_lab.check.durability import judge_final, judge_reads
from holdfast_lab.sim.ablations.switching import ablated
from holdfast_lab.sim.matrix.fault_keys import Director, Fault, parse
from holdfast_lab.sim.matrix.forms import EMPTY, FORMS
from holdfast_lab.sim.matrix.stage import DEEP, LEDGER, Stage
from holdfast_lab.sim.world import Story

REST_NS = 55 * SECOND
QUIET = "none"


@dataclass(frozen=True, slots=True)
class Case:
    form: str
    master: str
    seed: int
    faults: tuple[Fault, ...] = ()

    def __str__(self) -> str:
        return f"{self.form}/{self.master}/{self.seed}/{'+'.join(map(str, self.faults)) or QUIET}"


@dataclass(frozen=True, slots=True)
class Verdict:
    key: str
    problems: list[str]
    asked: bool
    """Whether every fault of the case happened: none exceeded what must be survived, or came after the end."""
    trace_hash: str
    boundaries: list[tuple[str, str, str]] = field(default_factory=list)
    figures: dict[str, int | float] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.problems


def case_of(key: str) -> Case:
    """Raises ValueError, which lists the alternatives, for an invalid key."""
    parts = key.split("/")
    if len(parts) != 4:
        raise ValueError(
            f"{key!r} is no case: write FORM/ROLE/SEED/FAULT, as move-owner/neither/0/crash:source@17"
        )
    form, master, seed, faults = parts
    if form not in FORMS:
        raise ValueError(f"{form!r} is no form: the forms are {', '.join(FORMS)}")
    if master not in FORMS[form].masters:
        raise ValueError(f"{master!r} is no role of {form}: the roles are {', '.join(FORMS[form].masters)}")
    if not seed.isdigit():
        raise ValueError(f"{seed!r} is no seed: write a number")
    found = () if faults == QUIET else tuple(parse(text) for text in faults.split("+"))
    known = {*FORMS[form].roles(master).values(), "master", ""}
    for fault in found:
        if fault.role not in known:
            raise ValueError(f"{fault.role!r} is no role here: there are {', '.join(sorted(known - {''}))}")
    return Case(form, master, int(seed), found)


def play(case: Case, *, without: frozenset[str] = frozenset(), story: Story | None = None) -> Verdict:
    with ablated(*without):
        return _play(case, story)


def _play(case: Case, story: Story | None) -> Verdict:
    form = FORMS[case.form]
    stage = Stage(form, case.master, case.seed, story=story)
    stage.world.log(f"{case}: {form.start} becomes {form.target}; the master is {stage.letters[0]}")
    director = Director(stage, form.roles(case.master), case.faults)
    world = stage.world
    began_ns = world.now_ns
    stage.begin()
    # The client continues until the cluster seems to have recovered, then it ends too.
    world.run_until(began_ns + REST_NS, stop=lambda: _calm(stage, director))
    rested_ns = world.now_ns
    stage.client.running = False
    director.close()
    world.run_until(rested_ns + REST_NS, stop=lambda: _calm(stage, director) and not stage.client.waiting())
    problems = list(world.failures)
    if not problems:
        problems = _judge(stage)
    for problem in problems:
        world.log(f"PROBLEM {problem}")
    figures: dict[str, int | float] = {
        "acknowledged": sum(1 for write in stage.client.writes if write.outcome == "ok"),
        "migrations": sum(picture.migrations().completed for picture in stage.cluster.pictures()),
        "migrations_failed": sum(picture.migrations().failed for picture in stage.cluster.pictures()),
        "events": world.events,
        "rest_s": round((rested_ns - began_ns) / SECOND, 2),
    }
    asked = director.struck == len(case.faults)
    return Verdict(str(case), problems, asked, world.hash.hexdigest(), director.seen, figures)


def _calm(stage: Stage, director: Director) -> bool:
    if stage.world.now_ns < director.over_ns or not stage.at_rest():
        return False
    return not any(picture.leaving for picture in stage.cluster.pictures())


# -- judgement


def _judge(stage: Stage) -> list[str]:
    members = stage.cluster.pictures()
    problems = convergence.judge(members) if members else ["no process lives"]
    if waiting := stage.client.waiting():
        problems.append(f"{waiting} requests were never answered")
    if problems:
        return problems
    problems += _row(stage)
    final: dict[str, str | None] = {}
    process = stage.world.random.choice(stage.cluster.living())
    for name in (LEDGER, DEEP):
        stage.client.look(process, name, final.update)
    stage.world.run_until(stage.world.now_ns + 10 * SECOND, stop=lambda: len(final) > 0 and _all_read(final))
    if not _all_read(final):
        return [*problems, "the last reads were not answered", *stage.world.failures]
    judged = [write for write in stage.client.writes if not write.key.startswith("loose")]
    return problems + judge_final(judged, final) + judge_reads(judged, stage.client.reads)


def _all_read(final: dict[str, str | None]) -> bool:
    return any(key.startswith(LEDGER) for key in final) and any(key.startswith(DEEP) for key in final)


def _row(stage: Stage) -> list[str]:
    """The migration was completed, in any try, as far as the members it needs are present."""
    row = stage.row_of(stage.cluster.members()[0])
    wanted = stage.form.target
    here = {stage.letter(process) for process in stage.cluster.living()}
    if not stage.aims_at_target(here) or row == wanted:
        return []
    slots = tuple(None if letter == EMPTY else letter for letter in row)
    aim = tuple(None if letter == EMPTY else letter for letter in wanted)
    left = plan(0, slots, aim)
    if left.migrations or left.cleared:
        return [f"the row is {row}, and {wanted} could be reached"]
    return []
