"""Old copies of disks in the place of the newest: refused as often as they are tried, and nothing is lost by that."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest
from tests.lab.sim.stage import Stage

from holdfast.actions.accept_loss import AcceptLoss
from holdfast.actions.drain import Drain
from holdfast.core.events import ActionRequested, PeerSilent
from holdfast.core.model.ids import SECOND
from holdfast.core.model.operations import Op
from holdfast_lab.sim.cluster import Journal, simulated_settings
from holdfast_lab.sim.world import Process

KEYS = [f"k{number}" for number in range(12)]
OLD = "these files are an old copy"


class Shelf:
    """Copies of the disks of a stage."""

    def __init__(self, journal: Journal = "sync") -> None:
        # Without backups: what is lost here is lost.
        self.stage = Stage(3, settings=simulated_settings(0, 7, journal=journal))

    def write(self, text: str) -> None:
        for key in KEYS:
            self.stage.put(self.stage.processes[0], key, f"{text} {key}")
            self.stage.wait(1)

    def read(self) -> list[str | None]:
        return [self.stage.get(self.stage.processes[0], key) for key in KEYS]

    def image(self, index: int) -> Any:
        return copy.deepcopy(self.stage.cluster.disks[index]._files)

    def put(self, index: int, image: Any) -> None:
        """What is on this disk is what was there then. Nobody uses it."""
        self.stage.cluster.disks[index]._files = copy.deepcopy(image)

    def crash(self, index: int) -> None:
        self.stage.processes[index].crash()

    def start(self, index: int) -> Process:
        self.stage.processes[index] = self.stage.cluster.start(index)
        return self.stage.processes[index]

    def restart(self, index: int) -> None:
        self.crash(index)
        self.stage.wait(8)
        self.start(index)
        self.stage.rest()

    def refused(self, index: int, tries: int = 4, seconds: float = 6) -> None:
        """It is told so every time, and is never admitted."""
        for _ in range(tries):
            process = self.start(index)
            self.stage.wait(seconds)
            membership = process.driver.member.membership
            assert OLD in membership.refusal
            assert membership.state in ("joining", "gone")
            self.crash(index)


@pytest.mark.covering(1)
@pytest.mark.rule("membership/F-2")
@pytest.mark.parametrize("journal", ["sync", "lazy"])
@pytest.mark.parametrize("life", ["of the life before", "of the last life"])
def test_an_old_copy_is_refused_however_often_it_is_tried(journal: Journal, life: str) -> None:
    shelf = Shelf(journal)
    shelf.write("old")
    image = shelf.image(1)
    if life == "of the life before":
        shelf.restart(1)
    shelf.write("new")
    shelf.stage.wait(3)
    shelf.crash(1)
    newest = shelf.image(1)
    shelf.stage.wait(8)
    for _ in range(2):
        shelf.put(1, image)
        shelf.refused(1)
    shelf.put(1, newest)
    shelf.start(1)
    shelf.stage.rest()
    assert shelf.read() == [f"new {key}" for key in KEYS]


@pytest.mark.covering(1)
@pytest.mark.parametrize("index", [0, 2])
@pytest.mark.parametrize("first", [True, False])
def test_when_everybody_was_stopped_an_old_copy_is_found_out_by_what_the_others_know(
    index: int, first: bool
) -> None:
    shelf = Shelf()
    shelf.write("old")
    image = shelf.image(index)
    shelf.write("new")
    shelf.stage.wait(3)
    others = [other for other in range(3) if other != index]
    newest = None
    for _ in range(3):
        for each in range(3):
            shelf.crash(each)
        newest = newest or shelf.image(index)
        shelf.put(index, image)
        for each in [index, *others] if first else [*others, index]:
            shelf.start(each)
            shelf.stage.wait(1.5)
        shelf.stage.wait(6)
        membership = shelf.stage.processes[index].driver.member.membership
        assert OLD in membership.refusal
        assert membership.state in ("joining", "gone", "exiled")
        assert not any(shelf.stage.processes[each].driver.member.table.assigned for each in others)
    for each in range(3):
        shelf.crash(each)
    shelf.put(index, newest)
    for each in range(3):
        shelf.start(each)
    shelf.stage.rest()
    assert shelf.read() == [f"new {key}" for key in KEYS]


def test_an_old_copy_of_a_member_that_has_left_is_refused() -> None:
    shelf = Shelf()
    shelf.write("old")
    image = shelf.image(1)
    shelf.restart(1)
    shelf.write("new")
    leaving = shelf.stage.processes[1]
    leaving.step(partial(leaving.driver.handle, ActionRequested(Drain())))
    shelf.stage.world.run_until(shelf.stage.world.now_ns + 30 * SECOND, stop=lambda: leaving.dead)
    assert leaving.dead
    shelf.put(1, image)
    shelf.refused(1)
    assert shelf.read() == [f"new {key}" for key in KEYS]


def test_a_copy_of_the_files_of_who_is_asked_is_refused_at_once() -> None:
    shelf = Shelf()
    for index in (1, 2):
        shelf.crash(index)
    shelf.stage.wait(1)
    image = shelf.image(0)
    identity = image["identity.json"]
    image["identity.json"] = type(identity)(bytes(identity.durable).replace(b'"host0"', b'""'))
    shelf.put(1, image)
    twin = shelf.start(1)
    shelf.stage.wait(2)
    assert "is running with the same files" in twin.driver.member.membership.refusal


@pytest.mark.rule("membership/F-2")
def test_files_whose_end_was_lost_are_let_in_and_prove_nothing() -> None:
    """Unlike an old copy these say that something is wrong with them."""
    shelf = Shelf()
    shelf.write("old")
    image = shelf.image(1)
    shelf.write("new")
    shelf.stage.wait(3)
    shelf.crash(1)
    shelf.stage.wait(8)
    shelf.put(1, image)
    disk = shelf.stage.cluster.disks[1]
    last = max(name for name in disk.contents() if name.startswith("j"))
    disk.spoil(last, len(disk.contents()[last].rstrip(b"\0")) - 1, "flip")
    for _ in range(2):
        process = shelf.start(1)
        shelf.stage.wait(8)
        membership = process.driver.member.membership
        assert membership.refusal == ""
        assert membership.info.behind
        # What it holds is not served as if it were whole.
        answers = [shelf.stage.ask(shelf.stage.processes[0], Op.GET, key) for key in KEYS]
        shelf.stage.wait(1)
        told = [outcome.value for answer in answers for outcome in answer]
        assert all(value is None or value.startswith(b"new") for value in told)
        assert len(told) < len(KEYS), "some wait"
        shelf.crash(1)
        shelf.stage.wait(8)
    process = shelf.start(1)
    shelf.stage.wait(8)
    process.step(partial(process.driver.handle, ActionRequested(AcceptLoss())))
    shelf.stage.rest()
    values = shelf.read()
    assert any(value is not None and value.startswith("old") for value in values)
    assert all(value is not None for value in values)


def test_a_copy_that_was_refused_does_not_take_the_place_of_the_member_that_ends_just_then() -> None:
    shelf = Shelf()
    shelf.write("new")
    shelf.stage.wait(3)
    image = shelf.image(2)
    identity = image["identity.json"]
    image["identity.json"] = type(identity)(bytes(identity.durable).replace(b'"host2"', b'""'))
    # The copy runs on the host of another member, which has ended meanwhile.
    newest_of_1 = shelf.image(1)
    shelf.crash(1)
    shelf.stage.wait(8)
    shelf.put(1, image)
    twin = shelf.start(1)
    deadline = shelf.stage.world.now_ns + 5 * SECOND
    membership = twin.driver.member.membership
    shelf.stage.world.run_until(deadline, stop=lambda: bool(membership.refusal))
    assert "is running with the same files" in membership.refusal
    # Both end at once: a member with status 2, the other one for some other reason.
    shelf.crash(1)
    shelf.crash(2)
    # Its port is closed: it is missed at once.
    master, gone = shelf.stage.processes[0], shelf.stage.processes[2].driver.member.me
    master.step(lambda: master.driver.handle(PeerSilent(gone)))
    shelf.stage.wait(8)
    shelf.put(1, newest_of_1)
    shelf.start(1)
    shelf.start(2)
    shelf.stage.rest()
    assert shelf.read() == [f"new {key}" for key in KEYS]


def test_files_of_two_members_that_were_swapped_are_what_they_are() -> None:
    """Where names do not tell whose they are, the files do: nothing is lost."""
    shelf = Shelf()
    shelf.write("new")
    shelf.stage.wait(3)
    images = []
    for index in (1, 2):
        image = shelf.image(index)
        identity = image["identity.json"]
        image["identity.json"] = type(identity)(
            bytes(identity.durable).replace(f'"host{index}"'.encode(), b'""')
        )
        images.append(image)
    for index in range(3):
        shelf.crash(index)
    shelf.put(2, images[0])
    shelf.put(1, images[1])
    for index in range(3):
        shelf.start(index)
    shelf.stage.rest()
    assert shelf.read() == [f"new {key}" for key in KEYS]
