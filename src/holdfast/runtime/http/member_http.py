"""The member's side of its HTTP sessions (`server.http.routes.HttpMember`).

Metrics are made once and shared for a moment, so their cost does not grow with the number of dashboards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from holdfast.config import Settings
from holdfast.core.member import Member
from holdfast.engine.driver import Driver
from holdfast.observe.health import Health, unready_reason
from holdfast.observe.member_metrics import ProcessStats
from holdfast.observe.status import Counted, MemberStatus
from holdfast.runtime.data_lane import DataLane
from holdfast.runtime.doors.connection_log import ConnectionLog
from holdfast.runtime.doors.polled_door import Sockets
from holdfast.runtime.http.metrics_page import MetricsPage
from holdfast.runtime.memory import Gauge
from holdfast.server.grid import Grid
from holdfast.server.hazelcast.lane_tally import LaneTally
from holdfast.server.http.http_messages import TOKEN_USER
from holdfast.server.logins import Login, LoginDone, Logins
from holdfast.server.operation_times import OperationTimes, latencies_of
from holdfast.version import __version__

THREADS = 2


class HttpHost(Grid, Protocol):
    settings: Settings
    started: bool
    ended: asyncio.Event
    ended_because: str
    broken: BaseException | None
    driver: Driver
    member: Member
    http_logins: Logins
    times: OperationTimes
    tally: LaneTally
    data_lane: DataLane
    connection_log: ConnectionLog

    @property
    def sockets(self) -> Sockets:
        """The I/O backend for clients' sockets."""

    @property
    def gauge(self) -> Gauge: ...

    def status(self, count: Counted | None = None) -> MemberStatus:
        """`count`: the entries, if they are counted already."""

    def reads_by_map(self) -> Mapping[str, int]: ...

    def files(self) -> dict[str, object] | None:
        """Figures of the journal; None without one."""

    @property
    def stall_s(self) -> float: ...

    @property
    def connections(self) -> dict[str, int]: ...

    def log_in_by(
        self, logins: Logins, login: Login, needed: Callable[[], bool], done: LoginDone
    ) -> None: ...


class MemberHttp:
    def __init__(self, host: HttpHost) -> None:
        self._host = host
        settings = host.settings
        self._loop = asyncio.get_running_loop()
        self.asks_credentials = settings.clients_authenticate or bool(settings.http.token)
        self._token_user = TOKEN_USER not in settings.users and settings.security.username != TOKEN_USER
        """Whether the password of a user with this name is a token."""
        self.threads = ThreadPoolExecutor(THREADS, "holdfast-http")
        """For blocking work. The loop's own threads may all be waiting for this member."""
        self._page = MetricsPage(
            self._loop,
            self.threads,
            lambda: host.member,
            self._process_stats,
            lambda error: host.faulty("the metrics", error),
        )

    def close(self) -> None:
        self.threads.shutdown(wait=False, cancel_futures=True)

    @property
    def grid(self) -> Grid:
        return self._host

    @property
    def started(self) -> bool:
        return self._host.started and not self._host.ended.is_set()

    def log_in(self, login: Login, needed: Callable[[], bool], done: LoginDone) -> None:
        self._host.log_in_by(self._host.http_logins, self._as_token(login), needed, done)

    def _as_token(self, login: Login) -> Login:
        """Convert a token that a browser has sent as a password."""
        if self._token_user and login.username == TOKEN_USER and login.password is not None:
            return Login(token=login.password.encode(), address=login.address)
        return login

    def shown_to_others(self, login: Login | None) -> Login | None:
        """The credentials for client ports of others, which do not accept `http.token`."""
        if login is None or not self._host.settings.clients_authenticate:
            return None
        return self._as_token(login)

    def health(self) -> Health:
        host = self._host
        if host.broken is not None or host.ended.is_set():
            return Health(not_live=f"this member has ended: {host.ended_because or 'it was stopped'}")
        if not host.started:
            return Health(not_ready="it is starting")
        host.driver.enter()
        return Health(not_ready=unready_reason(host.member))

    def metrics(self, accept: str, done: Callable[[bytes, str], None]) -> None:
        self._host.driver.enter()
        self._page.ask(accept, done)

    def _process_stats(self) -> ProcessStats:
        host = self._host
        latencies, failures = latencies_of(host.times, host.tally), host.times.failures()
        if host.tally.unknown:
            failures["write", "unknown"] = host.tally.unknown
        return ProcessStats(
            version=__version__,
            lane=host.data_lane.kind,
            sockets=host.sockets.kind,
            memory=host.gauge.status(),
            files=host.files(),
            stall_s=host.stall_s,
            connections=host.connections,
            refusals=host.connection_log.counts,
            latencies=latencies,
            failures=failures,
            reads=host.reads_by_map(),
        )

    def soon(self, deed: Callable[[], None]) -> None:
        self._loop.call_soon(deed)
