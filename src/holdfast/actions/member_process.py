"""The process of a member, as actions and queries see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import msgspec
from msgspec import Meta

from holdfast.core.model.result_columns import column

if TYPE_CHECKING:
    from holdfast.config import Settings
    from holdfast.core.events import MemberAction
    from holdfast.core.model.member_status import MemberCount, MemberStatus


class MemberLoad(msgspec.Struct, frozen=True):
    """Counters since the start of a member; two samples give rates."""

    uptime_ms: int
    operations: Annotated[int, Meta(description="requests that it has answered")]
    latency_sum_ns: Annotated[int, Meta(description="their durations together")]
    latency_counts: Annotated[
        list[int], Meta(description="requests by duration: buckets of a log-linear histogram")
    ]
    processor_ms: int
    longest_block_ms: Annotated[
        float, Meta(description="longest turn of its event loop within the last minute")
    ]
    memory_bytes: int
    memory_limit_bytes: int
    clients: int
    master: bool
    lite: bool


class ClientConnection(msgspec.Struct, frozen=True):
    """A connection of a client to one member."""

    id: Annotated[int, column("id", about="its number at this member")]
    address: Annotated[str, column("address")]
    user: Annotated[str, column("user", about="empty: members have no users")]
    kind: Annotated[str, column("kind", about="hazelcast, holdfast, operator, or not logged in")]
    type: Annotated[str, column("type", about="library of a Hazelcast client: PYH, JVM, …")]
    name: Annotated[str, column("name", about="name that the client gave, otherwise its UUID")]
    age_ms: Annotated[int, column("since", "ms")]
    idle_ms: Annotated[int, column("idle", "ms", about="for how long nothing has come from it")]
    memory_bytes: Annotated[
        int, column("memory", "bytes", about="unread answers, and requests that are incomplete")
    ]
    transactions: Annotated[int, column("transactions", right=True, about="transactions that it has begun")]


class MemberProcess(Protocol):
    """The process of a member, for actions that are not about its protocols alone."""

    @property
    def settings(self) -> Settings: ...

    supervisor: str
    """The program that starts it again when it ends: `systemd`, `kubernetes` or `holdfast`; empty: none."""

    def restart_at_end(self) -> None:
        """End with the status after which a supervisor starts it again."""

    @property
    def has_files(self) -> bool:
        """Whether it keeps data in files."""

    def change_settings(self, given: Mapping[str, str]) -> None:
        """Change all of these settings, or raise ConfigError and change none."""

    def clients(self) -> list[ClientConnection]:
        """The connections of clients, oldest first."""

    def load(self) -> MemberLoad:
        """Counters since the start."""

    def ask_machine(self, query: MemberAction, reply: Callable[[Any], None]) -> None:
        """Have a machine of the member answer a query; now or later."""

    def status(self, reply: Callable[[MemberStatus], None]) -> None:
        """The status, with its entries counted; now or later."""

    def cluster_unsafe_reason(self) -> str:
        """Why a crash of any member could lose data now; empty: it could not."""

    def count_maps(self, reply: Callable[[MemberCount], None]) -> None:
        """The maps, counted; now or later."""

    def end_client(self, number: int, reason: str) -> bool:
        """End the connection with this number; returns whether there is one."""
