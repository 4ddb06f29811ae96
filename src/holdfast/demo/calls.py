"""A client whose every call on a few hot keys is noted, with its answer: for the judge of linearizability.

    python -m holdfast.demo.calls --address HOST:PORT ... --map NAME --client NAME > HISTORY

The official Hazelcast client with several threads, until standard input ends. Every value is written once only. The
client sends no call again by itself that may have been carried out (its default), so an error leaves its call unknown,
unless the error says that nothing was done. It prints one line of JSON for each call, as `history` reads it; the
Java client's program (`tests/interop/java`, `HotKeys`) writes the same.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click

from holdfast.check.linearizability import FOREVER, UNTOLD, Call, Outcome

OPERATIONS = {
    "set": "set",
    "get": "get",
    "put": "put",
    "remove": "remove",
    "delete": "delete",
    "putIfAbsent": "put_if_absent",
    "replace": "replace",
    "replaceIfSame": "replace_if_same",
    "removeIfSame": "remove_if_same",
}
"""What the lines call an operation, and what the judge does."""
CHOSEN = (
    ("set",) * 4 + ("get",) * 3 + ("replaceIfSame",) * 2 + ("putIfAbsent", "remove", "delete", "removeIfSame")
)
"""What a thread chooses from: mostly what leaves a value, for an absent key looks like every other absent key."""
REFUSALS = ("IllegalArgumentError", "UnsupportedOperationError", "NoDataMemberInClusterError")
"""Errors of the client that mean: certainly not applied. Whatever is not named here may have been."""
REFUSED = "was not applied"
"""What members say in a refusal that is an error of another kind."""
LAST_WAIT_S = 130.0


def key_names(keys: int) -> list[str]:
    """The hot keys of a run."""
    return [f"k{number}" for number in range(keys)]


class Caller:
    """One thread of the client."""

    def __init__(
        self,
        target: Any,
        name: str,
        keys: int,
        seed: int,
        operations: list[str],
        out: Callable[[dict[str, Any]], None],
    ) -> None:
        self._map = target
        self._name = name
        self._keys = key_names(keys)
        self._dice = random.Random(f"{seed}/{name}")  # noqa: S311 - which key is called is no secret
        self._operations = operations
        self._out = out
        self._seen: dict[str, str] = {}
        """The last value that this thread knows of each key: what it compares with."""
        self._number = 0

    def rest_s(self, mean_s: float) -> float:
        """How long to rest before the next call, in seconds: up to twice the mean."""
        return self._dice.uniform(0, 2 * mean_s)

    def step(self) -> None:
        """One call."""
        self._number += 1
        operation, key = self._dice.choice(self._operations), self._dice.choice(self._keys)
        value = f"{self._name}/{self._number}"
        expected = self._seen.get(key, f"{self._name}/never")
        argument: str | list[str] | None
        if operation in ("get", "remove", "delete"):
            argument = None
        elif operation == "replaceIfSame":
            argument = [expected, value]
        else:
            argument = expected if operation == "removeIfSame" else value
        line: dict[str, Any] = {"client": self._name, "op": operation, "key": key, "arg": argument}
        call = getattr(self._map, OPERATIONS[operation])
        arguments = argument if isinstance(argument, list) else [argument] if argument is not None else []
        line["start_ns"] = time.monotonic_ns()
        try:
            line["result"] = call(key, *arguments)
            line["outcome"] = "ok"
        except Exception as error:  # noqa: BLE001 - whatever the client raises, the caller was not answered
            kind = type(error).__name__
            refused = kind in REFUSALS or (kind == "IllegalStateError" and REFUSED in str(error))
            line["outcome"], line["error"] = ("refused" if refused else "unknown"), f"{kind}: {error}"
        line["end_ns"] = time.monotonic_ns()
        self._out(line)
        if line["outcome"] == "ok":
            if operation == "set" or (operation == "replaceIfSame" and line["result"]):
                self._seen[key] = value
            elif isinstance(line["result"], str):
                self._seen[key] = line["result"]


def history(lines: Iterable[str]) -> Iterator[Call]:
    """The calls that a client has noted, as the judge takes them.

    Raises ValueError for a line that is none of a call.
    """
    for line in lines:
        noted = json.loads(line)
        if "op" not in noted:
            continue  # "ready", and the counts at the end.
        operation = OPERATIONS[noted["op"]]
        argument, expected = noted["arg"], None
        if operation == "replace_if_same":
            expected, argument = argument
        elif operation == "remove_if_same":
            expected, argument = argument, None
        outcome = Outcome(noted["outcome"])
        yield Call(
            operation,
            noted["key"],
            noted["start_ns"],
            noted["end_ns"] if outcome is Outcome.DONE else FOREVER,
            outcome,
            argument,
            expected,
            UNTOLD if operation == "delete" else noted.get("result"),
            noted["client"],
        )


def open_client(addresses: tuple[str, ...], name: str, *, smart: bool) -> Any:
    """The official client; without `smart` it speaks to one member only, whoever owns the key."""
    from hazelcast.client import HazelcastClient

    return HazelcastClient(
        cluster_members=list(addresses),
        client_name=name,
        cluster_connect_timeout=120,
        reconnect_mode="ON",
        smart_routing=smart,
        statistics_enabled=False,
    )


def run(caller: Caller, pause_s: float, ended: threading.Event) -> None:
    """Call until it is enough."""
    while not ended.wait(caller.rest_s(pause_s)):
        caller.step()


@click.command()
@click.option("--address", "addresses", multiple=True, required=True, help="host:port of a client door.")
@click.option("--map", "name", required=True, help="Name of the map.")
@click.option(
    "--client", default="p", show_default=True, help="What the calls of this process are signed with."
)
@click.option("--keys", default=4, show_default=True)
@click.option("--threads", default=4, show_default=True)
@click.option("--pause-us", default=0, show_default=True, help="Between two calls of a thread, on average.")
@click.option(
    "--ops", default=",".join(CHOSEN), help="What to choose from; named twice it comes twice as often."
)
@click.option("--seed", default=1, show_default=True)
@click.option("--smart/--no-smart", default=True, show_default=True)
def main(
    addresses: tuple[str, ...],
    name: str,
    client: str,
    keys: int,
    threads: int,
    pause_us: int,
    ops: str,
    seed: int,
    *,
    smart: bool,
) -> None:
    """Call until standard input ends."""
    lock = threading.Lock()
    ended = threading.Event()
    connected = open_client(addresses, f"holdfast-calls-{client}", smart=smart)

    def note(line: dict[str, Any]) -> None:
        with lock:
            click.echo(json.dumps(line))

    target = connected.get_map(name).blocking()
    note({"ready": True})
    callers = [
        Caller(target, f"{client}/{number}", keys, seed, ops.split(","), note) for number in range(threads)
    ]
    workers = [
        threading.Thread(target=run, args=(caller, pause_us / 1e6, ended), daemon=True) for caller in callers
    ]
    for worker in workers:
        worker.start()
    sys.stdin.read()
    ended.set()
    deadline_s = time.monotonic() + LAST_WAIT_S
    for worker in workers:
        worker.join(max(0.0, deadline_s - time.monotonic()))
    connected.shutdown()


if __name__ == "__main__":
    main()
