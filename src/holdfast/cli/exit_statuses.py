"""What the exit status of each command means: one table, for `--help`, for the documentation, and for tests.

| status | meaning |
|--------|---------|
| 0      | it is so |
| 1      | it is not so, was refused, or nobody answers; the reason is in the last line of standard error |
| 2      | the call, a file that was given, or a setting is wrong; nothing was done |
| 3      | neither: an order was taken and stands, or not everything could be looked at |
| 70     | an error inside a member, or of its disk, has stopped it (`start`) |
"""

from __future__ import annotations

import click

DONE, FAILED, MISUSED, OPEN, BROKEN = 0, 1, 2, 3, 70

GENERAL = {
    DONE: "it is so",
    FAILED: "it is not so, was refused, or nobody answers",
    MISUSED: "the call, a file that was given, or a setting is wrong: nothing was done",
    OPEN: "neither: an order was taken and stands, or not everything could be looked at",
    BROKEN: "an error inside a member, or of its disk, has stopped it",
}

Meanings = dict[int, str]
Table = dict[str, Meanings]

WRONG = {MISUSED: "the call is wrong"}
_SHOWS: Meanings = {DONE: "shown", FAILED: "nobody answers", **WRONG}
_CHANGES: Meanings = {DONE: "it is so", FAILED: "refused, not so in time, or nobody answers", **WRONG}
_STANDS: Meanings = {
    DONE: "it is so",
    FAILED: "refused, or nobody answers",
    **WRONG,
    OPEN: "not so in time, and the order stands",
}
_COMPARES: Meanings = {
    DONE: "all copies are the same",
    FAILED: "some are not",
    **WRONG,
    OPEN: "none that was compared differs, but not all could be, or nobody answers",
}
_FILES: Meanings = {DONE: "everything could be read", FAILED: "something is damaged or missing", **WRONG}
_LOCAL: Meanings = {DONE: "shown", **WRONG}

