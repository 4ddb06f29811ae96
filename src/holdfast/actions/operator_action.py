"""Declarations of operator actions, from which everything that offers actions is made.

Importing a declaration loads no code of a member: the command line needs only the fields and the help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum, unique
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import Meta

from holdfast.config.permissions import Action, Kind
from holdfast.errors import NotReady, Refused

if TYPE_CHECKING:
    from holdfast.actions.member_process import MemberProcess
    from holdfast.core.member import Member
    from holdfast.core.member_view import MemberView
    from holdfast.core.model.member_status import MemberStatus
    from holdfast.wire.answers import Fate

PARTITIONS_MAX: Final = 65_536
"""No cluster has more partitions."""
NAMES_MAX: Final = 65_536
TEXT_MAX: Final = 65_536
ANSWER_S: Final = 15.0
"""Timeout of a query that the metastore answers: a member reports after ten seconds that it does not."""
OUTCOME_UNKNOWN: Final = "After that it is unknown whether it was done."
"""`at_timeout` of an action that is `sent_once`."""
TIMEOUT_MS_MAX: Final = 24 * 3600 * 1000
"""The longest wait for an action."""

Item = TypeVar("Item")
Name = Annotated[str, Meta(max_length=TEXT_MAX)]
Listed = Annotated[list[Item], Meta(max_length=NAMES_MAX)]
Partition = Annotated[int, Meta(ge=0, le=PARTITIONS_MAX - 1)]


@unique
class Target(StrEnum):
    """Which members a command sends the action to."""

    CLUSTER = "any member"
    """Any member, and another one if that is lost before it answers."""
    CONTACTED = "the member that is contacted"
    """The first one of `--address`, and no other."""
    MEMBER = "the member that is named"
    MEMBERS = "the members that are named"
    EACH = "every member"
    SOME = "every member, or those that are named"


class Needed(NamedTuple):
    """A permission that an action needs (`config.permissions`)."""

    action: Action
    kind: Kind = Kind.CLUSTER
    name: str = ""
    every: bool = False
    """For all things whose names begin with `name`."""


class Declaration(NamedTuple):
    """The parts of an action that are the same for every request."""

    name: str
    """Its name over HTTP, in the own protocol and in the audit log."""
    permission: Action
    command: str = ""
    """Its command; empty: it has none."""
    summary: str = ""
    """The line about the command in the list of its group."""
    target: Target = Target.CLUSTER
    timeout_s: float = 60.0
    """How long a command waits by default."""
    repeat_s: float = 0.0
    """Applied again after this time until it is done, because a new master does not know of it; 0: applied once."""
    kind: Kind = Kind.CLUSTER
    """The kind of the permission."""
    withdrawn: bool = False
    """At the timeout it is withdrawn, and has no effect later. Otherwise the cluster continues with it."""
    sent_once: bool = False
    """Not idempotent: a command never sends it to a second member. Without an answer its outcome is unknown."""
    at_timeout: str = ""
    """Help of `--timeout`: what happens then."""
    ends_member: bool = False
    """Done when the member that carries it out has ended."""
    partial: str = ""
    """Message of the command while a member is not done; empty: the partition replicas that are left."""


class ActionDone(Protocol):
    def __call__(
        self, fate: Fate, message: str, value: msgspec.Struct | None = None, error: str = "", /
    ) -> None:
        """The action has this result. `value`: the answer, of the action's `result` type. `error`: as in `Acted`."""


