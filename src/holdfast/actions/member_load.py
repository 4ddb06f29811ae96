"""Counters of a member, from which `holdfast top` makes rates."""

from __future__ import annotations

from holdfast.actions.member_process import MemberLoad, MemberProcess
from holdfast.actions.operator_action import Declaration, OperatorQuery, Target
from holdfast.config.permissions import Action


class Load(OperatorQuery, frozen=True):
    """Show the counters of a member: requests and their durations, memory, clients and processor time."""

    declared = Declaration("load", Action.STATUS, target=Target.EACH, timeout_s=5)
    result = MemberLoad

    def answer(self, process: MemberProcess) -> MemberLoad:
        return process.load()
