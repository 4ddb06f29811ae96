"""A client that records every call on a few hot keys, with its answer, for the judge of linearizability.

    python -m holdfast_lab.chaos.recorded_calls --address HOST:PORT ... --map NAME --client NAME > HISTORY

It runs the official Hazelcast client with several threads until standard input ends or has the line "stop". Every value
is written once. The client does not retry calls that may have been applied (its default), so after an error the outcome
is unknown unless the error says otherwise. It prints a line of JSON for each call, which `history` reads, as does the
Java client's program (`tests/interop/java`, `HotKeys`).

Any other line of standard input is a JSON list of keys, which are all read once.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import click

from holdfast_lab.check.linearizability import FOREVER, UNTOLD, Call, Outcome

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
CHOSEN = (
    ("set",) * 4 + ("get",) * 3 + ("replaceIfSame",) * 2 + ("putIfAbsent", "remove", "delete", "removeIfSame")
)
"""Weights of operations: mostly those that leave a value, since all absent keys look alike."""
REFUSALS = ("IllegalArgumentError", "UnsupportedOperationError", "NoDataMemberInClusterError")
"""Client errors that mean: certainly not applied. After all others a call may have been applied."""
REFUSED = "was not applied"
"""Text of members in rejections that are other errors."""
LAST_WAIT_S = 130.0


REREAD = 8
"""One in so many reads of rotating keys reads an earlier key."""
READ_AGAIN_S = 0.2


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys to call now. With `rotate_s` they change at that interval, for all clients of a machine at once,
    so that no key's history becomes too long for the judge.
    """

    count: int
    prefix: str = "k"
    rotate_s: int = 0

    def turn(self, now_ns: int) -> int:
        return now_ns // (self.rotate_s * 1_000_000_000) if self.rotate_s else 0

    def names(self, turn: int) -> list[str]:
        middle = f"{turn}." if self.rotate_s else ""
        return [f"{self.prefix}{middle}{number}" for number in range(self.count)]


class Caller:
    def __init__(
        self,
        target: Any,
        name: str,
        keys: Keys,
        seed: int,
        operations: list[str],
        out: Callable[[dict[str, Any]], None],
    ) -> None:
        self._map = target
        self._name = name
        self._keys = keys
        self._first_turn = keys.turn(time.monotonic_ns())
        self._dice = random.Random(f"{seed}/{name}")  # noqa: S311 - which key is called is no secret
        self._operations = operations
        self._out = out
        self._seen: dict[str, str] = {}
        self._number = 0

    def rest_s(self, mean_s: float) -> float:
        return self._dice.uniform(0, 2 * mean_s)

    def step(self) -> None:
        self._number += 1
        operation = self._dice.choice(self._operations)
        turn = self._keys.turn(time.monotonic_ns())
        if operation == "get" and self._dice.randrange(REREAD) == 0:
            turn = self._dice.randint(self._first_turn, turn)
        key = self._dice.choice(self._keys.names(turn))
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


def read_each(target: Any, name: str, keys: list[str], out: Callable[[dict[str, Any]], None]) -> None:
    """Read each of these keys once, all at the same time; failed reads are repeated for `LAST_WAIT_S`.

    `target`: the non-blocking map.
    """
    deadline_s = time.monotonic() + LAST_WAIT_S
    again: list[str] = []
    while keys:
        again = []
        begun = [(key, time.monotonic_ns(), target.get(key)) for key in keys]
        for key, start_ns, answer in begun:
            line = {"client": name, "op": "get", "key": key, "arg": None, "start_ns": start_ns}
            try:
                line["result"] = answer.result()
            except Exception as error:  # noqa: BLE001 - whatever the client raises, it was not answered
                line["outcome"], line["error"] = "unknown", f"{type(error).__name__}: {error}"
                again.append(key)
            else:
                line["outcome"] = "ok"
            out({**line, "end_ns": time.monotonic_ns()})
        keys = again if time.monotonic() < deadline_s else []
        if keys:
            time.sleep(READ_AGAIN_S)
    out({"read": True, "unread": again})


def history(lines: Iterable[str]) -> Iterator[Call]:
    """The recorded calls in the form of the judge. Raises ValueError for an invalid line."""
    for line in lines:
        noted = json.loads(line)
        if "op" in noted:  # Otherwise "ready", or the counts at the end.
            yield call_of(noted)


def call_of(noted: dict[str, Any]) -> Call:
    operation = OPERATIONS[noted["op"]]
    argument, expected = noted["arg"], None
    if operation == "replace_if_same":
        expected, argument = argument
    elif operation == "remove_if_same":
        expected, argument = argument, None
    outcome = Outcome(noted["outcome"])
    return Call(
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
    """Without `smart` the client uses one member for all keys."""
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
    while not ended.wait(caller.rest_s(pause_s)):
        caller.step()


@click.command()
@click.option("--address", "addresses", multiple=True, required=True, help="host:port of a client door.")
@click.option("--map", "name", required=True, help="Name of the map.")
@click.option(
    "--client", default="p", show_default=True, help="What the calls of this process are signed with."
)
@click.option("--keys", "count", default=4, show_default=True, help="How many are called at a time.")
@click.option("--prefix", default="k", show_default=True, help="What the names of the keys begin with.")
@click.option("--rotate-s", default=0, show_default=True, help="Other keys every so many seconds; 0: never.")
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
    count: int,
    prefix: str,
    rotate_s: int,
    threads: int,
    pause_us: int,
    ops: str,
    seed: int,
    *,
    smart: bool,
) -> None:
    """Call until standard input ends, or says so."""
    lock = threading.Lock()
    ended = threading.Event()
    connected = open_client(addresses, f"holdfast-calls-{client}", smart=smart)

    def note(line: dict[str, Any]) -> None:
        with lock:
            click.echo(json.dumps(line))

    target = connected.get_map(name)
    blocking = target.blocking()
    keys = Keys(count, prefix, rotate_s)
    note({"ready": True})
    callers = [
        Caller(blocking, f"{client}/{number}", keys, seed, ops.split(","), note) for number in range(threads)
    ]
    workers = [
        threading.Thread(target=run, args=(caller, pause_us / 1e6, ended), daemon=True) for caller in callers
    ]
    for worker in workers:
        worker.start()
    for line in iter(sys.stdin.readline, ""):
        if line.strip() == "stop":
            break
        read_each(target, f"{client}/reader", json.loads(line), note)
    ended.set()
    deadline_s = time.monotonic() + LAST_WAIT_S
    for worker in workers:
        worker.join(max(0.0, deadline_s - time.monotonic()))
    connected.shutdown()


if __name__ == "__main__":
    main()
