"""Hostile HTTP requests: valid and broken ones, and requests from foreign pages.

Not sent: valid orders of an operator.
"""

from __future__ import annotations

import random

PATHS = (
    *(
        b"/",
        b"/health/live",
        b"/health/ready",
        b"/metrics",
        b"/status",
        b"/v1/actions/state",
        b"/nothing",
        b"*",
    ),
    *(b"//", b"/../../etc/passwd", b"/%00", b"/%ff%fe", b"/status?" + b"&" * 5000, b"/" + b"a" * 20_000),
    *(b"http://elsewhere/status", b"/status#x", b"/\xc3\xa9"),
)
METHODS = (
    b"GET",
    b"GET",
    b"GET",
    b"HEAD",
    b"POST",
    b"POST",
    b"PUT",
    b"OPTIONS",
    b"CONNECT",
    b"TRACE",
    b"G\x00T",
    b"",
)
VERSIONS = (b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9", b"")
HEADERS = (
    *(
        b"Host: 127.0.0.1:5801",
        b"Host: 127.0.0.1:5801",
        b"Host: localhost",
        b"Host: rebound.example",
        b"Host:",
        b"Host: [::1",
    ),
    *(
        b"Connection: close",
        b"Connection: upgrade\r\nUpgrade: h2c",
        b"Expect: 100-continue",
        b"Accept: " + b"a," * 4000,
    ),
    *(b"Content-Length: 5", b"Content-Length: -1", b"Content-Length: 99999999999", b"Content-Length: 5, 6"),
    *(b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip", b"Content-Type: application/json"),
    *(b"Origin: http://evil.example", b"Sec-Fetch-Site: cross-site", b"Authorization: Basic %%%"),
    *(
        b"Authorization: Bearer " + b"x" * 9000,
        b"Authorization: Basic " + b"QTo=" * 1000,
        b"x\x00y: z",
        b" folded",
        b"no colon",
    ),
)
BODIES = (
    *(
        b"",
        b"",
        b"{}",
        b"[" * 50_000,
        b'{"want": "explode"}',
        b'{"want": "state", "state": "molten"}',
        b"\xff" * 100,
    ),
    *(b"5\r\nhello\r\n0\r\n\r\n", b"zz\r\n", b"ffffffffffffffff\r\n", b"a" * 300_000),
)


def http_pieces(draw: random.Random, count: int) -> list[bytes]:
    pieces = []
    for _ in range(count):
        host = HEADERS[0] if draw.random() < 0.6 else b""
        headers = [one for one in (host, *draw.choices(HEADERS, k=draw.randint(0, 4))) if one]
        line = b" ".join((draw.choice(METHODS), draw.choice(PATHS), draw.choice(VERSIONS)))
        body = draw.choice(BODIES)
        if draw.random() < 0.5:
            headers.append(b"Content-Length: %d" % len(body))
        pieces.append(b"\r\n".join((line, *headers)) + b"\r\n\r\n" + body)
    return pieces
