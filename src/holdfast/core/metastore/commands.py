"""Commands in the log of the metastore's group, as bytes.

- metastore/M-1: Whether bytes are a valid command depends only on the bytes, so all replicas reject the same ones. Each
  command has exactly one encoding, and limits for its size, depth and length.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.core.metastore.invoke import (
    AllOf,
    AnyOf,
    Branch,
    Compare,
    Condition,
    If,
    Leaf,
    PutKey,
    RemoveKey,
    Subject,
)
from holdfast.errors import ProtocolError

VERSION: Final = 1
"""Propose a newer version only when all members know it."""
KEY_BYTES_MAX: Final = 1024
VALUE_BYTES_MAX: Final = 1 << 20
COMMAND_BYTES_MAX: Final = 4 << 20
DEPTH_MAX: Final = 32
PARTS_MAX: Final = 50_000
"""Branches, conditions and changes of one invoke."""
WINDOW: Final = 64
"""Invokes of one proposer in progress."""
NAME_BYTES_MAX: Final = 64
NUMBER_MAX: Final = 1 << 53


class MalformedCommand(ProtocolError): ...


class Proposer(msgspec.Struct, frozen=True, array_like=True):
    """A source of numbered invokes: a member under a name that it uses for some time."""

    name: bytes
    """Unique to this process, and never used again."""
    since: int
    """Commands that its replica had applied when it took this name (metastore/M-3)."""


class InvokeCommand(msgspec.Struct, frozen=True, array_like=True, tag=0):
    proposer: Proposer
    number: int
    """From 1, per proposer."""
    answered: int
    """The proposer has the answers up to this number."""
    time_ms: int
    """By the proposer's clock: milliseconds since 1970."""
    branch: Branch


class CompactCommand(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Forget the older values of keys before this revision."""

    revision: int


Command = InvokeCommand | CompactCommand

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[tuple[int, Command]] = msgspec.msgpack.Decoder(tuple[int, Command])


def encode_command(command: Command) -> bytes:
    """Raises MalformedCommand if replicas would reject it."""
    if why := command_problem(command):
        raise MalformedCommand(why)
    data = _encoder.encode((VERSION, command))
    if len(data) > COMMAND_BYTES_MAX:
        raise MalformedCommand(f"a command has {COMMAND_BYTES_MAX} bytes at most")
    return data


def decode_command(data: bytes) -> Command:
    """Raises MalformedCommand for anything else (metastore/M-1)."""
    if len(data) > COMMAND_BYTES_MAX:
        raise MalformedCommand(f"a command has {COMMAND_BYTES_MAX} bytes at most")
    try:
        version, command = _decoder.decode(data)
    except Exception as error:
        # This includes RecursionError. Its limit depends on the caller's stack, but lies beyond DEPTH_MAX.
        raise MalformedCommand(f"not a command of the metastore: {error}") from error
    if version != VERSION:
        raise MalformedCommand(f"a command of version {version}")
    if why := command_problem(command):
        raise MalformedCommand(why)
    if _encoder.encode((VERSION, command)) != data:
        # A decoder skips unknown fields, and these could be nested to any depth.
        raise MalformedCommand("not the canonical encoding of a command")
    return command


def command_problem(command: Command) -> str:
    """Why replicas would reject the command; empty: they accept it."""
    if isinstance(command, CompactCommand):
        return "" if 0 <= command.revision <= NUMBER_MAX else "an invalid revision"
    proposer = command.proposer
    if not 0 < len(proposer.name) <= NAME_BYTES_MAX or not 0 <= proposer.since <= NUMBER_MAX:
        return "an invalid proposer"
    if not 0 <= command.answered < command.number <= min(command.answered + WINDOW, NUMBER_MAX):
        return f"a proposer has at most {WINDOW} invokes in progress"
    if not 0 <= command.time_ms <= NUMBER_MAX:
        return "an invalid time"
    return _tree_problem(command.branch)


def _tree_problem(tree: Branch) -> str:
    work: list[tuple[Branch | Condition, int]] = [(tree, 1)]
    parts = 0
    while work:
        part, depth = work.pop()
        parts += 1
        match part:
            case If(condition, then, otherwise):
                work += ((inner, depth + 1) for inner in (condition, then, otherwise))
            case AllOf(conditions) | AnyOf(conditions):
                work += ((inner, depth + 1) for inner in conditions)
            case Leaf():
                parts += len(part.changes)
                if why := _leaf_problem(part):
                    return why
            case _:
                if why := _condition_problem(part):
                    return why
        if depth > DEPTH_MAX:
            return f"a tree is {DEPTH_MAX} deep at most"
        if parts + len(work) > PARTS_MAX:
            return f"an invoke has {PARTS_MAX} branches, conditions and changes at most"
    return ""


def _leaf_problem(leaf: Leaf) -> str:
    if abs(leaf.answer) > NUMBER_MAX:
        return "the answer is too large a number"
    if len({change.key for change in leaf.changes}) < len(leaf.changes):
        return "a key is changed twice in one invoke"
    for change in leaf.changes:
        if why := _key_problem(change):
            return why
        if isinstance(change, PutKey) and len(change.value) > VALUE_BYTES_MAX:
            return f"a value has {VALUE_BYTES_MAX} bytes at most"
    return ""


def _condition_problem(condition: Condition) -> str:
    assert not isinstance(condition, AllOf | AnyOf), "what has conditions inside is taken apart"
    if isinstance(condition, Compare):
        if condition.subject is Subject.REVISION:
            if len(condition.than) != 8 or not any(condition.than):
                return "a revision is eight bytes, and positive"
        elif len(condition.than) > VALUE_BYTES_MAX:
            return f"a value has {VALUE_BYTES_MAX} bytes at most"
    return _key_problem(condition)


def _key_problem(part: PutKey | RemoveKey | Condition) -> str:
    assert not isinstance(part, AllOf | AnyOf), "what has conditions inside has no key"
    return "" if 0 < len(part.key) <= KEY_BYTES_MAX else f"a key has 1 to {KEY_BYTES_MAX} bytes"
