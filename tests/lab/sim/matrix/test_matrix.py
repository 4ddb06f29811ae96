"""The crash matrix: every form of migration, the master in every role, every single fault at every packet.

Here are all single faults of the kinds that the design speaks of: each process dies at each packet, each control
message is lost, delayed, repeated. `make matrix` has them all, and all pairs.
"""

from __future__ import annotations

from itertools import chain

import pytest

from holdfast.core.model.migration import MigrationKind
from holdfast_lab.sim.lies import telling
from holdfast_lab.sim.matrix.fault_keys import CRASHES, KINDS, MESSAGES, Fault, parse
from holdfast_lab.sim.matrix.forms import FORMS
from holdfast_lab.sim.matrix.play import Case, Verdict, case_of, play
from holdfast_lab.sim.matrix.sweep import (
    MAIN_KINDS,
    Tally,
    one_more,
    pair_starts,
    run,
    single_faults,
    stages,
    sweep,
)

STAGES = list(stages(1))


# -- the stages


@pytest.mark.parametrize("stage", STAGES, ids=str)
def test_without_a_fault_exactly_the_migrations_of_the_form_are_made(stage: Case) -> None:
    verdict = play(stage)
    assert verdict.ok, verdict.problems
    assert verdict.figures["migrations_failed"] == 0
    # A master that leaves takes its count along.
    leaves = FORMS[stage.form].leaving == FORMS[stage.form].masters[stage.master]
    assert verdict.figures["migrations"] == (0 if leaves else FORMS[stage.form].steps)


def test_the_forms_are_all_there() -> None:
    """MOVE, COPY, SHIFT DOWN, SHIFT UP, EXCHANGE, of an owner and of a backup; every role is the master's once."""
    moved = {(form.kind, form.start[0] != form.target[0]) for form in FORMS.values()}
    owner_too = set(MigrationKind) - {MigrationKind.COPY}
    assert moved == {(kind, False) for kind in MigrationKind} | {(kind, True) for kind in owner_too}
    for form in FORMS.values():
        assert {"source", "destination", "neither"} <= form.masters.keys()


@pytest.mark.parametrize("form", FORMS)
def test_the_protocol_goes_through_the_tap(form: str) -> None:
    """What the faults strike at is the real protocol, and data of clients on its way."""
    master = "neither"
    seen = {message for _, _, message in play(Case(form, master, 0)).boundaries}
    steps = {
        "MigrationRequest",
        "Fill",
        "Filled",
        "MigrationReady",
        "TableOffer",
        "TableStored",
        "TableCommit",
    }
    assert steps <= seen
    assert FORMS[form].backups == 0 or {"Replicate", "Replicated"} <= seen


TWO_MOVES = {"shift-down-two-moves": ("AB", "CB", "CA"), "shift-up-two-moves": ("ABC", "ABD", "ACD")}
"""The rows before, between and after the MOVEs, as source 001 has them in case 2 of SHIFT DOWN and of SHIFT UP."""


@pytest.mark.parametrize("form", TWO_MOVES)
def test_faults_strike_between_the_two_moves_of_case_two(form: str) -> None:
    """There are packets after the first MOVE is committed and before the second is asked for."""
    told: list[str] = []
    verdict = play(Case(form, "neither", 0), story=told.append)
    messages = [message for _, _, message in verdict.boundaries]
    asked = [at for at, message in enumerate(messages) if message == "MigrationRequest"]
    assert len(asked) == 2, "each MOVE is asked for once"
    assert "TableCommit" in messages[asked[0] : asked[1]], "the first is committed before the second begins"
    assert (FORMS[form].start, FORMS[form].target) == TWO_MOVES[form][::2]


def lied(case: Case) -> Verdict:
    with telling({"old-copy-returns"}):
        return play(case)


@pytest.mark.parametrize("form", TWO_MOVES)
def test_what_comes_back_between_two_moves_is_judged_by_no_other_form(form: str) -> None:
    """A member that gives its copy away and is filled again must hold what it was filled with."""
    assert not lied(Case(form, "neither", 0)).ok
    others = [stage for stage in STAGES if stage.form not in TWO_MOVES and stage.master == "neither"]
    assert [stage.form for stage in others if not lied(stage).ok] == []


