"""What is written down has the same form in every version: journals outlive programs."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.core.model.baseline import Baseline
from holdfast.core.model.ids import GROUPS_FROM, MemberId
from holdfast.core.model.journal_entries import (
    Began,
    Checkpointed,
    Dropped,
    Entry,
    GroupWrote,
    MapSnapshot,
    Meta,
    Seen,
    Snapshot,
    TableAssignments,
    Wrote,
    WrotePuts,
    level_of,
    seen,
)
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.records import Puts, pack_puts
from holdfast.core.model.views import View

MADE: list[tuple[Entry, list[object]]] = [
    (Wrote(3, 4, [], 9), [1, 3, 4, [], 9]),
    (
        WrotePuts(3, 4, pack_puts("m", 7, [b"k"], [b"vv"]), 9),
        [9, 3, 4, ["m", 7, b"\1\0\0\0\2\0\0\0", b"kvv"], 9],
    ),
    (
        TableAssignments([(0, Assignment(5, (MemberId("a"), None), 2, lost=("m",)))]),
        [2, [[0, [5, ["a", None], 2, [], ["m"]]]]],
    ),
    (
        Seen(View(7, "id", [])),
        [3, [7, "id", [], [], "active", False, [], {}, False, None, 1, [0, []], None]],
    ),
    (Began(3, 2), [4, 3, 2]),
    (Dropped(3), [5, 3, ""]),
    (Dropped(3, "m"), [5, 3, "m"]),
    (Checkpointed(3, 8, "file"), [6, 3, 8, "file"]),
    (GroupWrote(GROUPS_FROM, b"write"), [8, GROUPS_FROM, b"write"]),
    (Meta("s", 1, "id", {MemberId("a"): "t"}), [7, "s", 1, "id", {"a": "t"}]),
]


@pytest.mark.parametrize(("entry", "form"), MADE, ids=[type(entry).__name__ for entry, _ in MADE])
def test_an_entry_is_a_list_that_begins_with_its_number(entry: Entry, form: list[object]) -> None:
    written = msgspec.msgpack.encode(entry)
    assert msgspec.msgpack.decode(written) == form
    assert msgspec.msgpack.decode(written, type=Entry) == entry


def test_a_view_without_a_baseline_is_written_as_before_there_were_any() -> None:
    view = View(7, "id", [])
    written = msgspec.msgpack.encode(seen(view))
    assert msgspec.msgpack.decode(written) == [3, [7, "id", [], [], "active", False, [], {}, False]]
    assert msgspec.msgpack.decode(written, type=Entry) == Seen(view)
    based = View(7, "id", [], baseline=Baseline((), changes=1, history=("h",)))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(seen(based)), type=Entry) == Seen(based)
    again = seen(seen(view).view)
    assert msgspec.msgpack.encode(again) == written


def test_the_level_of_a_block_is_the_highest_of_its_views() -> None:
    first, second, third = (seen(View(7, "id", [], level=level)) for level in (1, 2, 3))
    assert level_of([Began(0, 0)]) == level_of([]) == level_of([first]) == 1
    assert level_of([first, third, Began(0, 0), second]) == 3
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(second), type=Entry) == second
    assert second.view.level == 2, "a later level has no older form"


def test_what_later_versions_add_may_be_missing() -> None:
    for form, entry in (
        ([1, 3, 4, []], Wrote(3, 4, [], 0)),
        ([2, [[0, [5, ["a"], 2, []]]]], TableAssignments([(0, Assignment(5, (MemberId("a"),), 2))])),
        ([5, 3], Dropped(3, "")),
        ([9, 3, 4, ["m", 7, b"", b""]], WrotePuts(3, 4, Puts("m", 7, b"", b""), 0)),
        ([7, "s", 1, "id"], Meta("s", 1, "id", {})),
    ):
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(form), type=Entry) == entry


def test_checkpoints_have_a_form_too() -> None:
    one = MapSnapshot("m", [(4, 0)], b"counter", [b"k"], [b"v"])
    assert msgspec.to_builtins(one, builtin_types=(bytes,)) == [
        "m",
        [(4, 0)],
        b"counter",
        [b"k"],
        [b"v"],
        [],
        [],
        [],
    ]
    whole = Snapshot(3, 2, [one])
    assert (whole.requests, whole.wall_ms) == (b"", 0)
    assert isinstance(msgspec.to_builtins(whole, builtin_types=(bytes,)), list)


@pytest.mark.parametrize(
    "entry", [*(entry for entry, _ in MADE), MapSnapshot("m", [], b"", [], []), Snapshot(0, 0, [])]
)
def test_what_is_written_down_does_not_change_any_more(entry: msgspec.Struct) -> None:
    with pytest.raises(AttributeError):
        setattr(entry, entry.__struct_fields__[0], 0)
