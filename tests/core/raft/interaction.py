"""Whole groups, message by message, in the words of etcd's interaction tests.

A `Play` carries out the commands of a file and says what its replicas do. What etcd tells in log lines is left out on
both sides. Disks are instant, or, with `async-storage-writes`, threads that are let go on by commands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.core.raft.datadriven import Case

from holdfast.core.raft.configuration import (
    Configuration,
    ConfigurationRefused,
    PeerChange,
    PeerStep,
    enter_joint,
    leave_joint,
    simple,
)
from holdfast.core.raft.group import Group, RaftReady, RaftWritten
from holdfast.core.raft.leader import ProposalRefused
from holdfast.core.raft.raft_log import RaftLog
from holdfast.core.raft.raft_messages import RaftEntry, RaftKind, RaftMessage, RaftSnapshot
from holdfast.core.raft.raft_state import HardState, RaftRole, RaftSettings

NAMES = {
    RaftKind.APPEND: "MsgApp",
    RaftKind.APPENDED: "MsgAppResp",
    RaftKind.VOTE: "MsgVote",
    RaftKind.VOTED: "MsgVoteResp",
    RaftKind.PRE_VOTE: "MsgPreVote",
    RaftKind.PRE_VOTED: "MsgPreVoteResp",
    RaftKind.HEARTBEAT: "MsgHeartbeat",
    RaftKind.HEARTBEAT_HEARD: "MsgHeartbeatResp",
    RaftKind.SNAPSHOT: "MsgSnap",
    RaftKind.TIMEOUT_NOW: "MsgTimeoutNow",
    RaftKind.TRANSFER: "MsgTransferLeader",
    RaftKind.PROPOSE: "MsgProp",
    RaftKind.READ: "MsgReadIndex",
    RaftKind.READ_AT: "MsgReadIndexResp",
}
ROLES = {
    RaftRole.FOLLOWER: "StateFollower",
    RaftRole.PRE_CANDIDATE: "StatePreCandidate",
    RaftRole.CANDIDATE: "StateCandidate",
    RaftRole.LEADER: "StateLeader",
}
QUIET = 5
LEVELS = {"debug": 0, "info": 1, "warn": 2, "error": 3, "fatal": 4, "none": QUIET}
ELECTION_TICKS, HEARTBEAT_TICKS = 3, 1


@dataclass
class Local:
    """What a disk or an application tells its own replica."""

    to: str
    text: str
    deed: Callable[[], None]


@dataclass
class Work:
    """What was given to a thread: what it says, and what follows when it is done."""

    text: str
    responses: Sequence[RaftMessage | Local]
    deed: Callable[[], None] = lambda: None


@dataclass
class Node:
    """One replica with its disk and its application."""

    group: Group
    asynchronous: bool
    appends: list[Work] = field(default_factory=list)
    applies: list[Work] = field(default_factory=list)
    stored: list[RaftEntry] = field(default_factory=list)
    """What is on its disk."""
    empty_from: int = 1

    def store(self, ready: RaftReady) -> None:
        """Write down what is to be written down."""
        if ready.snapshot is not None:
            self.stored, self.empty_from = [], ready.snapshot.index + 1
        if ready.entries:
            begin = ready.entries[0].index
            self.stored = [entry for entry in self.stored if entry.index < begin] + list(ready.entries)


class Play:
    """The nodes of a file, and what is on its way between them."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.sent: list[RaftMessage | Local] = []
        self.level = 0
        self.later: list[Case] = []
        """Changes that were proposed before anything of the leader's term, or the change before, was committed. We
        refuse them then, etcd may not; they are proposed again.
        """
        self._lines: list[str] = []
        self._indent = ""

    def handle(self, case: Case) -> list[str]:
        """What a command says."""
        self._lines = []
        command = getattr(self, case.command.replace("-", "_"))
        before = self.level
        if case.command != "log-level" and "log-level" in case.arguments:
            self.level = LEVELS[case.value("log-level")]
        quiet = self.level == QUIET
        try:
            command(case)
        except (ProposalRefused, ConfigurationRefused) as refused:
            self.say(str(refused))
            if case.command == "propose-conf-change" and isinstance(refused, ProposalRefused):
                self.later.append(case)
        if case.command != "log-level":
            self.level = before
        return [] if quiet else self._lines

    def say(self, text: str) -> None:
        self._lines += [f"{self._indent}{line}".rstrip() for line in text.split("\n")]

    # -- commands

    def log_level(self, case: Case) -> None:
        self.level = LEVELS[case.positional[0]]

    def add_nodes(self, case: Case) -> None:
        for _ in range(int(case.positional[0])):
            name = str(len(self.nodes) + 1)
            settings = RaftSettings(
                election_ticks=ELECTION_TICKS,
                heartbeat_ticks=HEARTBEAT_TICKS,
                pre_vote=case.value("prevote") == "true",
                check_quorum=case.value("checkquorum") == "true",
                message_bytes=0,
                uncommitted_bytes=0,
                applying_bytes=int(case.value("max-committed-size-per-ready", "0")),
                window=int(case.value("inflight", "1000000")),
                lease_reads=case.value("read-only") == "lease-based",
                transfers_when_removed=False,
                keeps_leading_when_removed=case.value("step-down-on-removal") != "true",
            )
            index = int(case.value("index", "0"))
            configuration = Configuration(
                frozenset(case.arguments.get("voters", [])),
                learners=frozenset(case.arguments.get("learners", [])),
            )
            snapshot = RaftSnapshot(index, 1, configuration) if index else None
            group = Group(name, b"", RaftLog(snapshot), HardState(commit=index), settings)
            node = Node(group, case.value("async-storage-writes") == "true", empty_from=index + 1)
            self.nodes[name] = node

    def campaign(self, case: Case) -> None:
        self._node(case).group.campaign()

    def propose(self, case: Case) -> None:
        name, data = case.positional
        self.nodes[name].group.propose([data.encode()])

    def propose_conf_change(self, case: Case) -> None:
        group = self._node(case).group
        if group.leading is None and group.lead in self.nodes:
            group = self.nodes[group.lead].group
        words = [word for line in case.input for word in line.split()]
        changes = [PeerChange(PeerStep(word[0]), word[1:]) for word in words]
        transition = case.value("transition", "auto")
        if not changes:
            group.change(leave_joint(group.configuration))
        elif case.value("v1") == "true" or (transition == "auto" and len(changes) == 1):
            group.change(simple(group.configuration, changes))
        else:
            group.change(enter_joint(group.configuration, changes, auto_leave=transition != "explicit"))

    def report_unreachable(self, case: Case) -> None:
        name, other = case.positional
        leading = self.nodes[name].group.leading
        assert leading is not None
        leading.unreachable(other)

    def forget_leader(self, case: Case) -> None:
        self._node(case).group.forget_leader()

    def transfer_leadership(self, case: Case) -> None:
        self.nodes[case.value("from")].group.transfer(case.value("to"))

    def send_snapshot(self, case: Case) -> None:
        name, other = case.positional
        group = self.nodes[name].group
        index = group.log.applied
        snapshot = RaftSnapshot(index, group.log.term(index), group.log.configuration_at(index))
        message = RaftMessage(
            kind=RaftKind.SNAPSHOT, to=other, sender=name, term=group.term, snapshot=snapshot
        )
        self.sent.append(message)
        self.say(told(message))

    def compact(self, case: Case) -> None:
        name, index = case.positional
        node = self.nodes[name]
        node.group.log.compact(int(index))
        node.stored = [entry for entry in node.stored if entry.index > int(index)]
        node.empty_from = int(index) + 1
        self._log_of(node)

    def set_randomized_election_timeout(self, case: Case) -> None:
        self._node(case).group.timeout_ticks = int(case.value("timeout"))

    def tick_election(self, case: Case) -> None:
        for _ in range(ELECTION_TICKS):
            self._node(case).group.tick()

    def tick_heartbeat(self, case: Case) -> None:
        for _ in range(HEARTBEAT_TICKS):
            self._node(case).group.tick()

    def raft_state(self, case: Case) -> None:
        for name, node in self.nodes.items():
            group = node.group
            kind = "Voter" if group.configuration.votes(name) else "Non-Voter"
            self.say(f"{name}: {ROLES[group.role]} ({kind}) Term:{group.term} Lead:{group.lead or 0}")

    def raft_log(self, case: Case) -> None:
        self._log_of(self._node(case))

    def _log_of(self, node: Node) -> None:
        for entry in node.stored:
            self.say(entry_told(entry))
        if not node.stored:
            self.say(f"log is empty: first index={node.empty_from}, last index={node.empty_from - 1}")

    def status(self, case: Case) -> None:
        leading = self._node(case).group.leading
        for name, progress in sorted(leading.progress.items() if leading is not None else ()):
            self.say(f"{name}: {progress}")

    def process_ready(self, case: Case) -> None:
        self._each(case.positional, "handling Ready", self._process)

    def process_append_thread(self, case: Case) -> None:
        self._each(
            case.positional, "processing append thread", lambda name: self._work(self.nodes[name].appends)
        )

    def process_apply_thread(self, case: Case) -> None:
        self._each(
            case.positional, "processing apply thread", lambda name: self._work(self.nodes[name].applies)
        )

    def deliver_msgs(self, case: Case) -> None:
        kind = case.value("type")
        for name in case.positional:
            self._deliver(name, kind)
        for name in case.arguments.get("drop", []):
            kept = []
            for message in self.sent:
                if message.to == name and isinstance(message, RaftMessage):
                    self.say(f"dropped: {told(message)}")
                else:
                    kept.append(message)
            self.sent = kept

    def stabilize(self, case: Case) -> None:
        self._settle(case)
        while self.later:
            before, self.later = self.later, []
            for late in before:
                self.handle(late)
            if len(self.later) == len(before):
                break
            self._settle(case)

    def _settle(self, case: Case) -> None:
        names = case.positional or list(self.nodes)
        busy = True
        while busy:
            busy = False
            for name in names:
                if self.nodes[name].group.has_ready or self._applies(self.nodes[name]):
                    busy = True
                    self._under(f"> {name} handling Ready", lambda name=name: self._process(name))  # type: ignore[misc]
            for name in names:
                if any(message.to == name for message in self.sent):
                    busy = True
                    self._under(f"> {name} receiving messages", lambda name=name: self._deliver(name))  # type: ignore[misc]
            for what in ("appends", "applies"):
                thread = "append" if what == "appends" else "apply"
                for name in names:
                    works: list[Work] = getattr(self.nodes[name], what)
                    if works:
                        busy = True
                        self._under(
                            f"> {name} processing {thread} thread", lambda works=works: self._all(works)
                        )  # type: ignore[misc]

    # -- deeds

    def _node(self, case: Case) -> Node:
        return self.nodes[case.positional[0]]

    def _each(self, names: list[str], what: str, deed: Callable[[str], None]) -> None:
        for name in names:
            if len(names) == 1:
                deed(name)
            else:
                self._under(f"> {name} {what}", lambda name=name: deed(name))  # type: ignore[misc]

    def _under(self, title: str, deed: Callable[[], None]) -> None:
        self.say(title)
        before, self._indent = self._indent, self._indent + "  "
        deed()
        self._indent = before

    def _applies(self, node: Node) -> bool:
        return not node.asynchronous and bool(node.group.log.applicable(unstable=True))

    def _deliver(self, name: str, kind: str = "") -> None:
        taken = [
            message
            for message in self.sent
            if message.to == name
            and (not kind or (isinstance(message, RaftMessage) and NAMES[message.kind] == kind))
        ]
        self.sent = [message for message in self.sent if not any(message is one for one in taken)]
        for message in taken:
            if isinstance(message, Local):
                self.say(message.text)
                message.deed()
            else:
                self.say(told(message))
                self.nodes[name].group.step(message)

    def _all(self, works: list[Work]) -> None:
        while works:
            self._work(works)

    def _work(self, works: list[Work]) -> None:
        if not works:
            self.say("no append work to perform")
            return
        work = works.pop(0)
        self.say("Processing:")
        self.say(work.text)
        self.say("Responses:")
        for response in work.responses:
            self.say(response.text if isinstance(response, Local) else told(response))
        work.deed()
        self.sent += work.responses

    def _process(self, name: str) -> None:
        node = self.nodes[name]
        group = node.group
        if not group.has_ready and not self._applies(node):
            self.say("<empty Ready>")
            return
        ready = group.ready(unstable=not node.asynchronous)
        if node.asynchronous:
            self._process_later(name, node, ready)
            return
        others = [message for message in ready.after if message.to != name]
        self.say(ready_told(ready, [told(message) for message in (*ready.messages, *others)]))
        self.sent += [*ready.messages, *others]
        node.store(ready)
        for message in ready.after:
            if message.to == name:
                group.step(message)
        if ready.written is not None:
            group.written(ready.written)
        if ready.committed:
            group.applied(ready.committed)

    def _process_later(self, name: str, node: Node, ready: RaftReady) -> None:
        lines = [told(message) for message in ready.messages]
        if ready.entries or ready.hard or ready.snapshot or ready.after:
            responses: list[RaftMessage | Local] = list(ready.after)
            if ready.written is not None:
                responses.append(_acknowledgement(name, node.group, ready.written))
            text = f"{name}->AppendThread MsgStorageAppend " + _append_told(ready)
            node.appends.append(Work(text, responses, lambda: node.store(ready)))
            lines.append(text + _responses(responses))
        if ready.committed:
            entries = _entries_told(ready.committed)
            done = Local(
                name,
                f"ApplyThread->{name} MsgStorageApplyResp Term:0 Log:0/0{entries}",
                lambda: node.group.applied(ready.committed),
            )
            text = f"{name}->ApplyThread MsgStorageApply Term:0 Log:0/0{entries}"
            node.applies.append(Work(text, [done]))
            lines.append(text + _responses([done]))
        self.say(ready_told(ready, lines))
        self.sent += ready.messages


