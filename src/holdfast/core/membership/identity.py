"""Who is this process, which cluster does it want to be in, and how patient is it?"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.model.ids import Address
from holdfast.core.model.levels import LOWEST
from holdfast.core.model.views import MemberInfo, View


@dataclass(frozen=True, slots=True)
class Identity:
    """What this process is and which cluster it wants to be in."""

    info: MemberInfo
    cluster: str
    shared: dict[str, str]
    seeds: tuple[Address, ...]
    bootstrap: bool
    new_cluster_id: str
    """The id to give to the cluster if this member forms it (drawn outside: the core has no randomness)."""
    cluster_id: str = ""
    """The cluster whose data was found in this process's files."""
    seen: View | None = None
    """The last view of that cluster that these files know of."""
    level: int = LOWEST
    """The highest feature level that these files may have been written at."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How often and how long, in nanoseconds."""

    heartbeat_ns: int
    suspect_after_ns: int
