"""What the programs of the official clients have found of each call, kept in `recorded/`: one file for each client.

A test that runs such a program compares what it finds with what is kept; with `INTEROP_RECORD=1` it keeps it.
`docs/compatibility.md` is made from these files.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

FOLDER = Path(__file__).parent / "recorded"
OUTCOMES = {"works", "refused", "withheld"}
"""`withheld`: the client itself does not send it, in its free edition."""

Calls = dict[str, str]
"""Call -> what became of it."""


def kept(client: str) -> dict[str, Calls]:
    """What was found of a client, by the part of its program that has found it, and `client`: its version."""
    file = FOLDER / f"{client}.json"
    found: dict[str, Calls] = json.loads(file.read_text()) if file.exists() else {}
    return found


def compare(client: str, version: str, part: str, found: Calls) -> None:
    """This part of a client's program has found this."""
    odd = {call: outcome for call, outcome in found.items() if outcome not in OUTCOMES}
    assert not odd, odd
    parts = kept(client)
    if os.environ.get("INTEROP_RECORD"):
        parts.update({"client": {"version": version}, part: dict(sorted(found.items()))})
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / f"{client}.json").write_text(json.dumps(dict(sorted(parts.items())), indent=1) + "\n")
        return
    assert parts["client"] == {"version": version}
    assert parts[part] == found, "run `make compatibility` if that is what it should find now"


NEAR_CACHE = {
    "Map.addNearCacheInvalidationListener": "works",
    "Map.fetchNearCacheInvalidationMetadata": "works",
}
"""What a program that has a near cache has called, if that was fed."""
