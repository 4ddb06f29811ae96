"""(placeholder until the journal's reader is merged)"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.core.machine import MemberId
from holdfast.core.messages import View
from holdfast.core.placement.table import Row
from holdfast.core.store.partition import PartitionCopy


@dataclass
class Recovered:
    """What was found in the files of a member."""

    store: str
    incarnation: int
    cluster_id: str = ""
    view: View | None = None
    stores: dict[MemberId, str] = field(default_factory=dict)
    rows: dict[int, Row] = field(default_factory=dict)
    copies: dict[int, PartitionCopy] = field(default_factory=dict)
    uncertain: dict[int, str] = field(default_factory=dict)
