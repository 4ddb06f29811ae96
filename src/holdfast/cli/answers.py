"""Results of commands: structs whose fields are the JSON, and whose `view` is what people read.

`holdfast.cli.rendering` prints both, `docs/schemas` is generated from the same fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Literal, TypeVar

import click
import msgspec
from rich.text import Text

from holdfast.cli.exit_statuses import DONE, FAILED, OPEN, UNREACHABLE
from holdfast.errors import Standing, Unknown, Unreachable

if TYPE_CHECKING:
    from holdfast.cli.rendering import Shown


json_option = click.option("--json", "as_json", is_flag=True, help="JSON, for scripts: one object a line.")


Row = Annotated[dict[str, Any], msgspec.Meta(description="A row, with the columns of the map.")]


class Answer(msgspec.Struct):
    """The result of a command."""

    decides: ClassVar[str] = ""
    """The field that the exit status depends on: 1 if it is false."""

    def view(self) -> Iterable[Shown]:
        """Lines and tables for standard output."""
        return ()

    def notes(self) -> Iterable[str]:
        """Lines for standard error, where people look for warnings and reasons."""
        return ()

    @property
    def exit_status(self) -> int:
        return FAILED if self.decides and not getattr(self, self.decides) else DONE


A = TypeVar("A", bound=msgspec.Struct)


class Described(Generic[A]):
    """An answer for programs, with the text that the job has for people."""

    def __init__(self, struct: A, text: object) -> None:
        self._struct = struct
        self._text = text
        self.exit_status = getattr(struct, "exit_status", DONE)

    def plain(self) -> A:
        return self._struct

    def view(self) -> Iterable[Shown]:
        yield self._text if isinstance(self._text, Text) else str(self._text)


class Done(Answer):
    """The command was carried out."""

    message: str
    done: bool = True

    def view(self) -> Iterable[Shown]:
        yield self.message

    def notes(self) -> Iterable[str]:
        return [f"Warning: {warning}" for warning in getattr(self, "warnings", ())]


Result = Literal["done", "accepted", "unknown", "failed", "unreachable"]
STATUS_OF: dict[Result, int] = {
    "done": DONE,
    "accepted": OPEN,
    "unknown": OPEN,
    "failed": FAILED,
    "unreachable": UNREACHABLE,
}


RESULT_OF_ERROR: tuple[tuple[type[Exception], Result], ...] = (
    (Standing, "accepted"),
    (Unknown, "unknown"),
    (Unreachable, "unreachable"),
)


class MemberResult(Answer):
    """The result of the command on one member."""

    member: str
    result: Annotated[
        Result,
        msgspec.Meta(
            description="accepted: it is not finished in time, and the cluster continues; "
            "unknown: it may be done, or not"
        ),
    ]
    message: str

    @classmethod
    def of_error(cls, member: str, error: Exception) -> MemberResult:
        """The result of a command that ended with this error."""
        for kind, result in RESULT_OF_ERROR:
            if isinstance(error, kind):
                return cls(member=member, result=result, message=str(error))
        return cls(member=member, result="failed", message=str(error))

    def view(self) -> Iterable[Shown]:
        if self.result == "done":
            yield f"{self.member}: {self.message}"

    def notes(self) -> Iterable[str]:
        if self.result != "done":
            yield f"{self.member}: {self.message}"

    @property
    def exit_status(self) -> int:
        return STATUS_OF[self.result]
