"""Exit statuses of each command, in one table for `--help`, the documentation and tests.

| status | meaning |
|--------|---------|
| 0      | done, or true |
| 1      | rejected, failed, or false; the last line of standard error has the reason |
| 2      | invalid command line, input file or setting; nothing was done |
| 3      | unfinished or unknown: the change is still in progress, or was perhaps made, or not everything was checked |
| 4      | no member can be reached |
| 70     | an internal error or a disk error stopped the member (`start`) |
"""

from __future__ import annotations

from collections.abc import Iterable

import click

from holdfast.errors import ConfigError, Standing, Unknown, Unreachable

DONE, FAILED, MISUSED, OPEN, UNREACHABLE, BROKEN = 0, 1, 2, 3, 4, 70

GENERAL = {
    DONE: "done, or true",
    FAILED: "rejected, failed, or false",
    MISUSED: "invalid command line, input file or setting; nothing was done",
    OPEN: "unfinished or unknown: still in progress, perhaps done, or not everything could be checked",
    UNREACHABLE: "no member can be reached",
    BROKEN: "an internal error or a disk error stopped the member (start)",
}

Meanings = dict[int, str]
Table = dict[str, Meanings]

WRONG = {MISUSED: "invalid command line"}
UNANSWERED = {UNREACHABLE: "no member can be reached"}
IN_DOUBT = "unknown whether it was done: look before you repeat it"


def _asks(done: str, failed: str, unfinished: str = "") -> Meanings:
    """Statuses of a command that contacts a cluster."""
    return {DONE: done, FAILED: failed, **WRONG, **({OPEN: unfinished} if unfinished else {}), **UNANSWERED}


def _reads(done: str, failed: str) -> Meanings:
    """Statuses of a command that contacts no cluster."""
    return {DONE: done, FAILED: failed, **WRONG}


SHOWS = _asks("shown", "rejected")
CHANGES = _asks("done", "rejected, or timed out and withdrawn", IN_DOUBT)
ONCE = _asks("done", "rejected", IN_DOUBT)
STANDS = _asks("done", "rejected", f"timed out, and the cluster continues; or {IN_DOUBT}")
_COMPARES = _asks(
    "all copies are equal", "copies differ", "no difference found, but not every copy could be compared"
)
_FILES = _reads("all files can be read", "a file is damaged or missing")
_LOCAL: Meanings = {DONE: "shown", **WRONG}
_KEY = _asks("the key has a value", "the key has no value, or rejected")


STATUS_OF_ERROR: tuple[tuple[type[BaseException], int], ...] = (
    (ConfigError, MISUSED),
    (Standing, OPEN),
    (Unknown, OPEN),
    (Unreachable, UNREACHABLE),
)
"""All other errors are `FAILED`. Example of a script for which `Unknown` must not be that: it repeats `metastore put`
after status 1, and overwrites what another client has written since its first try took effect.
"""


def status_of(error: BaseException) -> int:
    """The exit status of a command that ends with this error."""
    for kind, status in STATUS_OF_ERROR:
        if isinstance(error, kind):
            return status
    return FAILED


def combined(statuses: Iterable[int]) -> int:
    """The status of a command with several results: of all of them, else the worst that it means for the whole."""
    found = set(statuses) or {DONE}
    if len(found) == 1:
        return found.pop()
    return FAILED if found & {FAILED, UNREACHABLE} else max(found)


