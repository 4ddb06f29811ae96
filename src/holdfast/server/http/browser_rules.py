"""Protection against foreign web pages that use a browser with access to this port (CSRF, DNS rebinding).

- server/B-1: Without credentials, a request must name this host by an address or a known name. An attacker can make
  `evil.example` resolve to this member (DNS rebinding), and would then read it from his own page.
- server/B-2: A request with side effects must come from a page of this port, or from no page: its `Origin`, if present,
  names this port. Its content type is JSON, which a form of another page cannot send.
- server/B-3: Requests from foreign pages are rejected, even where the page could not read the response.
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
PAGE_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
"""The `content-security-policy` of a page that uses scripts, styles and images of this port."""
SAFE: Final = ("GET", "HEAD")


def host_of(header: str) -> str:
    if header.startswith("["):
        return header.partition("]")[0].removeprefix("[").lower()
    return header.rpartition(":")[0].lower() if header.count(":") == 1 else header.lower()


def is_own_name(header: str, names: Collection[str]) -> bool:
    """Whether the Host is an address, `localhost`, or one of `names`."""
    host = host_of(header).rstrip(".")
    if host == "localhost" or host in names:
        return True
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def origin_problem(request: HttpRequest, *, secure: bool) -> str:
    """The reason to reject the origin of this request; empty if allowed. `secure`: whether this port uses TLS."""
    headers = request.headers
    changes = request.method not in SAFE
    site = headers.get("sec-fetch-site", "")
    if site in ("cross-site", "same-site") and (changes or headers.get("sec-fetch-mode") != "navigate"):
        return "it comes from a page of another origin"
    if not changes:
        return ""
    origin = headers.get("origin")
    if origin is not None and origin != f"{'https' if secure else 'http'}://{headers.get('host', '')}":
        return f"it comes from a page of {origin[:200]!r}"
    if headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        return f"what changes something has the content type {JSON}"
    return ""
