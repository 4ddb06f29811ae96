"""The metastore of a member, over real groups: who asks is answered once, and who watches hears everything."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from tests.core.metastore.metastore_cluster import Broken, MetastoreCluster, User

from holdfast.core.metastore import keyspace, metastore
from holdfast.core.metastore.commands import WINDOW, CompactCommand, InvokeCommand, Proposer, encode_command
from holdfast.core.metastore.invoke import Invoked, Leaf, MetastoreEntry, PutKey
from holdfast.core.metastore.keyspace import CommandAnswer, Keyspace
from holdfast.core.metastore.metastore import ASK_AGAIN_NS, DEADLINE_NS, Metastore
from holdfast.core.model.ids import METASTORE_GROUP
from holdfast.core.multiraft import group_host
from holdfast.core.multiraft.hosted_group import LeadChanged
from holdfast.core.raft.leader import ProposalRefused
from holdfast.core.raft.raft_messages import RaftEntry
from holdfast.core.raft.raft_state import RaftRole
from holdfast.errors import InvariantBroken, NotReady, TooLarge, Unknown
from holdfast_lab.check.linearizability import Outcome
from holdfast_lab.sim.ablations.switching import ablated


def cluster(members: int = 3, voters: int = 3, **more: float) -> MetastoreCluster:
    made = MetastoreCluster(members, voters, **more)  # type: ignore[arg-type]
    made.go(30)
    return made


def leader(made: MetastoreCluster) -> int:
    found = [n for n in range(1, len(made.processes) + 1) if made[n].groups.term(METASTORE_GROUP) is not None]
    assert len(found) == 1
    return found[0]


def other(made: MetastoreCluster) -> int:
    return next(number for number in (1, 2, 3) if number != leader(made))


# -- one thing at a time


def test_whoever_asks_is_answered_wherever_it_is() -> None:
    made = cluster(4)
    for number in (1, 2, 3, 4):
        put = made.user(number).put(b"k%d" % number, b"v%d" % number)
        made.go(3)
        assert put.answer == Invoked(0, number)
        read = made.user(5 - number).get(b"k%d" % number)
        made.go(3)
        assert read.entries == [MetastoreEntry(b"k%d" % number, b"v%d" % number, number)]
        assert read.revision == number
    assert [made.user(number).told[-1].began for number in (1, 2, 3, 4)] == [0, 0, 0, 0]
    assert {len(made.user(number).told[-1].batches) for number in (1, 2, 3, 4)} == {4}
    status = made[leader(made)].metastore.status
    assert (status.revision, status.keys, status.notified, status.under_way) == (4, 4, 4, 0)
    assert status.term is not None
    assert status.leader == made.node(leader(made))
    made.judge()
    made.judge_settled()


def test_a_prefix_is_read_at_one_revision() -> None:
    made = cluster()
    for key in (b"a/1", b"a/2", b"b"):
        made.user(1).put(key, key)
    made.go(3)
    asked = made.user(2).scan(b"a/")
    made.go(3)
    assert asked.entries == [MetastoreEntry(b"a/1", b"a/1", 1), MetastoreEntry(b"a/2", b"a/2", 2)]
    assert asked.revision == 3
    assert made.user(2).metastore.scan(b"a/", 1) == [MetastoreEntry(b"a/1", b"a/1", 1)]


@pytest.mark.rule("metastore/W-1")
def test_a_watcher_hears_the_next_revision_when_it_has_taken_the_former() -> None:
    made = cluster()
    user = made.user(1)
    user.slow = 1.0
    for at in range(4):
        made.user(2).put(b"k", b"%d" % at)
    made.random.random = lambda: 0.5  # type: ignore[method-assign]
    made.go(3)
    assert [revision for revision, *_ in user.told[-1].batches] == [1]
    assert len(made.user(2).told[-1].batches) == 4
    user.busy = False
    made[1].metastore.taken(user)
    made[1].end_step()
    assert [revision for revision, *_ in user.told[-1].batches] == [1, 2]


@pytest.mark.rule("metastore/W-1")
def test_a_compaction_takes_nothing_away_from_a_watcher_that_is_behind() -> None:
    made = cluster()
    user = made.user(1)
    user.slow = 1.0
    for at in range(6):
        made.user(2).put(b"k", b"%d" % at)
    made.random.random = lambda: 0.5  # type: ignore[method-assign]
    made.go(3)
    made[2].groups.propose(METASTORE_GROUP, [encode_command(CompactCommand(5))])
    made[2].end_step()
    made.go(3)
    assert [made[number].metastore.keyspace.compacted for number in (1, 2, 3)] == [5, 5, 5]
    user.slow = 0.0
    for _ in range(6):
        user.busy = False
        made[1].metastore.taken(user)
        made[1].end_step()
    assert [revision for revision, *_ in user.told[-1].batches] == [1, 2, 3, 4, 5, 6]
    made.judge()
    made.judge_settled()


@pytest.mark.rule("metastore/W-1")
def test_who_gets_a_state_from_elsewhere_begins_anew_or_goes_on() -> None:
    made = cluster()
    for at in range(6):
        made.user(2).put(b"k", b"%d" % at)
    made.go(3)
    client, user = made[1].metastore, made.user(1)
    ahead = Keyspace.from_pieces([*made[2].metastore.pieces()])
    for number in range(1, 4):
        ahead._change(Leaf((PutKey(b"k", b"x%d" % number),)), 0)
    client.restore(ahead.pieces())
    client.flush()
    assert [revision for revision, *_ in user.told[-1].batches] == list(range(1, 10)), "nothing is missed"
    assert len(user.told) == 1
    for number in range(1, 4):
        ahead._change(Leaf((PutKey(b"k", b"y%d" % number),)), 0)
    ahead.apply(encode_command(CompactCommand(11)))
    client.restore(ahead.pieces())
    client.flush()
    assert [told.began for told in user.told] == [0, 12]
    client.restore(())
    client.flush()
    assert [told.began for told in user.told] == [0, 12, 0], "a state that was given up"


def test_watchers_hear_of_their_keys_alone() -> None:
    made = cluster()
    user = made.user(1)
    made[1].metastore.unwatch(user)
    made[1].metastore.watch(user, key=b"k")
    made[1].metastore.watch(user, prefix=b"a/")
    for key in (b"k", b"kk", b"a/1", b"a"):
        made.user(2).put(key, b"")
    made.go(3)
    assert [[new.key for _, new in changes] for _, _, changes in user.told[-1].batches] == [[b"k"], [b"a/1"]]


def test_who_leads_is_told_and_told_when_it_does_no_more() -> None:
    made = cluster()
    first = leader(made)
    assert made.user(first).leading == [made[first].groups.term(METASTORE_GROUP)]
    made[first].groups.running(METASTORE_GROUP).transfer(made.node(other(made)))
    made[first].end_step()
    made.go(20)
    assert leader(made) != first
    assert made.user(first).leading[-1] is None
    assert made.user(leader(made)).leading[-1] == made[leader(made)].groups.term(METASTORE_GROUP)


@pytest.mark.rule("metastore/W-2")
def test_without_a_majority_an_invoke_ends_unknown_and_a_read_with_nothing_done() -> None:
    made = cluster()
    lone = leader(made)
    for number in (1, 2, 3):
        if number != lone:
            made.crash(number)
    put, read = made.user(lone).put(b"k", b"1"), made.user(lone).get(b"k")
    made.go(90)
    assert put.error is None
    made.go(30)
    assert isinstance(put.error, Unknown)
    assert isinstance(read.error, NotReady)
    late = made.user(lone).put(b"k", b"2")
    made.go(120)
    assert isinstance(late.error, NotReady), "no leader was known: nobody has heard of it"
    for number in (1, 2, 3):
        if number != lone:
            made.back(number)
    made.settle()
    made.judge()
    made.judge_settled()


@pytest.mark.rule("metastore/W-2")
def test_an_invoke_that_is_lost_is_proposed_again_as_the_same() -> None:
    made = cluster()
    user = made.user(other(made))
    made.faults = 1.0
    put = user.put(b"k", b"1")
    made.go(2)
    made.faults = 0.0
    assert put.answer is None
    made.go(30)
    assert put.answer is not None
    assert put.answer.revision == 1
    made.judge()


class Deaf:
    """Groups that take everything, and that nobody hears; or that take nothing."""

    def __init__(self) -> None:
        self.proposed: list[bytes] = []
        self.refuses = False

    def lead(self, number: int) -> str:
        return "somebody"

    def propose(self, number: int, commands: Sequence[bytes]) -> None:
        if self.refuses:
            raise ProposalRefused("leadership is being handed over")
        self.proposed += commands


def alone() -> tuple[Metastore, Deaf, User]:
    """A metastore whose groups are deaf, and somebody who asks it."""
    made = cluster()
    user, deaf = made.user(1), Deaf()
    user.metastore._groups = deaf  # type: ignore[assignment]
    return user.metastore, deaf, user


@pytest.mark.rule("metastore/W-2")
def test_what_is_not_answered_is_asked_again_after_a_while_or_of_another_leader() -> None:
    client, deaf, user = alone()
    user.put(b"k", b"1")
    client.on_timer()
    assert len(deaf.proposed) == 1
    client._out.now_ns += ASK_AGAIN_NS
    client.on_timer()
    assert len(deaf.proposed) == 2
    client.on_group(LeadChanged("another", RaftRole.FOLLOWER, 9))
    assert len(deaf.proposed) == 3
    assert len(set(deaf.proposed)) == 1, "as the same"


@pytest.mark.rule("metastore/W-2")
def test_only_what_nobody_has_heard_of_was_certainly_not_done() -> None:
    client, deaf, user = alone()
    deaf.refuses = True
    refused = user.put(b"k", b"1")
    client._out.now_ns += DEADLINE_NS
    client.on_timer()
    assert isinstance(refused.error, NotReady)
    deaf.refuses = False
    heard = user.put(b"k", b"2")
    client._out.now_ns += DEADLINE_NS
    client.on_timer()
    assert isinstance(heard.error, Unknown)


@pytest.mark.rule("metastore/M-3")
def test_an_invoke_that_comes_after_a_later_one_is_still_applied() -> None:
    """The later one says up to where no answers are waited for."""
    client, deaf, user = alone()
    first, later = user.put(b"k", b"1"), user.put(b"k", b"2")
    for at in (1, 0):
        client.apply([RaftEntry(1, 2, deaf.proposed[at])])
    assert (first.answer, later.answer) == (Invoked(0, 2), Invoked(0, 1))


@pytest.mark.rule("metastore/M-3")
def test_who_gets_another_state_begins_with_another_name() -> None:
    """In that state it would perhaps have begun in the future, and never be answered."""
    client, deaf, user = alone()
    for _ in range(5):
        client.apply([RaftEntry(1, 2, b"nonsense")])
    user.put(b"k", b"1")
    client.restore(())
    after = user.put(b"k", b"2")
    client.apply([RaftEntry(1, 2, deaf.proposed[-1])])
    assert after.answer == Invoked(0, 1)


@pytest.mark.rule("metastore/W-1")
def test_who_is_slow_when_a_state_comes_is_not_waited_for() -> None:
    client, _, user = alone()
    user.slow = 2.0
    other = Keyspace()
    for number in range(3):
        other._change(Leaf((PutKey(b"k", b"%d" % number),)), 0)
    client.delivered = 1
    client.keyspace._change(Leaf((PutKey(b"k", b""),)), 0)
    client.keyspace._change(Leaf((PutKey(b"k", b""),)), 0)
    client.flush()
    assert user.busy
    other.apply(encode_command(CompactCommand(3)))
    client.restore(other.pieces())
    other._change(Leaf((PutKey(b"k", b"last"),)), 0)
    client.restore(other.pieces())
    client.flush()
    assert [(told.began, [at for at, *_ in told.batches]) for told in user.told[1:]] == [(3, [4])]


@pytest.mark.rule("metastore/W-2")
def test_more_than_may_be_under_way_waits_for_its_turn() -> None:
    made = cluster()
    user = made.user(other(made))
    made.faults = 1.0
    puts = [user.put(b"k", b"%d" % at) for at in range(200)]
    assert user.metastore.status.under_way == 200
    assert len(user.metastore._invokes) == WINDOW
    made.faults = 0.0
    made.go(30)
    assert [put.answer for put in puts] == [Invoked(0, revision) for revision in range(1, 201)]
    made.judge()


@pytest.mark.rule("metastore/M-3")
def test_who_is_forgotten_goes_on_under_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyspace, "PROPOSERS_MOST", 1)
    made = cluster()
    for at in range(12):
        asked = made.user(1 + at % 3).put(b"k", b"%d" % at)
        made.go(10)
        assert asked.answer == Invoked(0, at + 1)
    assert made.user(1).metastore._proposers > 2
    made.judge()


def test_an_answer_that_came_with_a_state_is_told() -> None:
    """The command was applied while this member got a state in place of the log."""
    made = cluster()
    first = other(made)
    user, client = made.user(first), made[first].metastore
    made.faults = 1.0
    put, lost = user.put(b"k", b"1"), user.put(b"k", b"2")
    made.go(1)
    made.faults = 0.0
    (proposer, number), invoke = next(iter(client._invokes.items()))
    state = Keyspace()
    state.apply(invoke.data)
    assert number == 1
    assert isinstance(proposer, Proposer)
    client.restore(state.pieces())
    client.flush()
    assert put.answer == Invoked(0, 1)
    assert lost.answer is None
    client._on_answer(CommandAnswer(proposer, 2, None))
    client.flush()
    assert isinstance(lost.error, Unknown), "it may be that the state has forgotten it"


def test_what_is_too_large_is_refused_at_once() -> None:
    made = cluster()
    with pytest.raises(TooLarge, match="value"):
        made.user(1).metastore.invoke(Leaf((PutKey(b"k", bytes(2 << 20)),)), made.user(1))
    many = Leaf(tuple(PutKey(b"%d" % at, bytes(1 << 20)) for at in range(4)))
    with pytest.raises(TooLarge, match="bytes"):
        made.user(1).metastore.invoke(many, made.user(1))
    assert made[1].metastore.status.under_way == 0


def test_a_state_that_is_none_stops_the_member() -> None:
    with pytest.raises(InvariantBroken):
        cluster()[1].metastore.restore([b"nonsense"])


def test_bytes_that_are_no_command_harm_nobody() -> None:
    made = cluster()
    made[1].groups.propose(METASTORE_GROUP, [b"nonsense", b"\x91" * 5000])
    made[1].end_step()
    put = made.user(2).put(b"k", b"1")
    made.go(3)
    assert put.answer == Invoked(0, 1)
    assert [made[number].metastore.status.malformed for number in (1, 2, 3)] == [2, 2, 2]
    made.judge_settled()


@pytest.mark.rule("metastore/W-4")
def test_who_leads_compacts_and_everybody_forgets_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metastore, "KEEP_REVISIONS", 8)
    made = cluster(4)
    for at in range(30):
        made.user(1 + at % 4).put(b"k%d" % (at % 3), b"%d" % at)
        made.go(2)
    made.go(10)
    states = [made[number].metastore.keyspace for number in (1, 2, 3, 4)]
    assert {state.revision for state in states} == {30}
    assert {state.compacted for state in states} == {states[0].compacted}
    assert 30 - 10 <= states[0].compacted <= 30 - 8
    assert not any(state.can_tell_after(state.compacted - 1) for state in states), "memory is given back, too"
    made.judge()
    made.judge_settled()


@pytest.mark.rule("metastore/W-3")
def test_the_reads_of_a_step_are_one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    made = cluster()
    user = made.user(other(made))
    asked: list[bytes] = []
    read = user.process.groups.read

    def counted(number: int, context: bytes) -> None:
        asked.append(context)
        read(number, context)

    monkeypatch.setattr(user.process.groups, "read", counted)
    monkeypatch.setattr(user.process, "end_step", lambda: None)
    reads = [user.get(b"k") for _ in range(50)]
    monkeypatch.undo()
    monkeypatch.setattr(user.process.groups, "read", counted)
    made[other(made)].end_step()
    made.go(3)
    assert len(asked) == 1
    assert {read.revision for read in reads} == {0}


# -- random lives


def play(seed: int) -> MetastoreCluster:
    made = MetastoreCluster(3 + seed % 2, 3, seed=seed, files=True, slow=0.3 * (seed % 3))
    made.faults = [0.0, 0.03, 0.1][seed % 3]
    made.live(120)
    made.settle()
    made.judge()
    made.judge_settled()
    return made


@pytest.fixture
def little_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that there are compactions, and states that travel."""
    monkeypatch.setattr(metastore, "KEEP_REVISIONS", 10)
    monkeypatch.setattr(group_host, "LOG_ENTRIES", 6)


