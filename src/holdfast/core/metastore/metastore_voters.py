"""Choice of the voters of the metastore's group, which follow the members of the cluster (J6).

Every other member is a learner, so each member has the whole metastore.

- metastore/V-1: The group begins once, by the founding in the view (model/F-1). A founder starts its replica with the
  first voters only if it cannot have had one before: it was in the cluster before the founding, or its files are whole
  and have none. Any other member starts empty, and gets everything from the leader. Example: voters {A, B, C} begin, A
  votes and crashes, and the end of its files is unreadable. If A began once more it could vote twice in one term.
- metastore/V-2: The number of voters is odd, at most as large as ordered, and at most the number of members that stay.
- metastore/V-3: A voter that has gone is replaced after `metastore.replace_after_ms`, or sooner if the voters that stay
  would be no majority beside it. Nothing changes while the table is frozen: absent members are expected to return.
- metastore/V-4: A member does not leave while it is a voter, unless all members leave.
- metastore/V-5: When most voters are gone for good, an operator may order a reset: the group continues with the state
  of the member that got the order.
- metastore/V-6: A reset is rejected while a leader or a majority of the voters is reachable, and while silent voters
  are still in the view. Example: with voters {A, B, C}, and A and B behind a cut cable, C must not start a second
  metastore.
- metastore/V-7: If no data member stays, lite members vote. Otherwise one lite member votes if that makes the number of
  voters odd. Example: with data members A and B and the lite member W, the voters are {A, B, W}, and any one may fail.
  Without W one data member would be the only voter. W is a witness: it holds the small metastore and no partitions, so
  it can run on a cheap third host.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.config.schema import MetastoreSettings
from holdfast.core.membership.lost_majority import called, recovery_advice
from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.metastore.metastore import KeyChange
from holdfast.core.model.ids import METASTORE_GROUP, MILLISECOND, MemberId
from holdfast.core.model.levels import STARTS_METASTORE
from holdfast.core.model.notices import ViewInstalled
from holdfast.core.model.timer_name import TimerName
from holdfast.core.multiraft.group_host import GroupHost, node_of
from holdfast.core.outbox import Outbox
from holdfast.core.raft.configuration import Configuration, NodeId
from holdfast.core.raft.leader import ProposalRefused
from holdfast.core.raft.reconfiguration import ChangeAnswer

LOOK_NS = 500 * MILLISECOND
"""Retry interval for changes that were not possible."""


PLACE_BITS = 16
"""In a reset token: the position in the view of the member that was reset."""


def odd(count: int) -> int:
    return count - 1 + count % 2


def wanted_voters(
    now: Configuration, staying: Sequence[NodeId], kept: Iterable[NodeId], most: int
) -> frozenset[NodeId]:
    """See metastore/V-2. `staying` is ordered by age; `kept` are voters that have gone and may return.

    A majority of the result are members that stay: a vote that is kept for an absent node must not cost the quorum.
    """
    absent = sorted(set(kept) - set(staying))[: len(staying)]
    count = odd(min(most, len(staying) + len(absent)))
    chosen = absent[: count // 2]
    chosen += [node for node in staying if node in now.voters][: count - len(chosen)]
    chosen += [node for node in staying if node not in now.voters][: count - len(chosen)]
    return frozenset(chosen)


class MetastoreVoters:
    """Adjusts the voters on the member that leads the group; idle on all others."""

    def __init__(
        self, out: Outbox, settings: MetastoreSettings, membership: MembershipStatus, groups: GroupHost
    ) -> None:
        self._out = out
        self._settings = settings
        self._membership = membership
        self._groups = groups
        self._gone_since: dict[NodeId, int] = {}
        """Voters that are missing in the view."""
        self._asked: tuple[frozenset[NodeId], frozenset[NodeId], int] | None = None
        """Voters, learners and token."""
        self._timer = False
        self._was_without = False
        """This process was in a running cluster without a metastore."""

    @property
    def configuration(self) -> Configuration | None:
        """The configuration as this member knows it; None: unknown."""
        hosted = self._groups.hosted.get(METASTORE_GROUP)
        if hosted is None or not hosted.group.configuration.voters:
            return None
        return hosted.group.configuration

    @property
    def lacking(self) -> int:
        """Absent voters, as far as this member knows."""
        configuration = self.configuration
        if configuration is None:
            return 0
        here = {node_of(info) for info in self._membership.members()}
        return len((configuration.voters | configuration.outgoing) - here)

    def can_leave(self, member: MemberId) -> bool:
        """See metastore/V-4."""
        info = self._membership.member(member)
        configuration = self.configuration
        if info is None or configuration is None or not configuration.votes(node_of(info)):
            return True
        return not self._staying()

    def first_configuration(self, notice: ViewInstalled) -> Configuration | None:
        """The configuration with which the replica here begins by this view; None: it does not (metastore/V-1)."""
        view, me = notice.new, self._groups.me
        if view is None or METASTORE_GROUP in self._groups.hosted:
            return None
        founding = view.metastore
        if founding is None and not view.recovering and view.number > 1:
            self._was_without = True
        if METASTORE_GROUP in self._groups.journal.found:
            return None
        if founding is not None:
            info = self._membership.info
            has_begun_never = self._was_without or not info.store or not info.proof.cut
            if not founding.names(me) or not has_begun_never:
                return None
            return Configuration(
                frozenset(founding.first_voters), learners=frozenset(founding.first_learners)
            )
        # Below the level of foundings the member that forms a new cluster is the only voter.
        begins = (
            self._settings.voters > 0
            and view.level < STARTS_METASTORE
            and view.number == 1
            and not view.recovering
            and [info.uuid for info in view.members] == [self._membership.me]
        )
        return Configuration(frozenset({me})) if begins else None

    @property
    def _most(self) -> int:
        view = self._membership.view
        return self._settings.voters if view is None or view.metastore is None else view.metastore.voters

    def reset(self) -> str:
        """This member's replica becomes the metastore (metastore/V-5). Returns why not; empty: it is started."""
        hosted, view = self._groups.hosted.get(METASTORE_GROUP), self._membership.view
        if hosted is None or view is None or not hosted.group.log.last:
            return (
                "this member has no copy of the metastore: use one that has a revision (see holdfast metastore "
                "status)"
            )
        configuration = hosted.group.configuration
        if rejection := self._reset_rejection(configuration):
            return rejection
        place = next((at for at, info in enumerate(view.members) if info.uuid == self._membership.me), 0)
        known = max(configuration.token, hosted.group.generation)
        # Tokens of different members differ. If two are reset at once, the higher token wins and the other drops its
        # state.
        token = (max(known >> PLACE_BITS, self._out.wall_ms()) + 1 << PLACE_BITS) + place
        answer = self._groups.running(METASTORE_GROUP).reset([self._groups.me], token)
        self._asked = None
        self._out.note(
            "metastore reset by the operator", "warning", answer=answer.value, index=hosted.group.log.last
        )
        return "" if answer is ChangeAnswer.STARTED else f"it cannot be reset now: {answer.value}"

    def _reset_rejection(self, configuration: Configuration) -> str:
        """A reset could give up data that others still have; empty: a majority of voters is not in the cluster.

        A silent voter in the view may serve a majority on the other side of a network partition. It has to leave the
        view first, by the decision of a majority of members or of the operator (membership/V-6).
        """
        membership, now_ns = self._membership, self._out.now_ns
        if silent := recovery_advice(membership, now_ns):
            return silent
        infos = {node_of(info): info for info in membership.members()}
        heard = {
            node for node, info in infos.items() if info.uuid == membership.me or membership.hears(info.uuid)
        }
        if not configuration.lacks_majority(heard):
            return (
                f"most of the {len(configuration.voters)} voters of the metastore are here: it needs no reset; "
                "see holdfast metastore status"
            )
        lead = self._groups.lead(METASTORE_GROUP)
        if lead in heard and lead != self._groups.me:
            return f"{infos[lead].name} leads the metastore: it needs no reset; see holdfast metastore status"
        if not configuration.lacks_majority(infos.keys()):
            silent = called([info for node, info in infos.items() if node not in heard])
            return (
                f"most of the {len(configuration.voters)} voters of the metastore are in the cluster, and silent. They "
                "are removed from it when they have been silent for cluster.suspect_after_ms, or at once if they have "
                f"ended: holdfast member evict {silent}"
            )
        return ""

    def recovery_advice(self) -> str:
        """Advice if a majority of the voters is absent; empty: not needed, or waiting helps."""
        configuration = self.configuration
        here = {node_of(info) for info in self._membership.members()}
        if configuration is None or not configuration.lacks_majority(here):
            return ""
        voters = configuration.voters | configuration.outgoing
        return (
            f"{len(voters - here)} of its {len(voters)} voters are not in the cluster: start them again with their "
            "files. If these are gone for good, continue with the copy of the member with the highest revision "
            "(holdfast metastore status), through that member: holdfast metastore reset"
        )

    def _staying(self) -> list[NodeId]:
        """Nodes that may vote: data members before lite ones (metastore/V-7), each by age."""
        departing = self._membership.departing
        others = [info for info in self._membership.members() if info.uuid not in departing]
        data = [node_of(info) for info in self._membership.data_members()]
        if not data:
            return [node_of(info) for info in others]
        is_even = len(data) % 2 == 0 and len(data) < self._most
        return data + [node_of(info) for info in others if info.lite][: int(is_even)]

    def on_watch_begins(self, revision: int) -> None: ...

    def on_changes(self, revision: int, time_ms: int, changes: Sequence[KeyChange]) -> bool:
        return True

    def on_leading(self, term: int | None) -> None:
        self.look()

    def look(self) -> None:
        hosted = self._groups.hosted.get(METASTORE_GROUP)
        term = self._groups.term(METASTORE_GROUP)
        view = self._membership.view
        if hosted is None or term is None or view is None or view.state.frozen:
            self._gone_since.clear()
            return
        now = hosted.group.configuration
        nodes = {node_of(info) for info in view.members}
        staying = self._staying()
        if not staying:
            return
        voters = wanted_voters(now, staying, self._kept(now, nodes), self._most)
        learners = frozenset(nodes - voters)
        if not now.joint and (now.voters, now.learners) == (voters, learners):
            self._asked = None
            return
        self._ask(term, now, voters, learners)
        self._look_again()

    def _kept(self, now: Configuration, nodes: set[NodeId]) -> list[NodeId]:
        """Voters that have gone recently and may return (metastore/V-3)."""
        absent = now.voters - nodes
        self._gone_since = {node: self._gone_since.get(node, self._out.now_ns) for node in sorted(absent)}
        wait_ns = self._settings.replace_after_ms * MILLISECOND
        kept = [node for node, since in self._gone_since.items() if self._out.now_ns - since < wait_ns]
        if kept:
            self._look_again()
        return kept

    def _ask(
        self, term: int, now: Configuration, voters: frozenset[NodeId], learners: frozenset[NodeId]
    ) -> None:
        if self._asked is None or self._asked[:2] != (voters, learners):
            token = max(now.token, self._asked[2] if self._asked is not None else 0) + 1
            self._asked = (voters, learners, token)
        try:
            self._groups.running(METASTORE_GROUP).change_peers(
                term, voters, learners, max(self._asked[2], now.token)
            )
        except ProposalRefused:
            pass  # The timer retries.

    def _look_again(self) -> None:
        if not self._timer:
            self._timer = True
            self._out.timer(TimerName.METASTORE_VOTERS, LOOK_NS)

    def on_timer(self) -> None:
        self._timer = False
        self.look()