def _acknowledgement(name: str, group: Group, written: RaftWritten) -> Local:
    index, term = written.last
    text = f"AppendThread->{name} MsgStorageAppendResp Term:{written.term} Log:{term}/{index}"
    return Local(name, text, lambda: group.written(written))


def _responses(responses: Sequence[RaftMessage | Local]) -> str:
    if not responses:
        return ""
    texts = [one.text if isinstance(one, Local) else told(one) for one in responses]
    return " Responses:[\n" + "".join(f"  {text}\n".replace("\n", "\n  ")[:-2] for text in texts) + "]"


def _append_told(ready: RaftReady) -> str:
    hard = ready.hard or HardState()
    text = f"Term:{hard.term} Log:0/0"
    text += f" Commit:{hard.commit}" if hard.commit else ""
    text += f" Vote:{hard.vote}" if hard.vote else ""
    return text + _entries_told(ready.entries)


def _entries_told(entries: Sequence[RaftEntry]) -> str:
    if not entries:
        return ""
    if len(entries) == 1:
        return f" Entries:[{entry_told(entries[0])}]"
    return " Entries:[\n" + "".join(f"  {entry_told(entry)}\n" for entry in entries) + "]"


def entry_told(entry: RaftEntry) -> str:
    """An entry as etcd's tests write it."""
    if entry.configuration is not None:
        return f"{entry.term}/{entry.index} EntryConfChangeV2 {entry.configuration}"
    data = entry.data.decode().replace("\\", "\\\\").replace('"', '\\"')
    return f'{entry.term}/{entry.index} EntryNormal "{data}"'