@pytest.mark.usefixtures("little_history")
@pytest.mark.parametrize("seed", range(0, 12, 3))
def test_whatever_happens_everybody_hears_the_same_and_nothing_is_done_twice(seed: int) -> None:
    for one in range(seed, seed + 3):
        play(one)


@pytest.mark.usefixtures("little_history")
def test_the_lives_are_rich_enough() -> None:
    made = [play(seed) for seed in range(6)]
    asked = [one for each in made for user in each.users for one in user.asked.values()]
    assert sum(one.call.outcome is Outcome.DONE for one in asked) > 600
    assert sum(one.error is not None for one in asked) < len(asked) / 4
    assert sum(each[1].metastore.keyspace.compacted for each in made) > 200
    assert sum(len(each.users) for each in made) > 25, "processes came back"
    begun = [told.began for each in made for user in each.users for told in user.told]
    assert sum(began > 0 for began in begun) > 5, "states came from files, or from others"


# -- without a rule

Patch = Callable[[pytest.MonkeyPatch], None]


def _remembers_no_answers(patch: pytest.MonkeyPatch) -> None:
    def apply_once(state: Keyspace, command: InvokeCommand) -> CommandAnswer:
        return CommandAnswer(
            command.proposer, command.number, state._carry_out(command.branch, command.time_ms)
        )

    patch.setattr(Keyspace, "_apply_once", apply_once)


