"""The founding of a cluster's metastore, which is part of the view.

- model/F-1: A metastore is founded once. A view without a founding is followed by one with it, by the consent of a
  majority of its members, and every later view has the same founders. Each member that the founding names starts its
  replica with the same voters, so the group has one history.

Example: an operator orders a metastore while {1, 2, 3} are in the cluster, and master 1 dies when only 2 has accepted
the view with the founding. The next master, 2, proposes that view again: the founders are the same, and a repeated
order finds them there. Had 1 alone begun a group, 2 could not have known.
"""

from __future__ import annotations

import msgspec

VOTERS = (1, 3, 5, 7)


class MetastoreFounding(msgspec.Struct, frozen=True, array_like=True):
    """Nodes are names of replicas (`MemberInfo.node`)."""

    voters: int
    """If there are as many members. An operator can change it later."""
    first_voters: tuple[str, ...] = ()
    """Nodes that began as voters; empty: the group is older than its founding in the view."""
    first_learners: tuple[str, ...] = ()

    def names(self, node: str) -> bool:
        return node in self.first_voters or node in self.first_learners
