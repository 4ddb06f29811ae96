"""Ablations of the rules of links between members (`engine.link`): packets arrive as the network delivers them."""

# ruff: noqa: SLF001, ARG001 - a twin sits where the original does, and is given what that is given

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.engine.link import HEADER, RESEND_NS, Link
from holdfast_lab.sim.ablations.place import Place, always
from holdfast_lab.sim.replacing import Method

Packet = bytes | memoryview
Reader = Callable[[Packet], Any]


def _said(packet: Packet) -> tuple[int, int, int]:
    return HEADER.unpack_from(packet) if len(packet) >= HEADER.size else (0, 0, 0)


def _sends_nothing_again(_: Method, link: Link[Any], now_ns: int, *limit: Any) -> list[bytes]:
    link._resend_at_ns = now_ns + RESEND_NS
    return []


def _comes_again(link: Link[Any], packet: Packet, *given: Any) -> bool:
    road, number, _ = _said(packet)
    return road == link._road and 0 < number <= link._received


def _hands_on_twice(truth: Method, link: Link[Any], packet: Packet, now_ns: int, read: Reader) -> list[Any]:
    truth(link, packet, now_ns, read)
    return [read(packet[HEADER.size :])]


def _is_early_or_ends_a_gap(link: Link[Any], packet: Packet, *_: Any) -> bool:
    number = _said(packet)[1]
    return number > link._received + 1 or (number == link._received + 1 and bool(link._ahead))


def _hands_on_at_once(truth: Method, link: Link[Any], packet: Packet, now_ns: int, read: Reader) -> list[Any]:
    number = _said(packet)[1]
    early, known = number > link._received + 1, number in link._ahead
    ready: list[Any] = truth(link, packet, now_ns, read)
    if not early:
        # Earlier packets were delivered when they arrived.
        return ready[:1]
    return [link._ahead[number]] if number in link._ahead and not known else []


def _takes_from_any_life(
    truth: Method, link: Link[Any], packet: Packet, now_ns: int, read: Reader
) -> list[Any]:
    """Accept it as a packet of this link that acknowledges nothing that was never sent."""
    if len(packet) >= HEADER.size:
        _, number, acknowledged = _said(packet)
        header = HEADER.pack(link._road, number, min(acknowledged, link._sent))
        packet = header + bytes(packet[HEADER.size :])
    ready: list[Any] = truth(link, packet, now_ns, read)
    return ready


PACKETS: dict[str, tuple[Place, ...]] = {
    "repeat": (Place(Link, "repeat", _sends_nothing_again, when=lambda link, *_: link._unsure),),
    "once": (Place(Link, "receive", _hands_on_twice, when=_comes_again),),
    "in-order": (Place(Link, "receive", _hands_on_at_once, when=_is_early_or_ends_a_gap),),
    "lives": (
        Place(Link, "carries", always),
        Place(
            Link,
            "receive",
            _takes_from_any_life,
            when=lambda link, packet, *_: _said(packet)[0] != link._road or _said(packet)[2] > link._sent,
        ),
    ),
}
