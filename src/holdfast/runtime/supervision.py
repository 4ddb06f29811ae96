"""The supervisor of this process, which starts it again when it ends, according to the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

RESTART: Final = 75
"""Exit status of a member that wants to be started again."""
SUPERVISED_BY: Final = "SUPERVISED_BY"
"""Variable by which members of `holdfast start --members` know that it restarts them."""


def supervisor_of(environ: Mapping[str, str], pid: int | None = None) -> str:
    """`systemd`, `kubernetes` or `holdfast`; empty: nothing.

    A shell inside a unit of systemd inherits INVOCATION_ID, so the process must be the one that systemd has
    started.
    """
    if environ.get(SUPERVISED_BY) == "holdfast":
        return "holdfast"
    if environ.get("INVOCATION_ID") and environ.get("SYSTEMD_EXEC_PID") == str(pid or os.getpid()):
        return "systemd"
    return "kubernetes" if environ.get("KUBERNETES_SERVICE_HOST") else ""
