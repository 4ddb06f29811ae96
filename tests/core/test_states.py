"""The tables of states: every state and every step, the pictures of them, and what messages do in each state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.core.membership.one_member import A, B, C, One, home, view
from tests.core.walks import WALKS, shown

from holdfast.core import messages as m
from holdfast.core.membership.membership_status import MEMBERSHIP, MembershipState, MembershipStep
from holdfast.core.membership.view_agreement import PROPOSAL, Phase, ProposalStep
from holdfast.core.migration.running_migrations import RUNNING, MigrationPhase, MigrationStep
from holdfast.core.model.lifecycle import Cases, Lifecycle
from holdfast.core.primary_backup.primary_activation import LEADERSHIP, LeadershipPhase, LeadershipStep
from holdfast.core.primary_backup.staging_replica import STAGING, StagingPhase, StagingStep
from holdfast.core.raft.reconfiguration import CHANGING, ChangeStage, ChangeStep
from holdfast.core.state_transfer.destination import CHUNKS
from holdfast.core.state_transfer.supply import SUPPLY, SupplyPhase, SupplyStep
from holdfast.core.state_transfer.supply_requests import MIGRATION_REQUESTS, REPAIRS
from holdfast.errors import InvariantBroken

PAGE = Path(__file__).parents[2] / "docs" / "states.md"
LIFECYCLES: list[tuple[Lifecycle[Any, Any], Any, Any]] = [
    (MEMBERSHIP, MembershipState, MembershipStep),
    (PROPOSAL, Phase, ProposalStep),
    (RUNNING, MigrationPhase, MigrationStep),
    (SUPPLY, SupplyPhase, SupplyStep),
    (STAGING, StagingPhase, StagingStep),
    (LEADERSHIP, LeadershipPhase, LeadershipStep),
    (CHANGING, ChangeStage, ChangeStep),
]


@pytest.mark.parametrize(("table", "states", "steps"), LIFECYCLES, ids=lambda one: getattr(one, "of", ""))
def test_what_is_not_in_the_table_is_an_error_by_name(
    table: Lifecycle[Any, Any], states: Any, steps: Any
) -> None:
    refused = 0
    for state in states:
        for step in steps:
            if (state, step) in table.table:
                assert table.after(state, step) in states
            else:
                refused += 1
                with pytest.raises(
                    InvariantBroken, match=rf"{table.of}: '{step.value}' cannot .* '{state.value}'"
                ):
                    table.after(state, step)
    assert refused


@pytest.mark.parametrize(("table", "states", "steps"), LIFECYCLES, ids=lambda one: getattr(one, "of", ""))
def test_every_state_can_be_reached_and_every_step_is_taken(
    table: Lifecycle[Any, Any], states: Any, steps: Any
) -> None:
    reached = {table.begins}
    for _ in states:
        reached |= {after for (state, _), after in table.table.items() if state in reached}
    assert reached == set(states)
    assert {step for _, step in table.table} == set(steps)


ADMISSIONS: list[Cases[Any]] = [MIGRATION_REQUESTS, REPAIRS, CHUNKS]


def pictures() -> str:
    """The page without its head: the picture of each table, and what messages do in each state."""
    parts = []
    for one, _, _ in LIFECYCLES:
        parts.append(f"## {one.of.capitalize()}\n\n```mermaid\n{one.picture()}\n```")
        if one is MEMBERSHIP:
            walked = shown(list(MembershipState), outcomes())
            parts.append(f"State of a member after each message, where it changes:\n\n{walked}")
        walks = [walk for walk in WALKS if walk.table is one]
        parts += [f"State of {walk.title} after each message:\n\n{walk.shown()}" for walk in walks]
    parts.append(
        "## Checks of messages\n\nThe first check that applies decides. "
        "The sender of a refused message gets the reason."
    )
    parts += [f"{cases.of.capitalize()}:\n\n{cases.listing()}" for cases in ADMISSIONS]
    return "\n\n".join(parts)


def test_the_page_shows_the_tables_and_what_messages_do(request: pytest.FixtureRequest) -> None:
    head = PAGE.read_text(encoding="utf-8").partition("\n## ")[0].rstrip()
    page = f"{head}\n\n{pictures()}\n"
    if request.config.getoption("--rewrite"):
        PAGE.write_text(page, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page


def test_every_machine_is_walked_through() -> None:
    assert {id(walk.table) for walk in WALKS} == {
        id(one) for one, _, _ in LIFECYCLES if one not in (MEMBERSHIP, PROPOSAL)
    }


# -- every state x every message that a membership is handed


def in_state(state: MembershipState) -> One:
    one = One(A, A, B, C)
    match state:
        case MembershipState.JOINING:
            one = One(A)
        case MembershipState.EXILED:
            one.membership.install(view(B, C, number=6))
        case MembershipState.PARTING:
            one.membership.install(view(B, C, number=6, left=[A.uuid]))
        case MembershipState.GONE:
            one = in_state(MembershipState.PARTING)
            one.membership.on_timer("part")
    assert one.membership.state is state
    return one


def messages() -> dict[str, Any]:
    """What may come, at worst: named alike, of this view, an older or a newer one, with and without this member."""
    views = {
        "old view": view(A, B, C, number=4),
        "same view": view(A, B, C, number=6),
        "next with it": view(B, C, A, number=7),
        "next without it": view(B, C, number=7),
        "next says it left": view(B, C, number=7, left=[A.uuid]),
        "again with a new life": view(msgspec.structs.replace(A, life=7), B, C, number=7),
        "of another cluster": view(A, B, number=7, cluster_id="other"),
    }
    found: dict[str, Any] = {f"view: {name}": m.ViewDecided(one) for name, one in views.items()}
    found["heartbeat"] = m.Heartbeat(B.uuid, 1, 6)
    found["newer heartbeat"] = m.Heartbeat(B.uuid, 1, 9)
    found["join request"] = m.JoinRequest(B, "holdfast", {})
    for name, answer in (
        ("idle", {"idle": True}),
        ("refused", {"refusal": "no"}),
        ("ending", {"ending": True}),
        ("evicted", {"refusal": "no", "evicted": True}),
    ):
        base = {"uuid": B.uuid, "idle": False, "host": B.host, "port": B.port, "asker": A.uuid}
        found[f"join answer: {name}"] = m.JoinAnswer(**(base | answer))
    found["evict without majority"] = m.EvictMembersWithoutMajority(6, [C.uuid])
    found["evict"] = m.EvictMembers(6, [C.uuid])
    return found


def hand_over(one: One, message: Any) -> None:
    membership, sender = one.membership, home(B)
    match message:
        case m.ViewDecided():
            membership.on_view(message)
        case m.Heartbeat():
            membership.on_heartbeat(sender, message)
        case m.JoinRequest():
            membership.on_join_request(sender, message)
        case m.JoinAnswer():
            membership.on_join_answer(sender, message)
        case m.EvictMembersWithoutMajority():
            membership.evictions.on_evict_members_without_majority(message)
        case m.EvictMembers():
            membership.evictions.on_evict_members(message)
        case _:
            raise TypeError(type(message).__name__)


def outcomes() -> dict[str, list[MembershipState]]:
    """What each message makes of a member, by the state that it is in."""
    found: dict[str, list[MembershipState]] = {}
    for name, message in messages().items():
        for state in MembershipState:
            one = in_state(state)
            hand_over(one, message)
            after = one.membership.state
            steps = {end for (begin, _), end in MEMBERSHIP.table.items() if begin is state}
            # Removed and admitted again, and told of the latter only, is two steps.
            assert after is state or after in steps, (name, state, after)
            found.setdefault(name, []).append(after)
    return found
