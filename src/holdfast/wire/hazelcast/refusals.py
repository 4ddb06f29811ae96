"""Errors for clients, and the error for each outcome.

Only codes that both official clients treat alike are used. Every client retries `AGAIN` by itself, so it may only
answer a request that certainly was not applied. No client retries `INDETERMINATE`, which reaches the user as an error
of its own: it means "unknown", and never answers a read.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.model.operations import Outcome, Status
from holdfast.errors import Refused
from holdfast.wire.hazelcast.hazelcast_frames import BEGIN, END, INT, frame, message, response, text


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """An error number of the protocol, and the class name that clients show for it."""

    number: int
    class_name: str


NOT_AUTHENTICATED = ErrorCode(3, "com.hazelcast.client.AuthenticationException")
DESTROYED = ErrorCode(14, "com.hazelcast.spi.exception.DistributedObjectDestroyedException")
BAD_ARGUMENT = ErrorCode(23, "java.lang.IllegalArgumentException")
NOT_OWNER = ErrorCode(26, "java.lang.IllegalMonitorStateException")
BAD_STATE = ErrorCode(27, "java.lang.IllegalStateException")
HAZELCAST = ErrorCode(18, "com.hazelcast.core.HazelcastException")
SERIALIZATION = ErrorCode(21, "com.hazelcast.nio.serialization.HazelcastSerializationException")
OUT_OF_BOUNDS = ErrorCode(29, "java.lang.IndexOutOfBoundsException")
MAX_SIZE = ErrorCode(43, "com.hazelcast.map.ReachedMaxSizeException")
AGAIN = ErrorCode(46, "com.hazelcast.spi.exception.RetryableHazelcastException")
STALE_SEQUENCE = ErrorCode(51, "com.hazelcast.ringbuffer.StaleSequenceException")
TRANSACTION = ErrorCode(56, "com.hazelcast.transaction.TransactionException")
TRANSACTION_NOT_ACTIVE = ErrorCode(57, "com.hazelcast.transaction.TransactionNotActiveException")
ACCESS_CONTROL = ErrorCode(64, "java.security.AccessControlException")
UNSUPPORTED = ErrorCode(61, "java.lang.UnsupportedOperationException")
NO_DATA_MEMBER = ErrorCode(67, "com.hazelcast.partition.NoDataMemberInClusterException")
SESSION_EXPIRED = ErrorCode(85, "com.hazelcast.cp.internal.session.SessionExpiredException")
WAIT_CANCELLED = ErrorCode(86, "com.hazelcast.cp.internal.datastructures.exception.WaitKeyCancelledException")
LOCK_LIMIT = ErrorCode(87, "com.hazelcast.cp.lock.exception.LockAcquireLimitReachedException")
INDETERMINATE = ErrorCode(80, "com.hazelcast.core.IndeterminateOperationStateException")
CONSISTENCY_LOST = ErrorCode(84, "com.hazelcast.core.ConsistencyLostException")

SEE = "docs/compatibility.md lists what is"
"""End of every error about something unsupported."""
UNKNOWN_OUTCOME = (
    "the outcome is unknown: the request may or may not have been applied; read before you write again"
)

_BY_STATUS = {
    Status.UNKNOWN: (INDETERMINATE, UNKNOWN_OUTCOME),
    Status.MOVED: (AGAIN, "the partition lives on another member now; the request was not applied"),
    Status.NOT_READY: (AGAIN, "no member can serve the partition now; the request was not applied"),
    Status.CLOSING: (AGAIN, "the member is shutting down; the request was not applied"),
    Status.PASSIVE: (BAD_STATE, "the cluster is passive; the request was not applied"),
    Status.NO_DATA_MEMBER: (NO_DATA_MEMBER, "no data member is in the cluster; the request was not applied"),
    Status.FAILED: (BAD_STATE, "an error inside the member; nothing was changed, and its log says more"),
    Status.NO_MEMORY: (MAX_SIZE, "memory is full; the request was not applied"),
    Status.NO_ROOM: (BAD_STATE, "a disk is full; the request was not applied"),
    Status.LOST: (BAD_STATE, "partitions of the map are lost; the request was not applied"),
    Status.PROCESSOR_FAILED: (HAZELCAST, "the entry processor failed; nothing was changed"),
    Status.TOO_LARGE: (BAD_ARGUMENT, "key or value is larger than this cluster accepts"),
}


class CallRefused(Refused):
    """A request is answered with an error; the connection continues."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def error(correlation: int, code: ErrorCode, reason: str) -> bytes:
    """The error message: a chain of one cause without a stack trace."""
    if code is UNSUPPORTED:
        reason = f"{reason} ({SEE})"
    return message(
        [
            response(0, correlation),
            BEGIN,
            BEGIN,
            frame(INT.pack(code.number)),
            text(code.class_name),
            text(reason),
            BEGIN,
            END,
            END,
            END,
        ]
    )


def refusal(outcome: Outcome) -> tuple[ErrorCode, str]:
    code, reason = _BY_STATUS[outcome.status]
    return code, f"{reason} ({outcome.detail})" if outcome.detail else reason