def _asks_again_as_another(patch: pytest.MonkeyPatch) -> None:
    def ask_again(client: Metastore, before_ns: int) -> None:
        for key, invoke in list(client._invokes.items()):
            if invoke.asked_ns is not None and invoke.asked_ns <= before_ns:
                del client._invokes[key]
                client._waiting.append(invoke)
                invoke.asked_ns = None

    patch.setattr(Metastore, "_ask_again", ask_again)


def _needs_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Keyspace, "need_from", lambda state, revision: None)


def _goes_on_after_any_state(patch: pytest.MonkeyPatch) -> None:
    restore = Metastore.restore

    def restored(client: Metastore, pieces: Sequence[bytes]) -> None:
        begun = [watching.begun for watching in client._watching]
        restore(client, pieces)
        for watching, before in zip(client._watching, begun, strict=True):
            watching.begun = before

    patch.setattr(Metastore, "restore", restored)


@pytest.mark.usefixtures("little_history")
@pytest.mark.parametrize(
    "without",
    [
        pytest.param(_remembers_no_answers, marks=pytest.mark.rule("metastore/M-3")),
        pytest.param(_asks_again_as_another, marks=pytest.mark.rule("metastore/W-2")),
        pytest.param(_needs_nothing, marks=pytest.mark.rule("metastore/W-1")),
        pytest.param(_goes_on_after_any_state, marks=pytest.mark.rule("metastore/W-1")),
    ],
)
def test_without_a_rule_the_judges_object(without: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch)
    for seed in range(60):
        try:
            play(seed)
        except (Broken, LookupError):
            return
    pytest.fail("nobody has noticed")


@pytest.mark.usefixtures("little_history")
@pytest.mark.rule("metastore/W-3")
def test_reads_of_what_is_here_are_noticed() -> None:
    with ablated("metastore-reads"):
        for seed in range(20, 80):
            try:
                play(seed)
            except (Broken, LookupError):
                return
    pytest.fail("nobody has noticed")
