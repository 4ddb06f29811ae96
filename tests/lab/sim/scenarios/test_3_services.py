"""Group 3: what each participant holds after a commit, and after a rollback, of every form of migration.

The service is the record store; its maps stand for namespaces with different numbers of backups: `table_replication`
with those of the form, `deep` with one for each slot. Forms and stages are those of the crash matrix
(`holdfast_lab/sim/matrix/forms.py`).

A failure is injected by the death of the master when it is about to offer the new row, so that both participants live
on and must agree that nothing happened: the next master raises the version, and here wants the row as it was. Where
the master is the source or the destination, the participant that died is judged by what the rest does without it. The
forms in which a source leaves gracefully are rolled back in `test_matrix`, with every single fault; here they commit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

import pytest

from holdfast.core.member import Member
from holdfast.core.model.ids import SECOND
from holdfast.core.model.operations import Op, Outcome, Request, Status
from holdfast_lab.check import convergence
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.matrix.forms import EMPTY, FORMS
from holdfast_lab.sim.matrix.stage import DEEP, KEYS, LEDGER, LOOSE, Boundary, Stage
from holdfast_lab.sim.world import STRAIGHT

HOLE = re.compile(r"not safe: partition 0 has \d of \d copies")
STAYING = [form.name for form in FORMS.values() if not form.leaving]


def quiet(stage: Stage) -> bool:
    """Whether nothing is under way. A row with a hole is not safe, but may be what is wanted here."""
    members = stage.cluster.members()
    master = next((member for member in members if member.membership.is_master), None)
    if master is None or any(member.picture.under_way() for member in members):
        return False
    return (
        all(len(member.membership.members()) == len(members) for member in members)
        and master.table_replication.settled
        and master.migrations.planned
    )


def rest(stage: Stage) -> None:
    world = stage.world
    world.run_until(world.now_ns + SECOND)
    world.run_until(world.now_ns + 60 * SECOND, stop=lambda: quiet(stage))
    stage.client.running = False
    world.run_until(world.now_ns + 60 * SECOND, stop=lambda: quiet(stage) and not stage.client.waiting())
    assert not world.failures
    problems = convergence.judge(stage.cluster.pictures())
    assert [problem for problem in problems if not HOLE.search(problem)] == []


def holds_what_its_slot_says(stage: Stage, member: Member) -> None:
    """Data iff the slot is 0 to the map's backups; counters of the maps it holds, and of no others."""
    index = member.table.rows[0].index_of(member.me)
    wanted = {
        LEDGER: 0 <= index <= stage.form.backups,
        DEEP: 0 <= index < stage.form.width,
        LOOSE: 0 <= index <= stage.form.backups,
    }
    copy = member.copies.held.get(0)
    assert (copy is not None) == (index >= 0)
    found = {name: held.counter for name, held in copy.maps.items()} if copy is not None else {}
    assert found.keys() == {name for name, held in wanted.items() if held}
    assert all(count >= KEYS for count in found.values())
    assert not member.copies.staging


def answers_everywhere(stage: Stage) -> None:
    """Every member gets an answer for the partition."""
    found: list[Outcome] = []
    living = stage.cluster.living()
    request = Request(Op.GET, LEDGER, [0], wire_key("k0"))
    for process in living:
        process.step(partial(process.driver.execute, request, found.append))
    stage.world.run_until(stage.world.now_ns + 60 * SECOND, stop=lambda: len(found) == len(living))
    assert [outcome.status for outcome in found] == [Status.OK] * len(living)


@pytest.mark.parametrize("form", FORMS)
def test_after_a_commit_each_holds_what_its_new_slot_says(form: str) -> None:
    for master in FORMS[form].masters:
        stage = Stage(FORMS[form], master, 7, story=None)
        stage.begin()
        rest(stage)
        members = stage.cluster.members()
        assert stage.row_of(members[0]) == FORMS[form].target
        for member in members:
            holds_what_its_slot_says(stage, member)
        destination = stage.living(FORMS[form].destination)
        assert destination is not None
        assert 0 in destination.driver.member.copies.held
        answers_everywhere(stage)


@pytest.mark.parametrize("form", STAYING)
def test_after_a_rollback_each_holds_what_its_old_slot_says(form: str) -> None:
    for master in FORMS[form].masters:
        stage = Stage(FORMS[form], master, 7, story=None)
        version = stage.cluster.members()[0].table.rows[0].version
        struck: list[str] = []

        def strike(boundary: Boundary, stage: Stage = stage, struck: list[str] = struck) -> Sequence[int]:
            under_way = boundary.sender.driver.member.table_replication._round
            if boundary.message != "TableOffer" or struck or under_way is None or not under_way.rows:
                return STRAIGHT  # a round without rows only carries news
            struck.append(stage.letter(boundary.sender))
            if not stage.cluster.may_die(boundary.sender):
                struck.append("not asked")
                return STRAIGHT
            stage.wanted = stage.form.start
            boundary.sender.crash()
            return ()

        stage.strike = strike
        stage.begin()
        rest(stage)
        if not struck or "not asked" in struck:
            continue  # its offer goes to nobody but the master itself, or to the only holder
        row = stage.row_of(stage.cluster.members()[0])
        dead = struck[0]
        if dead not in stage.form.start:
            assert row == stage.form.start
            assert stage.cluster.members()[0].table.rows[0].version > version + 1
        for member in stage.cluster.members():
            holds_what_its_slot_says(stage, member)
        answers_everywhere(stage)


def test_the_forms_in_this_group_are_those_of_the_list() -> None:
    """MOVE of owner and backup, SHIFT DOWN of both, COPY, SHIFT UP over an owner and into an empty slot."""
    listed = {
        "move-owner",
        "move-backup",
        "shift-down-owner",
        "shift-down-backup",
        "copy-backup",
        "both-shifts-owner",
        "shift-up-empty",
    }
    assert listed <= set(STAYING)
    assert EMPTY in FORMS["shift-up-empty"].start