STATUSES: Table = {
    "start": {
        DONE: "the member has left, alone or with all others",
        FAILED: "it ended before what it held was safe elsewhere, or found no cluster in time",
        MISUSED: "nothing was started: a setting is wrong, a port is taken, or the cluster refuses this member",
        BROKEN: "an error inside the member, or of its disk, has stopped it; its log says which",
    },
    "status": _SHOWS,
    "cluster state": _STANDS,
    "cluster accept-loss": _STANDS,
    "cluster reset-lost": _CHANGES,
    "cluster shutdown": _STANDS,
    "cluster safe": {DONE: "a crash would cost nothing", FAILED: "it would, or nobody answers", **WRONG},
    "cluster watch": {DONE: "ended by Ctrl-C", FAILED: "not permitted, or nobody answers", **WRONG},
    "cluster dead": _CHANGES,
    "cluster upgrade": _CHANGES,
    "cluster baseline show": _SHOWS,
    "cluster baseline set": _CHANGES,
    "cluster baseline add": _CHANGES,
    "cluster baseline remove": _CHANGES,
    "cluster baseline auto": _CHANGES,
    "member drain": _STANDS,
    "member demote": _CHANGES,
    "member promote": _STANDS,
    "verify": _COMPARES,
    "repair": {**_COMPARES, DONE: "all copies are the same now (in a dry run: were before)"},
    "journal list": _FILES,
    "journal verify": _FILES,
    "journal print": _FILES,
    "analyse": {DONE: "nothing is wrong", FAILED: "something is damaged, or an update is missing", **WRONG},
    "plan": {DONE: "there is a plan", FAILED: "nobody answers (--live)", **WRONG},
    "whatif": {DONE: "told", FAILED: "the job failed", **WRONG},
    "zone create": _CHANGES,
    "zone alter": _CHANGES,
    "zone rename": _CHANGES,
    "zone drop": _CHANGES,
    "zone reset": _CHANGES,
    "zone list": _SHOWS,
    "zone show": {**_SHOWS, FAILED: "there is no such zone, or nobody answers"},
    "zone explain": _LOCAL,
    "metastore get": {DONE: "the key has a value", FAILED: "it has none, or nobody answers", **WRONG},
    "metastore scan": _SHOWS,
    "metastore put": {**_CHANGES, FAILED: "--if-revision does not hold, refused, or nobody answers"},
    "metastore remove": {**_CHANGES, FAILED: "--if-revision does not hold, refused, or nobody answers"},
    "metastore history": _SHOWS,
    "metastore watch": {
        DONE: "ended by Ctrl-C",
        FAILED: "there is no metastore, or nobody answers",
        **WRONG,
    },
    "metastore status": {DONE: "it has a leader", FAILED: "it has none, or nobody answers", **WRONG},
    "metastore reset": _CHANGES,
    "transactions list": _SHOWS,
    "transactions show": {**_SHOWS, FAILED: "there is no such transaction, or nobody answers"},
    "transactions kill": {
        DONE: "rolled back",
        FAILED: "there is no such transaction, it was refused, or nobody answers",
        **WRONG,
    },
    "load": {DONE: "all rows are stored", FAILED: "some could not be, or nobody answers", **WRONG},
    "read": _SHOWS,
    "audit": {
        **_COMPARES,
        FAILED: "some are not, or nobody answers",
        OPEN: "none that was compared differs, but not all could be",
    },
    "changes": {DONE: "told (--once), or ended by Ctrl-C", FAILED: "the stream failed", **WRONG},
    "export run": {DONE: "written", FAILED: "not written, or nobody answers", **WRONG},
    "export verify": {DONE: "all as written", FAILED: "something is damaged or missing", **WRONG},
    "backup": {DONE: "written", FAILED: "not written, or nobody answers", **WRONG},
    "restore": {
        DONE: "the grid holds what the export holds",
        FAILED: "it does not, the export is damaged, or nobody answers",
        **WRONG,
        OPEN: "it could not be judged: others wrote, or entries with a time to live have ended",
    },
    "data get": {DONE: "the key has a value", FAILED: "it has none, or nobody answers", **WRONG},
    "data put": _CHANGES,
    "data remove": {DONE: "removed", FAILED: "there was nothing, refused, or nobody answers", **WRONG},
    "data keys": _SHOWS,
    "data size": _SHOWS,
    "data scan": _SHOWS,
    "data maps": _SHOWS,
    "config show": {DONE: "shown, or the file is good", **WRONG},
    "config set": {
        DONE: "every member that was asked has it",
        FAILED: "some have not, or nobody answers",
        **WRONG,
    },
    "credentials": _LOCAL,
}
"""What the statuses of each command mean there. A command has no others."""

ALIASES = {"export": "export run", "config": "config show"}
"""Commands that are a word of their own: with another first word they are a group."""


def epilog(meanings: Meanings) -> str:
    """The exit statuses of a command, in a line for its help."""
    return "Exit status: " + "; ".join(f"{status} {meaning}" for status, meaning in meanings.items()) + "."


def general_epilog() -> str:
    """The exit statuses that all commands share, for the help of a group."""
    lines = "\n".join(f"  {status:<3} {meaning}" for status, meaning in GENERAL.items())
    return f"\b\nExit status of every command (its own --help has the details):\n{lines}"


def as_table() -> str:
    """All of it as Markdown, for the documentation."""
    lines = ["| command | 0 | 1 | 2 | other |", "|---|---|---|---|---|"]
    for path, meanings in STATUSES.items():
        other = "; ".join(f"**{status}** {text}" for status, text in meanings.items() if status > MISUSED)
        cells = [f"`{path.removesuffix(' run').removesuffix(' show') if path in ALIASES.values() else path}`"]
        cells += [meanings.get(status, "") for status in (DONE, FAILED, MISUSED)]
        lines.append(f"| {' | '.join([*cells, other])} |")
    return "\n".join(lines)


def all_commands(command: click.Command, path: tuple[str, ...] = ()) -> dict[str, click.Command]:
    """Every command that does something, by its words without `holdfast`."""
    if not isinstance(command, click.Group):
        return {" ".join(path): command}
    found: dict[str, click.Command] = {}
    context = click.Context(command)
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None, "what a group lists it has"
        found |= all_commands(inner, (*path, name))
    return found
