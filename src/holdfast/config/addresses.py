"""Parser and formatter of addresses as users write them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from holdfast.errors import ConfigError


def parse_address(text: str, key: str, default_port: int | None = None) -> tuple[str, int]:
    """Parse `HOST:PORT` or `[IPV6]:PORT`. The port may be left out if there is a `default_port`.

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
            # `::1:5701` is also a valid IPv6 address without a port, so do not guess.
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
    """Distinct addresses in order; each text has one, or several separated by commas.

    Raises ConfigError, which names `key` and the wrong part, also if there is no address at all.
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
    """`HOST:PORT`, with brackets around an IPv6 address; the inverse of `parse_address`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


SRV = "srv:"
"""Prefix of a seed that names an SRV record of DNS."""


def parse_seed(text: str, key: str) -> tuple[str, int]:
    """Parse one of `cluster.seeds`. `srv:_SERVICE._PROTOCOL.NAME` is returned as a whole, with port 0."""
    if not text.startswith(SRV):
        return parse_address(text, key)
    if not re.fullmatch(r"_[\w-]{1,62}\._(tcp|udp)(\.[\w-]{1,63})+\.?", text.removeprefix(SRV), re.ASCII):
        raise ConfigError(
            f"{key} = {text!r} is not allowed: an SRV record is written srv:_SERVICE._tcp.NAME, such as "
            "srv:_member._tcp.holdfast.default.svc.cluster.local"
        )
    return text, 0


def is_loopback(host: str) -> bool:
    """Whether only processes of this machine can reach the address. Names other than localhost count as reachable."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
