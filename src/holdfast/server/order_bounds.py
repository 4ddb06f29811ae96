"""Validation of operator commands before they are executed."""

from __future__ import annotations

import msgspec

from holdfast.config.sharing import key_of_encoded
from holdfast.core.membership.baseline_orders import BaselineChange
from holdfast.core.model.baseline import FIXED
from holdfast.core.model.views import ClusterState
from holdfast.wire import own


def order_problem(order: own.Order) -> str:
    if not 0 <= order.timeout_ms <= own.ORDER_MS_MAX:
        return f"the timeout of a command is 0 to {own.ORDER_MS_MAX} milliseconds"
    if order.want is own.Want.STATE and order.state not in set(ClusterState):
        return f"a cluster is {', '.join(ClusterState)}; not {order.state!r}"
    if order.want is own.Want.BASELINE and order.state not in set(BaselineChange):
        return f"a baseline is changed by {', '.join(BaselineChange)}; not {order.state!r}"
    if not FIXED <= order.adjust_ms <= own.ORDER_MS_MAX:
        return f"a baseline is adjusted after at most {own.ORDER_MS_MAX} milliseconds"
    return ""


def named_partitions(order: own.Order) -> list[int]:
    return [order.partition] if order.want is own.Want.REFILL else list(order.partitions)


def with_setting_names(order: own.Order) -> own.Order:
    """The command with today's names of settings; on the wire they have names that every build knows."""
    if not order.settings:
        return order
    settings = {key_of_encoded(key): value for key, value in order.settings.items()}
    return msgspec.structs.replace(order, settings=settings)
