"""Requests of the console to other members, with the credentials of its user, in threads.

Imported with the first HTTP connection, because most members never get one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from holdfast.actions.operator_action import ActionDone, OperatorAction, OperatorQuery
from holdfast.client.blocking import Client
from holdfast.client.connection import Credentials
from holdfast.client.operator import carry_out
from holdfast.config import Settings
from holdfast.config.client_tls import ClientTls
from holdfast.core.model.ids import Address
from holdfast.errors import HoldfastError, Standing, Unknown
from holdfast.replica_comparison.comparison_report import Report, describe
from holdfast.replica_comparison.live import verify
from holdfast.runtime.http.every_member import EveryMember
from holdfast.runtime.http.member_http import HttpHost
from holdfast.server.http.http_messages import BadRequest, HttpRequest, login_of
from holdfast.server.logins import Login
from holdfast.wire import own

QUERIES_AT_A_TIME: Final = 16
ACTIONS_AT_A_TIME: Final = 8
VERIFY_S: Final = 60.0
FINDINGS: Final = 100

ForwardedResult = tuple[own.Fate, str, Any]


class ConsoleErrands:
    def __init__(
        self,
        host: HttpHost,
        shown: Callable[[Login | None], Login | None],
    ) -> None:
        self._host = host
        self._shown = shown
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(ACTIONS_AT_A_TIME, "console")
        self._askers = ThreadPoolExecutor(QUERIES_AT_A_TIME, "queries")
        self._every = EveryMember(host, self._loop, self._askers)
        self._under_way = 0
        self._verifying = False

    def close(self) -> None:
        self._askers.shutdown(wait=False, cancel_futures=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def ask_all(self, request: HttpRequest, query: OperatorQuery, done: Callable[[bytes], None]) -> None:
        self._every.ask(query, self._credentials(request), done)

    def act_at(
        self,
        request: HttpRequest,
        uuid: str,
        action: OperatorAction,
        timeout_ms: int,
        done: ActionDone,
    ) -> None:
        found = [info for info in self._host.member.picture.members() if info.uuid == uuid]
        if not found:
            raise BadRequest("there is no such member in the cluster")
        if self._under_way >= ACTIONS_AT_A_TIME:
            raise BadRequest(f"{ACTIONS_AT_A_TIME} actions are running: try again when one has ended")
        address = Address(found[0].client_host, found[0].client_port)
        credentials = self._credentials(request)

        def carried_out() -> ForwardedResult:
            timeout_s = timeout_ms / 1000
            try:
                return own.Fate.DONE, *carry_out(address, credentials, action, timeout_s=timeout_s)
            except Unknown as unknown:
                return own.Fate.UNKNOWN, str(unknown), None
            except Standing as standing:
                return own.Fate.ACCEPTED, str(standing), None
            except (HoldfastError, OSError) as failed:
                return own.Fate.REJECTED, str(failed), None

        self._under_way += 1

        def over(work: asyncio.Future[ForwardedResult]) -> None:
            self._under_way -= 1
            done(*_result(work, (own.Fate.REJECTED, "this member is shutting down", None)))

        self._loop.run_in_executor(self._threads, carried_out).add_done_callback(over)

    def verify(self, request: HttpRequest, done: Callable[[dict[str, object]], None]) -> None:
        if self._verifying:
            raise BadRequest("a comparison is running: try again when it has ended")
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
        tls = tls_to_members(self._host.settings)
        login = self._shown(login_of(request.headers.get("authorization", ""), request.peer))
        if login is None:
            return Credentials(operates=True, tls=tls)
        return Credentials(None, login.username, login.password, login.token, True, tls)


def tls_to_members(settings: Settings) -> ClientTls | None:
    """With the CA of members, for connections to other members' client ports."""
    tls = settings.tls
    if not tls.enabled:
        return None
    return ClientTls(
        tls.ca,
        tls.member_certificate or tls.certificate,
        (tls.member_key if tls.member_certificate else tls.key) or None,
        tls.key_password or None,
        tls.verify_host,
        tls.minimum_version,
    )


def _result(work: asyncio.Future[Any], instead: Any) -> Any:
    return instead if work.cancelled() else work.result()


def verdict(report: Report, names: Mapping[str, str]) -> dict[str, object]:
    names = {**report.names, **names}
    lines = [describe(one, names) for one in [*report.conflicts, *report.undecided][:FINDINGS]]
    lines += [
        f"partition {row.partition}: the table of {names.get(row.member, row.member)} is another one"
        for row in report.tables[:FINDINGS]
    ]
    return {
        "compared": report.copies,
        "partitions": report.partitions,
        "conflicts": len(report.conflicts) + len(report.tables),
        "undecided": len(report.undecided),
        "silent": list(report.unreachable_members),
        "seconds": report.seconds,
        "lines": lines,
    }
