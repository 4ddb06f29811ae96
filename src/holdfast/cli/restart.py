"""`holdfast cluster restart`: one member after the other, each only when all is safe."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import click

from holdfast.actions.restart import Restart
from holdfast.actions.show_supervisor import Supervision
from holdfast.cli.answers import MemberResult
from holdfast.cli.operator_command import Call, operator_command
from holdfast.cli.orders import Progress, still_here
from holdfast.cli.query_commands import answers_of_members
from holdfast.cli.status import find_member
from holdfast.client.operator import act
from holdfast.core.model.member_status import ListedMember, MemberStatus
from holdfast.errors import Denied, HoldfastError, Refused

LOOK_S = 0.2
STEPS = """For each member, one after the other:
  holdfast cluster safe --wait 10min
  holdfast member drain {name}
  start {name} again, as it was started
"""


class _Late(Exception):
    """The time is over; the text says what was waited for."""


class _Rolling:
    """One rolling restart."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._progress = Progress()
        self._doors = list(call.addresses)
        """Members to ask for the status, the last one that answered first."""

    def restart(self, row: ListedMember) -> MemberResult:
        """Restart one member, and wait until it is back and all is safe."""
        name, deadline_s = row.name, time.monotonic() + self._call.timeout_s
        try:
            self._until(name, self._unsafe_reason, deadline_s)
            left_s = max(0.0, deadline_s - time.monotonic())
            act(
                row.door,
                self._call.credentials.for_client(),
                Restart(),
                timeout_s=left_s,
                progress=lambda status: self._progress.tell(name, still_here(status)),
            )
            self._until(name, lambda: self._missing_reason(row), deadline_s)
            self._until(name, self._unsafe_reason, deadline_s)
        except _Late as late:
            return MemberResult(member=name, result="accepted", message=str(late))
        except Denied:
            raise
        except HoldfastError as failed:
            return MemberResult.of_error(name, failed)
        return MemberResult(member=name, result="done", message="restarted")

    def _until(self, name: str, reason: Any, deadline_s: float) -> None:
        while found := reason():
            if time.monotonic() >= deadline_s:
                raise _Late(f"not within {self._call.timeout_s:g} s: {found}")
            self._progress.tell(name, f"waits: {found}")
            time.sleep(LOOK_S)

    def _status(self) -> MemberStatus:
        """The status of a member that is in the cluster."""
        failed: HoldfastError = Refused("no member was named")
        for door in list(self._doors):
            asked = Call(str(door), self._call.credentials)
            try:
                status = asked.status()
            except Denied:
                raise
            except HoldfastError as error:
                failed = error
                continue
            if status.state == "member":
                known = [row.door for row in status.members]
                self._doors = list(dict.fromkeys([door, *known, *self._doors]))
                return status
            failed = Refused(f"{door} is {status.state}")
        raise failed

    def _unsafe_reason(self) -> str:
        try:
            return self._status().cluster_unsafe_reason
        except Denied:
            raise
        except HoldfastError as failed:
            return str(failed)

    def _missing_reason(self, row: ListedMember) -> str:
        try:
            rows = self._status().members
        except Denied:
            raise
        except HoldfastError as failed:
            return str(failed)
        back = [one for one in rows if one.name == row.name and one.uuid != row.uuid]
        return (
            "" if back else "its supervisor has not started it again, or it has not joined: look at its log"
        )


def rolling_restart(call: Call, members: tuple[str, ...]) -> Iterator[MemberResult]:
    """Restart these members, or all: the master last. Ends with the first that fails."""
    seen = call.status()
    rows = [find_member(member, seen.members) for member in members] or list(seen.members)
    rows.sort(key=lambda row: row.master)
    found, silent = answers_of_members(call, Supervision())
    if silent:
        raise Refused(f"not all members answer, so none is restarted: {'; '.join(silent)}")
    alone = [row.name for row in rows if not found[row.name].supervisor]
    if alone:
        print(STEPS.format(name=alone[0]), file=sys.stderr)
        raise Refused(
            f"nothing starts {', '.join(alone)} again (systemd, Kubernetes or holdfast start --members)"
        )
    call.confirm(f"Restart {', '.join(row.name for row in rows)}, one after the other?")
    rolling = _Rolling(call)
    for row in rows:
        result = rolling.restart(row)
        yield result
        if result.result != "done":
            return


def add_restart(group: click.Group) -> None:
    @operator_command(
        group,
        "restart",
        timeout_s=600,
        then="For each member; after that the command stops.",
        confirms=True,
        short_help="Restart all members, one after the other.",
    )
    @click.argument("members", nargs=-1, metavar="[MEMBER]...")
    def restart(call: Call, members: tuple[str, ...]) -> Iterator[MemberResult]:
        r"""Restart members one after the other, each only when the cluster is safe: it leaves when its data is safe on
        others, its supervisor starts it, and the next one follows when the cluster is safe again. The master is last.

        Members need a supervisor that starts them again: systemd, Kubernetes, or `holdfast start --members`. Without
        one, the command prints the steps.

        \b
          holdfast cluster restart --yes
          holdfast cluster restart two three
        """
        return rolling_restart(call, members)
