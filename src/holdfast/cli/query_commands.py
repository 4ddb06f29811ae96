"""Commands made from the declarations of queries: all members are asked, and one table shows their answers."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import click
import msgspec

from holdfast.actions.operator_action import OperatorQuery
from holdfast.cli.answers import Answer
from holdfast.cli.exit_statuses import DONE, SHOWS, UNREACHABLE
from holdfast.cli.operator_command import Call, declared_command
from holdfast.cli.rendering import Shown, table_of
from holdfast.client.operator import ask
from holdfast.core.model.member_status import ListedMember
from holdfast.core.model.result_columns import columns_of
from holdfast.errors import Denied, HoldfastError

ASKED_AT_A_TIME = 16


class QueryAnswer(Answer):
    """The answers of all members to a query. Subclasses have the list `members`."""

    unreachable_members: list[str]

    def view(self) -> Iterable[Shown]:
        """One table: of the answers, or of the rows that each of them has."""
        found: list[Any] = self.members  # type: ignore[attr-defined]
        if not found:
            return
        kind = type(found[0].answer)
        lists = [name for name in columns_of(kind) if isinstance(getattr(found[0].answer, name), list)]
        rows = [
            (one.member, row)
            for one in found
            for row in (getattr(one.answer, lists[0]) if lists else [one.answer])
        ]
        if rows:
            names = [name for name, _ in rows]
            yield table_of([row for _, row in rows], type(rows[0][1]), first={"member": names})

    def notes(self) -> Iterable[str]:
        return self.unreachable_members

    @property
    def exit_status(self) -> int:
        return UNREACHABLE if self.unreachable_members else DONE


def answer_type(kind: type[OperatorQuery]) -> type[QueryAnswer]:
    """The type of what the command of a query prints."""
    name = kind.__name__
    one = msgspec.defstruct(f"{name}OfMember", [("member", str), ("answer", kind.result)])
    members: Any = list[one]  # type: ignore[valid-type]
    made = msgspec.defstruct(
        f"{name}Answer",
        [("members", members)],
        bases=(QueryAnswer,),
        namespace={"__doc__": kind.result.__doc__},
    )
    assert issubclass(made, QueryAnswer)
    return made


def add_query(group: click.Group, kind: type[OperatorQuery]) -> None:
    made = answer_type(kind)

    def command(call: Call) -> Any:
        return asked(call, kind(), made)

    command.__annotations__["return"] = made
    built = declared_command(kind, group)(command)
    built.statuses = SHOWS  # type: ignore[attr-defined]


def asked(call: Call, query: OperatorQuery, made: type[QueryAnswer]) -> QueryAnswer:
    """The answers of all members, as what the command prints. Raises Denied."""
    found, silent = answers_of_members(call, query)
    members = [{"member": name, "answer": msgspec.to_builtins(answer)} for name, answer in found.items()]
    return msgspec.convert({"unreachable_members": silent, "members": members}, made)


def answers_of_members(call: Call, query: OperatorQuery) -> tuple[dict[str, Any], list[str]]:
    """The answers by name of the member, and the reasons why others have not answered. Raises Denied."""
    rows = call.status().members
    known, timeout_s = call.credentials.for_client(), query.declared.timeout_s
    silent: list[str] = []

    def one(row: ListedMember) -> Any:
        try:
            return ask(row.door, known, query, timeout_s=timeout_s)
        except Denied:
            raise
        except (HoldfastError, OSError) as failed:
            silent.append(f"{row.name}: {failed}")
            return None

    with ThreadPoolExecutor(ASKED_AT_A_TIME) as threads:
        found = list(zip(rows, threads.map(one, rows), strict=True))
    return {row.name: answer for row, answer in found if answer is not None}, sorted(silent)
