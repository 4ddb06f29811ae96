"""Which process forms a cluster, and whether it is new or that of its files.

- membership/V-3: Only the first seed forms a cluster, and only when all other seeds are known to be in none; or any
  process with the order to (`--bootstrap`).
- membership/V-7: A process whose files have data of a cluster forms that cluster, and no other. If the first seeds
  report no data, the first seed with data takes their part. A seed that does not run may have data, so it is waited
  for. A process with an empty data directory forms a new cluster only after seeds have not run for a while.
- membership/V-10: A seed may be a name of several members. It is in no cluster when all its addresses were tried and
  every member behind them reports that it is in none. Such a name is no process's own address.
- membership/V-11: A process whose files have data asks the members of its last view too, before it forms the cluster.
  While one of them runs in that cluster, and hears a majority of it, it forms none. Silent ones are not waited for, nor
  members that hear no majority, nor processes that are in no cluster, in exile, or in another cluster that has the
  address now; their rejections do not count. Example: members 2 and 3 have member 1 as their only seed. Member 1
  restarts, and its own address is its only seed. Alone it would form the old cluster a second time, beside that of 2
  and 3. If it had crashed, and 3 was gone, 2 could not admit it: it forms the cluster, and 2 joins it.
"""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.core.membership.admission import awaited
from holdfast.core.membership.identity import Identity
from holdfast.core.model.baseline import Baseline
from holdfast.core.model.ids import Address, MemberId
from holdfast.core.model.levels import LOWEST
from holdfast.core.model.map_changes import MapChanges
from holdfast.core.model.views import FilesSeen, MemberInfo, View

PATIENCE = 4
"""Attempts until addresses without any answer are no longer waited for."""


class Formation:
    def __init__(self, identity: Identity) -> None:
        self._identity = identity
        self._patience = 0
        """Attempts before a cluster is formed without seeds that do not run."""
        self._attempts_to_find = PATIENCE
        """Attempts before the old cluster is formed although members of its last view have not answered."""
        self._idle: dict[Address, str | None] = {}
        """Seeds in no cluster -> cluster of their data ("": no data); None: no process runs there."""
        self._behind: dict[Address, tuple[MemberId, ...]] = {}
        """The other members behind seeds that are names."""
        self._idle_members: dict[MemberId, str] = {}
        """Member in no cluster -> cluster of its data."""

    def idle(self, seed: Address, cluster_id: str, member: MemberId | None = None) -> None:
        """A seed, or a member behind it, is in no cluster."""
        self._idle[seed] = cluster_id
        if member is not None:
            self._idle_members[member] = cluster_id

    def behind(self, seed: Address, members: tuple[MemberId, ...]) -> None:
        """All addresses of the seed were tried."""
        if members:
            self._idle.pop(seed, None)
            self._behind[seed] = members
        else:
            self._behind.pop(seed, None)
            self.absent(seed)

    def absent(self, seed: Address) -> None:
        """No process listens there; its files are unknown."""
        if seed not in self._idle:
            self._patience = PATIENCE
        self._idle[seed] = None

    def runs(self, member: Address) -> None:
        """A member there is in the cluster of the files."""
        self._idle.pop(member, None)
        self._attempts_to_find = PATIENCE

    def known(self, own: Address) -> list[Address]:
        """Addresses of the other members of the last view in the files."""
        seen = self._identity.seen
        homes = [Address(info.host, info.port) for info in seen.members] if seen is not None else []
        return [home for home in homes if home != own]

    def may_form(self, own: Address) -> bool:
        """See membership/V-3, membership/V-7 and membership/V-11."""
        if self._identity.bootstrap:
            return True
        return self._is_first(own) and self._have_answered(self.known(own))

    def _have_answered(self, known: list[Address]) -> bool:
        if all(home in self._idle for home in known) or not self._attempts_to_find:
            return True
        self._attempts_to_find -= 1
        return False

    def _is_first(self, own: Address) -> bool:
        identity = self._identity
        if not identity.seeds:
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
            assert self._patience >= 0, "attempts are counted down to zero"
            return False
        return first == own

    def join_advice(self, own: Address) -> str:
        """No cluster admits this process and it may not form one."""
        identity = self._identity
        others = [seed for seed in identity.seeds if seed != own]
        unknown = [str(seed) for seed in others if seed not in self._idle]
        if unknown:
            return (
                f"seeds {', '.join(unknown)} have not responded: if members run there, run holdfast cluster safe at "
                "one of them to see what it waits for"
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
        """See membership/V-10."""
        for seed, members in self._behind.items():
            if all(member in self._idle_members for member in members):
                held = [cluster for member in members if (cluster := self._idle_members[member])]
                self._idle[seed] = held[0] if held else ""
            else:
                self._idle.pop(seed, None)

    def first_view(self, stores: dict[str, FilesSeen]) -> View:
        """A view with this member alone: of a new cluster, or of the stopped one. `stores`: all known files."""
        identity = self._identity
        info = identity.info
        if not identity.cluster_id:
            return View(1, identity.new_cluster_id, [info], stores=stores, level=info.levels.highest)
        seen = identity.seen
        number = seen.number + 1 if seen is not None else 1
        missing = awaited(seen, [info]) if seen is not None else []
        assert seen is None or number > seen.number, "views are numbered (membership/V-1)"
        assert all(one.store != info.store for one in missing), "no member waits for its own files"
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
            maps=seen.maps if seen is not None else MapChanges(),
            metastore=seen.metastore if seen is not None else None,
        )


def baseline_of_before(seen: View, own: MemberInfo) -> Baseline | None:
    """The baseline after a stop: all members but this one are away and keep their places."""
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
