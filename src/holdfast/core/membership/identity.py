"""Identity of a process, the cluster it wants to join, and its timing."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.config import ClusterSettings
from holdfast.core.model.ids import MILLISECOND, Address
from holdfast.core.model.levels import LOWEST
from holdfast.core.model.views import MemberInfo, View


@dataclass(frozen=True, slots=True)
class Identity:
    info: MemberInfo
    cluster: str
    shared: dict[str, str]
    seeds: tuple[Address, ...]
    bootstrap: bool
    new_cluster_id: str
    """If this member forms the cluster. Drawn outside: the core has no randomness."""
    cluster_id: str = ""
    """The cluster whose data the files hold."""
    seen: View | None = None
    """The last view in the files."""
    level: int = LOWEST
    """The highest one at which the files may have been written."""


@dataclass(frozen=True, slots=True)
class Timing:
    heartbeat_ns: int
    suspect_after_ns: int

    @classmethod
    def of(cls, cluster: ClusterSettings) -> Timing:
        return cls(cluster.heartbeat_ms * MILLISECOND, cluster.suspect_after_ms * MILLISECOND)
