"""Addresses as people write them."""

from __future__ import annotations

import ipaddress
import re

from holdfast.errors import ConfigError


def parse_address(text: str, key: str) -> tuple[str, int]:
    """`HOST:PORT` or `[HOST]:PORT` as a pair; a ConfigError naming `key` if it is neither."""
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not colon or not bare or (":" in bare and bare == host) or not (port.isascii() and port.isdecimal()):
        raise ConfigError(f"{key} = {text!r} is not allowed: it must be HOST:PORT, such as 127.0.0.1:5751")
    if not 1 <= int(port) <= 65_535:
        raise ConfigError(f"{key} = {text!r} is not allowed: the port must be from 1 to 65535")
    return bare, int(port)


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
