"""Forwarded requests, and answers, of one step to one member are one message.

Example: a transaction commits in three partitions whose primary is another member. Its three steps leave in one
`Forwards`. That member replicates all three in one `Replicate`, and when its backup has acknowledged it, the three
answers return in one `Answers`.

- core/T-1: Each part is handled as if it had come alone. A message is lost, delayed and repeated as a whole, and has
  at most `PARTS_BYTES`, unless one part is larger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from holdfast.core.effects import Effect, Send
from holdfast.core.messages import Answer, Answers, Forward, Forwards

if TYPE_CHECKING:
    from holdfast.core.model.ids import MemberId

PARTS_BYTES = 256 * 1024
PART_BYTES = 100
"""Size of a part without its values, roughly."""


class _Group:
    __slots__ = ("parts", "size")

    def __init__(self) -> None:
        self.parts: list[Forward | Answer] = []
        self.size = 0


def sent_together(effects: list[Effect]) -> list[Effect]:
    """The same effects, with as few messages as possible."""
    rest: list[Effect] = []
    full: list[tuple[MemberId, _Group]] = []
    groups: dict[tuple[MemberId, type], _Group] = {}
    for effect in effects:
        message = effect.message if type(effect) is Send else None
        if not isinstance(message, Forward | Answer):
            rest.append(effect)
            continue
        assert type(effect) is Send, "it has a message"
        key, size = (effect.to, type(message)), _size_of(message)
        group = groups.get(key)
        if group is None or group.size + size > PARTS_BYTES:
            group = groups[key] = _Group()
            full.append((effect.to, group))
        group.parts.append(message)
        group.size += size
    rest += [Send(to, _message(group.parts)) for to, group in full]
    return rest


def _message(parts: list[Forward | Answer]) -> Forward | Answer | Forwards | Answers:
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], Forward):
        return Forwards(cast("list[Forward]", parts))
    return Answers(cast("list[Answer]", parts))


def _size_of(message: Forward | Answer) -> int:
    if isinstance(message, Forward):
        request = message.request
        size = len(request.key) + len(request.value) + len(request.expected)
        return PART_BYTES + size + sum(map(len, request.items))
    value = message.outcome.value
    if isinstance(value, list):
        return PART_BYTES + sum(len(one) if isinstance(one, bytes) else 8 for one in value)
    return PART_BYTES + (len(value) if isinstance(value, bytes) else 8)
