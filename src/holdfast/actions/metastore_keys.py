"""Read and change keys of the metastore."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from holdfast.actions.member_process import MemberProcess
from holdfast.actions.operator_action import (
    ANSWER_S,
    OUTCOME_UNKNOWN,
    AnsweredAction,
    Declaration,
    MachineQuery,
    Needed,
    must_be_member,
)
from holdfast.config.permissions import Action, Kind
from holdfast.core.model.metastore_answers import KeysFound, MetastoreRevision
from holdfast.errors import Denied

if TYPE_CHECKING:
    from holdfast.core.member import Member
    from holdfast.core.member_view import MemberView
    from holdfast.core.metastore.operator_questions import OperatorQuestions

Text = Annotated[str, Meta(max_length=1 << 20)]
Revision = Annotated[int, Meta(ge=0, le=1 << 53)]
KEY = Meta(description="The key.", extra={"argument": "KEY"})
PREFIX = Meta(description="Only keys that begin with this.", extra={"argument": "PREFIX"})
AT = Meta(description="Read at this revision. Default: now.", extra={"metavar": "N"})
IF_REVISION = Meta(
    description="Only if the key is at this revision; 0: only if it is absent.", extra={"metavar": "N"}
)


class _ReadMetastore(MachineQuery, frozen=True):
    """Base of the queries."""

    result = KeysFound

    def apply(self, member: Member, reply: Callable[[object], None]) -> None:
        if (advised := member.agreed.advised(reply)) is not None:
            self.find(member.agreed.questions, advised)

    def find(self, questions: OperatorQuestions, reply: Callable[[object], None]) -> None:
        """Ask the metastore."""
        raise NotImplementedError


def _query(name: str, command: str, summary: str) -> Declaration:
    return Declaration(
        name, Action.READ, f"metastore {command}", summary, timeout_s=ANSWER_S, kind=Kind.METASTORE
    )


class ReadKey(_ReadMetastore, frozen=True):
    r"""Print the value of KEY.

    \b
      holdfast metastore get app/flag
    """

    declared = _query("read-key", "get", "Print the value of a key, now or at a revision.")

    key: Annotated[Text, KEY]
    revision: Annotated[Revision, AT] = 0

    def needs(self) -> list[Needed]:
        return [Needed(Action.READ, Kind.METASTORE, self.key)]

    def find(self, questions: OperatorQuestions, reply: Callable[[object], None]) -> None:
        questions.get(self.key.encode(), self.revision, reply)


class ScanKeys(_ReadMetastore, frozen=True):
    r"""Print the keys that begin with PREFIX and their values, one per line.

    \b
      holdfast metastore scan zones/zone/
    """

    declared = _query("scan-keys", "scan", "Print keys with a prefix.")

    prefix: Annotated[Text, PREFIX] = ""
    after: Annotated[
        Text, Meta(description="Only keys after this one, to continue an answer.", extra={"metavar": "KEY"})
    ] = ""
    revision: Annotated[Revision, AT] = 0

    def needs(self) -> list[Needed]:
        return [Needed(Action.READ, Kind.METASTORE, self.prefix, every=True)]

    def find(self, questions: OperatorQuestions, reply: Callable[[object], None]) -> None:
        questions.scan(self.prefix.encode(), self.after.encode(), self.revision, reply)


class KeyHistory(_ReadMetastore, frozen=True):
    r"""Print former values of KEY, oldest first, as far as the metastore still has them.

    \b
      holdfast metastore history app/flag
    """

    declared = _query("key-history", "history", "Print former values of a key.")

    key: Annotated[Text, KEY]
    after: Annotated[Revision, Meta(description="Only later revisions.", extra={"metavar": "N"})] = 0

    def needs(self) -> list[Needed]:
        return [Needed(Action.READ, Kind.METASTORE, self.key)]

    def find(self, questions: OperatorQuestions, reply: Callable[[object], None]) -> None:
        questions.history(self.key.encode(), self.after, reply)


class KeyChanges(_ReadMetastore, frozen=True):
    r"""Print each change of keys that begin with PREFIX, in order of revisions, until Ctrl-C.

    Prints its first revision to standard error. With several members in --address it continues with another one when
    the first goes away.

    \b
      holdfast metastore watch app/
    """

    declared = _query("key-changes", "watch", "Print changes as they happen.")

    prefix: Annotated[Text, PREFIX] = ""
    after: Annotated[
        Revision | None, Meta(description="Changes after this revision.  [now]", extra={"metavar": "N"})
    ] = None

    def needs(self) -> list[Needed]:
        return [Needed(Action.READ, Kind.METASTORE, self.prefix, every=True)]

    def find(self, questions: OperatorQuestions, reply: Callable[[object], None]) -> None:
        questions.changes(self.prefix.encode(), self.after, reply)


class _ChangeKey(AnsweredAction, frozen=True):
    """Base of the changes."""

    result = MetastoreRevision

    key: Annotated[Text, KEY]

    def check(self, view: MemberView, process: MemberProcess) -> None:
        must_be_member(view)
        from holdfast.core.zones.zone_keys import ZONES

        if self.key.encode().startswith(ZONES):
            raise Denied(f"keys that begin with {ZONES.decode()} can only be changed with holdfast zone")

    def apply(self, member: Member, reply: Callable[[object], None]) -> None:
        if (advised := member.agreed.advised(reply)) is not None:
            self.change(member.agreed.questions, advised)

    def change(self, questions: OperatorQuestions, reply: Callable[[object], None]) -> None:
        """Give the change to the metastore."""
        raise NotImplementedError

    def unfinished_reason(self) -> str:
        return "the metastore has not answered; the key may be changed, or not"


def _needs(action: Action, key: str, if_revision: int | None) -> list[Needed]:
    """A rejection because of the condition reports the present revision of the key: that needs to be readable."""
    actions = [action] if if_revision is None else [action, Action.READ]
    return [Needed(each, Kind.METASTORE, key) for each in actions]


def _change(action: Action, summary: str) -> Declaration:
    return Declaration(
        f"{action}-key",
        action,
        f"metastore {action}",
        summary,
        timeout_s=30,
        kind=Kind.METASTORE,
        sent_once=True,
        at_timeout=OUTCOME_UNKNOWN,
    )


class PutKey(_ChangeKey, frozen=True):
    r"""Set KEY to VALUE, and print the revision of the change.

    \b
      holdfast metastore put app/flag on --if-revision 0
    """

    declared = _change(Action.PUT, "Set the value of a key.")

    value: Annotated[Text, Meta(description="The value.", extra={"argument": "VALUE"})]
    if_revision: Annotated[Revision | None, IF_REVISION] = None

    def needs(self) -> list[Needed]:
        return _needs(Action.PUT, self.key, self.if_revision)

    def audit_line(self) -> str:
        """The action without its value, which may be a secret."""
        condition = "" if self.if_revision is None else f" if_revision={self.if_revision}"
        return f"{self.declared.name} key={self.key} value=({len(self.value)} characters){condition}"

    def change(self, questions: OperatorQuestions, reply: Callable[[object], None]) -> None:
        questions.put(self.key.encode(), self.value.encode(), self.if_revision, reply)

    def answer_text(self, answer: MetastoreRevision) -> str:
        return f"key {self.key} has this value as of revision {answer.revision}"


class RemoveKey(_ChangeKey, frozen=True):
    r"""Remove KEY, and print the revision of the change. Removing an absent key changes nothing.

    \b
      holdfast metastore remove app/flag
    """

    declared = _change(Action.REMOVE, "Remove a key.")

    if_revision: Annotated[Revision | None, IF_REVISION] = None

    def needs(self) -> list[Needed]:
        return _needs(Action.REMOVE, self.key, self.if_revision)

    def change(self, questions: OperatorQuestions, reply: Callable[[object], None]) -> None:
        questions.remove(self.key.encode(), self.if_revision, reply)

    def answer_text(self, answer: MetastoreRevision) -> str:
        return f"key {self.key} is not there as of revision {answer.revision}"
