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

Look up here whether an application with an official Hazelcast client can use Holdfast. Find its calls in the column of
its client. If all are marked *works*, change the address, and nothing else.

Supported data structures are [maps](#map) with [locks](structures.md#locks-on-entries), [transactions over
maps](#transactionalmap), [multimaps](#multimap), [queues](#queue), [lists](#list),
[sets](#set), [ringbuffers](#ringbuffer), [topics](#topic), [replicated maps](#replicatedmap),
[PN counters](#pncounter), [flake id generators](#flakeidgenerator), [CP objects](#fencedlock) and
[cardinality estimators](#cardinalityestimator) ([structures.md](structures.md)). Clients send no code to
members, and their classes need not be there: [entry processors](processors.md) are functions of the members, which
clients name. Interceptors, aggregations, projections and all
predicates but the one that is always true are rejected ([errors](#error-messages), [details](#details)).

Holdfast implements the Hazelcast Open Binary Client Protocol 2.x. `make compatibility` makes this page from the
members' own tables, and from the results of the programs in `tests/interop` with real clients and real members. A test
compares the page with both.

| mark | meaning |
|------|---------|
| works | a program with this client has called it, and it did what the client's documentation says |
| refused | a program has called it, and got an error whose text names the call |
| withheld | the client does not send it: its vendor offers it in the enterprise edition only |
| | the programs do not call it: this client has no such call, or sends it on its own |

"""

REFUSALS = """
## Error messages

Unsupported calls get an `UnsupportedOperationException` (Java; `UnsupportedOperationError` in Python
and Node.js, `hzerrors.ErrUnsupportedOperation` in Go). It names the call and this page: `Map.addIndex is
not supported by Holdfast (docs/compatibility.md lists what is)`. The connection stays open. A structure is rejected
when the client opens it, or at its first call, whichever reaches the members first.

**`Listener cannot be added`** is the only message of the Java, Python and Node.js clients when a listener or a near
cache is rejected. The reason is the cause of that error: in Java `getCause()`, in Node.js `cause`, in Python
`__context__`. So it is in the stack trace or traceback.

## Details

Maps:

* Entry views have no statistics: hits, and the times of creation, access, store and update, are -1. The `version`
  changes when the value of the entry changes, and only then: it is a hash of the value, not a counter.
* `loadAll` loads nothing, because members have no map store. It is not an error.
* Listeners end with their map. After `destroy()` on any client they get no events of a new map of the same name, and no
  event for the removed entries. Near caches continue to work.
* An iterator of the Java client returns exactly once each entry that exists during the whole iteration.
* A map name has at most 1,024 characters. The map with the empty name is listed as `(unnamed)`.
* A Java client compares the histories of near caches by partition, not by map. If it has near caches for maps in a
  zone and for others, and another member leads the partition in the zone than owns it, each comparison (by default once
  a minute) makes it read the entries of that partition again.

Clients:

* A client with several clusters in its configuration (`ClientFailoverConfig`) may connect to each.
* **Set a deadline in the context of each call of the Go client.** Now and then it forgets a request when its connection
  breaks, and waits for a response until that deadline. The outcome of such a call is unknown.
* The Go client, when connected to one member only (`Unisocket`), does not register its listeners at another member.
  After the first member has gone they get no events. Smart clients do register them.
* The clients for .NET and C++ use the same protocol, but no program here tests them.

Limits:

* Requests may come in fragments. All unfinished requests of a connection together take at most `limits.frame_bytes`.
* A request is read and executed in slices, so a long one delays other clients by some ms at most.
* The names of a Compact schema, and 8 characters for each of its fields, are at most 32,768 characters together.
* A request asks for the near-cache metadata of at most 1,000 maps, has at most 10,000 schemas, and opens at most 50,000
  structures. A parameter that is not a list has at most 16,000 frames.
* A request above a limit is rejected with an error that names the limit.
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
