"""Exit statuses of each command, in one table for `--help`, the documentation and tests.

| status | meaning |
|--------|---------|
| 0      | done, or true |
| 1      | rejected, failed, or false, or no member can be reached; the last line of standard error has the reason |
| 2      | invalid command line, input file or setting; nothing was done |
| 3      | unfinished: accepted and still in progress, or not everything could be checked |
| 70     | an internal error or a disk error stopped the member (`start`) |
"""

from __future__ import annotations

import click

DONE, FAILED, MISUSED, OPEN, BROKEN = 0, 1, 2, 3, 70

GENERAL = {
    DONE: "done, or true",
    FAILED: "rejected, failed, or false, or no member can be reached",
    MISUSED: "invalid command line, input file or setting; nothing was done",
    OPEN: "unfinished: accepted and still in progress, or not everything could be checked",
    BROKEN: "an internal error or a disk error stopped the member",
}

Meanings = dict[int, str]
Table = dict[str, Meanings]

WRONG = {MISUSED: "invalid command line"}
_UNREACHABLE = "no member can be reached"
_SHOWS: Meanings = {DONE: "shown", FAILED: _UNREACHABLE, **WRONG}
_CHANGES: Meanings = {DONE: "done", FAILED: f"rejected, timed out, or {_UNREACHABLE}", **WRONG}
_STANDS: Meanings = {
    DONE: "done",
    FAILED: f"rejected, or {_UNREACHABLE}",
    **WRONG,
    OPEN: "timed out; the cluster has accepted the command and continues",
}
_COMPARES: Meanings = {
    DONE: "all copies are equal",
    FAILED: "copies differ",
    **WRONG,
    OPEN: f"no difference found, but not every copy could be compared, or {_UNREACHABLE}",
}
_FILES: Meanings = {DONE: "all files can be read", FAILED: "a file is damaged or missing", **WRONG}
_LOCAL: Meanings = {DONE: "shown", **WRONG}
_KEY: Meanings = {DONE: "the key has a value", FAILED: f"the key has no value, or {_UNREACHABLE}", **WRONG}
_CONDITIONAL: Meanings = {
    **_CHANGES,
    FAILED: f"--if-revision does not match, rejected, timed out, or {_UNREACHABLE}",
}

STATUSES: Table = {
    "start": {
        DONE: "the member has left, alone or with the whole cluster",
        FAILED: "the member ended before its data was safe elsewhere, or found no cluster in time",
        MISUSED: "not started: a setting is invalid, a port is in use, or the cluster rejects this member",
        BROKEN: "an internal error or a disk error stopped the member; its log names it",
    },
    "status": _SHOWS,
    "cluster state": _STANDS,
    "cluster accept-loss": _STANDS,
    "cluster reset-lost": _CHANGES,
    "cluster shutdown": _STANDS,
    "cluster safe": {
        DONE: "safe: a crash loses nothing",
        FAILED: f"not safe, or {_UNREACHABLE}",
        **WRONG,
    },
    "cluster watch": {DONE: "ended by Ctrl-C", FAILED: f"permission denied, or {_UNREACHABLE}", **WRONG},
    "cluster upgrade": _CHANGES,
    "cluster baseline show": _SHOWS,
    "cluster baseline set": _CHANGES,
    "cluster baseline add": _CHANGES,
    "cluster baseline remove": _CHANGES,
    "cluster baseline auto": _CHANGES,
    "member drain": _STANDS,
    "member demote": _CHANGES,
    "member promote": _STANDS,
    "member evict": _CHANGES,
    "verify": _COMPARES,
    "repair": {**_COMPARES, DONE: "all copies are equal now (with --dry-run: were equal)"},
    "journal list": _FILES,
    "journal verify": _FILES,
    "journal print": _FILES,
    "analyse": {
        DONE: "no damage and no missing update found",
        FAILED: "a file is damaged, or an update is missing",
        **WRONG,
    },
    "plan": {DONE: "a plan is shown", FAILED: f"{_UNREACHABLE} (--live)", **WRONG},
    "whatif": {DONE: "the estimate is shown", FAILED: "the job failed", **WRONG},
    "zone create": _CHANGES,
    "zone alter": _CHANGES,
    "zone rename": _CHANGES,
    "zone drop": _CHANGES,
    "zone reset": _CHANGES,
    "zone list": _SHOWS,
    "zone show": {**_SHOWS, FAILED: f"unknown zone, or {_UNREACHABLE}"},
    "zone explain": _LOCAL,
    "metastore get": _KEY,
    "metastore scan": _SHOWS,
    "metastore put": _CONDITIONAL,
    "metastore remove": _CONDITIONAL,
    "metastore history": _SHOWS,
    "metastore watch": {
        DONE: "ended by Ctrl-C",
        FAILED: f"the cluster has no metastore, or {_UNREACHABLE}",
        **WRONG,
    },
    "metastore status": {
        DONE: "the metastore has a leader",
        FAILED: f"it has none, or {_UNREACHABLE}",
        **WRONG,
    },
    "metastore reset": _CHANGES,
    "transactions list": _SHOWS,
    "transactions show": {**_SHOWS, FAILED: f"unknown transaction, or {_UNREACHABLE}"},
    "transactions kill": {
        DONE: "rolled back",
        FAILED: f"unknown transaction, rejected, or {_UNREACHABLE}",
        **WRONG,
    },
    "load": {
        DONE: "all rows are stored",
        FAILED: f"some rows are not stored, or {_UNREACHABLE}",
        **WRONG,
    },
    "read": _SHOWS,
    "audit": {
        **_COMPARES,
        FAILED: f"copies differ, or {_UNREACHABLE}",
        OPEN: "no difference found, but not every copy could be compared",
    },
    "changes": {DONE: "all changes read (--once), or ended by Ctrl-C", FAILED: "the stream failed", **WRONG},
    "export run": {DONE: "written", FAILED: f"not written, or {_UNREACHABLE}", **WRONG},
    "export verify": {
        DONE: "unchanged since it was written",
        FAILED: "a file is damaged or missing",
        **WRONG,
    },
    "backup": {DONE: "written", FAILED: f"not written, or {_UNREACHABLE}", **WRONG},
    "restore": {
        DONE: "the grid holds exactly the content of the export",
        FAILED: f"the grid differs, the export is damaged, or {_UNREACHABLE}",
        **WRONG,
        OPEN: "could not be compared: other clients wrote, or entries expired",
    },
    "data get": _KEY,
    "data put": _CHANGES,
    "data remove": {
        DONE: "removed",
        FAILED: f"the key had no value, rejected, or {_UNREACHABLE}",
        **WRONG,
    },
    "data keys": _SHOWS,
    "data size": _SHOWS,
    "data scan": _SHOWS,
    "data maps": _SHOWS,
    "config show": {DONE: "shown, or the file is valid", **WRONG},
    "config set": {
        DONE: "all members that were named have the new values",
        FAILED: f"some members do not have them, or {_UNREACHABLE}",
        **WRONG,
    },
    "credentials": _LOCAL,
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
    lines = ["| command | 0 | 1 | 2 | other |", "|---|---|---|---|---|"]
    for path, meanings in statuses.items():
        other = "; ".join(f"**{status}** {text}" for status, text in meanings.items() if status > MISUSED)
        cells = [f"`{path.removesuffix(' run').removesuffix(' show') if path in ALIASES.values() else path}`"]
        cells += [meanings.get(status, "") for status in (DONE, FAILED, MISUSED)]
        lines.append(f"| {' | '.join([*cells, other])} |")
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
