"""Conditional operations on an entry: one rule for the general path and both data lanes.

The second part of this file is also compiled, as part of `compiled_lane`.
"""

from __future__ import annotations

from typing import Final

from holdfast.core.model.operations import Op
from holdfast.core.store import uncompiled as cython

ALWAYS: Final = 0
IF_ABSENT: Final = 1
IF_PRESENT: Final = 2
IF_SAME: Final = 3
"""The present value is the expected one."""

CONDITIONS: dict[Op, int] = {
    Op.PUT: ALWAYS,
    Op.SET: ALWAYS,
    Op.TRY_PUT: ALWAYS,
    Op.PUT_IF_ABSENT: IF_ABSENT,
    Op.REPLACE: IF_PRESENT,
    Op.REPLACE_IF_SAME: IF_SAME,
    Op.REMOVE: IF_PRESENT,
    Op.DELETE: IF_PRESENT,
    Op.TRY_REMOVE: IF_PRESENT,
    Op.REMOVE_IF_SAME: IF_SAME,
    Op.EVICT: IF_PRESENT,
    Op.SET_TTL: IF_PRESENT,
}

# -- compiled as well


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def takes_effect(condition: cython.int, present: cython.bint, same: cython.bint) -> cython.bint:
    """`present`: there is an entry that has not ended. `same`: it has the expected value."""
    if condition == ALWAYS:
        return True
    if condition == IF_ABSENT:
        return not present
    return present and (condition == IF_PRESENT or same)
