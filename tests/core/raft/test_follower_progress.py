"""A leader's view of one follower: what each event makes of it, in the words of etcd's status."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.core.raft.follower_progress import GONE, FollowerProgress, Inflight, LogFlow


def progress(window: int = 2, window_bytes: int = 0) -> FollowerProgress:
    """It has everything up to 4, and of 6 it was told that it is committed."""
    one = FollowerProgress(5, Inflight(window, window_bytes), match=4)
    one.sent_commit = 6
    one.quiet = one.silent = 3
    one.active = True
    return one


def replicating(sent: int = 0, window: int = 2) -> FollowerProgress:
    one = progress(window)
    one.replicate()
    for _ in range(sent):
        one.sent(1, 10)
    return one


def snapshot() -> FollowerProgress:
    one = progress()
    one.send_snapshot(9)
    return one


def probed() -> FollowerProgress:
    one = progress()
    one.sent(2, 20)
    return one


CASES: list[tuple[Callable[[], FollowerProgress], str, tuple[int, ...], object, str, int, int]] = [
    # from, event, its arguments, answer, status after it, told commit, quiet
    (progress, "heard", (), None, "StateProbe match=4 next=5", 6, 3),
    (progress, "replicate", (), None, "StateReplicate match=4 next=5", 6, 0),
    (progress, "probe", (), None, "StateProbe match=4 next=5", 4, 0),
    (progress, "send_snapshot", (9,), None, "StateSnapshot match=4 next=10 paused pendingSnap=9", 9, 0),
    (progress, "sent", (0, 0), None, "StateProbe match=4 next=5", 6, 3),
    (progress, "sent", (2, 20), None, "StateProbe match=4 next=5 paused", 6, 3),
    (probed, "probe", (), None, "StateProbe match=4 next=5", 4, 0),
    (probed, "acknowledged", (4,), False, "StateProbe match=4 next=5 paused", 6, 3),
    (probed, "acknowledged", (5,), True, "StateProbe match=5 next=6", 6, 0),
    (probed, "acknowledged", (7,), True, "StateProbe match=7 next=8", 6, 0),
    (probed, "refused", (3, 1), False, "StateProbe match=4 next=5 paused", 6, 3),
    (probed, "refused", (4, 1), False, "StateProbe match=4 next=5 paused", 6, 3),
    (probed, "restart", (), None, "StateProbe match=0 next=1", 0, 0),
    (replicating, "sent", (0, 0), None, "StateReplicate match=4 next=5", 6, 0),
    (replicating, "sent", (2, 20), None, "StateReplicate match=4 next=7 inflight=1", 6, 0),
    (lambda: replicating(1), "sent", (1, 10), None, "StateReplicate match=4 next=7 paused inflight=2[full]", 6, 0),
    (lambda: replicating(2), "sent", (0, 0), None, "StateReplicate match=4 next=7 paused inflight=2[full]", 6, 0),
    (lambda: replicating(2), "acknowledged", (5,), True, "StateReplicate match=5 next=7 inflight=2[full]", 6, 0),
    (lambda: replicating(2), "refused", (4, 1), False, "StateReplicate match=4 next=7 paused inflight=2[full]", 6, 0),
    (lambda: replicating(2), "refused", (5, 1), True, "StateReplicate match=4 next=5 paused inflight=2[full]", 4, 0),
    (lambda: replicating(2), "probe", (), None, "StateProbe match=4 next=5", 4, 0),
    (snapshot, "probe", (), None, "StateProbe match=4 next=10", 9, 0),
    (snapshot, "acknowledged", (12,), True, "StateSnapshot match=12 next=13 paused pendingSnap=9", 9, 0),
    (snapshot, "restart", (), None, "StateProbe match=0 next=1", 0, 0),
]  # fmt: skip


@pytest.mark.rule("raft/P-1", "raft/P-2")
@pytest.mark.parametrize(("begin", "event", "arguments", "answer", "status", "told", "quiet"), CASES)
def test_what_an_event_makes_of_a_follower(
    begin: Callable[[], FollowerProgress],
    event: str,
    arguments: tuple[int, ...],
    answer: object,
    status: str,
    told: int,
    quiet: int,
) -> None:
    one = begin()
    assert getattr(one, event)(*arguments) == answer
    assert (str(one), one.sent_commit, one.quiet) == (status, told, quiet)


def test_a_probe_goes_back_to_the_hint_but_not_before_what_matches() -> None:
    for index, hint, following, told in (
        (9, 6, 7, 6),
        (9, 9, 9, 8),
        (9, 20, 9, 8),
        (9, 2, 5, 4),
        (9, 4, 5, 4),
    ):
        one = FollowerProgress(10, Inflight(1), match=4)
        one.sent_commit = 8
        one.paused = True
        assert one.refused(index, hint)
        assert (one.next, one.sent_commit, one.paused) == (following, told, False)
    one = FollowerProgress(10, Inflight(1), match=4)
    one.paused = True
    assert not one.refused(8, 6), "an answer to an older probe"
    assert (one.next, one.paused) == (10, True)


def test_who_is_heard_is_active_and_who_has_just_begun_is_not() -> None:
    one = FollowerProgress(1, Inflight(1))
    assert str(one) == "StateProbe match=0 next=1 inactive"
    assert (one.quiet, one.silent, one.snapshot, one.sent_commit, one.paused) == (0, 0, 0, 0, False)
    one.silent = GONE
    one.heard()
    assert (one.active, one.silent) == (True, 0)
    assert str(FollowerProgress(1, Inflight(1), learner=True)) == "StateProbe match=0 next=1 learner inactive"


def test_what_was_sent_is_on_its_way_until_its_last_index_has_arrived() -> None:
    one = replicating()
    one.sent(2, 20)
    one.inflight.arrived(5)
    assert len(one.inflight) == 1
    one.inflight.arrived(6)
    assert len(one.inflight) == 0


def test_a_log_that_matches_is_sent_from_what_is_known_to_be_held() -> None:
    one = FollowerProgress(9, Inflight(1), match=4)
    one.replicate()
    assert one.next == 5
    assert GONE > 1_000_000, "longer than anybody is patient"


def test_a_commit_is_worth_telling_when_it_is_new_and_what_was_sent_reaches_it() -> None:
    one = FollowerProgress(5, Inflight(1))
    for told, index, worth in ((0, 1, True), (1, 1, False), (2, 1, False), (3, 9, True), (4, 9, False)):
        one.sent_commit = told
        assert one.may_send_commit(index) is worth


def test_a_snapshot_of_more_than_is_known_to_be_held_is_followed_by_what_comes_after_it() -> None:
    one = FollowerProgress(5, Inflight(1), match=4)
    one.send_snapshot(9)
    one.acknowledged(20)
    one.probe()
    assert (one.next, one.snapshot, one.flow) == (21, 0, LogFlow.PROBE)


def test_the_window_counts_messages_and_bytes() -> None:
    window = Inflight(3, 25)
    assert (len(window), window.full) == (0, False)
    for last in (4, 6):
        window.add(last, 12)
        assert not window.full, "24 bytes are less than 25"
    window.arrived(3)
    assert len(window) == 2
    window.arrived(4)
    assert len(window) == 1
    window.add(7, 13)
    assert window.full, "25 bytes"
    window.arrived(6)
    assert (len(window), window.full) == (1, False)
    window.add(8, 1)
    window.add(9, 1)
    assert window.full, "three messages"
    window.arrived(9)
    assert (len(window), window.full) == (0, False)
    window.add(10, 30)
    window.reset()
    assert (len(window), window.full) == (0, False)
    window.add(10, 24)
    assert not window.full
    unbounded = Inflight(2)
    unbounded.add(1, 1 << 40)
    assert not unbounded.full
