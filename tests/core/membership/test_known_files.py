"""Are files the newest of their store? Token by token, life by life."""

from __future__ import annotations

import random

import msgspec
import pytest
from tests.core.membership.one_member import A, B, C, info, view

from holdfast.core.membership.known_files import (
    WAY_OUT,
    KnownFiles,
    is_behind,
    newest,
    seen_of,
    stale_files_reason,
)
from holdfast.core.model.ids import SECOND
from holdfast.core.model.views import FilesProof, FilesSeen, MemberInfo


def opened(
    incarnation: int, token: str, *, before: str = "", reached: int = 0, cut: bool = False, store: str = "s"
) -> MemberInfo:
    return info("a", store=store, incarnation=incarnation, proof=FilesProof(token, before, reached, cut))


ANOTHER = (
    "these files are an old copy: they know of {} lives of theirs, and this cluster has seen them in another one, "
    "the {}. " + WAY_OUT
)
SHORT = (
    "these files are an old copy: their journal ends with block {}, and this cluster has seen it durable up to block "
    "{}. " + WAY_OUT
)


@pytest.mark.rule("membership/F-2")
@pytest.mark.parametrize(
    ("files", "seen", "why"),
    [
        (opened(5, "t5", before="t4", reached=9), None, ""),
        # The life before: the same one, or another one of that number.
        (opened(5, "t5", before="t4", reached=9), FilesSeen(4, "t4", 9), ""),
        (opened(5, "t5", before="t4", reached=8), FilesSeen(4, "t4", 9), SHORT.format(8, 9)),
        (opened(5, "t5", before="t4", reached=10), FilesSeen(4, "t4", 9), ""),
        (opened(5, "t5", before="x4", reached=9), FilesSeen(4, "t4", 9), ANOTHER.format(4, 4)),
        (opened(5, "t5", reached=9), FilesSeen(4, "t4", 9), ""),
        (opened(5, "t5", reached=8), FilesSeen(4, "t4", 9), SHORT.format(8, 9)),
        # The same life, opened once more.
        (opened(5, "t5", before="t4", reached=9), FilesSeen(5, "t5", 9), ""),
        (opened(5, "t5", before="t4", reached=8), FilesSeen(5, "t5", 9), SHORT.format(8, 9)),
        (opened(5, "x5", before="t4", reached=9), FilesSeen(5, "t5", 9), ANOTHER.format(4, 5)),
        (opened(5, "x5", before="t5", reached=9), FilesSeen(5, "t5", 9), ANOTHER.format(4, 5)),
        # A later life than these know of.
        (opened(5, "t5", before="t4", reached=99), FilesSeen(6, "t6", 9), ANOTHER.format(4, 6)),
        (opened(5, "t5", before="t4", reached=99), FilesSeen(7, "t5", 9), ANOTHER.format(4, 7)),
        # An earlier one: they have been opened, and admitted, where this cluster has not seen it.
        (opened(5, "t5", before="t4", reached=0), FilesSeen(3, "t3", 9), ""),
        (opened(5, "t5", before="t4", reached=0), FilesSeen(2, "t2", 9), ""),
        # Something could not be read: let in, but behind.
        (opened(5, "t5", before="t4", reached=8, cut=True), FilesSeen(4, "t4", 9), ""),
        (opened(5, "t5", before="x4", reached=8, cut=True), FilesSeen(4, "t4", 9), ANOTHER.format(4, 4)),
    ],
)
def test_the_newest_files_are_those_of_the_last_life_to_its_end(
    files: MemberInfo, seen: FilesSeen | None, why: str
) -> None:
    assert stale_files_reason(files, seen) == why


@pytest.mark.parametrize(
    ("seen", "behind"),
    [
        (None, False),
        (FilesSeen(5, "", 10), True),
        (FilesSeen(5, "", 9), False),
        (FilesSeen(4, "", 10), True),
        (FilesSeen(4, "", 9), False),
        (FilesSeen(3, "", 10), False),
        (FilesSeen(6, "", 10), False),
    ],
)
def test_files_are_behind_that_end_before_their_last_life_did(seen: FilesSeen | None, behind: bool) -> None:
    assert is_behind(opened(5, "t5", reached=9), seen) is behind


def test_how_files_are_seen_when_their_member_is_admitted() -> None:
    assert seen_of(opened(5, "t5", before="t4", reached=9)) == FilesSeen(5, "t5", 9)


def later(one: FilesSeen, other: FilesSeen) -> FilesSeen:
    """The one of the later life; of one life, the one that reaches further; else the first."""
    if one.incarnation != other.incarnation:
        return one if one.incarnation > other.incarnation else other
    return other if other.reached > one.reached else one


@pytest.mark.parametrize("seed", range(20))
def test_of_each_store_the_later_counts(seed: int) -> None:
    chance = random.Random(seed)

    def known(who: str) -> dict[str, FilesSeen]:
        return {
            store: FilesSeen(chance.randrange(3), f"{who}{store}", chance.randrange(3))
            for store in "xyz"
            if chance.random() < 0.7
        }

    one, more = known("1"), known("2")
    before = dict(one), dict(more)
    found = newest(one, more)
    assert found.keys() == one.keys() | more.keys()
    for store, seen in found.items():
        of_both = [source[store] for source in (one, more) if store in source]
        assert seen == (later(*of_both) if len(of_both) == 2 else of_both[0])
    assert (one, more) == before


# -- what one member knows


STORE = opened(5, "t5", reached=7)


