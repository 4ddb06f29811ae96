"""The log of one replica: against a model that forgets nothing, and against every append that a leader may send."""

from __future__ import annotations

from random import Random

import pytest

from holdfast.core.raft.configuration import Configuration
from holdfast.core.raft.raft_log import Compacted, RaftLog, limited
from holdfast.core.raft.raft_messages import ENTRY_BYTES, RaftEntry, RaftSnapshot

A, B, C = (Configuration(frozenset(names)) for names in ("a", "b", "c"))


def entries(*terms: int, after: int = 0) -> list[RaftEntry]:
    return [RaftEntry(term, after + at, b"%d" % term) for at, term in enumerate(terms, 1)]


# -- what a leader could have sent


def _history(random: Random) -> tuple[list[int], list[int], int]:
    """Terms of a leader's log and of a follower's, which share a beginning; and what is committed: at most that."""
    shared, leader, follower = [1], [], []
    while random.random() < 0.8:
        shared.append(shared[-1] + (random.random() < 0.3))
    for tail in (leader, follower):
        term = shared[-1] + 1 + (tail is leader)  # No term has two logs.
        for _ in range(random.randrange(6)):
            tail.append(term)
            term += 2 * (random.random() < 0.3)
    return shared + leader, shared + follower, random.randint(1, len(shared))


@pytest.mark.rule("raft/L-1", "raft/L-2")
def test_any_append_of_a_leader_leaves_a_follower_right() -> None:
    """Parts in any order, some twice: what the follower believes to be committed is what the leader has committed."""
    for seed in range(300):
        _appends(Random(seed))


def _appends(random: Random) -> None:
    theirs, ours, committed = _history(random)
    sent = entries(*theirs)
    log = RaftLog(None, entries(*ours))
    known = random.randint(0, committed)
    log.commit_to(known)
    for _ in range(6):
        before = random.randrange(len(sent) + 1)
        part = sent[before : before + random.randrange(4)]
        commit = random.randint(0, len(sent))
        was = log.entries_from(1)
        agrees = before == 0 or (before <= log.last and log.term(before) == sent[before - 1].term)
        if before < log.committed:
            continue  # The replica answers this one without its log.
        got = log.take(before, sent[before - 1].term if before else 0, part, commit)
        now = log.entries_from(1)
        assert (got is not None) == agrees
        if got is None:
            assert now == was
            continue
        assert got == before + len(part)
        assert now[:got] == tuple(sent[:got]), "it holds what it acknowledges"
        conflict = any(was[entry.index - 1 : entry.index] not in ((entry,), ()) for entry in part)
        assert now == (now[:got] if conflict else now[:got] + was[got:]), (
            "no more is lost than is in conflict"
        )
        assert log.committed == max(known, min(commit, got)), "it may lack what follows"
        known = log.committed


# -- a model


class Model:
    """The same log with lists that nothing is ever deleted from."""

    def __init__(self, begin: RaftSnapshot, limit: int) -> None:
        self.base, self.base_term = begin.index, begin.term
        self.configurations = {begin.index: begin.configuration}
        self.places: dict[int, RaftEntry] = {}
        self.last = self.durable = self.handed = self.committed = self.applying = self.applied = begin.index
        self.limit = limit
        self.in_application: list[tuple[int, int]] = []
        """Last index and bytes of what was handed over and is not applied."""
        self.stopped = False
        self.installing = 0

    def add(self, entry: RaftEntry) -> None:
        for index in range(entry.index, self.last + 1):
            self.places.pop(index, None)
            self.configurations.pop(index, None)
        self.durable, self.handed = min(self.durable, entry.index - 1), min(self.handed, entry.index - 1)
        self.places[entry.index] = entry
        self.last = entry.index
        if entry.configuration is not None:
            self.configurations[entry.index] = entry.configuration

    def from_(self, first: int, end: int) -> tuple[RaftEntry, ...]:
        return tuple(self.places[index] for index in range(first, end + 1))

    def term(self, index: int) -> int:
        return self.base_term if index == self.base else self.places[index].term

    def configured(self, index: int) -> tuple[int, Configuration]:
        at = max(at for at in self.configurations if at <= index)
        return max(at, self.base), self.configurations[at]

    def end(self, *, unstable: bool) -> int:
        return self.committed if unstable else min(self.committed, self.durable)

    def applicable(self, *, unstable: bool) -> tuple[RaftEntry, ...]:
        if self.installing or self.stopped:
            return ()
        room, found = self.limit - sum(size for _, size in self.in_application), []
        for entry in self.from_(self.applying + 1, self.end(unstable=unstable)):
            room -= ENTRY_BYTES + len(entry.data)
            if self.limit and found and room < 0:
                break
            found.append(entry)
        return tuple(found)


