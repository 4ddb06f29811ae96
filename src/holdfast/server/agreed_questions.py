"""Requests to the metastore and for zones: validation, and conversion of their results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from holdfast.core.model.metastore_questions import MetastoreAnswer, MetastoreQuestion
from holdfast.core.model.zone_questions import AlterZone, CreateZone, ZoneAnswer, ZoneOrder
from holdfast.wire import own
from holdfast.wire.questions import PARTITIONS_MAX

NUMBER_MAX: Final = 1 << 53
"""Limit of revisions and of numeric settings."""
NAME_MAX: Final = 256
TEXT_MAX: Final = 4096
SETTINGS_MAX: Final = 64


class AgreedAsker(Protocol):
    def ask_metastore(self, question: MetastoreQuestion, done: Callable[[MetastoreAnswer], None]) -> None: ...

    def order_zone(self, order: ZoneOrder, done: Callable[[ZoneAnswer], None]) -> None: ...


def question_problem(question: own.AskMetastore | own.OrderZone) -> str:
    if isinstance(question, own.AskMetastore):
        asked = msgspec.structs.asdict(question.question)
        numbers = [value for value in asked.values() if isinstance(value, int)]
        return "" if all(0 <= number <= NUMBER_MAX for number in numbers) else "there is no such revision"
    order = question.order
    names = [getattr(order, field) for field in ("name", "wanted") if hasattr(order, field)]
    if not all(len(name) <= NAME_MAX for name in names):
        return f"a name of a zone has at most {NAME_MAX} characters here"
    if len(getattr(order, "partitions", ())) > PARTITIONS_MAX:
        return f"at most {PARTITIONS_MAX} partitions are named in an order"
    return _settings_problem(order) if isinstance(order, CreateZone | AlterZone) else ""


def _settings_problem(order: CreateZone | AlterZone) -> str:
    if len(order.settings) > SETTINGS_MAX:
        return f"at most {SETTINGS_MAX} settings are named in an order"
    for name, value in order.settings:
        if len(name) > NAME_MAX or (isinstance(value, str) and len(value) > TEXT_MAX):
            return f"a setting of a zone has at most {TEXT_MAX} characters"
        if isinstance(value, int) and abs(value) > NUMBER_MAX:
            return f"{name} is too large a number"
    return ""


def ask(
    asker: AgreedAsker,
    question: own.AskMetastore | own.OrderZone,
    say: Callable[[own.MetastoreSays | own.ZoneSays], None],
) -> None:
    number = question.id
    if isinstance(question, own.AskMetastore):
        asker.ask_metastore(question.question, lambda found: say(own.MetastoreSays(number, found)))
    else:
        asker.order_zone(question.order, lambda found: say(own.ZoneSays(number, found)))
