"""A member as its console sees it (`server.http.console_routes.ConsoleMember`).

What has happened is written down from the start of the member on, whoever looks: a look at the table costs as much as
its rows, and takes place when it has changed, at most every 20 ms.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol

import msgspec

from holdfast.client.blocking import Client
from holdfast.client.connection import Credentials
from holdfast.client.operator import order as give_order
from holdfast.client.verification import Report, verify
from holdfast.core.model.ids import Address
from holdfast.core.model.partition_events import News
from holdfast.errors import HoldfastError, Standing
from holdfast.observe.happenings import Happenings
from holdfast.observe.map_figures import MemberCount
from holdfast.observe.status import EntriesHeld
from holdfast.observe.table_history import TableHistory
from holdfast.runtime.cluster_statuses import tls_to_members
from holdfast.runtime.cluster_survey import ClusterSurvey, Said
from holdfast.runtime.console_files import console_files
from holdfast.runtime.http_member import HttpHost
from holdfast.server.http.console_routes import ConsoleFile
from holdfast.server.http.http_messages import BadRequest, HttpRequest, login_of
from holdfast.server.logins import Login
from holdfast.wire import own

LOOK_S: Final = 1.0
"""How often it is looked for what nobody tells: suspicions, full disks."""
BEATS: Final = 15
"""After so many looks pages are told that somebody is there."""
ORDERS_AT_A_TIME: Final = 8
"""Orders to other members that are waited for at a time."""
VERIFY_S: Final = 60.0
FINDINGS: Final = 100
"""Copies that differ that are told."""


class ConsoleHost(HttpHost, Protocol):
    """The member in its process, as its console needs it."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""


