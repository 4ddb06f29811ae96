"""All actions, by name; and their decoding from MessagePack and JSON."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import msgspec

from holdfast import actions
from holdfast.actions.operator_action import OperatorAction
from holdfast.errors import ProtocolError

SHOWN_MAX = 100
"""Characters of an unknown name in a message."""


def _found() -> dict[str, type[OperatorAction]]:
    """The actions of every module of the package."""
    for module in iter_modules(actions.__path__, f"{actions.__name__}."):
        import_module(module.name)
    found: dict[str, type[OperatorAction]] = {}
    waiting: list[type[OperatorAction]] = [OperatorAction]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if "declared" in vars(kind) and kind.__module__.startswith(f"{actions.__name__}."):
            assert kind.declared.name not in found, f"two actions are called {kind.declared.name}"
            found[kind.declared.name] = kind
    return dict(sorted(found.items()))


ACTIONS: dict[str, type[OperatorAction]] = _found()


def action_named(name: str) -> type[OperatorAction]:
    """Raises ProtocolError, which names the actions that exist."""
    if name not in ACTIONS:
        raise ProtocolError(f"there is no action {name[:SHOWN_MAX]!r}; known are {', '.join(ACTIONS)}")
    return ACTIONS[name]


def read_action(name: str, fields: bytes | msgspec.Raw) -> OperatorAction:
    """The action with these fields, a MessagePack map. Raises ProtocolError."""
    try:
        return msgspec.msgpack.decode(fields, type=action_named(name))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ProtocolError(f"these are no fields of the action {name}: {error}") from None


def action_of(name: str, content: Any, *, strict: bool = True) -> OperatorAction:
    """The action with these fields, as they come from JSON; not `strict`: from text. Raises ProtocolError."""
    try:
        return msgspec.convert(content, action_named(name), strict=strict)
    except msgspec.ValidationError as error:
        raise ProtocolError(f"these are no fields of the action {name}: {error}") from None
