"""Who forms a cluster, and which: a new one, or that whose data is in its files?

- membership/V-3: A cluster is formed only by the first seed, and only when every other seed is known to be in none;
  or by order.
- membership/V-7: Who has found data of a cluster in its files forms that one again, and no other. When seeds say that
  they have none, the first of the others takes the part of the first seed. A seed that does not run may have some: it
  is waited for; and whoever keeps files, and has none yet, forms a new cluster only when seeds have not run for a
  while.
- membership/V-10: A seed may be a name behind which there are several members. It is known to be in no cluster when
  each of its addresses was tried, and all members that were found there say that they are in none. It is nobody's own
  address.
"""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.core.membership.admission import awaited
from holdfast.core.membership.identity import Identity
from holdfast.core.model.baseline import Baseline
from holdfast.core.model.ids import Address, MemberId
from holdfast.core.model.levels import LOWEST
from holdfast.core.model.views import FilesSeen, MemberInfo, View

PATIENCE = 4


class Formation:
    """What is known of the seeds of a process that is in no cluster."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._patience = 0
        """How often more this process asks before it forms a cluster without seeds that do not run."""
        self._idle: dict[Address, str | None] = {}
        """Seeds that are in no cluster, and the cluster whose data they have, if any; None: nobody is there to say."""
        self._behind: dict[Address, tuple[MemberId, ...]] = {}
        """Whom there is, besides this member, behind seeds that are names."""
        self._idle_members: dict[MemberId, str] = {}
        """The same as `_idle`, of members."""

    def idle(self, seed: Address, cluster_id: str, member: MemberId | None = None) -> None:
        """This seed says that it is in no cluster. `member`: who it is."""
        self._idle[seed] = cluster_id
        if member is not None:
            self._idle_members[member] = cluster_id

    def behind(self, seed: Address, members: tuple[MemberId, ...]) -> None:
        """All addresses of this seed, which is a name, were tried: just these members are there."""
        if members:
            self._idle.pop(seed, None)
            self._behind[seed] = members
        else:
            self._behind.pop(seed, None)
            self.absent(seed)

    def absent(self, seed: Address) -> None:
        """Nothing listens at this seed: it is in no cluster. What files are there only its process could say."""
        if seed not in self._idle:
            self._patience = PATIENCE
        self._idle[seed] = None

    def may_form(self, own: Address) -> bool:
        """membership/V-3 and membership/V-7."""
        identity = self._identity
        if identity.bootstrap or not identity.seeds:
            return True
        others = [seed for seed in identity.seeds if seed != own]
        self._ask_behind()
        if own not in identity.seeds or any(seed not in self._idle for seed in others):
            return False
        first = identity.seeds[0]
        if identity.cluster_id:
            first = next(seed for seed in identity.seeds if seed == own or self._idle[seed] != "")
        elif any(self._idle[seed] for seed in others):
            return False
        if first == own and identity.info.store and not identity.cluster_id and self._patience:
            self._patience -= 1
            assert self._patience >= 0, "nobody waits more often than that"
            return False
        return first == own

    def way_in(self, own: Address) -> str:
        """What an operator can do for a process that no cluster admits and that may not form one."""
        identity = self._identity
        others = [seed for seed in identity.seeds if seed != own]
        unknown = [str(seed) for seed in others if seed not in self._idle]
        if unknown:
            return (
                f"seeds {', '.join(unknown)} have not said that they are in no cluster: if members run there, ask one "
                "of them what it waits for (holdfast cluster safe)"
            )
        absent = [str(seed) for seed in others if self._idle[seed] is None]
        if not identity.cluster_id or not absent:
            return ""
        return (
            f"it has files of a stopped cluster, and nothing runs at seeds {', '.join(absent)}: start the members "
            "there again. If they are gone for good, form the cluster again from the files here: holdfast start "
            "--bootstrap"
        )

    def _ask_behind(self) -> None:
        """membership/V-10."""
        for seed, members in self._behind.items():
            if all(member in self._idle_members for member in members):
                held = [cluster for member in members if (cluster := self._idle_members[member])]
                self._idle[seed] = held[0] if held else ""
            else:
                self._idle.pop(seed, None)

    def first_view(self, stores: dict[str, FilesSeen]) -> View:
        """The view of one member: of a new cluster, or of the one that was stopped as a whole.

        stores: what is known of all files.
        """
        identity = self._identity
        info = identity.info
        if not identity.cluster_id:
            return View(1, identity.new_cluster_id, [info], stores=stores, level=info.levels.highest)
        seen = identity.seen
        number = seen.number + 1 if seen is not None else 1
        missing = awaited(seen, [info]) if seen is not None else []
        assert seen is None or number > seen.number, "views are numbered (membership/V-1)"
        assert all(one.store != info.store for one in missing), "nobody waits for its own files"
        baseline = baseline_of_before(seen, info) if seen is not None else None
        return View(
            number,
            identity.cluster_id,
            [info],
            missing=missing,
            stores=stores,
            recovering=True,
            baseline=baseline,
            level=max(identity.level, seen.level if seen is not None else LOWEST),
        )


def baseline_of_before(seen: View, own: MemberInfo) -> Baseline | None:
    """Who owned data when the cluster was stopped: of all but this member that were here the places are kept."""
    if seen.baseline is None:
        return None
    were_here = {info.consistent_id for info in seen.members if not info.lite}
    members = tuple(
        replace(
            one,
            away=one.consistent_id != own.consistent_id and (one.away or one.consistent_id in were_here),
        )
        for one in seen.baseline.members
    )
    return replace(seen.baseline, members=members)
