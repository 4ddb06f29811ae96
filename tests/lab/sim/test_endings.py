"""Every way in which a migration can end: whoever heard that it begins hears once how it ended, and nothing is left."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

import pytest
from tests.lab.sim.test_services import FORMS, PARTITION, Form, Play
from tests.sampled_cases import sampled

from holdfast.actions.set_state import SetState
from holdfast.core.events import ActionRequested, DiskRoom, Received
from holdfast.core.hosted_services import Endpoint
from holdfast.core.member import Member
from holdfast.core.messages import Replicate
from holdfast.core.model.ids import MILLISECOND, SECOND, MemberId
from holdfast.core.model.migration import MigrationKind
from holdfast.core.model.views import ClusterState
from holdfast.core.primary_backup.staging_replica import StagingReplica
from holdfast_lab.check import leftovers
from holdfast_lab.sim import tally
from holdfast_lab.sim.tally import tally_of
from holdfast_lab.sim.world import Process

Deed = Callable[[Play], None]


def primary(play: Play) -> Process:
    return play.by_letter["A"]


def destination(play: Play) -> Process:
    return play.by_letter[play.form.destination]


def source_breaks_off(play: Play) -> None:
    """A backup does not acknowledge what is written, so the primary does not hand over (state_transfer/S-9)."""
    slow = play.by_letter["B"]
    copies = slow.driver.member.copies
    kept: list[tuple[MemberId, Replicate]] = []
    on_replicate = copies.on_replicate
    play.monkeypatch.setattr(copies, "on_replicate", lambda *message: kept.append(message))

    def catch_up() -> None:
        play.monkeypatch.setattr(copies, "on_replicate", on_replicate)
        for message in kept:
            slow.step(lambda message=message: slow.driver.handle(Received(*message)))

    play.world.after(4 * SECOND, catch_up)


def destination_refuses(play: Play) -> None:
    """Its disk is full, for a while."""
    full = destination(play)
    full.step(lambda: full.driver.handle(DiskRoom(True)))
    play.world.after(SECOND, lambda: full.step(lambda: full.driver.handle(DiskRoom(False))))


def cut_off(play: Play, *processes: Process) -> None:
    """The members remove them, though they are alive; they come back."""
    for process in processes:
        play.isolate(process)
    play.world.after(12 * SECOND, play.heal)


def state_changes(play: Play, state: ClusterState) -> None:
    """An operator wants this state, and the usual one again later."""
    one = play.by_letter["B"]
    one.step(lambda: one.driver.handle(ActionRequested(SetState(state))))
    play.world.after(
        8 * SECOND,
        lambda: one.step(lambda: one.driver.handle(ActionRequested(SetState(ClusterState.ACTIVE)))),
    )


def crash(*processes: Process) -> None:
    for process in processes:
        process.crash()


COMMITTED = "it is committed"
ENDINGS: dict[str, Deed] = {
    COMMITTED: lambda play: None,
    "the source breaks it off": source_breaks_off,
    "the destination refuses": destination_refuses,
    "the source crashes": lambda play: crash(primary(play)),
    "the destination crashes": lambda play: crash(destination(play)),
    "the master crashes": lambda play: crash(play.master),
    "source and master crash": lambda play: crash(primary(play), play.master),
    "destination and master crash": lambda play: crash(destination(play), play.master),
    "the source is cut off": lambda play: cut_off(play, primary(play)),
    "the destination is cut off": lambda play: cut_off(play, destination(play)),
    "the master is cut off": lambda play: cut_off(play, play.master),
    "no migrations any more": lambda play: state_changes(play, ClusterState.NO_MIGRATION),
    "frozen": lambda play: state_changes(play, ClusterState.FROZEN),
    "passive": lambda play: state_changes(play, ClusterState.PASSIVE),
}
MOMENTS: dict[str, Callable[[StagingReplica], bool]] = {
    "begun": lambda staged: True,
    "half filled": lambda staged: staged.sequence > 2,
    "complete": lambda staged: staged.complete,
}


def untold(member: Member) -> list[str]:
    """What a member's service was told in a wrong order: each change is told before, and then how it ended, once."""
    wrong = []
    heard = sorted(tally_of(member.picture).heard, key=lambda told: told[1].partition)
    for partition, told in groupby(heard, key=lambda told: told[1].partition):
        pending = None
        for what, event in told:
            if what == "before":
                wrong += [f"{event} begins, and {pending} has not ended"] if pending else []
                pending = event
            else:
                wrong += [] if event == pending else [f"{event}: {what}, but {pending} had begun"]
                pending = None
        wrong += [f"partition {partition}: {pending} has no end"] if pending else []
    return wrong


