"""Addresses as people write them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from holdfast.errors import ConfigError


def parse_address(text: str, key: str, default_port: int | None = None) -> tuple[str, int]:
    """`HOST:PORT` or `[IPV6]:PORT` as a pair. The port may be left out where there is a `default_port`.

    Raises ConfigError, which names `key`.
    """
    wrong = f"{key} = {text!r} is not allowed"
    if text.startswith("["):
        host, closed, rest = text[1:].partition("]")
        colon, port = rest[:1], rest[1:]
        if not closed or colon not in ("", ":"):
            raise ConfigError(f"{wrong}: an IPv6 address is written [::1]:{default_port or 5751}")
    else:
        if text.count(":") > 1:
            # `::1:5701` is an IPv6 address of its own, so no guess is right.
            raise ConfigError(f"{wrong}: put an IPv6 address in brackets, as in [::1]:{default_port or 5751}")
        host, colon, port = text.partition(":")
    if not colon and default_port is not None:
        port = str(default_port)
    if not host or not (port.isascii() and port.isdecimal()):
        raise ConfigError(f"{wrong}: it must be HOST:PORT, such as 127.0.0.1:{default_port or 5751}")
    if not 1 <= int(port) <= 65_535:
        raise ConfigError(f"{wrong}: the port must be from 1 to 65535")
    return host, int(port)


def parse_addresses(given: str | Iterable[str], key: str, default_port: int) -> list[tuple[str, int]]:
    """Different addresses in their order, each text with one or with several that are separated by commas.

    Raises ConfigError, which names `key` and the part that is wrong, also when there is no address at all.
    """
    texts = [given] if isinstance(given, str) else given
    parts = [part.strip() for text in texts for part in text.split(",")]
    found = [parse_address(part, key, default_port) for part in parts if part]
    if not found:
        raise ConfigError(
            f"{key} is empty: give HOST:PORT of at least one member, such as 127.0.0.1:{default_port}"
        )
    return list(dict.fromkeys(found))


def format_address(host: str, port: int) -> str:
    """`HOST:PORT`, with brackets around an IPv6 address: what `parse_address` reads."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


SRV = "srv:"
"""How a seed begins that is an SRV record of the DNS."""


def parse_seed(text: str, key: str) -> tuple[str, int]:
    """The same of one of `cluster.seeds`; of `srv:_SERVICE._PROTOCOL.NAME` all of it, and port 0."""
    if not text.startswith(SRV):
        return parse_address(text, key)
    if not re.fullmatch(r"_[\w-]{1,62}\._(tcp|udp)(\.[\w-]{1,63})+\.?", text.removeprefix(SRV), re.ASCII):
        raise ConfigError(
            f"{key} = {text!r} is not allowed: an SRV record is written srv:_SERVICE._tcp.NAME, such as "
            "srv:_member._tcp.holdfast.default.svc.cluster.local"
        )
    return text, 0


def is_loopback(host: str) -> bool:
    """Whether only processes of the same machine can reach this address. A name other than localhost counts as open."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
