"""Several requests at once: each has its own result, and only those that may be repeated are sent again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.aio import Client
from holdfast.client_core.request_forms import GET_ALL, PUT_ALL, RequestForm, form
from holdfast.client_core.retries import LineBroken
from holdfast.errors import ConfigError, Refused, Unknown
from holdfast.wire.hazelcast.hazelcast_frames import message, response
from holdfast.wire.hazelcast.refusals import AGAIN, BAD_ARGUMENT, INDETERMINATE, error

READ, WRITE = form(GET_ALL), form(PUT_ALL)


class Line:
    """Answers requests with these, in order: an exception ends the connection of that request."""

    ready = True
    ended = ""
    address = ("127.0.0.1", 5701)

    def __init__(self, *answers: bytes | Exception) -> None:
        self.answers = list(answers)
        self.sent: list[tuple[int, bytes]] = []
        self.pending: dict[int, object] = {}

    def begin(self, asked: RequestForm, partition: int, rest: bytes) -> tuple[int, asyncio.Future[Any]]:
        self.sent.append((partition, rest))
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.pending[len(self.sent)] = future
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        return len(self.sent), future


def answered(kind: int) -> bytes:
    return message([response(kind + 1, 0)])


def ask_each(line: Line | None, asked: RequestForm, count: int) -> list[Any]:
    async def run() -> list[Any]:
        client = Client("127.0.0.1:5701")
        client.route = [line] * count  # type: ignore[list-item]
        return await client.ask_each(asked, [(place, b"%d" % place) for place in range(count)])

    return asyncio.run(run())


def test_results_are_in_the_order_of_the_requests() -> None:
    answers = [answered(PUT_ALL), error(0, BAD_ARGUMENT, "no"), error(0, INDETERMINATE, "perhaps")]
    line = Line(*answers)
    first, second, third = ask_each(line, WRITE, 3)
    assert first == answers[0]
    assert type(second) is Refused
    assert type(third) is Unknown
    assert line.sent == [(0, b"0"), (1, b"1"), (2, b"2")]
    assert not line.pending


def test_request_that_was_not_applied_is_sent_again() -> None:
    line = Line(error(0, AGAIN, "later"), answered(PUT_ALL), answered(PUT_ALL))
    assert ask_each(line, WRITE, 2) == [answered(PUT_ALL)] * 2
    assert line.sent == [(0, b"0"), (1, b"1"), (0, b"0")]


@pytest.mark.parametrize(("asked", "again"), [(READ, True), (WRITE, False)])
def test_broken_connection_repeats_reads_only(asked: RequestForm, again: bool) -> None:
    line = Line(answered(asked.kind), LineBroken("ended"), answered(asked.kind))
    found = ask_each(line, asked, 2)
    assert len(line.sent) == 2 + again
    assert (found[1] == answered(asked.kind)) is again
    assert isinstance(found[1], Unknown) is not again


def test_request_without_a_connection_reports_why() -> None:
    (found,) = ask_each(None, READ, 1)
    assert isinstance(found, ConfigError)