def half_filled(play: Play) -> list[str]:
    """Who still keeps what is worth nothing any more, of those who are in the cluster."""
    members = [process.driver.member for process in play.cluster.living()]
    numbers = [member.membership.view.number for member in members if member.membership.view is not None]
    return [
        member.membership.info.name
        for member in members
        if member.membership.view is not None and member.membership.view.number == max(numbers)
        if (staged := member.copies.staging.get(PARTITION)) is not None and not staged.complete
    ]


CASES = [
    *[("MOVE owner", ending, moment) for ending in ENDINGS for moment in MOMENTS],
    *[("SHIFT UP over an owner", ending, "half filled") for ending in ENDINGS],
    ("MOVE backup", "the destination refuses", "half filled"),
    ("MOVE backup", "the source crashes", "half filled"),
]


@pytest.mark.parametrize(("name", "ending", "moment"), sampled(CASES, 34))
def test_each_end_is_told_once_and_leaves_nothing(
    name: str, ending: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without a history everything is sent whole, in many chunks.
    play = Play(FORMS[name], 2, monkeypatch, tail_bytes=0)
    struck: list[int] = []

    def strike() -> None:
        struck.append(play.world.now_ns)
        if ending != COMMITTED:
            # Nothing but the ending changes the row, as far as those live who are in it.
            play.wished = tuple(None if letter == "-" else play.uuid(letter) for letter in play.form.start)
        ENDINGS[ending](play)

    play.when_filled(MOMENTS[moment], strike)
    play.wish(play.form.target)
    play.wait(5)
    assert struck
    assert half_filled(play) == []
    for teller in play.tellers:
        teller.think_ns = 200 * MILLISECOND
    play.wait(13)
    tally.stop(play.tellers)
    play.wait(10)
    assert wrong(play) == []
    assert tally.judge(play.cluster.pictures(), play.tellers) == []


@pytest.mark.parametrize("frozen", [False, True])
def test_a_row_that_waits_for_its_copies_ends_nothing_so_the_half_filled_copy_goes_with_its_primary(
    frozen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The only copy is gone, and with it the master, who alone knew that it was moving."""
    form = Form(
        MigrationKind.MOVE, "A", "D", {"A": (Endpoint.SOURCE, 0, -1), "D": (Endpoint.DESTINATION, -1, 0)}
    )
    play = Play(form, 0, monkeypatch, map_backups=0)

    def strike() -> None:
        play.wished = ()
        if frozen:
            state_changes(play, ClusterState.FROZEN)
        crash(primary(play), play.master)

    play.when_filled(MOMENTS["half filled"], strike)
    play.wish(form.target)
    play.wait(7)
    assert primary(play).dead
    assert half_filled(play) == []
    assert play.heard("D") == play.expected("D", "rollback")
    assert destination(play).driver.member.table.rows[PARTITION].owner == play.uuid("A"), "it waits"


def wrong(play: Play) -> list[str]:
    """What is wrong when nothing moves any more; but a row may have fewer copies than the settings want."""
    members = play.cluster.members()
    found = [problem for member in members for problem in untold(member)]
    found += [
        f"{member.membership.info.name}: {count} {what}"
        for member in members
        for what, count in member.picture.under_way().items()
    ]
    return found + leftovers.judge(play.cluster.pictures())