STATUSES: Table = {
    "start": {
        DONE: "the member has left, alone or with the whole cluster",
        FAILED: "the member ended before its data was safe elsewhere, or was evicted",
        MISUSED: "not started: a setting is invalid, a port is in use, or the cluster rejects this member",
        UNREACHABLE: "the member found no cluster in time",
        BROKEN: "an internal error or a disk error stopped the member; its log names it",
    },
    "status": SHOWS,
    "top": SHOWS,
    "cluster safe": _asks("safe: a crash loses nothing", "not safe, or rejected"),
    "cluster restart": _asks(
        "all are restarted, and the cluster is safe",
        "rejected, or a member was not restarted",
        "not in time, or unknown whether a member was restarted",
    ),
    "cluster exchange": SHOWS,
    "cluster watch": _reads("ended by Ctrl-C", "rejected"),
    "cluster baseline show": SHOWS,
    "verify": _COMPARES,
    "repair": {**_COMPARES, DONE: "all copies are equal now (with --dry-run: were equal)"},
    "journal list": _FILES,
    "journal verify": _FILES,
    "journal print": _FILES,
    "analyse": _reads("no damage and no missing update found", "a file is damaged, or an update is missing"),
    "plan": _asks("a plan is shown", "rejected"),
    "zone list": SHOWS,
    "zone show": {**SHOWS, FAILED: "no such zone, or rejected"},
    "map list": SHOWS,
    "map show": SHOWS,
    "metastore get": _KEY,
    "metastore scan": SHOWS,
    "metastore history": SHOWS,
    "metastore watch": _asks("ended by Ctrl-C", "the cluster has no metastore, or rejected"),
    "metastore status": _asks("the metastore has a leader", "it has none, or rejected"),
    "transactions list": SHOWS,
    "transactions show": {**SHOWS, FAILED: "no such transaction, or rejected"},
    "transactions kill": _asks("rolled back", "no such transaction, or rejected", IN_DOUBT),
    "load": _asks("all rows are stored", "some rows are not stored"),
    "read": SHOWS,
    "changes": _asks("all changes read (--once), or ended by Ctrl-C", "the stream failed"),
    "export run": _asks("written", "not written"),
    "export verify": _reads("unchanged since it was written", "a file is damaged or missing"),
    "backup": _asks("written", "not written"),
    "restore": _asks(
        "the grid holds exactly the content of the export",
        "the grid differs, or the export is damaged",
        "could not be compared: other clients wrote, or entries expired",
    ),
    "data get": _KEY,
    "data put": _asks("stored", "rejected, or with --if-absent: the key has a value", IN_DOUBT),
    "data remove": _asks("removed", "the key had no value, or rejected", IN_DOUBT),
    "data keys": SHOWS,
    "data size": SHOWS,
    "data scan": SHOWS,
    "data maps": SHOWS,
    "data structures": SHOWS,
    "data items": SHOWS,
    "cp list": SHOWS,
    "cp show": SHOWS,
    "config show": {DONE: "shown, or the file is valid", **WRONG},
    "credentials": _LOCAL,
    "help": _LOCAL,
}
"""The meaning of each status by command. A command has no other status."""

ALIASES = {"export": "export run", "config": "config show"}
"""Commands that are also groups: `holdfast config` is `holdfast config show`, beside `holdfast config set`."""


def epilog(meanings: Meanings) -> str:
    """The exit statuses of a command in one line, for its help."""
    return "Exit status: " + "; ".join(f"{status} {meaning}" for status, meaning in meanings.items()) + "."


def general_epilog() -> str:
    """The exit statuses that all commands share, for the help of a group."""
    lines = "\n".join(f"  {status:<3} {meaning}" for status, meaning in GENERAL.items())
    return f"\b\nExit status of every command (its own --help has the details):\n{lines}"


def as_table(statuses: Table) -> str:
    columns = (DONE, FAILED, MISUSED, OPEN, UNREACHABLE, BROKEN)
    shown = [one for one in columns if any(one in meanings for meanings in statuses.values())]
    lines = [f"| command | {' | '.join(map(str, shown))} |", "|---" * (len(shown) + 1) + "|"]
    for path, meanings in statuses.items():
        name = path.removesuffix(" run").removesuffix(" show") if path in ALIASES.values() else path
        lines.append(f"| `{name}` | {' | '.join(meanings.get(one, '') for one in shown)} |")
    return "\n".join(lines)


def all_commands(command: click.Command, path: tuple[str, ...] = ()) -> dict[str, click.Command]:
    if not isinstance(command, click.Group):
        return {" ".join(path): command}
    found: dict[str, click.Command] = {}
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None, "what a group lists it has"
        found |= all_commands(inner, (*path, name))
    return found
