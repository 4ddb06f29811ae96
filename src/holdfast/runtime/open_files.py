"""Raises the limit of open files to what the settings may need, as far as the system allows."""

from __future__ import annotations

import logging
import resource

from holdfast.config import Settings

FILES = 256
"""Files and sockets besides connections."""

log = logging.getLogger("holdfast")


def room_for_sockets(settings: Settings) -> None:
    limits = settings.limits
    needed = FILES + limits.connections + limits.operator_connections
    needed += (
        4 if settings.tls.enabled else 2
    ) * limits.unauthenticated_connections + limits.member_connections
    if settings.http.enabled:
        needed += settings.http.connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    granted = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (granted, hard))
    if granted < needed:
        log.warning(
            "this process may have %d files and sockets open, and its limits.* want up to %d: raise `ulimit -n`, or "
            "lower limits.connections and limits.member_connections",
            granted,
            needed,
        )