class OperatorAction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of all actions. The docstring of an action is the help of its command, with an example."""

    declared: ClassVar[Declaration]
    result: ClassVar[type[msgspec.Struct] | None] = None
    """The type of its answer, if it has one beside the message."""

    # -- before anything is done

    def needs(self) -> list[Needed]:
        """The permissions that this request needs. Checked before anything else."""
        return [Needed(self.declared.permission, self.declared.kind)]

    def problem(self, partitions: int) -> str:
        """The fault of the fields; empty if they have none. `partitions`: how many the cluster has."""
        return ""

    def audit_line(self) -> str:
        """The action for the audit log and for traces: its name, and the fields that were given."""
        given = [
            f"{field.name}={value}"
            for field in msgspec.structs.fields(self)
            if (value := getattr(self, field.name)) != _default_of(field)
        ]
        return " ".join([self.declared.name, *given])

    def warnings(self, seen: Sequence[MemberStatus]) -> Iterator[str]:
        """A command prints these before it sends the action. `seen`: the status of each member that gets it."""
        return iter(())

    def question(self, seen: MemberStatus) -> str:
        """A command asks this before it sends the action; empty: it does not ask. `seen`: a member's status."""
        return ""

    # -- at a member

    def check(self, view: MemberView, process: MemberProcess) -> None:
        """Raise Refused, with advice, or NotReady if the member cannot carry it out now. Called once, first."""
        must_be_member(view)

    def begin(self, process: MemberProcess) -> None:
        """Prepare the process, once, after `check`."""

    def apply(self, member: Member, reply: Callable[[object], None]) -> None:
        """Begin to carry it out. `reply`: for an `AnsweredAction`."""
        raise NotImplementedError

    def remaining(self, view: MemberView) -> OperatorAction:
        """The part that is not done yet."""
        return self

    def waits_for(self, view: MemberView) -> str:
        """The reason why it is not done yet; empty: it is done. Raises Refused if it cannot be done any more."""
        raise NotImplementedError

    def withdraw(self, member: Member) -> None:
        """The operator does not wait any longer, and the action is `withdrawn`."""

    def done_text(self, view: MemberView) -> str:
        """The message for the operator when it is done."""
        return "done"


def _default_of(field: msgspec.structs.FieldInfo) -> object:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


class AnsweredAction(OperatorAction, frozen=True):
    """An action that a machine of the member answers, once: with a value of the `result` type (None if there is none),
    or with a RequestError.
    """

    def unfinished_reason(self) -> str:
        """Why it is not answered yet, for the message of a timeout."""
        return "it is still being carried out"

    def answer_text(self, answer: Any) -> str:
        """The message for the operator about this answer."""
        return "done"


class ProcessAction(OperatorAction, frozen=True):
    """An action on the process of a member, done at once."""

    def check(self, view: MemberView, process: MemberProcess) -> None:
        """The process can be asked in any state of the member."""

    def carry_out(self, process: MemberProcess) -> None:
        """Carry it out. Raises HoldfastError if it is rejected; nothing has changed then."""
        raise NotImplementedError


class OperatorQuery(OperatorAction, frozen=True):
    """A question to one member: it changes nothing, and is not in the audit log. The columns of its `result` type
    (`core.model.result_columns`) are those of its table.
    """

    result: ClassVar[type[msgspec.Struct]]

    def check(self, view: MemberView, process: MemberProcess) -> None:
        """As in `ProcessAction`."""

    def ask(self, process: MemberProcess, reply: Callable[[Any], None]) -> None:
        """Answer now or later, once: with a value of the `result` type, or with a RequestError."""
        reply(self.answer(process))

    def answer(self, process: MemberProcess) -> msgspec.Struct:
        """The answer, if it can be made at once."""
        raise NotImplementedError


class MachineQuery(OperatorQuery, frozen=True):
    """A query that a machine of the member answers, in `apply`."""

    def ask(self, process: MemberProcess, reply: Callable[[Any], None]) -> None:
        process.ask_machine(self, reply)


# -- checks that several actions share


def must_be_member(view: MemberView) -> None:
    """Raise NotReady unless the member is in a cluster."""
    if view.state != "member":
        raise NotReady(f"this member is {view.state}; send the command to a member of the cluster")


def must_not_leave(view: MemberView) -> None:
    """Raise unless the member is in a cluster and stays."""
    must_be_member(view)
    if view.leaving:
        raise Refused("this member is leaving")


def must_not_shut_down(view: MemberView) -> None:
    """Raise Refused while the cluster is shutting down."""
    if view.ending:
        raise Refused("the cluster is shutting down: its state cannot be changed")


def silent_members(view: MemberView) -> str:
    """The rest of a reason: members that do not answer."""
    silent = view.silence_problem()
    return f"; {silent}" if silent else ""