# -- single faults


LONG = (
    "move-alone",
    "both-shifts-owner",
    "both-shifts-backup",
    "shift-up-backup",
    "shift-down-backup",
    "move-owner",
    "move-backup",
    "copy-backup",
    "shift-up-owner",
    "shift-down-owner",
    "shift-up-empty",
    "copy-first",
    "exchange-owner",
    "exchange-backup",
    "shift-down-two-moves",
    "shift-up-two-moves",
)
"""Forms that take long: one case of 128 is played here, all of them by `make slow` and `make matrix`."""
SAMPLE = 128


@pytest.mark.parametrize("form", LONG)
def test_some_single_faults(form: str) -> None:
    tally = Tally()
    for stage in stages(1, (form,)):
        tally.join(sweep(stage, MAIN_KINDS, sample=SAMPLE))
    assert [f"{verdict.key}: {verdict.problems[0]}" for verdict in tally.failed] == []
    assert tally.cases >= 5 * tally.boundaries / SAMPLE


@pytest.mark.parametrize(
    "form", [pytest.param(form, marks=pytest.mark.slow) if form in LONG else form for form in FORMS]
)
def test_every_single_fault(form: str, record_property: pytest.RecordProperty) -> None:
    tally = Tally()
    for stage in stages(1, (form,)):
        tally.join(sweep(stage, MAIN_KINDS))
    told = f"{tally.boundaries} boundaries, {tally.cases} cases, {tally.not_asked} beyond what is promised"
    record_property("matrix", told)
    print(f"{form}: {told}")
    assert [f"{verdict.key}: {verdict.problems[0]}" for verdict in tally.failed] == []
    assert tally.cases > 5 * tally.boundaries
    assert tally.not_asked < tally.cases / 2
    assert tally.acknowledged > 15 * tally.cases


FOUND = {
    "move-backup/neither/0/cut-6s@61+crash:master@92": "only a removed member knew of the view that removed it",
    "shift-down-backup/neither/0/cut-6s@37+crash:master@100": "the same",
    "shift-up-owner/source/0/cut-6s@50": "what was passed on for a member that has gone was done later (routing/R-10)",
}
"""Cases that failed once, and what they found. They stay; what they found is also told in `test_scenarios`."""


@pytest.mark.parametrize("key", FOUND)
def test_cases_that_once_failed(key: str) -> None:
    verdict = play(case_of(key))
    assert verdict.ok, verdict.problems


# -- the matrix bites


BITES = {
    "all-ack": ("move-owner/source/0/none", "crash"),
    "destination-acks": ("move-owner/source/0/none", "lost"),
    "copy-complete": ("move-owner/source/0/none", "crash"),
    "forget-last": ("move-owner/source/0/none", "crash"),
    "failed-version": ("move-owner/source/0/none", "crash"),
    "newest-table": ("move-owner/destination/0/none", "crash"),
    "activate": ("shift-up-empty/source/0/none", "crash"),
    "fence": ("move-backup/source/0/none", "lost"),
    "wait-for-copies": ("move-alone/destination/0/none", "cut-6s"),
    "promotion-by-table": ("copy-first/source/0/none", "cut-6s"),
    "view-majority": ("move-owner/source/0/none", "cut-6s"),
    "drain-waits": ("shift-up-owner/destination/0/none", "crash"),
    "destination-first": ("move-backup/neither/0/cut-6s@2", "crash"),
}
"""Rule -> where its harm shows: a stage, perhaps with a first fault, and the kind of fault to add to it."""
SHOWN_HERE = ("copy-complete", "forget-last", "promotion-by-table")
"""Rules that no other quick test shows; for the others, `SHOWN_BY` in `test_rules` has a directed one."""


