"""One member as a process: its log, signals and exit status.

SIGTERM and SIGINT drain: the member leaves when its partitions are safe elsewhere. A second signal, or
`partitions.drain_timeout_s` after the first, ends it at once. It also ends when an operator lets it leave, or shuts
down the cluster.

| status | meaning |
|--------|---------|
| 0      | it has left the cluster, alone or with all others |
| 1      | it ended before its data was safe elsewhere, or was evicted |
| 2      | not started: a setting is wrong, a port is in use, or the cluster rejects this member |
| 4      | it found no cluster within `cluster.join_timeout_ms` |
| 75     | it has left, and is to be started again (`holdfast cluster restart`) |
| 70     | stopped by an error inside the member, or of its disk |
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from typing import Any

import uvloop

from holdfast.config import Settings
from holdfast.config.addresses import format_address
from holdfast.errors import ConfigError, InvariantBroken, JournalBroken, Unreachable
from holdfast.runtime.logs.process_log import begin_log, call_log_of
from holdfast.runtime.memory import prepare
from holdfast.runtime.node import Node
from holdfast.runtime.open_files import room_for_sockets
from holdfast.runtime.stalls import CollectorControl
from holdfast.runtime.supervision import supervisor_of

log = logging.getLogger("holdfast")

BROKEN = 70
LOOK_S = 0.1
WARN_S = 60.0


def main(settings: Settings) -> int:
    """Run one member until it has left; returns the exit status. Raises ConfigError when it cannot start,
    Unreachable when it finds no cluster in time.
    """
    files = bool(settings.persistence.directory) and not settings.member.lite
    prepare(files=files, memory_bytes=settings.limits.memory_bytes)
    begin_log(settings.log, settings.member.name)
    room_for_sockets(settings)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            return runner.run(_run(settings))
        except (ConfigError, Unreachable):
            raise
        except Exception:
            log.critical("this member stops because of an error inside it", exc_info=True)
            return BROKEN


async def _run(settings: Settings) -> int:
    node = Node(settings)
    loop = asyncio.get_running_loop()

    def failed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # An error in a callback may have left the member's state inconsistent: stop rather than guess.
        loop.default_exception_handler(context)
        node.failed(context.get("exception") or InvariantBroken(str(context.get("message"))))

    CollectorControl().begin(loop)
    try:
        await node.start()
    except JournalBroken as error:
        log.critical("this member stops: %s", error)
        return BROKEN
    node.control.supervisor = supervisor_of(os.environ)
    call_log_of(node.member.picture.info.name)
    loop.set_exception_handler(failed)
    leaving = asyncio.Event()
    at_once = asyncio.Event()

    def signalled() -> None:
        if leaving.is_set():
            at_once.set()
        leaving.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled)
    log.info(
        "member %s starting: clients at %s, members at %s",
        node.member_uuid,
        node.client_address,
        format_address(node.member.picture.info.host, node.member.picture.info.port),
    )
    leaving_log = LeavingLog(node)
    told = asyncio.create_task(leaving_log.follow())
    ready = asyncio.create_task(_announce(node))
    waits = {ready, asyncio.create_task(leaving.wait()), asyncio.create_task(node.ended.wait())}
    try:
        while not leaving.is_set() and not node.ended.is_set():
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if ready in waits and ready.done():
                waits.discard(ready)
                ready.result()
        if not node.ended.is_set():
            node.leave()
            await _drained(node, at_once)
        if node.broken is not None:
            return BROKEN
        if not node.ended.is_set():
            return 1
        if node.member.picture.refusal:
            log.error("%s", node.ended_because)
            return 1
        leaving_log.log_reason()
        log.info("%s", node.ended_because)
        return node.control.exit_status
    finally:
        for task in (told, ready, *waits):
            task.cancel()
        await node.stop()


async def _announce(node: Node) -> None:
    told = ""
    loop = asyncio.get_running_loop()
    began_s = warned_s = loop.time()
    limit_s = node.settings.cluster.join_timeout_ms / 1000
    while not node.joined:
        await asyncio.sleep(0.05)
        refusal = node.refusal
        if refusal and refusal != told:
            raise ConfigError(f"the cluster refuses this member: {refusal}")
        if node.waits_for_others and told != "waiting":
            told = "waiting"
            missing = node.member.picture.waits_for_members
            why = f"partitions are not assigned yet, for {missing} more data members" if missing else ""
            log.info("in the cluster; %s", why or node.member.picture.unsafe_reason())
        now_s = loop.time()
        if node.member.picture.admitted:
            continue  # It is in a cluster, and waits there for others: as long as that takes.
        if limit_s and now_s - began_s >= limit_s:
            raise Unreachable(
                f"{no_cluster_reason(node, limit_s)} (cluster.join_timeout_ms): this member ends"
            )
        if now_s - warned_s >= WARN_S:
            warned_s = now_s
            log.warning("%s", no_cluster_reason(node, now_s - began_s))
    picture = node.member.picture
    log.info(
        "ready uuid=%s client_port=%d member_port=%d members=%d master=%s",
        node.member_uuid,
        node.client_address.port,
        picture.info.port,
        len(picture.members()),
        picture.master,
    )


def no_cluster_reason(node: Node, waited_s: float) -> str:
    seeds = ", ".join(node.settings.cluster.seeds) or "none"
    advice = node.member.picture.join_advice or "Start the first seed, or start one member with --bootstrap"
    return f"not in a cluster after {waited_s:.3g} s; seeds: {seeds}. {'; '.join(node.troubles) or advice}"


class LeavingLog:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._told = ""

    def log_reason(self) -> None:
        """Log the reason once. A drain shorter than one look is logged at its end."""
        picture = self._node.member.picture
        if self._told or not picture.leaving:
            return
        self._told = "why"
        if picture.ending:
            log.info("the cluster is being shut down: leaving with all other members")
        else:
            log.info(
                "draining: leaving when every partition is safe elsewhere (a second signal ends at once)"
            )

    async def follow(self) -> None:
        node = self._node
        while True:
            self.log_reason()
            if node.member.picture.leaving and not node.ended.is_set():
                state = _progress(node)
                if state != self._told:
                    self._told = state
                    log.info("draining: %s", state)
            await asyncio.sleep(LOOK_S)


def _progress(node: Node) -> str:
    picture = node.member.picture
    left = sum(1 for row in node.member.picture.assignments if node.member.me in row.replicas)
    why = "" if picture.cluster_state.migrates else node.member.picture.leave_blocker()
    if why:
        return f"{why}, or stop it at once with a second signal"
    return "as soon as the others know" if picture.ending else f"{left} partition replicas still here"


async def _drained(node: Node, at_once: asyncio.Event) -> None:
    limit_s = node.settings.partitions.drain_timeout_s
    waits = {asyncio.create_task(node.ended.wait()), asyncio.create_task(at_once.wait())}
    _, pending = await asyncio.wait(waits, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    if node.ended.is_set():
        return
    if at_once.is_set():
        log.warning("ending at once, before the drain is complete")
    else:
        why = node.member.picture.leave_blocker() or "the other members have not agreed that it may leave"
        log.error("not drained within partitions.drain_timeout_s = %d: %s", limit_s, why)