def _compare(log: RaftLog, model: Model) -> None:
    base, last = model.base, model.last
    assert (log.base, log.first, log.last) == (base, base + 1, last)
    assert log.base_term == model.term(base)
    assert log.last_term == model.term(last)
    for index in range(max(0, base - 2), base):
        assert not log.matches(index, model.base_term)
        with pytest.raises(Compacted):
            log.term(index)
    with pytest.raises(IndexError):
        log.term(last + 1)
    assert not log.matches(last + 1, log.last_term)
    for index in range(base, last + 1):
        assert log.term(index) == model.term(index)
        assert log.matches(index, model.term(index))
        assert not log.matches(index, model.term(index) + 1)
        assert log.configuration_at(index) == model.configured(index)[1]
    assert (log.configuration_index, log.configuration) == model.configured(last)
    with pytest.raises(Compacted):
        log.entries_from(base)
    assert log.entries_from(base + 1) == model.from_(base + 1, last)
    assert log.entries_from(last + 1) == ()
    assert tuple(log.unwritten) == model.from_(model.handed + 1, last)
    assert log.has_unwritten == bool(log.unwritten)
    for unstable in (False, True):
        assert log.has_applicable(unstable=unstable) == bool(log.applicable(unstable=unstable))
    assert (log.stable, log.writing) == (model.durable, model.durable < last)
    assert (log.committed, log.applying, log.applied) == (model.committed, model.applying, model.applied)
    assert (log.snapshot.index if log.snapshot is not None else 0) == model.installing
    for unstable in (False, True):
        assert log.applicable(unstable=unstable) == model.applicable(unstable=unstable)


