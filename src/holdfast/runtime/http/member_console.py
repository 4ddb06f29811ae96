"""The member's side of its console (`server.http.console_routes.ConsoleMember`).

Events and changes of the table are recorded from the start of the member on. The table is compared only after
a change, at most every 20 ms, because that costs time for each of its rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.actions.operator_action import ActionDone, OperatorAction, OperatorQuery
from holdfast.core.model.member_status import EntryCounts
from holdfast.core.model.partition_events import News
from holdfast.observe.cluster_events import ClusterEvents
from holdfast.observe.status import Counted
from holdfast.observe.table_history import TableHistory
from holdfast.runtime.http.member_http import HttpHost
from holdfast.server.http.console_routes import ConsoleFile
from holdfast.server.http.http_messages import HttpRequest
from holdfast.server.logins import Login

if TYPE_CHECKING:
    from holdfast.runtime.http.console_errands import ConsoleErrands

LOOK_S: Final = 1.0
"""Interval of polling for changes without notification: suspicions, full disks."""
UNCOUNTED: Final = Counted(EntryCounts(0, 0), set())
BEATS: Final = 15


class MemberConsole:
    def __init__(self, host: HttpHost, shown: Callable[[Login | None], Login | None]) -> None:
        self._host = host
        self._shown = shown
        self._loop = asyncio.get_running_loop()
        self._table = TableHistory()
        self.cluster_events = ClusterEvents(lambda: self._tell("happened"))
        self._heard: dict[object, Callable[[str], None]] = {}
        self._errands: ConsoleErrands | None = None
        self._files: Mapping[str, ConsoleFile] | None = None
        self._ends: list[Callable[[], object]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._looks = 0
        self._slow: int | None = None
        """Slow operations at the last look; None before the first."""

    # -- what has happened

    def begin(self) -> None:
        self._ends = [self._host.watch(self._changed), self._host.on_news(self._news)]
        self._look()

    def close(self) -> None:
        for end in self._ends:
            end()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._errands is not None:
            self._errands.close()

    def _news(self, news: News) -> None:
        self.cluster_events.heard(self._host.wall_ms(), news)

    def _changed(self) -> None:
        picture = self._host.member.picture
        now_ms = self._host.wall_ms()
        self.cluster_events.look(now_ms, self._host.member)
        if picture.assigned and self._table.look(now_ms, picture.assignments, picture.members()):
            self._tell("table")

    def _look(self) -> None:
        self._timer = self._loop.call_later(LOOK_S, self._look)
        self._host.driver.enter()
        self._changed()
        if self._heard:
            self._look_at_slow()
        self._looks += 1
        if not self._looks % BEATS:
            self._tell("beat")

    def _look_at_slow(self) -> None:
        told = self._host.status(UNCOUNTED).slow_operations
        if told is None:
            return
        known, self._slow = self._slow, told.count
        new = 0 if known is None else told.count - known
        if new > 0:
            now_ms = self._host.wall_ms()
            for one in told.recent[-new:]:
                text = f"slow: {one.kind}, waited for {one.waited_for}"
                self.cluster_events.add(now_ms, "slow", text, "warning", took_ms=one.took_ms)
            self._tell("happened")

    def _tell(self, what: str) -> None:
        for heard in list(self._heard.values()):
            heard(what)

    def watch(self, heard: Callable[[str], None]) -> Callable[[], None]:
        token = object()
        self._heard[token] = heard
        return lambda: self._heard.pop(token, None) and None

    # -- what is asked

    @property
    def files(self) -> Mapping[str, ConsoleFile]:
        if self._files is None:
            from holdfast.runtime.http.console_files import console_files

            self._files = console_files()
        return self._files

    def history(self, since: int, done: Callable[[bytes], None]) -> None:
        done(msgspec.json.encode(self._table.told(since)))

    def ask_all(self, request: HttpRequest, query: OperatorQuery, done: Callable[[bytes], None]) -> None:
        self._asked_of_others().ask_all(request, query, done)

    def act_at(
        self,
        request: HttpRequest,
        uuid: str,
        action: OperatorAction,
        timeout_ms: int,
        done: ActionDone,
    ) -> None:
        self._asked_of_others().act_at(request, uuid, action, timeout_ms, done)

    def verify(self, request: HttpRequest, done: Callable[[dict[str, object]], None]) -> None:
        self._asked_of_others().verify(request, done)

    def _asked_of_others(self) -> ConsoleErrands:
        if self._errands is None:
            from holdfast.runtime.http.console_errands import ConsoleErrands

            self._errands = ConsoleErrands(self._host, self._shown)
        return self._errands
