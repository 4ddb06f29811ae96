"""Is the member in this container alive? Asks its own door for HTTP, with TLS or without; exit status 0 or 1."""

from __future__ import annotations

import os
import ssl
import sys
import urllib.error
import urllib.request

PORT = os.environ.get("HOLDFAST_HTTP_PORT", "5801")
PATH = "/health/live"


def alive(scheme: str) -> bool:
    """Whether it says so. The certificate is not looked at: it is asked on loopback, and told nothing."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with urllib.request.urlopen(
            f"{scheme}://127.0.0.1:{PORT}{PATH}", timeout=3, context=context
        ) as answer:
            return answer.status == 200
    except (OSError, ValueError):
        return False


sys.exit(
    not (
        alive("https" if os.environ.get("HOLDFAST_TLS_CERTIFICATE") else "http")
        or alive("https")
        or alive("http")
    )
)