def snapshot_told(snapshot: RaftSnapshot) -> str:
    """A snapshot as etcd's tests write it."""
    now = snapshot.configuration

    def listed(nodes: frozenset[str]) -> str:
        return f"[{' '.join(sorted(nodes))}]"

    return (
        f"Index:{snapshot.index} Term:{snapshot.term} ConfState:Voters:{listed(now.voters)} "
        f"VotersOutgoing:{listed(now.outgoing)} Learners:{listed(now.learners)} "
        f"LearnersNext:{listed(now.learners_next)} AutoLeave:{str(now.auto_leave).lower()}"
    )


def told(message: RaftMessage) -> str:
    """A message as etcd's tests write it."""
    text = f"{message.sender}->{message.to} {NAMES[message.kind]} Term:{message.term} "
    text += f"Log:{message.log_term}/{message.index}"
    text += f" Rejected (Hint: {message.hint})" if message.refused else ""
    text += f" Commit:{message.commit}" if message.commit else ""
    text += _entries_told(message.entries)
    if message.snapshot is not None:
        text += f"\n  Snapshot: {snapshot_told(message.snapshot)}"
    return text


def ready_told(ready: RaftReady, messages: list[str]) -> str:
    """What a replica wants to be done, as etcd's tests write it."""
    lines = [f"Ready MustSync={str(ready.must_sync).lower()}:"]
    if ready.leadership_changed:
        lines.append(f"Lead:{ready.lead or 0} State:{ROLES[ready.role]}")
    if ready.hard is not None:
        vote = f" Vote:{ready.hard.vote}" if ready.hard.vote else ""
        lines.append(f"HardState Term:{ready.hard.term}{vote} Commit:{ready.hard.commit}")
    if ready.entries:
        lines += ["Entries:", *map(entry_told, ready.entries)]
    if ready.snapshot is not None:
        lines.append(f"Snapshot {snapshot_told(ready.snapshot)}")
    if ready.committed:
        lines += ["CommittedEntries:", *map(entry_told, ready.committed)]
    if messages:
        lines += ["Messages:", *messages]
    return "\n".join(lines)
