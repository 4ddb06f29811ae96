"""Operators' questions of Holdfast's own protocol: partition table and events."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from holdfast.core.model.partition_events import News
from holdfast.server.question_checks import map_problem
from holdfast.server.reply_channel import ReplyChannel
from holdfast.wire import own

AdminQuestion = own.AskTable | own.Watch


class AdminQuestions:
    """Answers these questions for one connection, which has one watch at most."""

    __slots__ = ("_end_watch", "_grid", "_replies", "_watch")

    def __init__(self, replies: ReplyChannel) -> None:
        self._replies = replies
        self._grid = replies.grid
        self._watch: own.Watch | None = None
        """The `Watch` that waits for the next event."""
        self._end_watch: Callable[[], object] = _nothing

    @property
    def is_watching(self) -> bool:
        return self._watch is not None

    def answer(self, question: AdminQuestion) -> None:
        match question:
            case own.AskTable():
                self._table(question)
            case own.Watch():
                self._begin_watch(question)
            case _:
                assert_never(question)

    def close(self) -> None:
        self._watch = None
        self._end_watch()

    def _table(self, question: own.AskTable) -> None:
        grid = self._grid
        if question.map and (problem := map_problem(question.map)):
            self._replies.fault(question.id, own.FaultKind.MALFORMED, problem)
            return
        cards = grid.cluster().members
        position = {card.uuid: at for at, card in enumerate(cards)}
        replicas: list[list[str | None]] = grid.rows()
        versions = [grid.row(partition).version for partition in range(grid.partition_count)]
        leaders = grid.local_copies.leaders(question.map) if question.map else None
        if leaders is not None:
            replicas, versions = [list(row.replicas) for row in leaders], [row.version for row in leaders]
        self._replies.send(
            own.TableIs(
                question.id,
                grid.table_version(),
                [own.MemberRow(card.uuid, card.host, card.client_port, card.lite) for card in cards],
                [
                    [own.NOBODY if uuid is None else position.get(uuid, own.NOBODY) for uuid in row]
                    for row in replicas
                ],
                versions,
                grid.table_stamp(),
            )
        )

    # -- events

    def _begin_watch(self, watch: own.Watch) -> None:
        last = self._grid.last_news
        if watch.after is None:
            self._replies.send(own.Heard(watch.id, [], last, complete=True))
            return
        self._stop_watching()
        news, complete = self._grid.news_since(watch.after)
        if news or not complete:
            news = news[: own.NEWS_MAX]
            number = news[-1].number if news else last
            self._replies.send(own.Heard(watch.id, news, number, complete))
            return
        self._watch = watch
        self._end_watch = self._grid.on_news(self._replies.on_done("Watch", watch.id, self._on_news))

    def _on_news(self, news: News) -> None:
        watch = self._watch
        if watch is not None and watch.after is not None and news.number > watch.after:
            self._watch = None
            self._end_watch()
            self._replies.send(own.Heard(watch.id, [news], news.number, complete=True))

    def _stop_watching(self) -> None:
        """Answer the watch that waits, without an event: the next one replaces it."""
        watch, self._watch = self._watch, None
        self._end_watch()
        if watch is not None and watch.after is not None:
            self._replies.send(own.Heard(watch.id, [], watch.after, complete=True))


def _nothing() -> None:
    return None
