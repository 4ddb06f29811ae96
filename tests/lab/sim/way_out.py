"""An operator who knows nothing looks at `cluster safe`, runs the command that it names, and follows what that says."""

from __future__ import annotations

import re
import shlex
from functools import partial

from tests.lab.sim.zone_stage import ZoneStage

from holdfast.actions.accept_loss import AcceptLoss
from holdfast.actions.change_zone import AlterZone, ResetZone
from holdfast.actions.evict import Evict
from holdfast.actions.operator_action import OperatorAction
from holdfast.actions.reset_metastore import ResetMetastore
from holdfast.core.events import ActionRequested
from holdfast.errors import RequestError
from holdfast_lab.sim.world import Process

NAMED = re.compile(
    r"holdfast ((?:member evict|cluster accept-loss|metastore reset|zone reset|zone alter|start)(?:(?![;,()]|\. ).)*)"
)
"""A command that changes something, as a message names it: it ends with the sentence."""
LOSSY = ("cluster accept-loss", "metastore reset", "zone reset")
"""Commands that give up what others have."""
COMMANDS_MOST = 8
LOOKS_MOST = 12
"""Looks in a row that name no command."""
PAUSE_S = 20
"""Between two looks: what is under way by itself has that time."""


def named(message: str) -> str:
    """The first command that a message names; empty: none."""
    found = NAMED.search(message)
    return found[1].strip() if found else ""


class Operator:
    """Works through the members on some hosts."""

    def __init__(self, stage: ZoneStage, hosts: list[int]) -> None:
        self.stage = stage
        self.hosts = hosts
        self.given: list[str] = []
        """The commands, in their order."""
        self.told: list[str] = []
        """What was seen and answered."""

    def there(self) -> list[Process]:
        """Processes on these hosts; those that are in the cluster come first."""
        addresses = [self.stage.cluster.addresses[host] for host in self.hosts]
        found = [process for process in self.stage.cluster.living() if process.address in addresses]
        return sorted(found, key=lambda process: not process.picture.admitted)

    def look(self) -> str:
        """`holdfast cluster safe`."""
        return self.there()[0].picture.cluster_unsafe_reason()

    def follow(self, first: str = "") -> None:
        """Give this command, and from then on what members name, until they say that all is safe."""
        command, looks = first, 0
        while True:
            if not command:
                self.stage.wait(PAUSE_S)
                said = self.look()
                self.told.append(said or "safe")
                if not said:
                    return
                command = named(said)
            if not command:
                looks += 1
                assert looks <= LOOKS_MOST, self.told[-6:]
                continue
            looks = 0
            assert len(self.given) < COMMANDS_MOST, f"in a circle: {self.given}; {self.told[-6:]}"
            self.given.append(command)
            answer = self.give(command)
            self.told.append(f"$ {command} -> {answer or 'done'}")
            command = named(answer)

    def give(self, command: str) -> str:
        """Run a command as `holdfast` does; answers why it was not carried out."""
        words = shlex.split(command)
        match words:
            case ["member", "evict", *members]:
                return self._dead(members)
            case ["cluster", "accept-loss"]:
                return self._accept_loss()
            case ["metastore", "reset"]:
                return self._reset_metastore()
            case ["zone", "reset", name]:
                return self._order(ResetZone(name))
            case ["zone", "alter", name, "--scale-down-s", seconds]:
                return self._order(AlterZone(name, scale_down_s=int(seconds)))
            case ["zone", "alter", name, "--filter", text]:
                return self._order(AlterZone(name, filter=text))
            case ["start", "--bootstrap"]:
                return self._bootstrap()
        raise AssertionError(f"there is no command {command!r}")

    def _dead(self, words: list[str]) -> str:
        process = self.there()[0]
        without_majority = "--without-majority" in words
        uuids = {info.name: info.uuid for info in process.picture.members()}
        ended = [uuids[word] for word in words if not word.startswith("--")]
        why = process.picture.eviction_rejection(ended, without_majority=without_majority)
        if not why:
            action = Evict(ended, without_majority=without_majority)
            process.step(lambda: process.driver.handle(ActionRequested(action)))
            self.stage.wait(5)
            assert not set(ended) & {info.uuid for info in process.picture.members()}
        return why

    def _accept_loss(self) -> str:
        process = self.there()[0]
        if why := process.picture.accept_loss_rejection():
            return why
        self.stage.cluster.accepted = True
        for _ in range(20):
            if not process.picture.unserved_reason():
                return ""
            process.step(partial(process.driver.handle, ActionRequested(AcceptLoss())))
            self.stage.wait(1)
        return process.picture.unserved_reason()

    def _reset_metastore(self) -> str:
        """Through the member with the highest revision, as the message says."""

        def revision(process: Process) -> int:
            told = process.driver.member.agreed.metastore_replica()
            assert told is not None
            return told.revision

        process = max(self.there(), key=revision)
        return self._order(ResetMetastore(), process, 2)

    def _order(self, action: OperatorAction, process: Process | None = None, seconds: float = 25) -> str:
        """The reason of a rejection; empty: it is done."""
        process = process or self.there()[0]
        answers: list[object] = []
        process.step(partial(process.driver.act, action, answers.append))
        self.stage.wait(seconds)
        [answer] = answers
        return str(answer) if isinstance(answer, RequestError) else ""

    def _bootstrap(self) -> str:
        process = self.there()[0]
        host = self.stage.cluster.addresses.index(process.address)
        process.crash()
        self.stage.cluster.start(host, bootstrap=True)
        return ""

    @property
    def lossy(self) -> list[str]:
        """Commands that were given and may have lost something."""
        return [one for one in self.given if one.startswith(LOSSY)]
