"""What a member wants to be woken for."""

from __future__ import annotations

from enum import StrEnum


class TimerName(StrEnum):
    """Each has one timer at most: to set it again moves it."""

    JOIN = "join"
    """Ask again to be admitted."""
    HEARTBEAT = "heartbeat"
    """Tell the others that this member is there, and look who is."""
    PART = "part"
    """The last words of a member that leaves have had their time."""
    PROPOSE = "propose"
    """Try again to agree on a view."""
    PART_LOOK = "part-look"
    """Look again whether who wants to leave may go."""
    TABLE = "table"
    """Look whether the table is the same everywhere, and repeat a round."""
    PLAN = "plan"
    """The pause after a failed migration is over."""
    PLANNING = "planning"
    """Go on with planning."""
    DELAY = "delay"
    """The delay after a crash is over."""
    DRAINING = "draining"
    """Look whether what is under way of a partition is done."""
    REFILL = "refill"
    """Ask again for a replica that lacks something."""
    REPAIR = "repair"
    """Compare some replicas."""
    BACKUPS = "backups"
    """Look whose backups are late."""
    ROUTE = "route"
    """Try again what waits for a primary."""
    GATHER = "gather"
    """The next slices of operations on whole partitions."""
    CLEAR = "clear"
    """The next slice of clearing a map."""
    SWEEP = "sweep"
    """Remove what is over."""
