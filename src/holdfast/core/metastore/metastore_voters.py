"""Who votes in the metastore's group? It follows the members (J6).

Whoever leads the group brings it to what the view asks for; everybody who is no voter is a learner, so each member has
the whole metastore.

- metastore/V-1: The group begins once: with the member that forms a new cluster as its only voter. Whoever forms one
  anew from files has it in these files, or gets it from who has.
- metastore/V-2: There is an odd number of voters, at most `metastore.voters` and no more than members that stay. A
  voter stays one as long as it can.
- metastore/V-3: A voter that has gone is given up after `metastore.replace_after_ms`, or when those who stay would be
  no majority beside it. Nothing is changed while the
  table is frozen: who is gone then is to come back.
- metastore/V-4: A member does not leave while it is a voter, unless everybody leaves.
- metastore/V-5: When most voters are gone for good an operator may order a reset: the group goes on with what the
  member that is asked has of it. Of two members that are asked at once one wins, and the other follows it.
- metastore/V-6: A reset is rejected while a leader or a majority of the voters is heard, and while voters that are
  silent are still in the view: with voters {A, B, C} and A, B behind a cut cable, C must not begin a second metastore.
- metastore/V-7: Where no data member stays lite ones vote. Else one of them votes if that makes the number odd: two
  data members and a lite one are three voters, of which any one may be lost; two alone would be one voter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.config.schema import MetastoreSettings
from holdfast.core.machine import Outbox
from holdfast.core.membership.lost_majority import called, way_out
from holdfast.core.membership.membership_status import MembershipStatus
from holdfast.core.metastore.metastore import KeyChange
from holdfast.core.model.ids import METASTORE_GROUP, MILLISECOND, MemberId
from holdfast.core.model.notices import ViewInstalled
from holdfast.core.model.timer_name import TimerName
from holdfast.core.multiraft.group_host import GroupHost, node_of
from holdfast.core.raft.configuration import Configuration, NodeId
from holdfast.core.raft.leader import ProposalRefused
from holdfast.core.raft.reconfiguration import ChangeAnswer

LOOK_NS = 500 * MILLISECOND
"""What could not be changed is tried again after this time."""


PLACE_BITS = 16
"""Of a token of a reset: the place of who has reset it in its view."""


def odd(count: int) -> int:
    """The largest odd number up to this one."""
    return count - 1 + count % 2


def wanted_voters(
    now: Configuration, staying: Sequence[NodeId], kept: Iterable[NodeId], most: int
) -> frozenset[NodeId]:
    """Who is to vote (metastore/V-2): of those who stay, oldest first; `kept`: voters that have gone, so far. Most of
    them stay: a seat that is kept for somebody must not cost the group its majority.
    """
    absent = sorted(set(kept) - set(staying))[: len(staying)]
    count = odd(min(most, len(staying) + len(absent)))
    chosen = absent[: count // 2]
    chosen += [node for node in staying if node in now.voters][: count - len(chosen)]
    chosen += [node for node in staying if node not in now.voters][: count - len(chosen)]
    return frozenset(chosen)


class MetastoreVoters:
    """On each member; only who leads the group does anything."""

    def __init__(
        self, out: Outbox, settings: MetastoreSettings, standing: MembershipStatus, groups: GroupHost
    ) -> None:
        self._out = out
        self._settings = settings
        self._standing = standing
        self._groups = groups
        self._gone_since: dict[NodeId, int] = {}
        """When voters were first missed in the view."""
        self._asked: tuple[frozenset[NodeId], frozenset[NodeId], int] | None = None
        """What was asked for last: voters, learners, token."""
        self._timer = False

    @property
    def configuration(self) -> Configuration | None:
        """That of the group, as this member knows it; None before it knows any."""
        hosted = self._groups.hosted.get(METASTORE_GROUP)
        if hosted is None or not hosted.group.configuration.voters:
            return None
        return hosted.group.configuration

    @property
    def lacking(self) -> int:
        """How many voters are not here, as far as this member knows."""
        configuration = self.configuration
        if configuration is None:
            return 0
        here = {node_of(info) for info in self._standing.members()}
        return len((configuration.voters | configuration.outgoing) - here)

    def may_part(self, member: MemberId) -> bool:
        """Whether the metastore can do without this member (metastore/V-4)."""
        info = self._standing.member(member)
        configuration = self.configuration
        if info is None or configuration is None or not configuration.votes(node_of(info)):
            return True
        return not self._staying()

    def begins_here(self, notice: ViewInstalled) -> bool:
        """Whether this view is the beginning of a new cluster, by this member alone (metastore/V-1)."""
        view = notice.new
        return (
            self._settings.voters > 0
            and view is not None
            and view.number == 1
            and not view.recovering
            and [info.uuid for info in view.members] == [self._standing.me]
            and METASTORE_GROUP not in self._groups.hosted
            and METASTORE_GROUP not in self._groups.found
        )

    def reset(self) -> str:
        """An operator gives up the voters that are gone: this member's replica is the metastore from here on. Answers
        why not; empty: it is done (metastore/V-5).
        """
        hosted, view = self._groups.hosted.get(METASTORE_GROUP), self._standing.view
        if hosted is None or view is None or not hosted.group.log.last:
            return (
                "this member has nothing of the metastore: ask one that has a revision of it (see holdfast metastore "
                "status)"
            )
        configuration = hosted.group.configuration
        if rejection := self._reset_rejection(configuration):
            return rejection
        place = next((at for at, info in enumerate(view.members) if info.uuid == self._standing.me), 0)
        known = max(configuration.token, hosted.group.generation)
        # Nobody else draws the same: of two at once one is higher, and the other abandons what it has.
        token = (max(known >> PLACE_BITS, self._out.wall_ms()) + 1 << PLACE_BITS) + place
        answer = self._groups.reset(METASTORE_GROUP, [self._groups.me], token)
        self._asked = None
        self._out.note("the metastore is reset", "warning", answer=answer.value, index=hosted.group.log.last)
        return "" if answer is ChangeAnswer.STARTED else f"it cannot be reset now: {answer.value}"

    def _reset_rejection(self, configuration: Configuration) -> str:
        """Why a reset would give up what others may still have; empty: a majority of the voters is not in the cluster.

        A voter that is in the view and silent may be serving a majority on the other side of a cut: it has to be out of
        the view first, which a majority of the members decides, or the operator (membership/V-6).
        """
        standing, now_ns = self._standing, self._out.now_ns
        if silent := way_out(standing, now_ns):
            return silent
        infos = {node_of(info): info for info in standing.members()}
        heard = {
            node for node, info in infos.items() if info.uuid == standing.me or standing.hears(info.uuid)
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

    def way_out(self) -> str:
        """What an operator can do where a majority of the voters is not in the cluster; empty: it is, or others are to
        be waited for.
        """
        configuration = self.configuration
        here = {node_of(info) for info in self._standing.members()}
        if configuration is None or not configuration.lacks_majority(here):
            return ""
        voters = configuration.voters | configuration.outgoing
        return (
            f"{len(voters - here)} of its {len(voters)} voters are not in the cluster: start them again with their "
            "files. If these are gone for good, go on with what the member with the highest revision has (see holdfast "
            "metastore status), through that member: holdfast metastore reset"
        )

    def _staying(self) -> list[NodeId]:
        """Nodes of the members that may vote, data members before lite ones (metastore/V-7), each oldest first."""
        departing = self._standing.departing
        others = [info for info in self._standing.members() if info.uuid not in departing]
        data = [node_of(info) for info in self._standing.data_members()]
        if not data:
            return [node_of(info) for info in others]
        is_even = len(data) % 2 == 0 and len(data) < self._settings.voters
        return data + [node_of(info) for info in others if info.lite][: int(is_even)]

    def on_watch_begins(self, revision: int) -> None:
        """No key matters to it."""

    def on_changes(self, revision: int, time_ms: int, changes: Sequence[KeyChange]) -> bool:
        """No key matters to it."""
        return True

    def on_leading(self, term: int | None) -> None:
        """This member leads the metastore's group, or does no more."""
        self.look()

    def look(self) -> None:
        """Members, or what they want to become, are others than before, or time has passed."""
        hosted = self._groups.hosted.get(METASTORE_GROUP)
        term = self._groups.term(METASTORE_GROUP)
        view = self._standing.view
        if hosted is None or term is None or view is None or view.state.frozen:
            self._gone_since.clear()
            return
        now = hosted.group.configuration
        nodes = {node_of(info) for info in view.members}
        staying = self._staying()
        if not staying:
            return
        voters = wanted_voters(now, staying, self._kept(now, nodes), self._settings.voters)
        learners = frozenset(nodes - voters)
        if not now.joint and (now.voters, now.learners) == (voters, learners):
            self._asked = None
            return
        self._ask(term, now, voters, learners)
        self._look_again()

    def _kept(self, now: Configuration, nodes: set[NodeId]) -> list[NodeId]:
        """Voters that have gone so short a time ago that they may come back (metastore/V-3)."""
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
            self._groups.change_peers(METASTORE_GROUP, term, voters, learners, max(self._asked[2], now.token))
        except ProposalRefused:
            pass  # Asked again when the timer is due.

    def _look_again(self) -> None:
        if not self._timer:
            self._timer = True
            self._out.timer(TimerName.METASTORE_VOTERS, LOOK_NS)

    def on_timer(self) -> None:
        """Look again."""
        self._timer = False
        self.look()
