"""One member as a process: logs on standard output, signals, exit status.

SIGTERM and SIGINT drain: the member leaves when its partitions are safe elsewhere. A second one, or the end of
`partitions.drain_timeout_s`, ends it at once. Exit status 0 after a clean leave, 1 otherwise.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from typing import Any

import uvloop

from holdfast.config import Settings
from holdfast.errors import ConfigError, InvariantBroken
from holdfast.runtime.node import Node

log = logging.getLogger("holdfast")

BROKEN = 70
"""Exit status after an error inside the member (EX_SOFTWARE)."""
PROGRESS_S = 1.0


def main(settings: Settings) -> int:
    """Run one member until it has left; answers the exit status. Raises ConfigError when it cannot start."""
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(settings))


async def _run(settings: Settings) -> int:
    node = Node(settings)
    loop = asyncio.get_running_loop()
    broken: list[BaseException] = []

    def failed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # Whatever went wrong in a callback went wrong inside the member: stop rather than guess.
        loop.default_exception_handler(context)
        broken.append(context.get("exception") or InvariantBroken(str(context.get("message"))))
        node.ended.set()

    loop.set_exception_handler(failed)
    # All modules are loaded: keep them out of the collector's sight, for a full collection of them would stop the
    # member for 30 ms. Now, while nobody waits for it, and once: whatever is frozen is never collected.
    gc.collect()
    gc.freeze()
    await node.start()
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
        node.member.membership.info.host + ":" + str(node.member.membership.info.port),
    )
    ready = asyncio.create_task(_announce(node))
    waits = {ready, asyncio.create_task(leaving.wait()), asyncio.create_task(node.ended.wait())}
    try:
        while not leaving.is_set() and not node.ended.is_set():
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if ready in waits and ready.done():
                waits.discard(ready)
                ready.result()
        status = 0 if node.ended.is_set() else await _drain(node, at_once)
        if broken:
            log.error("this member stops, because of an error inside it: %s", broken[0])
            return BROKEN
        return status
    finally:
        for task in (ready, *waits):
            task.cancel()
        await node.stop()


async def _announce(node: Node) -> None:
    """Say when the member is in the cluster; until then, what it waits for."""
    waited = 0.0
    told = ""
    limit_s = node.settings.cluster.join_timeout_ms / 1000
    while not node.joined:
        await asyncio.sleep(0.05)
        waited += 0.05
        refusal = node.member.membership.refusal
        if refusal and refusal != told:
            raise ConfigError(f"the cluster refuses this member: {refusal}")
        if waited >= limit_s:
            seeds = ", ".join(node.settings.cluster.seeds) or "none"
            log.warning(
                "not in a cluster after %.0f s; seeds: %s. Start the first seed, or start one member with --bootstrap",
                limit_s,
                seeds,
            )
            waited = 0.0
    membership = node.member.membership
    log.info(
        "ready uuid=%s client_port=%d member_port=%d members=%d master=%s",
        node.member_uuid,
        node.client_address.port,
        membership.info.port,
        len(membership.members()),
        membership.master,
    )


async def _drain(node: Node, at_once: asyncio.Event) -> int:
    """Leave, with progress in the log."""
    log.info("draining: leaving when every partition is safe elsewhere (a second signal ends at once)")
    node.leave()
    loop = asyncio.get_running_loop()
    deadline = loop.time() + node.settings.partitions.drain_timeout_s
    told = -1
    while not node.ended.is_set():
        if at_once.is_set():
            log.warning("ending at once, before the drain is complete")
            return 1
        if loop.time() > deadline:
            log.error(
                "not drained within partitions.drain_timeout_s = %d", node.settings.partitions.drain_timeout_s
            )
            return 1
        left = sum(1 for row in node.member.table.rows if node.member.me in row.replicas)
        if left != told:
            told = left
            log.info("draining: %d partition replicas still here", left)
        _, pending = await asyncio.wait(
            {asyncio.create_task(node.ended.wait()), asyncio.create_task(at_once.wait())},
            timeout=PROGRESS_S / 4,
            return_when=asyncio.FIRST_COMPLETED,
        )
        for task in pending:
            task.cancel()
    log.info("%s", node.ended_because)
    return 0
