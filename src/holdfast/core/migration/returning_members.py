"""Inventories of returning members, and what the master makes of them.

A member that starts with data in its files, or was removed though alive, sends each new master its partitions without
an assignment.

Why the master waits for all inventories: partition 7 was on [1, 2] at version 12. Member 1 was cut off, 2 continued at
version 13 and accepted writes, then the power failed. When both return, the inventory of 1 may arrive first. A table
made of it alone would give 7 to 1, without the writes of version 13, although 2 has them on disk.

- migration/X-1: After a stop of the whole cluster nothing is assigned from scratch. The table is made of what the files
  prove, once all members of the last view that kept files are present, or the operator accepts the loss. A view of a
  recovery that did not end is not the last one, whatever its number.
- migration/X-2: A partition that waits for its copies continues when a member that its assignment names returns with
  one.
- migration/X-3: In all other cases a retained copy is only a base: the placement prefers members with a base, which
  then get what they have missed.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.config import Settings
from holdfast.core.journal.recovery import Recovered
from holdfast.core.membership.admission import awaited
from holdfast.core.membership.known_files import files_gone, is_gone
from holdfast.core.membership.membership import Membership
from holdfast.core.messages import Holdings, RetainedCopy
from holdfast.core.model.ids import MILLISECOND, MemberId
from holdfast.core.model.migration import ReplicaList
from holdfast.core.model.notices import ViewInstalled
from holdfast.core.model.partition_table import Assignment, Table
from holdfast.core.model.timer_name import TimerName
from holdfast.core.model.views import MemberInfo, View
from holdfast.core.outbox import Outbox
from holdfast.core.placement.layout import Arranging, Candidate, arranging
from holdfast.core.placement.preference import kept_first, preferring
from holdfast.core.placement.revival import Claim, keeping, next_generation, revived
from holdfast.core.primary_backup.local_replicas import LocalReplicas

PATIENCE = 3
"""With on_missing_data_dirs = "accept": missing files count as lost when no member has joined for so many times
`cluster.suspect_after_ms`.
"""


class ReturningMember:
    """Sends the inventory of this member to each new master."""

    def __init__(
        self,
        out: Outbox,
        membership: Membership,
        table: Table,
        copies: LocalReplicas,
        recovered: Recovered | None,
        returns: ReturningMembers,
    ) -> None:
        """`recovered`: found in the files; `returns`: used if this member is the master."""
        self._out = out
        self._membership = membership
        self._table = table
        self._copies = copies
        self._recovered = recovered
        self._returns = returns

    def on_view(self, notice: ViewInstalled) -> None:
        old, new, master = notice.old, notice.new, self._membership.master
        if new is None or master is None or not notice.admitted:
            return
        if old is not None and old.members and old.members[0].uuid == master:
            return
        if self._membership.info.returns or self._copies.stale:
            holdings = self._holdings(new.number)
            if master == self._membership.me:
                self._returns.on_inventory(master, holdings)
            else:
                self._out.send(master, holdings)

    def _holdings(self, view: int) -> Holdings:
        found = self._recovered
        uncertain = found.uncertain if found is not None else {}
        kept = [
            RetainedCopy(partition, copy.epoch, copy.counters(), partition not in uncertain)
            for partition, copy in sorted(self._copies.stale.items())
        ]
        if found is None or self._table.assigned:
            return Holdings(view, None, found.stores if found is not None else {}, [], kept)
        return Holdings(view, found.view, found.stores, sorted(found.rows.items()), kept)


class ReturningMembers:
    def __init__(self, settings: Settings, out: Outbox, membership: Membership, width: int) -> None:
        self._settings = settings
        self._out = out
        self._membership = membership
        self.resize(width)
        self._policy = settings.cluster.on_missing_data_dirs
        self._patience_ns = PATIENCE * settings.cluster.suspect_after_ms * MILLISECOND
        self._holdings: dict[MemberId, Holdings] = {}
        self._kept: dict[MemberId, dict[int, RetainedCopy]] = {}
        self._stores: dict[MemberId, str] = {}
        """Files of members in assignments."""
        self._since_ns = 0
        self.accepted = False
        """The operator accepts the loss of what is missing."""
        self._reported_reason = ""

    def resize(self, width: int) -> None:
        """Settings of maps have changed; assignments need this number of indices."""
        self._width = width
        self._holders = self._settings.holders()

    # -- events

    def on_inventory(self, sender: MemberId, holdings: Holdings) -> None:
        view = self._membership.view
        if view is not None and self._membership.member(sender) is not None:
            self._holdings[sender] = holdings
            self._kept[sender] = {kept.partition: kept for kept in holdings.kept}
            assert len(self._kept) == len(self._holdings), "kept copies are part of a member's inventory"
            self._stores.update(holdings.stores)
            seen = holdings.seen
            if seen is not None and seen.cluster_id == view.cluster_id:
                self._membership.numbers_from = max(self._membership.numbers_from, seen.number)

    def view_changed(self, old: View | None, view: View | None) -> None:
        """Drop the inventories of members that have gone."""
        if view is not None:
            self._stores.update({info.uuid: info.store for info in view.members if info.store})
        here = {info.uuid for info in view.members} if view is not None else set()
        before = {info.uuid for info in old.members} if old is not None else set()
        self._holdings = {uuid: one for uuid, one in self._holdings.items() if uuid in here}
        self._kept = {uuid: one for uuid, one in self._kept.items() if uuid in here}
        assert self._kept.keys() == self._holdings.keys(), "kept copies are part of a member's inventory"
        assert self._kept.keys() <= here, "and counts while it is here"
        if here - before:
            self._since_ns = self._out.now_ns

    # -- queries of the master

    @property
    def unheard(self) -> list[str]:
        """Members with data in their files whose inventory has not arrived yet."""
        return [
            info.name
            for info in self._membership.members()
            if info.returns and info.uuid not in self._holdings
        ]

    @property
    def missing(self) -> list[MemberInfo]:
        """Absent members with files, of the last view before the stop and of recoveries that were interrupted.

        Recoveries do not count as later. Example: A knows view 5, and B view 8, with C. A waits alone, and is restarted
        four times, so it knows the recovering view 9, without C. The last view is 8, and C may hold later writes.
        """
        view = self._membership.view
        if view is None:
            return []
        known = [one.seen for one in self._holdings.values() if one.seen is not None]
        settled = [one for one in known if not one.recovering]
        last = max(settled, key=lambda one: one.number, default=None)
        interrupted = [one for one in known if one.recovering]
        gone = files_gone(last)
        found = {
            info.store: info
            for one in (view, *interrupted)
            for info in awaited(one, self._membership.members())
            if gone is None or not is_gone(info, gone)
        }
        if last is not None:
            found.update({info.store: info for info in awaited(last, self._membership.members())})
        return list(found.values())

    def wait_reason(self) -> str:
        """Why the table of a stopped cluster cannot be made yet (migration/X-1); empty: it can."""
        if self.unheard:
            return f"for the file inventory of: {', '.join(self.unheard)}"
        missing = self.missing
        return self._wait_for_reason(missing) if missing and not self.accepted else ""

    def _wait_for_reason(self, missing: list[MemberInfo]) -> str:
        """Why to wait for the missing members; empty: wait no longer (migration/X-1)."""
        if self._policy == "accept":
            left_ns = self._since_ns + self._patience_ns - self._out.now_ns
            if left_ns <= 0:
                return ""
            self._out.timer(TimerName.PLAN, left_ns)
        names = ", ".join(info.name for info in missing)
        return (
            f"for members that were in the cluster last and may hold acknowledged writes: {names}. Start them, or "
            "accept the loss: holdfast cluster accept-loss"
        )

    def note_waiting(self, why: str) -> None:
        if why != self._reported_reason:
            self._reported_reason = why
            if why:
                self._out.note("waiting for members before the partition table is restored", reason=why)

    def table(self, partitions: int) -> tuple[dict[int, Assignment], list[int]]:
        """migration/X-1: the assignments, none if there never were any; and the partitions without a provably complete
        copy, whose assignments name the absent members.
        """
        newest = self._newest_rows()
        highest = max((row.version for row in newest.values()), default=0)
        version = next_generation(highest, f"{self._membership.me} {partitions}")
        rows: dict[int, Assignment] = {}
        lost: list[int] = []
        for partition in range(partitions) if newest else ():
            row = newest.get(partition, Assignment())
            made = self._revived(partition, row, version, stopped=True)
            if made is None and not row.version:
                # It never had an assignment.
                empty = (None,) * (self._width - 1)
                made = Assignment(version, (self._membership.data_members()[0].uuid, *empty))
            if made is None:
                lost.append(partition)
                made = Assignment(version, row.replicas, row.epoch, row.behind, row.lost)
            assert made.version >= version, "a revived row is beyond what anybody knows (placement/E-3)"
            rows[partition] = made
        assert rows.keys() >= set(lost), "who waits for its copies has a row, too"
        return rows, lost

    def revive(self, partition: int, row: Assignment) -> Assignment | None:
        """migration/X-2: None: no member has returned with a copy."""
        width = max(self._width, len(row.replicas))
        return self._revived(partition, row, row.version + width + 1, stopped=False)

    def _revived(self, partition: int, row: Assignment, version: int, *, stopped: bool) -> Assignment | None:
        claims = self._claims(partition, row)
        made = revived(
            row,
            claims,
            self._width,
            version=version,
            holders=self._holders,
            uncertain=self.accepted,
        )
        here = [
            member if member is not None and self._membership.member(member) is not None else None
            for member in row.holding
        ]
        if made is None:
            return None
        owner = next(claim for claim in claims if claim.member == made.owner)
        return keeping(made.losing(self._lost_with(owner, stopped=stopped)), here, self._holders)

    def _lost_with(self, owner: Claim, *, stopped: bool) -> set[str]:
        """migration/M-7: incomplete in the new owner's copy. A member that was restarted alone has lost its maps in
        memory; after a stop of the whole cluster that is expected, and no loss.
        """
        lost = set(self._settings.guarded(owner.slot) if owner.kept.whole else self._settings.guarded())
        member = self._membership.member(owner.member)
        if not stopped and member is not None and member.returns:
            lost.update(
                name for name in self._settings.guarded() if self._settings.map(name).journal == "off"
            )
        return lost

    @property
    def brought(self) -> dict[str, set[int]]:
        """Partitions with a base, by returned member."""
        return {
            str(uuid): {partition for partition, copy in copies.items() if copy.counters}
            for uuid, copies in self._kept.items()
        }

    def arranging(
        self, here: Sequence[int], now: Sequence[ReplicaList], candidates: Sequence[Candidate], replicas: int
    ) -> Arranging:
        """migration/X-3: target placement of the partitions `here`."""
        place = {partition: number for number, partition in enumerate(here)}
        kept = {uuid: {place[p] for p in copies if p in place} for uuid, copies in self.brought.items()}
        order = kept_first(len(here), kept)
        arranged = yield from arranging([now[number] for number in order], candidates, replicas)
        targets = [target for _, target in sorted(zip(order, arranged, strict=True))]
        group_of = {one.uuid: one.group or one.uuid for one in candidates}
        return preferring(now, targets, kept, group_of)

    def _newest_rows(self) -> dict[int, Assignment]:
        newest: dict[int, Assignment] = {}
        for holdings in self._holdings.values():
            for partition, row in holdings.rows:
                if row.version > newest.get(partition, Assignment()).version:
                    newest[partition] = row
        return newest

    def _claims(self, partition: int, row: Assignment) -> list[Claim]:
        """Retained copies on members that the assignment names."""
        slot_of: dict[str, int] = {}
        for slot, member in enumerate(row.holding):
            store = self._stores.get(member) if member is not None else None
            if store:
                slot_of[store] = slot
        return [
            Claim(info.uuid, slot_of[info.store], replace(kept, whole=kept.whole and not info.behind))
            for info in self._membership.members()
            # A member outside the baseline holds nothing, whatever it has brought back (membership/B-3).
            if self._membership.may_hold(info)
            if info.store in slot_of and (kept := self._kept.get(info.uuid, {}).get(partition)) is not None
        ]
