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

_WRONG = {MISUSED: "the call is wrong"}
_SHOWS: Meanings = {DONE: "shown", FAILED: "nobody answers", **_WRONG}
_CHANGES: Meanings = {DONE: "it is so", FAILED: "refused, not so in time, or nobody answers", **_WRONG}
_STANDS: Meanings = {
    DONE: "it is so",
    FAILED: "refused, or nobody answers",
    **_WRONG,
    OPEN: "not so in time, and the order stands",
}
_COMPARES: Meanings = {
    DONE: "all copies are the same",
    FAILED: "some are not",
    **_WRONG,
    OPEN: "none that was compared differs, but not all could be, or nobody answers",
}
_FILES: Meanings = {DONE: "everything could be read", FAILED: "something is damaged or missing", **_WRONG}
_RUNS: Meanings = {DONE: "all as it must be", FAILED: "something is not", **_WRONG}
_LOCAL: Meanings = {DONE: "shown", **_WRONG}

STATUSES: dict[str, Meanings] = {
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
    "cluster safe": {DONE: "a crash would cost nothing", FAILED: "it would, or nobody answers", **_WRONG},
    "cluster watch": {DONE: "ended by Ctrl-C", FAILED: "not permitted, or nobody answers", **_WRONG},
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
    "analyse": {DONE: "nothing is wrong", FAILED: "something is damaged, or an update is missing", **_WRONG},
    "plan": {DONE: "there is a plan", FAILED: "nobody answers (--live)", **_WRONG},
    "whatif": {DONE: "told", FAILED: "the job failed", **_WRONG},
    "zone create": _CHANGES,
    "zone alter": _CHANGES,
    "zone rename": _CHANGES,
    "zone drop": _CHANGES,
    "zone reset": _CHANGES,
    "zone list": _SHOWS,
    "zone show": {**_SHOWS, FAILED: "there is no such zone, or nobody answers"},
    "zone explain": _LOCAL,
    "metastore get": {DONE: "the key has a value", FAILED: "it has none, or nobody answers", **_WRONG},
    "metastore scan": _SHOWS,
    "metastore put": {**_CHANGES, FAILED: "--if-revision does not hold, refused, or nobody answers"},
    "metastore remove": {**_CHANGES, FAILED: "--if-revision does not hold, refused, or nobody answers"},
    "metastore history": _SHOWS,
    "metastore watch": {
        DONE: "ended by Ctrl-C",
        FAILED: "there is no metastore, or nobody answers",
        **_WRONG,
    },
    "metastore status": {DONE: "it has a leader", FAILED: "it has none, or nobody answers", **_WRONG},
    "metastore reset": _CHANGES,
    "transactions list": _SHOWS,
    "transactions show": {**_SHOWS, FAILED: "there is no such transaction, or nobody answers"},
    "transactions kill": {
        DONE: "rolled back",
        FAILED: "there is no such transaction, it was refused, or nobody answers",
        **_WRONG,
    },
    "simulate": _RUNS,
    "replay": {DONE: "all steps are as they were", FAILED: "one is not, or the file is broken", **_WRONG},
    "campaign": _RUNS,
    "matrix": _RUNS,
    "load": {DONE: "all rows are stored", FAILED: "some could not be, or nobody answers", **_WRONG},
    "read": _SHOWS,
    "audit": {
        **_COMPARES,
        FAILED: "some are not, or nobody answers",
        OPEN: "none that was compared differs, but not all could be",
    },
    "changes": {DONE: "told (--once), or ended by Ctrl-C", FAILED: "the stream failed", **_WRONG},
    "export run": {DONE: "written", FAILED: "not written, or nobody answers", **_WRONG},
    "export verify": {DONE: "all as written", FAILED: "something is damaged or missing", **_WRONG},
    "backup": {DONE: "written", FAILED: "not written, or nobody answers", **_WRONG},
    "restore": {
        DONE: "the grid holds what the export holds",
        FAILED: "it does not, the export is damaged, or nobody answers",
        **_WRONG,
        OPEN: "it could not be judged: others wrote, or entries with a time to live have ended",
    },
    "data get": {DONE: "the key has a value", FAILED: "it has none, or nobody answers", **_WRONG},
    "data put": _CHANGES,
    "data remove": {DONE: "removed", FAILED: "there was nothing, refused, or nobody answers", **_WRONG},
    "data keys": _SHOWS,
    "data size": _SHOWS,
    "data scan": _SHOWS,
    "data maps": _SHOWS,
    "demo": _RUNS,
    "chaos": _RUNS,
    "fuzz": _RUNS,
    "resize": _RUNS,
    "config show": {DONE: "shown, or the file is good", **_WRONG},
    "config set": {
        DONE: "every member that was asked has it",
        FAILED: "some have not, or nobody answers",
        **_WRONG,
    },
    "credentials": _LOCAL,
}
"""What the statuses of each command mean there. A command has no others."""

ALIASES = {"export": "export run", "config": "config show"}
"""Commands that are a word of their own: with another first word they are a group."""


def told(path: str) -> str:
    """The statuses of this command, in a line for its help."""
    meanings = STATUSES[path]
    return "Exit status: " + "; ".join(f"{status} {meaning}" for status, meaning in meanings.items()) + "."


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
