"""The picture of a member shows values: whatever an onlooker does with them, the member stays as it is."""

from __future__ import annotations

import dataclasses
import enum
import inspect
from types import MappingProxyType

import msgspec
import pytest
from tests.lab.sim.stage import Stage

from holdfast.core.member_view import MemberView

ASKED = {
    name: found
    for name, found in vars(MemberView).items()
    if not name.startswith("_") and (isinstance(found, property) or inspect.isfunction(found))
}


@pytest.fixture(scope="module")
def stage() -> Stage:
    stage = Stage(2)
    stage.put(stage.processes[0], "k", "v")
    return stage


def test_what_it_shows_cannot_be_changed_or_is_made_for_who_asks(stage: Stage) -> None:
    """Lists and dicts are made anew for each who asks; what is the member's own is shown as what nobody can change."""
    picture = stage.processes[0].picture
    own = set()
    for name, found in ASKED.items():
        if isinstance(found, property):
            first, second = getattr(picture, name), getattr(picture, name)
        elif len(inspect.signature(found).parameters) == 1:
            first, second = found(picture), found(picture)
        else:
            continue
        if isinstance(first, list | dict | set | MappingProxyType):
            assert first is not second, name
        elif not _is_value(first):
            own.add(name)
    # Sessions look at the backlog and at losses with every buffer, and read streams; the judges of zones look at every
    # group and key of the metastore.
    assert own == {"backlog", "change_streams", "consensus", "losses", "maps"}


def _is_value(what: object) -> bool:
    if isinstance(what, tuple | frozenset | str | int | enum.Enum | None):
        return True
    return (dataclasses.is_dataclass(what) and type(what).__dataclass_params__.frozen) or (
        isinstance(what, msgspec.Struct) and type(what).__struct_config__.frozen
    )


def test_looking_at_everything_changes_nothing(stage: Stage) -> None:
    process = stage.processes[0]
    before = [process.picture.unsafe_reason(), process.picture.leftovers(), process.picture.assignments]
    for name, found in ASKED.items():
        if isinstance(found, property):
            getattr(process.picture, name)
    assert before == [
        process.picture.unsafe_reason(),
        process.picture.leftovers(),
        process.picture.assignments,
    ]
    assert not process.driver.member.out.take()
