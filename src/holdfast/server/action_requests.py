"""Actions of operators, as both carriers take them: permission first, then the audit log, then the fields."""

from __future__ import annotations

from holdfast.actions.operator_action import TIMEOUT_MS_MAX, OperatorAction, OperatorQuery
from holdfast.server.access import action_rejection
from holdfast.server.audit_events import AuditEvent, AuditKind
from holdfast.server.grid import Grid
from holdfast.server.rights import Rights


def denial(grid: Grid, rights: Rights, peer: str, action: OperatorAction) -> str:
    """Authorize and audit an action; returns the reason to reject it, empty if it is permitted (server/C-1)."""
    name = action.declared.name
    if reason := action_rejection(rights, action):
        grid.audit(AuditEvent(AuditKind.REFUSED, rights.user, peer, name, reason))
        return reason
    if not isinstance(action, OperatorQuery):
        grid.audit(AuditEvent(AuditKind.ORDER, rights.user, peer, name, action.audit_line()))
    return ""


def problem(grid: Grid, action: OperatorAction, timeout_ms: int) -> str:
    """The fault of a permitted request; empty if it has none."""
    if not 0 <= timeout_ms <= TIMEOUT_MS_MAX:
        return f"the timeout of an action is 0 to {TIMEOUT_MS_MAX} milliseconds"
    return action.problem(grid.partition_count)
