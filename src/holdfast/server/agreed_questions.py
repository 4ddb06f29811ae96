"""Requests to the metastore: validation, and conversion of their results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from holdfast.core.model.metastore_questions import MetastoreAnswer, MetastoreQuestion
from holdfast.wire import own

NUMBER_MAX: Final = 1 << 53
"""Limit of revisions."""


class AgreedAsker(Protocol):
    def ask_metastore(self, question: MetastoreQuestion, done: Callable[[MetastoreAnswer], None]) -> None: ...


def question_problem(question: own.AskMetastore) -> str:
    asked = msgspec.structs.asdict(question.question)
    numbers = [value for value in asked.values() if isinstance(value, int)]
    return "" if all(0 <= number <= NUMBER_MAX for number in numbers) else "there is no such revision"


def ask(asker: AgreedAsker, question: own.AskMetastore, say: Callable[[own.MetastoreSays], None]) -> None:
    asker.ask_metastore(question.question, lambda found: say(own.MetastoreSays(question.id, found)))