class ConsoleOfMember:
    """Of one member."""

    def __init__(self, host: ConsoleHost, shown: Callable[[Login | None], Login | None]) -> None:
        """`shown`: what the other members are shown of the credentials of who asks."""
        self._host = host
        self._shown = shown
        self._loop = asyncio.get_running_loop()
        self._table = TableHistory()
        self.happenings = Happenings(lambda: self._tell("happened"))
        self._heard: dict[object, Callable[[str], None]] = {}
        self._survey = ClusterSurvey(
            self._loop,
            host.member_uuid,
            self._own,
            lambda: list(host.member.picture.members()),
            host.wall_ms,
            lambda error: host.faulty("the console", error),
        )
        self._threads = ThreadPoolExecutor(ORDERS_AT_A_TIME, "console")
        self._under_way = 0
        self._verifying = False
        self._files: Mapping[str, ConsoleFile] | None = None
        self._ends: list[Callable[[], object]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._looks = 0
        self._slow: int | None = None
        """How many operations had been slow when it was looked last; None: nobody has looked."""

    # -- what has happened

    def begin(self) -> None:
        """Write down what happens from now on."""
        self._ends = [self._host.watch(self._changed), self._host.on_news(self._news)]
        self._look()

    def close(self) -> None:
        """Write down nothing any more."""
        for end in self._ends:
            end()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._survey.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _news(self, news: News) -> None:
        self.happenings.heard(self._host.wall_ms(), news)

    def _changed(self) -> None:
        picture = self._host.member.picture
        now_ms = self._host.wall_ms()
        self.happenings.look(now_ms, self._host.member)
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
        """Tell of operations that were slow, where the status has them; those of before are in it, too."""
        told: Any = self._host.status(EntriesHeld(0, 0)).get("slow_operations")
        if not told:
            return
        known, self._slow = self._slow, told["count"]
        new = 0 if known is None else told["count"] - known
        if new > 0:
            now_ms = self._host.wall_ms()
            for one in told["last"][-new:]:
                text = f"slow: {one['kind']}, waited for {one.get('waited_for', 'nobody')}"
                self.happenings.add(now_ms, "slow", text, "warning", took_ms=int(one["took_ms"]))
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
        """Those of the page."""
        if self._files is None:
            self._files = console_files()
        return self._files

    def history(self, since: int, done: Callable[[bytes], None]) -> None:
        done(msgspec.json.encode(self._table.told(since)))

    def survey(self, request: HttpRequest, done: Callable[[bytes], None]) -> None:
        self._host.driver.enter()
        self._survey.ask(self._credentials(request), done)

    def _own(self, done: Callable[[Said], None]) -> None:
        """What this member says of itself."""

        def counted(count: MemberCount) -> None:
            maps = {name: msgspec.to_builtins(figure) for name, figure in count.maps.items()}
            more = {"counted": maps, "running": self._host.running_migrations()}
            done({**self._host.status(EntriesHeld(count.primary, count.all)), **more})

        self._host.count_maps(counted)

    # -- what is ordered

    def order_of(
        self, request: HttpRequest, uuid: str, order: own.Order, done: Callable[[own.Fate, str], None]
    ) -> None:
        found = [info for info in self._host.member.picture.members() if info.uuid == uuid]
        if not found:
            raise BadRequest("there is no such member here any more")
        if self._under_way >= ORDERS_AT_A_TIME:
            raise BadRequest(f"{ORDERS_AT_A_TIME} orders are waited for: try again when one has ended")
        address = Address(found[0].client_host, found[0].client_port)
        credentials = self._credentials(request)

        def give() -> tuple[own.Fate, str]:
            try:
                why = give_order(
                    address,
                    credentials,
                    order.want,
                    state=order.state,
                    partitions=order.partitions,
                    maps=order.maps,
                    members=order.members,
                    timeout_s=order.timeout_ms / 1000,
                )
            except Standing as standing:
                return own.Fate.STANDS, str(standing)
            except (HoldfastError, OSError) as failed:
                return own.Fate.REFUSED, str(failed)
            return own.Fate.DONE, why

        self._under_way += 1

        def over(work: asyncio.Future[tuple[own.Fate, str]]) -> None:
            self._under_way -= 1
            done(*_result(work, (own.Fate.REFUSED, "this member is shutting down")))

        self._loop.run_in_executor(self._threads, give).add_done_callback(over)

    def verify(self, request: HttpRequest, done: Callable[[dict[str, object]], None]) -> None:
        if self._verifying:
            raise BadRequest("copies are being compared: try again when that is over")
        self._verifying = True
        credentials = self._credentials(request)
        members = list(self._host.member.picture.members())
        members.sort(key=lambda info: info.uuid != self._host.member_uuid)
        addresses = [str(Address(info.client_host, info.client_port)) for info in members]
        names: dict[str, str] = {info.uuid: info.name for info in members}

        def compare() -> dict[str, object]:
            try:
                with Client(
                    addresses,
                    username=credentials.username,
                    password=credentials.password,
                    token=credentials.token,
                    tls=credentials.tls,
                    timeout_s=VERIFY_S,
                ) as client:
                    return verdict(verify(client), names)
            except (HoldfastError, OSError) as error:
                return {"error": str(error)}

        def over(work: asyncio.Future[dict[str, object]]) -> None:
            self._verifying = False
            done(_result(work, {"error": "this member is shutting down"}))

        self._loop.run_in_executor(self._threads, compare).add_done_callback(over)

    def _credentials(self, request: HttpRequest) -> Credentials:
        """Of who asks, for the doors of other members."""
        tls = tls_to_members(self._host.settings)
        login = self._shown(login_of(request.headers.get("authorization", ""), request.peer))
        if login is None:
            return Credentials(operates=True, tls=tls)
        return Credentials(None, login.username, login.password, login.token, True, tls)


def _result(work: asyncio.Future[Any], instead: Any) -> Any:
    """What came of it; or this, when nothing can come any more."""
    return instead if work.cancelled() else work.result()


def verdict(report: Report, names: Mapping[str, str]) -> dict[str, object]:
    """What a comparison has found, as plain data."""
    conflicts, undecided, zones = report.conflicts, report.undecided, report.zones
    lines = [
        f"partition {one.partition}, map {one.map or '-'}, {names.get(one.member, one.member)}: {one.verdict}"
        for one in [*conflicts, *undecided][:FINDINGS]
    ]
    lines += [
        f"partition {row.partition}: the table of {names.get(row.member, row.member)} is another one"
        for row in report.rows[:FINDINGS]
    ]
    return {
        "compared": report.compared + zones.compared,
        "partitions": report.partitions,
        "conflicts": len(conflicts) + len(zones.conflicts) + len(report.rows),
        "undecided": len(undecided) + len(zones.undecided),
        "silent": list(report.silent),
        "seconds": report.seconds,
        "lines": lines,
    }