@pytest.mark.parametrize(
    "rule",
    [rule if rule in SHOWN_HERE else pytest.param(rule, marks=pytest.mark.slow) for rule in BITES],
)
def test_the_matrix_finds_the_rule_that_is_missing(rule: str) -> None:
    key, kind = BITES[rule]
    case, without = case_of(key), frozenset({rule})
    # If the code changes so that the harm shows elsewhere: other stages, or other first faults.
    others = pair_starts(1, (case.form,), (case.faults[0].kind,)) if case.faults else iter(STAGES)
    for start in chain([case], others):
        played = (run(longer, without) for longer in one_more(start, run(start, without), (kind,)))
        found = next((verdict for verdict in played if not verdict.ok), None)
        if found is not None:
            break
    else:
        pytest.fail(f"without {rule}, every case was judged good")
    again = run(case_of(found.key))
    assert again.ok, f"with the rule in force the same case is good: {again.problems}"


# -- keys


@pytest.mark.parametrize("text", ["crash:source@17", "restart-before:master@1", "lost@3", "cut-6s@40"])
def test_a_fault_is_what_its_key_says(text: str) -> None:
    assert str(parse(text)) == text


def test_a_case_is_what_its_key_says() -> None:
    key = "shift-up-owner/neither/3/crash:source@17+late@20"
    assert str(case_of(key)) == key
    assert case_of(key).faults == (Fault("crash", 17, "source"), Fault("late", 20))
    assert case_of("move-owner/lite/0/none").faults == ()


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("move-owner", "write FORM/ROLE/SEED/FAULT"),
        ("move/source/0/none", "the forms are move-owner"),
        ("move-owner/backup/0/none", "the roles are source, destination"),
        ("move-owner/source/x/none", "write a number"),
        ("move-owner/source/0/crash@3", "is no fault"),
        ("move-owner/source/0/lost:source@3", "is no fault"),
        ("move-owner/source/0/crash:nobody@3", "is no role here"),
    ],
)
def test_a_key_that_names_nothing_is_refused(key: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        case_of(key)


def test_the_same_key_is_the_same_run() -> None:
    case = case_of("move-owner/neither/0/crash:source@17")
    assert play(case) == play(case)
    assert play(case).trace_hash != play(case_of("move-owner/neither/1/crash:source@17")).trace_hash


def test_a_run_is_its_stage_up_to_the_fault() -> None:
    stage = case_of("move-owner/neither/0/none")
    seen = play(stage).boundaries
    for at in (1, 10, 20):
        struck = play(Case(stage.form, stage.master, stage.seed, (Fault("lost", at),)))
        assert struck.boundaries[:at] == seen[:at]
        assert struck.asked


def test_a_fault_beyond_what_is_promised_is_not_asked_for() -> None:
    """The only holder of everything."""
    verdict = play(case_of("copy-first/neither/0/crash:source@1"))
    assert not verdict.asked
    assert verdict.ok


# -- which cases there are


def test_every_fault_of_every_packet_is_played_once() -> None:
    stage = case_of("move-owner/source/0/none")
    seen = [("A", "C", "Fill"), ("C", "A", "Forward")]
    faults = [str(fault) for fault in single_faults(stage, seen, tuple(KINDS))]
    assert len(faults) == len(set(faults))
    victims = 3
    of_the_fill = victims * 2 + 2 + len(MESSAGES)
    assert len(faults) == of_the_fill + victims * 2 + 2, (
        "a client's request is not lost, but processes die at it"
    )
    assert {fault.partition("@")[0].partition(":")[0] for fault in faults} == set(CRASHES) | set(MESSAGES)


@pytest.mark.slow
def test_pairs_begin_with_each_single_fault_and_go_on_after_it() -> None:
    starts = list(pair_starts(1, ("copy-first",), ("crash", "lost")))
    assert all(len(case.faults) == 1 for case in starts)
    case = next(case for case in starts if case.master == "neither" and case.faults[0].kind == "lost")
    whole, part = sweep(case, ("late",)), sweep(case, ("late",), sample=4)
    assert whole.failed == part.failed == []
    assert 0 < part.cases < whole.cases
    assert whole.cases < len(run(case).boundaries)
