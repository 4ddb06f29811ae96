"""Words of the table replication, and members that speak them: for the tests of table replication."""

from __future__ import annotations

from tests.core.seats import A, B, C, Seat, view_of

from holdfast.core.messages import TableOffer, TableReport, TableStored
from holdfast.core.model.ids import MemberId
from holdfast.core.model.migration import NONE, Migration
from holdfast.core.model.partition_events import Kind, News
from holdfast.core.model.partition_table import Assignment
from holdfast.core.model.views import View

E = MemberId("e")
VIEW = view_of(1, A, B, C)
MOVE = Migration(0, A, 0, NONE, B, NONE, 0)


def row(version: int, *replicas: MemberId | None) -> Assignment:
    return Assignment(version, replicas or (A, B))


def said(view: int, number: int, kind: Kind = Kind.STARTED, **more: object) -> News:
    return News((view, number), kind, **more)  # type: ignore[arg-type]


def offer(
    number: int,
    rows: list[tuple[int, Assignment]],
    *,
    view: int = 1,
    committed: int | None = None,
    news: tuple[News, ...] = (),
) -> TableOffer:
    return TableOffer(view, number, number - 1 if committed is None else committed, rows, list(news))


def report(rows: tuple[tuple[int, Assignment], ...] = (), view: int = 1, **more: object) -> TableReport:
    return TableReport(view, list(rows), **({"active": []} | more))  # type: ignore[arg-type]


def follower(partitions: int = 2, view: View = VIEW) -> Seat:
    """A member that is not the master."""
    seat = Seat(B, partitions)
    seat.install(view)
    seat.effects()
    return seat


def leader(*others: MemberId, partitions: int = 2, rows: tuple[tuple[int, Assignment], ...] = ()) -> Seat:
    """A master that knows the newest table; `rows` are told by the others, and offered by it since."""
    seat = Seat(A, partitions)
    members = others or (B, C)
    seat.install(view_of(1, A, *members))
    for member in members:
        seat.hear(member, report(rows))
    seat.effects()
    return seat


def stored(seat: Seat, number: int, *by: MemberId, view: int = 1) -> None:
    for member in by:
        seat.hear(member, TableStored(view, number))


def offers(seat: Seat) -> list[tuple[MemberId, TableOffer]]:
    return [(to, message) for to, message in seat.sent() if isinstance(message, TableOffer)]


def offered_to(seat: Seat) -> list[MemberId]:
    return [to for to, _ in offers(seat)]


def heard(seat: Seat, member: MemberId, applied: int, *, known: int = 0, view: int = 1) -> None:
    seat.beat(member, view, applied, known)