@pytest.mark.rule("membership/F-1")
def test_heartbeats_carry_on_how_far_a_journal_is() -> None:
    known = KnownFiles(None)
    assert known.position == 0
    assert known.seen("s", None) is None
    known.heard(STORE, 3)
    known.heard(STORE, 9)
    known.heard(STORE, 8)
    assert known.seen("s", None) == FilesSeen(5, "t5", 9), "heartbeats may arrive out of order"
    known.heard(opened(6, "t6"), 2)
    assert known.seen("s", None) == FilesSeen(6, "t6", 2), "of a later life"


def test_who_keeps_no_files_or_has_written_nothing_tells_nothing() -> None:
    known = KnownFiles(None)
    known.heard(opened(5, "t5", store=""), 9)
    known.heard(STORE, 0)
    assert known.stores(None, []) == {}
    assert known.to_write_down(view(A), 100 * SECOND) is None


@pytest.mark.rule("membership/F-3")
def test_what_is_known_of_files_is_the_latest_of_all_that_was_said() -> None:
    before = view(A, stores={"s": FilesSeen(4, "t4", 1), "q": FilesSeen(1, "q1", 1)})
    known = KnownFiles(before)
    assert known.seen("s", None) == FilesSeen(4, "t4", 1), "its own files say so"
    assert known.seen("s", view(A)) is None, "the view of the cluster counts instead"
    present = view(A, stores={"s": FilesSeen(4, "t4", 6)})
    assert known.seen("s", present) == FilesSeen(4, "t4", 6)
    known.learn({"s": FilesSeen(5, "t5", 2)})
    known.learn({"s": FilesSeen(5, "t5", 1), "r": FilesSeen(1, "r1", 1)})
    assert known.seen("s", present) == FilesSeen(5, "t5", 2)
    known.heard(STORE, 3)
    assert known.seen("s", present) == FilesSeen(5, "t5", 3)
    far = view(A, stores={"s": FilesSeen(5, "t5", 4)})
    assert known.seen("s", far) == FilesSeen(5, "t5", 4)
    known.heard(STORE, 4)
    known.learn({"s": FilesSeen(5, "u5", 4)})
    assert known.seen("s", far) == FilesSeen(5, "t5", 4), "of two that are as late the view's counts"
    without = msgspec.structs.replace(STORE, store="")
    assert known.stores(far, [without]) == {"s": FilesSeen(5, "t5", 4), "r": FilesSeen(1, "r1", 1)}
    admitted = opened(6, "t6", reached=8)
    assert known.stores(far, [admitted, without])["s"] == FilesSeen(6, "t6", 8)
    assert known.stores(None, []) == {
        "s": FilesSeen(5, "u5", 4),
        "q": FilesSeen(1, "q1", 1),
        "r": FilesSeen(1, "r1", 1),
    }


@pytest.mark.rule("membership/F-3")
def test_of_two_that_are_as_late_the_first_source_counts() -> None:
    known = KnownFiles(None)
    known.learn({"s": FilesSeen(5, "learned", 4)})
    known.heard(opened(5, "heard"), 4)
    assert known.stores(None, [])["s"].token == "learned"
    assert known.stores(None, [opened(5, "member", reached=4)])["s"].token == "learned"
    known.learn({"s": FilesSeen(5, "again", 4)})
    assert known.stores(None, [])["s"].token == "learned"
    present = view(A, stores={"s": FilesSeen(5, "view", 4)})
    assert known.stores(present, [])["s"].token == "view"
    other = KnownFiles(None)
    other.heard(opened(5, "heard"), 4)
    assert other.stores(None, [opened(5, "member", reached=4)])["s"].token == "heard"


@pytest.mark.rule("membership/F-3")
def test_who_was_admitted_with_old_files_is_found_out_by_who_comes_later() -> None:
    known = KnownFiles(None)
    one, other = opened(5, "t5", before="t4", reached=7), info("b", store="r", incarnation=2)
    assert known.outdated([one, other, C]) == set()
    known.learn({"s": FilesSeen(5, "t5", 8)})
    assert known.outdated([one, other, C]) == {one.uuid}
    known.heard(one, 8)
    assert known.outdated([one, other, C]) == set(), "it has gone on writing since"
    known.learn({"s": FilesSeen(6, "t6", 0)})
    assert known.outdated([one, other, C]) == {one.uuid}


def test_a_journal_ends_where_its_member_has_said_since() -> None:
    known = KnownFiles(None)
    assert known.by_now(STORE) is STORE
    known.heard(STORE, 9)
    assert known.by_now(STORE).proof.reached == 9
    assert known.by_now(opened(5, "t5", reached=11)).proof.reached == 11
    assert known.by_now(opened(5, "u5", reached=7)).proof.reached == 7, "another life"
    assert known.by_now(opened(6, "t5", reached=7)).proof.reached == 7


@pytest.mark.rule("membership/F-1")
def test_what_is_known_is_written_down_from_time_to_time() -> None:
    known = KnownFiles(None)
    present = view(A, B)
    assert known.to_write_down(present, 100 * SECOND) is None, "there is no news"
    known.heard(STORE, 9)
    written = known.to_write_down(present, 100 * SECOND)
    assert written == msgspec.structs.replace(present, stores={"s": FilesSeen(5, "t5", 9)})
    assert known.to_write_down(present, 200 * SECOND) is None
    known.heard(STORE, 10)
    assert known.to_write_down(present, 200 * SECOND) is not None
    known.heard(STORE, 11)
    assert known.to_write_down(present, 202 * SECOND - 1) is None
    assert known.to_write_down(present, 202 * SECOND) is not None
    known.heard(STORE, 11)
    assert known.to_write_down(present, 300 * SECOND) is None, "nothing is further than it was"


def test_at_the_beginning_it_waits_as_long_too() -> None:
    known = KnownFiles(None)
    known.heard(STORE, 9)
    assert known.to_write_down(view(A), 2 * SECOND - 1) is None
    assert known.to_write_down(view(A), 2 * SECOND) is not None
