"""What the master declares lost, for maps that do not ignore it, and when it lasts no longer (migration/M-7)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.core.migration.lead import E, Lead
from tests.core.seats import A, B, C, D, info

from holdfast.config import ClusterSettings, MapSettings, PartitionSettings, Settings
from holdfast.core.messages import Holdings, RetainedCopy
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.views import ClusterState, View

STORE = "files of d"
SAFE = MapSettings(backups=1, loss_policy="read-write-safe")


def chosen(count: int = 1, lost: str = "wait", **maps: MapSettings) -> Settings:
    """Maps that ignore losses, and `safe`, or those that are named, which do not."""
    return Settings(
        cluster=ClusterSettings(initial_members=1),
        partitions=PartitionSettings(count=count, lost=lost),  # type: ignore[arg-type]
        maps={"default": MapSettings(backups=1), **(maps or {"safe": SAFE})},
    )


def lost_d(**more: str) -> Lead:
    """D had files, and is gone with the only copy."""
    lead = Lead(Assignment(5, (D, None)), chosen=chosen(**more))  # type: ignore[arg-type]
    lead.enter(View(1, "id", [info(A), info(B), info(D, store=STORE)]))
    return lead.enter(View(2, "id", [info(A), info(B)]))


def back(lead: Lead) -> Lead:
    """Files of D are back, under another name."""
    lead.enter(View(3, "id", [info(A), info(B), info(E, store=STORE, returns=True)]))
    lead.hear(E, Holdings(3, None, {}, [], [RetainedCopy(0, 0, [("m", 4, 5)], True)]))
    return lead.settle()


@pytest.mark.rule("migration/M-7")
def test_when_the_last_copy_goes_the_row_names_the_maps_that_do_not_ignore_it() -> None:
    lead = lost_d()
    assert lead.table.rows[0] == Assignment(6, (D, None), lost=("safe",))
    assert lead.migrations.lost == {0}


def test_a_loss_that_all_maps_ignore_changes_no_row() -> None:
    lead = Lead(Assignment(5, (D, None)))
    lead.enter(View(1, "id", [info(A), info(B), info(D)])).enter(View(2, "id", [info(A), info(B)]))
    assert lead.table.rows[0] == Assignment(5, (D, None))


def test_what_is_lost_is_declared_once() -> None:
    lead = lost_d().enter(View(3, "id", [info(A)]))
    assert lead.table.rows[0] == Assignment(6, (D, None), lost=("safe",))


@pytest.mark.rule("migration/M-7")
def test_it_stays_lost_when_the_copy_is_back_until_it_is_reset() -> None:
    lead = back(lost_d())
    assert lead.table.rows[0] == Assignment(9, (E, None), lost=("safe",))
    lead.migrations.reset_lost([0], ["safe"])
    lead.settle()
    assert lead.table.rows[0] == Assignment(10, (E, None))
    assert "lost partitions reset by the operator" in lead.notes


@pytest.mark.rule("migration/M-7")
def test_what_begins_anew_is_lost_too() -> None:
    lead = lost_d()
    lead.migrations.accept_loss()
    lead.settle()
    assert lead.table.rows[0] == Assignment(9, (A, None), 1, lost=("safe",))
    assert lost_d(lost="accept").table.rows[0].lost == ("safe",)


@pytest.mark.rule("migration/M-7")
def test_maps_whose_every_copy_was_among_those_that_are_gone_are_lost_where_a_backup_takes_over() -> None:
    alone = MapSettings(backups=0, loss_policy="read-only-safe")
    lead = Lead(
        Assignment(5, (D, A, B)),
        Assignment(5, (A, D, B)),
        chosen=chosen(2, alone=alone, safe=SAFE, careless=MapSettings(backups=0)),
    )
    lead.enter(View(1, "id", [info(A), info(B), info(D)])).enter(View(2, "id", [info(A), info(B)]))
    assert [row.lost for row in lead.table.rows] == [("alone",), ()]


@pytest.mark.rule("migration/M-7")
def test_what_waits_for_maps_with_fewer_copies_is_not_lost_to_those_that_have_one() -> None:
    deep = MapSettings(backups=2, loss_policy="read-write-safe")
    lead = Lead(Assignment(5, (C, D, A)), chosen=chosen(safe=SAFE, deep=deep))
    lead.enter(View(1, "id", [info(A), info(B), info(C), info(D)])).enter(View(2, "id", [info(A), info(B)]))
    assert lead.migrations.lost == {0}
    assert lead.table.rows[0].lost == ("safe",)
    lead.enter(View(3, "id", [info(A), info(B), info(E)]))
    assert lead.table.rows[0].lost == ("safe",)


@pytest.mark.rule("migration/M-7")
def test_a_copy_from_files_has_lost_what_was_in_memory_alone() -> None:
    """A master that is killed and started again at once, with its files: no view without it comes between."""
    kept = MapSettings(backups=1, journal="sync", loss_policy="read-write-safe")
    lead = Lead(Assignment(5, (D, None)), chosen=chosen(safe=SAFE, kept=kept))
    copy = RetainedCopy(0, 0, [("kept", 4, 5)], True)
    lead.bringing = Holdings(1, None, {D: STORE}, [], [copy])
    lead.enter(View(1, "id", [info(A, store=STORE, returns=True), info(B)]))
    assert lead.table.rows[0] == Assignment(8, (A, None), lost=("safe",))


@pytest.mark.rule("migration/M-7")
def test_a_new_master_knows_what_the_last_one_has_declared() -> None:
    """IGNITE-10043: it is in the table, and not seen from who is here."""
    lead = Lead(Assignment(6, (D, None), lost=("safe",)), chosen=chosen()).enter((A,))
    assert lead.table.rows[0] == Assignment(6, (D, None), lost=("safe",))
    assert lead.migrations.lost == {0}


@pytest.mark.rule("migration/M-7")
def test_a_cluster_that_was_stopped_goes_on_with_what_is_lost() -> None:
    lead = Lead(chosen=chosen())
    seen = View(7, "id", [info(D, store=STORE)])
    row = Assignment(9, (D, None), lost=("safe",))
    lead.bringing = Holdings(8, seen, {D: STORE}, [(0, row)], [RetainedCopy(0, 0, [("safe", 4, 5)], True)])
    lead.enter(View(8, "id", [info(A, store=STORE, returns=True)], recovering=True))
    assert lead.table.rows[0].owner == A
    assert lead.table.rows[0].lost == ("safe",)


def stopped(row: Assignment, *kept: RetainedCopy, **maps: MapSettings) -> Lead:
    """A cluster that was stopped: D is back with its files, as A; who had those of C is not, and is waited for."""
    lead = Lead(chosen=chosen(**maps))  # type: ignore[arg-type]
    seen = View(7, "id", [info(C, store="files of c"), info(D, store=STORE)])
    stores = {C: "files of c", D: STORE}
    lead.bringing = Holdings(8, seen, stores, [(0, row)], list(kept))
    lead.enter(View(8, "id", [info(A, store=STORE, returns=True)], recovering=True))
    assert not lead.table.assigned
    lead.migrations.accept_loss()
    return lead.settle()


@pytest.mark.rule("migration/M-7")
def test_a_copy_of_which_a_part_may_be_missing_is_a_loss_when_the_operator_takes_it() -> None:
    lead = stopped(Assignment(9, (D, None)), RetainedCopy(0, 0, [("safe", 4, 5)], False))
    assert (lead.table.rows[0].owner, lead.table.rows[0].lost) == (A, ("safe",))


@pytest.mark.rule("migration/M-7")
def test_maps_that_the_copy_of_the_new_owner_never_had_are_lost() -> None:
    alone = MapSettings(backups=0, loss_policy="read-write-safe")
    whole = RetainedCopy(0, 0, [("safe", 4, 5)], True)
    lead = stopped(Assignment(9, (C, D)), whole, alone=alone, safe=SAFE)
    assert (lead.table.rows[0].owner, lead.table.rows[0].lost) == (A, ("alone",))


def test_after_a_stop_of_everybody_what_was_in_memory_alone_is_no_loss() -> None:
    lead = stopped(Assignment(9, (D, None)), RetainedCopy(0, 0, [("m", 4, 5)], True))
    assert (lead.table.rows[0].owner, lead.table.rows[0].lost) == (A, ())


def test_what_nobody_can_prove_after_a_stop_is_lost_to_more_maps_and_to_those_of_before() -> None:
    lead = stopped(Assignment(9, (C, None), lost=("of before",)))
    assert lead.table.rows[0].lost == ("of before", "safe")


# -- what keeps it, and what ends it


@pytest.mark.rule("migration/M-7")
@pytest.mark.parametrize("what", ["moved", "failed", "marked behind"])
def test_no_other_change_of_a_row_ends_a_loss(what: str) -> None:
    lost = Assignment(5, (A, B), lost=("safe",))
    lead = Lead(lost, chosen=chosen())
    if what == "marked behind":
        lead.enter((A, B)).enter(View(2, "id", [info(A)], state=ClusterState.FROZEN))
    else:
        lead.wanted = [(C, B)]
        lead.enter((A, B, C))
        assert len(lead.requests()) == 1
        if what == "moved":
            lead.ready()
            assert lead.table.rows[0].owner == C
        else:
            lead.enter(View(2, "id", [info(A), info(B)]))
            assert lead.migrations.failed == 1
    assert lead.table.rows[0].version > lost.version
    assert lead.table.rows[0].lost == ("safe",)


def test_only_the_maps_and_partitions_that_are_named_are_reset() -> None:
    lost = Assignment(5, (A, B), lost=("also", "safe"))
    lead = Lead(lost, lost, chosen=chosen(2, safe=SAFE, also=SAFE)).enter()
    lead.migrations.reset_lost([1], ["safe"])
    lead.settle()
    assert lead.table.rows == [lost, replace(lost, version=6, lost=("also",))]
    lead.migrations.reset_lost([1], ["safe"])
    lead.settle()
    assert lead.table.rows[1].version == 6, "that is done"


@pytest.mark.rule("migration/M-7")
def test_what_nobody_here_holds_is_not_reset() -> None:
    held = Assignment(5, (A, None), lost=("safe",))
    lead = Lead(Assignment(5, (D, None)), held, chosen=chosen(2))
    lead.enter(View(1, "id", [info(A), info(B), info(D)])).enter(View(2, "id", [info(A), info(B)]))
    lead.notes.clear()
    lead.migrations.reset_lost([0], ["safe"])
    lead.settle()
    assert lead.table.rows == [Assignment(6, (D, None), lost=("safe",)), held]
    assert lead.notes == []
    lead.migrations.reset_lost([0, 1], ["safe"])
    lead.settle()
    assert lead.table.rows == [Assignment(6, (D, None), lost=("safe",)), replace(held, version=6, lost=())]


def test_a_row_that_is_on_its_way_is_not_changed_again() -> None:
    lead = Lead(Assignment(5, (A, B), lost=("also", "safe")), chosen=chosen(safe=SAFE, also=SAFE)).enter()
    lead.silent = {B}
    for name in ("safe", "also"):
        lead.migrations.reset_lost([0], [name])
        lead.settle()
        assert lead.table_replication.head[0] == Assignment(6, (A, B), lost=("also",))


def test_who_leads_no_more_resets_nothing() -> None:
    lead = Lead(Assignment(5, (A, B), lost=("safe",)), chosen=chosen()).enter()
    lead.install(View(2, "id", [info(B), info(A)]))
    lead.migrations.reset_lost([0], ["safe"])
    assert lead.table_replication.head[0].lost == ("safe",)


def test_a_partition_that_is_about_to_move_is_reset_when_the_order_comes_again() -> None:
    lead = Lead(Assignment(5, (A, B), lost=("safe",)), chosen=chosen())
    lead.wanted = [(C, B)]
    lead.enter((A, B, C))
    assert lead.migrations.running
    lead.migrations.reset_lost([0], ["safe"])
    lead.settle()
    assert lead.table.rows[0] == Assignment(5, (A, B), lost=("safe",))
    lead.ready()
    assert lead.table.rows[0].owner == C
    lead.migrations.reset_lost([0], ["safe"])
    lead.settle()
    assert lead.table.rows[0].lost == ()
