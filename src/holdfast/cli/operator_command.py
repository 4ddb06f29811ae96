"""`@operator_command`: one declaration brings a command its address, credentials, timeout, JSON and exit status.

```python
@operator_command(cluster, timeout_s=60, confirms=True)
@click.option("--level", type=int)
def upgrade(call: Call, *, level: int | None) -> Done:
    '''Raise the feature level.'''
    call.confirm("Raise the feature level?")
    ...
    return Done(message="the cluster is at feature level 2")
```

The command returns an `Answer`, or yields several: one line of JSON each with `--json`, otherwise lines and tables. The
exit status is that of the answer; a generator may return another one at its end. A command that prints by itself
returns the exit status.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from functools import partial, wraps
from types import UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import click

from holdfast.actions.operator_action import OperatorAction, OperatorQuery
from holdfast.actions.reference import help_of
from holdfast.cli.addresses import address_option
from holdfast.cli.answers import Described, json_option
from holdfast.cli.credentials import Credentials, credentials
from holdfast.cli.exit_statuses import DONE, combined
from holdfast.cli.rendering import show, tell_json
from holdfast.cli.unit_types import SECONDS
from holdfast.client.blocking import Client
from holdfast.client.operator import act_at_any
from holdfast.client_core.routing import parse_addresses
from holdfast.core.model.ids import Address
from holdfast.core.model.member_status import MemberStatus

ANSWER_S = 5.0
"""Time limit for the answer to a question, unless the command sets one."""
CONTINUES = "After that the cluster continues with the accepted command."


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a command: its common options, and the way to the cluster."""

    address: str = ""
    """HOST:PORT, several separated by commas."""
    credentials: Credentials = field(default_factory=Credentials)
    timeout_s: float = ANSWER_S
    as_json: bool = False
    yes: bool = False
    """Without asking for confirmation."""

    @property
    def addresses(self) -> list[Address]:
        return parse_addresses(self.address)

    def client(self, timeout_s: float = ANSWER_S, *, operates: bool = False) -> Client:
        """A client of the cluster. `operates`: for an operator's questions, which need no cluster to be formed."""
        known = self.credentials
        return Client(
            self.address,
            username=known.username,
            password=known.password,
            token=known.token,
            tls=known.tls,
            timeout_s=timeout_s,
            operates=operates,
        )

    def status(self) -> MemberStatus:
        """The status of the first member that answers."""
        with self.client(operates=True) as client:
            return client.status()

    def ask(self, query: OperatorQuery) -> Any:
        """The answer of the first member that can be asked, of the `result` type of the query."""
        return act_at_any(self.addresses, self.credentials.for_client(), query).value

    def confirm(self, question: str) -> None:
        """Ask, unless `--yes` was given. Ends the command with status 1 if the operator declines."""
        if not self.yes:
            click.confirm(question, abort=True, err=True)


def declared_command(
    kind: type[OperatorAction], group: click.Group | None = None, **more: Any
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a function the command of an action or a query, with the help of its declaration. The function declares its
    parameters itself. `more`: as for `operator_command`.
    """
    declared = kind.declared
    if not issubclass(kind, OperatorQuery):
        more |= {"timeout_s": declared.timeout_s, "then": declared.at_timeout or CONTINUES}
    return operator_command(
        group,
        declared.command.rpartition(" ")[2],
        confirms=kind.question is not OperatorAction.question,
        short_help=declared.summary,
        help=help_of(kind),
        **more,
    )


def operator_command(
    group: click.Group | None = None,
    name: str | None = None,
    *,
    connects: bool = True,
    address: Callable[[Callable[..., Any]], Callable[..., Any]] = address_option,
    timeout_s: float | None = None,
    then: str = CONTINUES,
    confirms: bool = False,
    json: bool = True,
    **attributes: Any,
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a function a command of `group`.

    `connects`: it contacts a cluster; `address` is the decorator of the option for that. `timeout_s`: the default of
    its `--timeout`; `then` says what follows that. `confirms`: it has `--yes`. `attributes`: as for `click.command`,
    such as `short_help`.
    """

    def made(function: Callable[..., Any]) -> click.Command:
        own = list(getattr(function, "__click_params__", ()))

        @wraps(function)
        def called(**options: Any) -> None:
            call = Call(**{name: options.pop(name) for name in common})
            status = finish(function(call, **options), as_json=call.as_json)
            if status != DONE:
                click.get_current_context().exit(status)

        common: set[str] = set()
        command: Callable[..., Any] = called
        for wanted, given, option in (
            (connects, "address", address),
            (connects, "credentials", credentials),
            (json, "as_json", json_option),
            (confirms, "yes", yes_option),
            (timeout_s is not None, "timeout_s", timeout_option(timeout_s or 0.0, then)),
        ):
            if wanted:
                command = option(command)
                common.add(given)
        # Options of the command itself come first in its help.
        params = getattr(command, "__click_params__", [])
        command.__click_params__ = [*params[len(own) :], *own]  # type: ignore[attr-defined]
        make = click.command if group is None else group.command
        built: click.Command = make(name, **attributes)(command)
        built.answers = answers_of(function) if json else None  # type: ignore[attr-defined]
        return built

    return made


yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


def timeout_option(
    default_s: float, then: str = CONTINUES
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option for the timeout of an order; `then` says what happens after it."""
    return click.option(
        "--timeout",
        "timeout_s",
        type=SECONDS,
        default=default_s,
        show_default=f"{default_s:g} s",
        metavar="TIME",
        help=f"Time to wait, in seconds or as 10min. {then}",
    )


def finish(found: Any, *, as_json: bool) -> int:
    """Print what a command has returned; returns the exit status."""
    tell = tell_json if as_json else show
    if isinstance(found, Generator):
        return _print_each(found, tell)
    if isinstance(found, int):
        return found
    tell(found)
    return exit_status_of(found)


def _print_each(found: Generator[Any, None, Any], tell: Callable[[Any], None]) -> int:
    statuses: list[int] = []
    following = partial(next, found)
    while True:
        try:
            answer = following()
        except StopIteration as end:
            return combined(statuses) if end.value is None else int(end.value)
        following = partial(next, found)
        try:
            tell(answer)
        except KeyboardInterrupt as interrupt:
            # The command decides what Ctrl-C means, also while an answer is being printed.
            following = partial(found.throw, interrupt)
        statuses.append(exit_status_of(answer))


def exit_status_of(answer: Any) -> int:
    return int(getattr(answer, "exit_status", DONE))


class Answers(NamedTuple):
    """The output of a command with `--json`: the types of its objects, and whether it prints several."""

    kinds: tuple[Any, ...]
    many: bool


def answers_of(function: Callable[..., Any]) -> Answers | None:
    """The answers that a function is annotated with: `A`, `A | B`, `Iterator[A]`, `Generator[A, None, int]`.

    None for a function that prints by itself, and returns the exit status.
    """
    found = get_type_hints(function, include_extras=True)["return"]
    if found is int:
        return None
    many = get_origin(found) in (Iterator, Generator)
    kind = get_args(found)[0] if many else found
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return Answers(tuple(map(_struct_of, kinds)), many)


def _struct_of(kind: Any) -> Any:
    """The type whose fields are the JSON."""
    if get_origin(kind) is Described:
        return get_args(kind)[0]
    return get_type_hints(kind.plain)["return"] if hasattr(kind, "plain") else kind
