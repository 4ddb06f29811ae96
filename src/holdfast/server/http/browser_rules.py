"""What keeps a page of somebody else from using a browser that may come in here.

- server/B-1: Where no credentials are asked for, a request that names a host by another name than those of this door is
  refused: such a name may lead here only because its owner wants it (DNS rebinding).
- server/B-2: A request that changes something comes from a page of this door, or from no page: its `Origin`, if it has
  one, names this door. It brings JSON, which forms of other pages cannot.
- server/B-3: A page of somebody else gets nothing, not even what it could not read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from ipaddress import ip_address
from typing import Final

from holdfast.server.http.http_messages import JSON, HttpRequest

HEADERS: Final[Mapping[str, str]] = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""Of every answer that does not say otherwise."""
PAGE_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
"""The `content-security-policy` of a page that needs scripts, styles and pictures of this door."""
SAFE: Final = ("GET", "HEAD")
"""Methods that change nothing."""


def host_of(header: str) -> str:
    """The host in a Host header, without its port, in lower case."""
    if header.startswith("["):
        return header.partition("]")[0].removeprefix("[").lower()
    return header.rpartition(":")[0].lower() if header.count(":") == 1 else header.lower()


def is_own_name(header: str, names: Collection[str]) -> bool:
    """Whether a Host header names this door: by an address, as `localhost`, or by one of `names`."""
    host = host_of(header).rstrip(".")
    if host == "localhost" or host in names:
        return True
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def origin_problem(request: HttpRequest, *, secure: bool) -> str:
    """Why this request may not come from where it comes; empty: it may. `secure`: whether this door speaks TLS."""
    headers = request.headers
    changes = request.method not in SAFE
    site = headers.get("sec-fetch-site", "")
    if site in ("cross-site", "same-site") and (changes or headers.get("sec-fetch-mode") != "navigate"):
        return "it comes from a page of somebody else"
    if not changes:
        return ""
    origin = headers.get("origin")
    if origin is not None and origin != f"{'https' if secure else 'http'}://{headers.get('host', '')}":
        return f"it comes from a page of {origin[:200]!r}"
    if headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        return f"what changes something has the content type {JSON}"
    return ""
