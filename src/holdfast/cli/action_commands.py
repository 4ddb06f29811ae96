"""Commands made from the declarations of operator actions (`holdfast.actions`): arguments, options, help, result."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import EnumType
from functools import cache, partial
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import click
import msgspec
from msgspec import Meta

from holdfast.actions.operator_action import PARTITIONS_MAX, OperatorAction, OperatorQuery, Target
from holdfast.actions.registry import ACTIONS
from holdfast.cli.answers import Answer, Done, MemberResult
from holdfast.cli.exit_statuses import CHANGES, ONCE, SHOWS, STANDS, STATUSES, Meanings, Table
from holdfast.cli.operator_command import Call, declared_command
from holdfast.cli.orders import Give, still_here, together
from holdfast.cli.query_commands import add_query
from holdfast.cli.settings import pairs
from holdfast.cli.status import doors_of, find_member
from holdfast.cli.unit_types import Seconds
from holdfast.client.operator import act, act_at_any, is_gone
from holdfast.config.loading import live_text
from holdfast.core.model.baseline import FIXED
from holdfast.core.model.ids import Address
from holdfast.core.model.member_status import ListedMember, MemberStatus
from holdfast.core.model.zone_answers import NEVER
from holdfast.core.zones.descriptors import NEVER as NEVER_S
from holdfast.errors import ConfigError, HoldfastError, Unknown

WHOLE_MAX = 1 << 53
"""A limit from here on only keeps numbers exact in JSON."""
DIGITS_MAX = 5
"""Most digits of a partition number: no cluster has more than 65,536."""
OFF = "off"
ONE_ANSWER = (Target.CLUSTER, Target.CONTACTED)

Show = Callable[[Call], Answer]
"""Shows what the action would change."""
Kind = type[OperatorAction]


def add_actions(group: click.Group, path: str, shows: Mapping[str, Show] | None = None) -> None:
    """Add the commands of all actions that belong to this group. `shows`: by command, if it also shows something."""
    for kind in ACTIONS.values():
        inside, _, name = kind.declared.command.rpartition(" ")
        if inside == path and name not in group.commands:
            _add(group, kind, (shows or {}).get(name))


def _add(group: click.Group, kind: Kind, show: Show | None) -> None:
    if issubclass(kind, OperatorQuery):
        add_query(group, kind)
        return
    declared = kind.declared

    def command(call: Call, **given: Any) -> Any:
        if show is not None and _only_shows(kind, given):
            return show(call)
        return _Sending(kind, call).send(**given)

    answer: Any = done_type(kind) if declared.target in ONE_ANSWER else Iterator[MemberResult]
    command.__annotations__["return"] = answer if show is None else get_type_hints(show)["return"] | answer
    for parameter in reversed(_parameters(kind, shows=show is not None)):
        parameter(command)
    made = declared_command(kind, group)(command)
    made.statuses = statuses_of(kind)  # type: ignore[attr-defined]


def action_command(kind: Kind, group: click.Group) -> Callable[[Callable[[Call, Any], Any]], click.Command]:
    """Make a function the command of an action or a query, with the arguments and options of its fields. The function
    gets the call and the action.
    """

    def made(function: Callable[[Call, Any], Any]) -> click.Command:
        def command(call: Call, **given: Any) -> Any:
            return function(call, _Sending(kind, call).read(**given))

        command.__annotations__["return"] = get_type_hints(function)["return"]
        for parameter in reversed(_parameters(kind, shows=False)):
            parameter(command)
        return declared_command(kind, group)(command)

    return made


@cache
def done_type(kind: Kind) -> type[Done]:
    """The type of what the command of an action prints: with the fields of its `result`."""
    if kind.result is None:
        return Done
    fields = [(one.name, one.type) for one in msgspec.structs.fields(kind.result)]
    made = msgspec.defstruct(
        f"{kind.__name__}Done",
        fields,
        bases=(Done,),
        namespace={"__doc__": kind.result.__doc__},
        kw_only=True,
    )
    assert issubclass(made, Done)
    return made


def statuses_of(kind: Kind) -> Meanings:
    if issubclass(kind, OperatorQuery):
        return SHOWS
    if kind.declared.sent_once:
        return ONCE
    return CHANGES if kind.declared.withdrawn else STANDS


ACTION_STATUSES: Table = {
    kind.declared.command: statuses_of(kind)
    for kind in ACTIONS.values()
    if kind.declared.command and kind.declared.command not in STATUSES
}


def _only_shows(kind: Kind, given: dict[str, Any]) -> bool:
    """Whether the command line asks only to show: with `--show`, or without the argument."""
    if "show" in given:
        return bool(given.pop("show"))
    return any(given[field.name] is None for field in msgspec.structs.fields(kind) if field.required)


# -- arguments and options


def _parameters(kind: Kind, *, shows: bool) -> list[Callable[[Any], Any]]:
    target = kind.declared.target
    found = [_parameter(name, *field, optional=shows) for name, field in _fields(kind).items()]
    if target is Target.MEMBERS:
        found.insert(0, click.argument("members", nargs=-1, required=True, metavar="MEMBER..."))
    if target is Target.MEMBER:
        found.insert(0, click.argument("members", nargs=1, required=True, metavar="MEMBER"))
    if target is Target.SOME:
        found.append(
            click.option(
                "--member",
                "members",
                multiple=True,
                metavar="MEMBER",
                help="Only this member: a name, the first digits of a UUID, or HOST:PORT; may be repeated. Default: "
                "all members.",
            )
        )
    if shows and not any(field.required for field in msgspec.structs.fields(kind)):
        found.append(
            click.option("--show", is_flag=True, help="Only show what is in force, and change nothing.")
        )
    return found


def _fields(kind: Kind) -> dict[str, tuple[Any, Meta, bool]]:
    """Type, description, and whether it must be given, of each field."""
    hints = get_type_hints(kind, include_extras=True)
    found = {}
    for field in msgspec.structs.fields(kind):
        given, meta = _with_limits(hints[field.name], _meta(hints[field.name]))
        if get_origin(given) in (Union, UnionType):
            alternatives = [each for each in get_args(given) if each is not NoneType]
            given = alternatives[0] if len(alternatives) == 1 else given
        found[field.name] = (*_with_limits(given, meta), field.required)
    return found


def _with_limits(hint: Any, meta: Meta) -> tuple[Any, Meta]:
    """The type, and the description with the limits that the type has inside."""
    if get_origin(hint) is not Annotated:
        return hint, meta
    inner, *limits = get_args(hint)
    for each in limits:
        least = meta.ge if each.ge is None else each.ge
        most = meta.le if each.le is None else each.le
        meta = Meta(ge=least, le=most, description=meta.description, extra=meta.extra)
    return inner, meta


def _meta(hint: Any) -> Meta:
    assert get_origin(hint) is Annotated, "every field of an action says what it means"
    return next(each for each in get_args(hint)[1:] if isinstance(each, Meta) and each.description)


def _parameter(name: str, kind: Any, meta: Meta, required: bool, *, optional: bool) -> Callable[[Any], Any]:
    extra = meta.extra or {}
    several = get_origin(kind) in (list, dict)
    if "argument" in extra:
        must = required and not optional
        metavar = extra["argument"] + ("..." if several else "")
        return click.argument(
            name,
            nargs=-1 if several else 1,
            required=must,
            metavar=metavar if must else f"[{metavar}]",
            type=_click_type(kind, meta),
        )
    flag = extra.get("option", f"--{name.replace('_', '-')}")
    if kind is bool:
        return click.option(flag, name, is_flag=True, help=meta.description)
    return click.option(
        flag,
        name,
        multiple=several and "reads" not in extra,
        type=_click_type(kind, meta),
        default=None,
        metavar=extra.get("metavar"),
        help=meta.description,
    )


def _click_type(kind: Any, meta: Meta) -> click.ParamType[Any]:
    if (read := _TIMES.get((meta.extra or {}).get("reads", ""))) is not None:
        return read
    if get_origin(kind) is list:
        kind, meta = _with_limits(get_args(kind)[0], meta)
    if isinstance(kind, EnumType):
        return click.Choice([str(value) for value in list[Any](kind)])
    if kind is int and "reads" not in (meta.extra or {}):
        return click.IntRange(_whole(meta.ge), _whole(meta.le))
    return click.STRING


def _whole(bound: float | None) -> int | None:
    """A limit that is worth showing."""
    return None if bound is None or bound >= WHOLE_MAX else int(bound)


def read_partitions(text: str) -> list[int]:
    """Partitions as `1,3-5`. Raises click.BadParameter."""
    numbers: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if (
            not first.isdecimal()
            or (dash and not last.isdecimal())
            or max(len(first), len(last)) > DIGITS_MAX
        ):
            raise click.BadParameter(f"{part!r} is no partition, and no range of partitions such as 3-7")
        numbers.update(range(int(first), int(last or first) + 1))
    return sorted(numbers)


class _TimeOrOff(Seconds):
    """A time in milliseconds, or `off`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Milliseconds; -1 for `off`."""
        return FIXED if value == OFF else round(1000 * super().convert(value, param, ctx))


class _DelayOrNever(Seconds):
    """A time in whole seconds, or `never`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Seconds, or `never`. Fails for parts of a second."""
        if value == NEVER:
            return value
        seconds = super().convert(value, param, ctx)
        if not seconds.is_integer():
            self.fail(f"{value} is no whole number of seconds", param, ctx)
        return int(seconds)


_TIMES: dict[str, click.ParamType[Any]] = {
    "milliseconds": _TimeOrOff(),
    "delay": _DelayOrNever(most=NEVER_S),
}


def read_settings(given: tuple[str, ...]) -> dict[str, str]:
    """Settings as KEY=VALUE. Raises ConfigError for one that cannot be changed at run time."""
    return {
        dotted: live_text(dotted, str(value), "the command line") for dotted, value in pairs(given).items()
    }


def read_pairs(given: tuple[str, ...]) -> dict[str, str]:
    """Settings as KEY=VALUE, in any form. Raises ConfigError."""
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"{text!r} is not allowed: it must be SETTING=VALUE")
        found[name] = value
    return found


READERS: dict[str, Callable[[Any], Any]] = {
    "partitions": read_partitions,
    "settings": read_settings,
    "pairs": read_pairs,
}
"""How the text of a parameter becomes the value of a field, by `reads` of its declaration."""


# -- sending

ENDED = "has ended without an answer: its log says more"


class _Sending:
    """One call of an action's command."""

    def __init__(self, kind: Kind, call: Call) -> None:
        self._kind = kind
        self._call = call
        self._known = call.credentials.for_client()
        self._seen: MemberStatus | None = None

    def send(self, *, members: Sequence[str] = (), **given: Any) -> Done | Iterator[MemberResult]:
        """Read the parameters, ask for confirmation, and send the action."""
        declared, timeout_s = self._kind.declared, self._call.timeout_s
        if "members" in self._kind.__struct_fields__:
            given["members"] = members
        if isinstance(members, str):
            members = (members,)
        action = self.read(**given)
        if declared.target not in ONE_ANSWER:
            return self._at_each(action, members)
        done = act_at_any(self._addresses(action), self._known, action, timeout_s=timeout_s)
        answer = {} if done.value is None else msgspec.structs.asdict(done.value)
        return done_type(self._kind)(message=done.message, **answer)

    def read(self, **given: Any) -> OperatorAction:
        """The action with these parameters, after confirmation."""
        values = {name: value for name, value in given.items() if value is not None}
        fields = {name: self._read(name, value) for name, value in values.items()}
        try:
            action = msgspec.convert(fields, self._kind)
        except msgspec.ValidationError as error:
            raise ConfigError(str(error)) from None
        if problem := action.problem(PARTITIONS_MAX):
            raise ConfigError(problem)
        if self._asks and not self._call.yes and (question := action.question(self.seen)):
            self._call.confirm(question)
        return action

    @property
    def _asks(self) -> bool:
        return self._kind.question is not OperatorAction.question

    @property
    def seen(self) -> MemberStatus:
        """The status of a member, asked once."""
        if self._seen is None:
            self._seen = self._call.status()
        return self._seen

    def _read(self, name: str, value: Any) -> Any:
        _, meta, _ = _fields(self._kind)[name]
        reads = (meta.extra or {}).get("reads")
        if reads == "members":
            return [find_member(member, self.seen.members).uuid for member in value]
        if reads in READERS:
            return READERS[reads](value)
        return list(value) if isinstance(value, tuple) else value

    def _addresses(self, action: OperatorAction) -> list[Address]:
        """The members to try in turn: without those that the action is about, which have ended."""
        given = self._call.addresses
        if self._kind.declared.target is Target.CONTACTED:
            return given[:1]
        about = [name for name, (_, meta, _) in _fields(self._kind).items() if _is_about_members(meta)]
        if not about:
            return given
        ended = {uuid for name in about for uuid in getattr(action, name)}
        doors = [row.door for row in self.seen.members if row.uuid not in ended]
        return list(dict.fromkeys([*(door for door in given if door in doors), *doors]))

    def _at_each(self, action: OperatorAction, members: Sequence[str]) -> Iterator[MemberResult]:
        if self._kind.declared.target is Target.EACH or not members:
            doors = {_label(row, self._kind): row.door for row in self.seen.members}
        else:
            doors = {
                str(door): door
                for door in doors_of(tuple(members), self._call.address, self._call.credentials)
            }
        for warning in action.warnings(self._statuses(action, list(doors.values()))):
            print(f"Warning: {warning}", file=sys.stderr, flush=True)
        gives: dict[str, Give] = {
            name: partial(self._carry_out, action, door) for name, door in doors.items()
        }
        return together(gives, "done", self._progress)

    def _carry_out(
        self, action: OperatorAction, door: Address, *, progress: Callable[[MemberStatus], None]
    ) -> str:
        """The remark of one member. When all members end, one may be gone before it reads the command: another one has
        passed it on.
        """
        declared = self._kind.declared
        try:
            return act(door, self._known, action, timeout_s=self._call.timeout_s, progress=progress)
        except Unknown:
            if declared.target is Target.EACH and declared.ends_member and is_gone(door, self._known):
                return ENDED
            raise

    def _statuses(self, action: OperatorAction, doors: list[Address]) -> list[MemberStatus]:
        found: list[MemberStatus] = []
        if self._kind.warnings is not OperatorAction.warnings:
            for door in doors:
                try:
                    found.append(Call(str(door), self._call.credentials).status())
                except (HoldfastError, OSError):
                    continue  # The action itself will report why.
        return found

    def _progress(self, status: MemberStatus) -> str:
        text, reason = self._kind.declared.partial, status.leave_blocker
        if not text:
            return still_here(status)
        return f"{text}: {reason}" if reason else text


def _label(row: ListedMember, kind: Kind) -> str:
    return row.label if kind.declared.target is Target.EACH else str(row.door)


def _is_about_members(meta: Meta) -> bool:
    return (meta.extra or {}).get("reads") == "members"
