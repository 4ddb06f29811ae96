"""The stage of the scenarios A1 to G11: members keep files, transactions run on them, and each story ends whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

import msgspec
import pytest
from tests.lab.sim.scenarios.keeping import PARTITION, Keeping, at, kept, keys_in
from tests.lab.sim.stage import clean
from tests.lab.sim.transaction_stage import Desk, Told, taking_part
from tests.lab.sim.transaction_stage import kept as locks_and_branches

from holdfast.actions.list_transactions import TransactionList
from holdfast.config import Settings
from holdfast.core.events import CheckpointWanted
from holdfast.core.model.operations import Op, Outcome, Request
from holdfast.core.model.sync_request import How
from holdfast.core.model.transaction_orders import (
    CommitTransaction,
    HoldCommits,
    OperateIn,
    ResumeCommits,
    RollBackTransaction,
    TransactionAnswer,
    TransactionFate,
)
from holdfast.core.model.transactions import BranchState
from holdfast.core.operations.transaction_branches import TransactionBranches
from holdfast.core.state_transfer.delta_or_full import Choice
from holdfast.core.state_transfer.supply import Supply
from holdfast_lab.check import convergence
from holdfast_lab.check.serializability import TransactionOutcome
from holdfast_lab.sim.calls import wire_key
from holdfast_lab.sim.transacting import Applications
from holdfast_lab.sim.workload import MAP
from holdfast_lab.sim.world import Process

GRACEFUL = pytest.mark.parametrize("graceful", [False, True], ids=["killed", "graceful"])
HISTORICAL = pytest.mark.parametrize("history", [True, False], ids=["historical", "full"])
HOLD = b"held by the story"
CALL_TIMEOUT_MS = 15_000
"""Branches keep an outcome for two call timeouts, when a step may be on its way, and each story waits for that."""
FORGET_S = 400


def under_load(settings: Settings) -> Settings:
    """Transactions that an application leaves alone hold the others up for ten seconds at most."""
    chosen = msgspec.structs.replace(settings.transactions, timeout_ms=10_000)
    return msgspec.structs.replace(settings, transactions=chosen)


def patient(settings: Settings) -> Settings:
    """Calls end after `CALL_TIMEOUT_MS`: some stories stop everybody for longer than that."""
    limits = msgspec.structs.replace(settings.limits, call_timeout_ms=CALL_TIMEOUT_MS)
    return msgspec.structs.replace(settings, limits=limits)


@dataclass(eq=False)
class ToldTransaction:
    """A transaction of a story: what it writes, and what its owner was told."""

    id: bytes
    at: Process
    """Where it was begun."""
    entries: dict[str, str | None]
    """None: the entry is removed."""
    writes: list[Told] = field(default_factory=list)
    """What came of these, one by one."""
    commits: bool = True
    told: Told = field(default_factory=Told)

    @property
    def fate(self) -> TransactionFate | None:
        return self.told.fate

    @property
    def done(self) -> bool:
        return self.commits and self.fate is TransactionFate.DONE


class TransactingStage(Keeping):
    """A cluster whose members keep files, with a map that takes part in transactions."""

    def __init__(self, hosts: int, settings: Settings | None = None, *, spare: int = 0) -> None:
        super().__init__(hosts, patient(taking_part(settings or kept(2))), spare=spare)
        self.begun: list[ToldTransaction] = []
        self.expected: dict[str, str | None] = {}
        """What is there, by what was answered."""
        self._values = 0
        self._supplied: list[tuple[str, int, dict[str, Choice]]] = []
        """To whom, of which partition, and what of each map."""
        for process in self.processes:
            self._listen(process)

    def rest(self, seconds: float = 60) -> None:
        """Until all is well. It takes a moment longer where somebody sees to transactions just then."""
        self.calm(seconds)
        self.wait(1)
        self.until(lambda: convergence.judge(self.cluster.pictures()) == [], 5)

    # -- who is who

    def bystander(self) -> int:
        """A host that holds nothing of the partition, and is not the master: transactions are begun there."""
        used = {*self.holders(), self.master_host()}
        return next(host for host in map(self.host_of, self.processes) if host not in used)

    def elsewhere(self, host: int, count: int = 1) -> list[str]:
        """Keys in some other partition, of which this host is the primary."""
        rows = self.processes[0].driver.member.table.rows
        me = self.member(host).me
        partition = next(p for p, row in enumerate(rows) if row.owner == me and p != PARTITION)
        return keys_in(partition, count)

    def cut_off(self, source: int, *targets: int) -> None:
        """Nothing passes from this host to those."""
        for target in targets:
            self.cut(self.process(source), self.process(target))

    def gone_but(self, *hosts: int) -> None:
        """Wait until everybody knows that these are not members any more; partitions may wait for them."""
        dead = {self.member(host).me for host in hosts}
        self.until(
            lambda: all(
                member.membership.view is not None
                and dead.isdisjoint(info.uuid for info in member.membership.view.members)
                for member in self.cluster.members()
            )
        )
        self.wait(3)

    def join_up(self, source: int, target: int) -> None:
        """That is over, for these two."""
        del self.world.weather.cut[self.process(source).host, self.process(target).host]

    def stop(self, *hosts: int, graceful: bool) -> None:
        """Members are told to leave, or die; nothing hinders those who leave."""
        if graceful:
            self.heal()
            self.leave(*hosts)
        else:
            self.end("kill", *hosts)

    # -- transactions

    def values(self, keys: Iterable[str]) -> dict[str, str | None]:
        """A new value for each of these keys."""
        self._values += 1
        return dict.fromkeys(keys, f"value {self._values}")

    def begin(
        self, host: int, entries: Mapping[str, str | None], *, optimistic: bool = False, timeout_ms: int = 0
    ) -> ToldTransaction:
        """Begin a transaction at a host, and write these entries."""
        transaction = self.begin_unheard(host, entries, optimistic=optimistic, timeout_ms=timeout_ms)
        self.until(lambda: all(each.fate is not None for each in transaction.writes), 30)
        fates = {each.fate for each in transaction.writes}
        assert fates <= {TransactionFate.DONE}, transaction.writes[0].answers
        return transaction

    def begin_unheard(
        self, host: int, entries: Mapping[str, str | None], *, optimistic: bool = False, timeout_ms: int = 0
    ) -> ToldTransaction:
        """The same, and wait for no lock."""
        desk = Desk(self, self.process(host))
        transaction = ToldTransaction(
            desk.begin(optimistic=optimistic, timeout_ms=timeout_ms), desk.process, {}
        )
        self.write_in(transaction, entries)
        self.begun.append(transaction)
        return transaction

    def write_in(self, transaction: ToldTransaction, entries: Mapping[str, str | None]) -> None:
        """Order these writes."""
        desk = Desk(self, transaction.at)
        transaction.entries.update(entries)
        for key, value in entries.items():
            op = Op.SET if value is not None else Op.DELETE
            request = Request(op, MAP, [0], wire_key(key), (value or "").encode())
            transaction.writes.append(desk.order(OperateIn(transaction.id, request, for_update=True)))

    def read_in(self, transaction: ToldTransaction, key: str) -> None:
        """Read an entry in it."""
        told = Desk(self, transaction.at).start(transaction.id, Op.GET, key)
        self.until(lambda: told.fate is not None)
        assert told.fate is TransactionFate.DONE

    def commit(self, *transactions: ToldTransaction) -> None:
        """Order it, and wait for nothing."""
        for transaction in transactions:
            order = CommitTransaction(transaction.id)
            callers = transaction.at.driver.callers
            transaction.at.step(partial(callers.order_transaction, order, partial(self._told, transaction)))

    def roll_back(self, *transactions: ToldTransaction) -> None:
        """Order it, and wait for nothing."""
        for transaction in transactions:
            transaction.commits = False
            order = RollBackTransaction(transaction.id)
            callers = transaction.at.driver.callers
            transaction.at.step(partial(callers.order_transaction, order, partial(self._told, transaction)))

    def _told(self, transaction: ToldTransaction, answer: TransactionAnswer) -> None:
        transaction.told.answers.append(answer)
        if transaction.done:
            self.expected.update(transaction.entries)

    def answered(self, *transactions: ToldTransaction, seconds: float = 60) -> None:
        """Wait until the owners of these know what became of them."""
        self.until(lambda: all(each.fate is not None for each in transactions), seconds)

    def transact(self, host: int, keys: Iterable[str], *, removed: bool = False) -> None:
        """Write a new value to all these keys, or remove them, in one transaction that is done."""
        entries = dict.fromkeys(keys) if removed else self.values(keys)
        transaction = self.begin(host, entries)
        self.commit(transaction)
        self.answered(transaction)
        assert transaction.done, transaction.told.answers

    def hold_commits(self, host: int) -> None:
        """What is begun there is prepared, and not committed."""
        told = Desk(self, self.process(host)).order(HoldCommits(HOLD, 60_000))
        self.until(lambda: told.fate is not None)  # when the commits under way have ended
        assert told.fate is TransactionFate.DONE

    def resume_commits(self, host: int) -> None:
        """It is."""
        Desk(self, self.process(host)).order(ResumeCommits(HOLD))

    def listed(self, host: int) -> TransactionList:
        """What an operator is told there."""
        return Desk(self, self.process(host)).listed()

    # -- what copies hold

    def applied(self, transaction: ToldTransaction, host: int) -> bool:
        """Whether what it writes to the partition is in the copy that a host holds."""
        held = self.member(host).copies.held[PARTITION].maps.get(MAP)
        return held is not None and all(
            held.state.entries.get(wire_key(key)) == value.encode()
            for key, value in transaction.entries.items()
            if value is not None and at(key) == PARTITION
        )

    def state_of(
        self, transaction: ToldTransaction, host: int, partition: int = PARTITION
    ) -> BranchState | None:
        """How the transaction stands in the copy that a host holds."""
        copy = self.member(host).copies.held.get(partition)
        branch = TransactionBranches(copy, 0).branch(transaction.id) if copy is not None else None
        return branch.state if branch is not None else None

    def prepared(self, transaction: ToldTransaction, *hosts: int) -> bool:
        """Whether it is prepared in the copies of these hosts; without any: in all of its partitions, on all copies."""
        if hosts:
            return all(self.state_of(transaction, host) is BranchState.PREPARED for host in hosts)
        return all(
            self.state_of(transaction, host, partition) is BranchState.PREPARED
            for partition in {at(key) for key in transaction.entries}
            for host in self.holders(partition)
        )

    def soon(self, reached: Callable[[], bool], seconds: float = 2) -> None:
        """Until then, looked at so often that nothing else happens in between."""
        for _ in range(round(seconds * 5000)):
            if reached():
                return
            self.wait(0.0002)
        raise AssertionError("it did not come to that")

    def sizes(self, partition: int = PARTITION) -> set[int]:
        """How many entries the copies of the map in a partition have."""
        return {
            len(self.member(host).copies.held[partition].maps[MAP].state.entries)
            for host in self.holders(partition)
        }

    def sent(self) -> dict[How, int]:
        """How many maps of partitions were brought up to date, by what was sent, by those who live."""
        return {
            how: sum(member.source.selection.fills[how] for member in self.cluster.members()) for how in How
        }

    def synchronised(self, host: int, partition: int = PARTITION, name: str = MAP) -> list[tuple[str, str]]:
        """How a map in a partition was brought up to date on the present member of a host, each time, and why so."""
        me = self.member(host).me
        return [
            (choices[name].how.name.lower(), choices[name].why)
            for to, of, choices in self._supplied
            if (to, of) == (me, partition) and name in choices
        ]

    def _listen(self, process: Process) -> None:
        """What it supplies is noted, for all maps: the member tells only of the one of which most was sent."""
        source = process.driver.member.source
        note = source._note

        def noted(supply: Supply) -> None:
            self._supplied.append((supply.to, supply.partition, dict(supply.choices)))
            note(supply)

        source._note = noted  # type: ignore[method-assign]

    def start(self, *hosts: int, lite: bool = False, by_order: bool = False) -> None:
        super().start(*hosts, lite=lite, by_order=by_order)
        for host in hosts:
            self._listen(self.process(host))

    def checkpoint(self, host: int, *partitions: int) -> None:
        """Let a member write down its copies of these partitions."""
        process, disk = self.process(host), self.cluster.disks[host]
        before = disk.counts["Put"]
        process.step(partial(process.driver.handle, CheckpointWanted(partitions)))
        self.wait(0.5)
        assert disk.counts["Put"] >= before + len(partitions)

    # -- applications that run transactions all the time

    def run_applications(self) -> tuple[Applications, Callable[[], int]]:
        """They begin now; answers what stops and judges them, and says how many transactions they have committed."""
        running = Applications(self.world, self.cluster, ["a", "b", "c"], MAP)
        running.start()

        def stop() -> int:
            running.pause()
            self.until(lambda: not running.waiting)
            self.calm()
            self.wait(1)
            running.look()
            assert running.problems(set()) == []
            return sum(each.outcome is TransactionOutcome.COMMITTED for each in running.history)

        return running, stop

    def applications(self) -> Callable[[], int]:
        """The same, of which only the end is asked for."""
        return self.run_applications()[1]

    # -- the end

    def whole(self, *, again: bool = True) -> None:
        """What each story ends with: nobody keeps a lock or a branch; of each transaction all is there or nothing, on
        whichever member it is asked for, and it is what its owner was told; copies are equal, without a gap; and
        all that is still so when everybody was stopped and came back from files.
        """
        self.until(self._all_over, FORGET_S)
        self._decide()
        self._look()
        clean(self, self.writes, again=again)
        if again:
            assert locks_and_branches(self) == 0
            self._look()

    def _all_over(self) -> bool:
        members = self.cluster.members()
        keep = any(
            member.picture.under_way() or member.transactions.finishing.remembered for member in members
        )
        return not keep and locks_and_branches(self) == 0

    def _decide(self) -> None:
        """Whose outcome nobody was told has one all the same, and it is one of two."""
        for transaction in self.begun:
            if transaction.fate is None:
                assert transaction.at.dead or not transaction.commits, "who lives is told"
            in_doubt = transaction.fate in (None, TransactionFate.UNKNOWN, TransactionFate.NOT_ACTIVE)
            if not in_doubt or not transaction.commits:
                continue
            found = self._read(self.cluster.living()[0], transaction.entries)
            if found == transaction.entries:
                self.expected.update(found)

    def _look(self) -> None:
        expected = {key: None for each in self.begun for key in each.entries} | self.expected
        for process in self.cluster.living():
            found = self._read(process, expected)
            wrong = {key: (value, expected[key]) for key, value in found.items() if value != expected[key]}
            assert not wrong, f"found, and expected: {wrong}"

    def _read(self, process: Process, keys: Iterable[str]) -> dict[str, str | None]:
        asked: dict[str, list[Outcome]] = {key: self.ask(process, Op.GET, key) for key in keys}
        self.until(lambda: all(asked.values()), 30)
        read = {key: answers[0].value for key, answers in asked.items()}
        return {key: value.decode() if isinstance(value, bytes) else None for key, value in read.items()}

    def there(self, *transactions: ToldTransaction) -> list[bool]:
        """Of each of these, whether it is there; fails when half of it is."""
        found = []
        for transaction in transactions:
            seen = self._read(self.cluster.living()[0], transaction.entries)
            there = {key for key, value in transaction.entries.items() if seen[key] == value}
            assert there in (set(), set(transaction.entries)), f"half of it: {seen}"
            found.append(bool(there))
        return found