class Walk:
    """Random deeds, done to both."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.limit = self.random.choice([0, ENTRY_BYTES, 3 * ENTRY_BYTES])
        begin = RaftSnapshot(*self.random.choice([(3, 2), (7, 1)]), A)
        self.log = RaftLog(begin, applying_bytes=self.limit)
        self.model = Model(begin, self.limit)
        self.written: list[tuple[int, int]] = []
        self.term = 2

    def entry(self, index: int) -> RaftEntry:
        configuration = self.random.choice([None, None, None, B, C])
        return RaftEntry(
            self.term, index, b"x" * self.random.choice([0, 0, 1, 2 * ENTRY_BYTES]), configuration
        )

    def append(self) -> None:
        added = [self.entry(self.model.last + at) for at in range(1, self.random.randint(1, 4))]
        for entry in added:
            self.model.add(entry)
        assert self.log.append(added) == self.model.last

    def take(self) -> None:
        """Of a leader of the next term: its entries replace what is not committed, from somewhere on."""
        self.term += 1
        model = self.model
        before = self.random.randint(model.committed, model.last)
        added = [self.entry(before + at) for at in range(1, self.random.randint(2, 4))]
        kept = [model.places[index] for index in range(model.committed + 1, before + 1)]
        start = model.committed if kept else before
        got = self.log.take(start, model.term(start), [*kept, *added], 0)
        for entry in added:
            model.add(entry)
        assert got == model.last

    def refuse(self) -> None:
        place = self.random.randint(self.model.base, self.model.last)
        assert self.log.take(place, self.model.term(place) + 1, entries(9, after=place), 9) is None
        assert self.log.take(self.model.last + 1, self.term, [], 9) is None

    def commit(self) -> None:
        self.model.committed = self.random.randint(self.model.committed, self.model.last)
        self.log.commit_to(self.model.committed)
        self.log.commit_to(self.random.randint(0, self.model.committed))

    def hand_over(self) -> None:
        self.log.handed_over()
        self.model.handed = self.model.last
        assert self.log.snapshot_handed == (self.log.snapshot is not None)
        self.written.append((self.model.last, self.model.term(self.model.last)))

    def write(self) -> None:
        if self.written:
            index, term = self.written.pop(0)
            self.log.written(index, term)
            here = self.model.base <= index <= self.model.handed and self.model.term(index) == term
            if here:
                self.model.durable = max(self.model.durable, index)

    def apply(self) -> None:
        unstable = self.random.random() < 0.3
        self.hand_over()  # All of it in one step, as `Group.ready` does.
        found, model = self.model.applicable(unstable=unstable), self.model
        if found:
            self.log.apply(found, unstable=unstable)
            model.applying = found[-1].index
            model.in_application.append((model.applying, sum(entry.size for entry in found)))
            total = sum(size for _, size in model.in_application)
            cut_short = model.applying < model.end(unstable=unstable)
            model.stopped = bool(self.limit) and (total >= self.limit or cut_short)

    def has_applied(self) -> None:
        model = self.model
        if model.in_application:
            index, size = model.in_application.pop(0)
            self.log.has_applied(index, size)
            model.applied = max(model.applied, index)
            model.stopped = bool(self.limit) and sum(size for _, size in model.in_application) >= self.limit

    def restore(self) -> None:
        index = self.model.committed + self.random.randint(1, 5)
        snapshot = RaftSnapshot(index, self.term, self.random.choice([A, B]))
        self.log.restore(snapshot)
        model = self.model
        model.places, model.configurations = {}, {index: snapshot.configuration}
        model.base, model.base_term, model.installing = index, snapshot.term, index
        model.last = model.durable = model.handed = model.committed = index
        assert not self.log.snapshot_handed
        self.written.clear()

    def install(self) -> None:
        model = self.model
        self.log.installed(model.installing + 1)
        assert (self.log.snapshot is None) == (model.installing == 0), "another one was installed"
        if model.installing:
            self.log.installed(model.installing)
            assert not self.log.snapshot_handed
            model.applying, model.applied = (
                max(at, model.installing) for at in (model.applying, model.applied)
            )
            model.installing = 0

    def compact(self) -> None:
        model = self.model
        if not model.installing:
            index = self.random.randint(model.base, max(model.base, model.applied))
            self.log.compact(index)
            model.base_term, model.base = model.term(index), index

    def run(self) -> None:
        deeds = [
            self.append, self.append, self.take, self.refuse, self.commit, self.commit, self.hand_over,
            self.hand_over, self.write, self.write, self.apply, self.apply, self.has_applied, self.compact,
        ]  # fmt: skip
        for _ in range(60):
            rare = [self.install, self.install, self.compact, self.restore]
            self.random.choice(rare if self.random.random() < 0.1 else deeds)()
            _compare(self.log, self.model)


@pytest.mark.parametrize("seed", range(0, 80, 20))
def test_a_log_is_what_a_model_says(seed: int) -> None:
    for one in range(seed, seed + 20):
        Walk(one).run()


# -- single answers


def test_how_a_log_begins() -> None:
    empty = RaftLog()
    assert (empty.base, empty.base_term, empty.last, empty.committed) == (0, 0, 0, 0)
    assert (empty.stable, empty.applying, empty.applied, empty.configuration) == (0, 0, 0, Configuration())
    assert not empty.snapshot_handed
    there = [RaftEntry(2, 5), RaftEntry(2, 6, configuration=B), RaftEntry(3, 7)]
    log = RaftLog(RaftSnapshot(4, 2, A), there, committed=6)
    assert (log.stable, log.committed, log.applied, log.unwritten) == (7, 6, 4, [])
    assert (log.configuration, log.configuration_index, log.configuration_at(5)) == (B, 6, A)
    assert log.applicable(unstable=False) == tuple(there[:2])
    assert RaftLog(RaftSnapshot(4, 2, A), committed=1).committed == 4


@pytest.mark.parametrize(
    ("index", "term", "up_to_date"),
    [(4, 3, True), (5, 3, True), (3, 3, False), (9, 2, False), (1, 4, True)],
)
def test_the_later_term_wins_and_then_the_longer_log(index: int, term: int, *, up_to_date: bool) -> None:
    assert RaftLog(None, entries(1, 1, 2, 3)).up_to_date(index, term) is up_to_date


@pytest.mark.parametrize(
    ("index", "term", "hint"),
    [
        (7, 5, (7, 5)),
        (7, 4, (6, 3)),
        (6, 2, (4, 1)),
        (5, 3, (5, 3)),
        (4, 0, (2, 0)),
        (9, 5, (9, 0)),
        (0, 5, (0, 0)),
    ],
)
def test_where_two_logs_may_match(index: int, term: int, hint: tuple[int, int]) -> None:
    """Back to the last entry that is not of a later term; what is not here may be anything."""
    log = RaftLog(RaftSnapshot(3, 1, A), entries(1, 3, 3, 5, after=3))
    assert log.conflict_hint(index, term) == hint


def test_when_nothing_matches_the_hint_is_the_beginning() -> None:
    assert RaftLog(None, entries(3, 4)).conflict_hint(2, 2) == (0, 0)


def test_entries_from_an_index_up_to_another_and_of_so_many_bytes() -> None:
    log = RaftLog(None, entries(1, 1, 1, 1))
    size = ENTRY_BYTES + 1
    for most, count in ((0, 4), (1, 1), (size, 1), (2 * size - 1, 1), (2 * size, 2), (9 * size, 4)):
        assert len(log.entries_from(1, most)) == len(limited(log.entries_from(1), most)) == count
    assert [entry.index for entry in log.entries_from(2, 0, 3)] == [2, 3]
    assert [entry.index for entry in log.entries_from(3, 0, 9)] == [3, 4]
    assert log.entries_from(3, 0, 2) == log.entries_from(1, 0, 0) == ()
    assert RaftLog(RaftSnapshot(4, 2, A), entries(2, after=4)).entries_from(5, 0, 3) == ()


def test_nothing_is_handed_over_while_as_much_as_may_be_is_not_applied() -> None:
    log = RaftLog(RaftSnapshot(1, 1, A), applying_bytes=3 * ENTRY_BYTES)
    large = RaftEntry(1, 3, b"x" * 2 * ENTRY_BYTES)
    log.append([RaftEntry(1, 2), large, RaftEntry(1, 4)])
    for committed, handed in ((2, [2]), (3, [3])):
        log.commit_to(committed)
        found = log.applicable(unstable=True)
        assert [entry.index for entry in found] == handed
        log.apply(found, unstable=True)
    log.commit_to(4)
    log.has_applied(2, ENTRY_BYTES)
    assert log.applicable(unstable=True) == (), "the large one is as much as may be"
    log.has_applied(3, large.size)
    assert [entry.index for entry in log.applicable(unstable=True)] == [4]


def test_an_abandoned_log_is_a_new_one() -> None:
    names = [name for name in RaftLog.__slots__ if name != "_applying_most"]
    fresh = {name: getattr(RaftLog(), name) for name in names}
    for seed in range(20):
        walk = Walk(seed)
        walk.run()
        walk.log.handed_over()
        walk.log.abandon()
        assert {name: getattr(walk.log, name) for name in names} == fresh
