"""Orders of operators about the baseline: the result, or the reason to reject them. Used where the order is given; the
master decides in `next_baseline`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum, unique
from typing import NamedTuple

from holdfast.config.addresses import format_address
from holdfast.core.model.baseline import FIXED
from holdfast.core.model.views import View
from holdfast.errors import Refused


@unique
class BaselineChange(StrEnum):
    SET = "set"
    """Exactly these members; without names, the present ones. Without automatic adjustment."""
    ADD = "add"
    REMOVE = "remove"
    AUTO = "auto"
    """The same members, with automatic adjustment on or off."""


class Owners(NamedTuple):
    members: frozenset[str]
    """By consistent id."""
    adjust_ms: int

    def are_in(self, view: View) -> bool:
        baseline = view.baseline
        return baseline is not None and (baseline.ids, baseline.adjust_ms) == self


def owners_wanted(view: View, change: BaselineChange, names: Sequence[str], adjust_ms: int) -> Owners:
    """Raises Refused, with advice."""
    here = frozenset(info.consistent_id for info in view.members if not info.lite)
    baseline = view.baseline
    before = here if baseline is None else baseline.ids
    if change is BaselineChange.AUTO:
        return Owners(before, adjust_ms)
    if change is not BaselineChange.SET and not names:
        raise Refused("name members, as `holdfast cluster baseline show` does")
    if change is not BaselineChange.SET and baseline is None:
        raise Refused(
            "there is no baseline: every member owns data as soon as it joins. Set one first: "
            "holdfast cluster baseline set"
        )
    known = (
        before if change is BaselineChange.REMOVE else here if change is BaselineChange.ADD else before | here
    )
    _must_be(names, known, "in the baseline" if change is BaselineChange.REMOVE else "a present data member")
    wanted = frozenset(names) or here
    if change is BaselineChange.ADD:
        wanted = before | wanted
    elif change is BaselineChange.REMOVE:
        wanted = before - wanted
    if not wanted & here:
        raise Refused("no present member would own data")
    _must_be_empty(view, (before - wanted) & here)
    return Owners(wanted, FIXED if change is BaselineChange.SET or baseline is None else baseline.adjust_ms)


def _must_be(names: Sequence[str], known: Collection[str], what: str) -> None:
    unknown = [name for name in names if name not in known]
    if unknown:
        listed = ", ".join(sorted(known)) or "none"
        raise Refused(f"{unknown[0]!r} is not {what}; these are: {listed}")


def _must_be_empty(view: View, leaving: Collection[str]) -> None:
    for info in view.members:
        if info.consistent_id in leaving:
            raise Refused(
                f"{info.consistent_id} is present and holds data: drain it first (holdfast member "
                f"drain {format_address(info.client_host, info.client_port)}), then remove it"
            )
