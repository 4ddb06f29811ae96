"""Makes `docs/compatibility.md`: what members serve, and what each official client was found to get.

    python -m tests.interop.compatibility

What members serve is read from their own table of requests; what the requests are called, from the table of their
names; what clients get, from `recorded/`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from textwrap import fill

from tests.interop.recorded import Calls, kept

from holdfast.server.hazelcast.hazelcast_session import MESSAGES
from holdfast.server.hazelcast.names import NAMES, SERVICES

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
CLIENTS = {"java": "Java", "go": "Go", "python": "Python", "node": "Node.js"}
SERVED = {NAMES[kind]: message for kind, message in MESSAGES.items()}

INTRODUCTION = """\
# What works with which client

Made by `make compatibility` from the members' own tables and from what the programs in `tests/interop` have found with
real clients and real members; a test holds it against both.

Holdfast speaks the Hazelcast Open Binary Client Protocol 2.x. *Unchanged* means: an application with an official client
needs another address, and nothing else, as long as its calls are marked *works* here. Of the data structures these
are maps, and transactions over maps. The classes of an application need not be on the members, and no code of it runs
there: so entry processors, interceptors, aggregations, projections and all predicates but the one that is always true
are refused.

| mark | meaning |
|------|---------|
| works | a program with this client has called it, and it did what the client's documentation says |
| refused | a program has called it, and was told so by an error whose text names the call |
| withheld | the client itself does not send it: its vendor has it in the enterprise edition alone |
| | the programs do not call it: this client has no such call, or makes it by itself |

"""

REFUSALS = """
## Error messages

Unsupported calls get an `UnsupportedOperationException` (Java; `UnsupportedOperationError` in Python
and Node.js, `hzerrors.ErrUnsupportedOperation` in Go) that says which call it was, and names this page: `Map.lock is
not supported by Holdfast (docs/compatibility.md lists what is)`. The connection stays open. A structure is rejected
when the client opens it, or at its first call, whichever reaches the members first.

There is one place where clients hide the reason: when a listener cannot be added, or a near cache made, the error of
the Java, Python and Node.js clients says `Listener cannot be added` alone. The reason is the cause of that error: in
Java `getCause()`, in Node.js `cause`, in Python `__context__`; so it stands in the stack trace or traceback.

## Details

* The statistics of an entry view that are -1 (hits, and the times of creation, access, store and update) are not kept.
  Its `version` changes when the value of the entry changes, and only then: it is derived from the value and is no
  count.
* Loading without a map store loads nothing, and is no error.
* Listeners end with their map: after `destroy()` on any client they get no events of a new map of
  the same name, and none that the first one was cleared. Near caches continue to work.
* An iterator of the Java client tells once of each entry that is there from its beginning to its end.
* A map name has at most 1,024 characters. The map with the empty name is the map `(unnamed)`: that is how it is listed.
* Requests may come in fragments. All of a connection that are not whole yet take no more than `limits.frame_bytes`.
* A client with several clusters to go to (`ClientFailoverConfig`) is let in by each.
* Maps that live in a zone have no near caches: see [zones.md](zones.md).
* A request is read and carried out in slices, so a long one keeps other clients waiting for some ms at most. Some have
  a limit: the names of a Compact schema, and 8 characters for each of its fields, are at most 32,768 together; a
  request asks for the near-cache metadata of at most 1,000 maps, brings at most 10,000 schemas and opens at most 50,000
  structures; a parameter that is no list has at most 16,000 frames. More is refused by an error that says the limit.
* The Go client forgets a request now and then that is under way when its connection breaks, and waits for a response
  until the deadline of its context: set one for each call. The outcome of such a call is unknown.
* The Go client, when connected to one member only (`Unisocket`), does not register its listeners at another one:
  after that member has gone they get no events. Smart clients do.
* The clients for .NET and C++ speak the same protocol, but no program here uses them.
"""


def page() -> str:
    """The page as it should be."""
    parts = {client: kept(client) for client in CLIENTS}
    found = {client: _merged(client, found) for client, found in parts.items()}
    versions = [f"| {CLIENTS[client]} | {parts[client]['client']['version']} |" for client in CLIENTS]
    text = INTRODUCTION + "\n".join(["| client | version |", "|--------|---------|", *versions]) + "\n"
    whole, rest = [], []
    for service in SERVICES.values():
        calls = [name for name in NAMES.values() if name.startswith(f"{service}.")]
        if any(name in SERVED for name in calls):
            whole.append(f"\n## {service}\n\n" + _table(_rows(calls, found), found))
        else:
            rest.append(service)
    text += "".join(whole)
    text += "\n## Structures that are refused, with all their calls\n\n" + _table(rest, found) + "\n"
    for service in rest:
        calls = [name.partition(".")[2] for name in NAMES.values() if name.startswith(f"{service}.")]
        if calls:
            text += fill(f"* {service}: {', '.join(calls)}", width=120, subsequent_indent="  ") + "\n"
    return text + REFUSALS


def _merged(client: str, parts: dict[str, Calls]) -> Calls:
    """All that was found of a client."""
    found: Calls = {}
    for part, calls in parts.items():
        if part != "client":
            for call, outcome in calls.items():
                assert found.setdefault(call, outcome) == outcome, f"{client} finds two things of {call}"
    return found


def _rows(calls: list[str], found: dict[str, Calls]) -> Iterable[str]:
    """The calls, each followed by those that are like it but for their predicate."""
    tried = {call for calls in found.values() for call in calls}
    for name in calls:
        yield name
        yield from sorted(call for call in tried if call.startswith(f"{name}, "))


def _table(rows: Iterable[str], found: dict[str, Calls]) -> str:
    lines = [
        f"| call | members | {' | '.join(CLIENTS.values())} |",
        f"|------|---------|{'|'.join('-' * (len(name) + 2) for name in CLIENTS.values())}|",
    ]
    for row in rows:
        served = "serve" if row in SERVED else "refuse"
        marks = [found[client].get(row, "") for client in CLIENTS]
        lines.append(f"| {row} | {served} | {' | '.join(marks)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
