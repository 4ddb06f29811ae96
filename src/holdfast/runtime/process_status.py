"""The status of one member in its process: what it knows, of which version its program is, and how long it runs."""

from __future__ import annotations

import time

from holdfast.core.member import Member
from holdfast.observe.status import status_of
from holdfast.version import __version__


def status_of_process(
    member: Member,
    files: dict[str, object] | None,
    memory: dict[str, object] | None,
    *,
    begun_s: float,
    others: dict[str, object],
) -> dict[str, object]:
    """`holdfast.observe.status`, and beside it what `others` has. `begun_s`: when the process began (monotonic)."""
    uptime_s = time.monotonic() - begun_s
    return status_of(member, files, memory, version=__version__, uptime_s=uptime_s) | others
