"""Watches the zones of a cluster: follows metastore keys, and asks members for leaders and failures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from holdfast.actions.metastore_keys import KeyChanges, ScanKeys
from holdfast.actions.show_zones import ShowLeaders
from holdfast.client.action_messages import ask_on
from holdfast.client.blocking import Client
from holdfast.client.replica_questions import CANNOT_ASK
from holdfast.client.zone_events import ZoneEvent, ZoneEvents
from holdfast.core.model.metastore_answers import KeyAnswer, KeysFound
from holdfast.core.model.zone_answers import KnownLeaders
from holdfast.core.zones.zone_keys import ZONES
from holdfast.errors import Denied, Refused, Unsupported
from holdfast.wire.own import MemberRow

LOOK_S = 0.4
PATIENCE = 20
"""Start over after so many failed polls: the metastore may have another history than the followed one."""


@dataclass(frozen=True, slots=True)
class ZonesWatched:
    zones: tuple[str, ...]
    revision: int


@dataclass(frozen=True, slots=True)
class ZonesGap:
    why: str


class ZoneWatcher:
    """Watches zones through any member that answers: revisions are the same on all."""

    def __init__(self, client: Client, pause: Callable[[float], None] = time.sleep) -> None:
        self._client = client
        self._pause = pause
        self._story = ZoneEvents()
        self._revision = 0
        self._rejected: Refused | None = None

    def events(
        self, ended: Callable[[], bool] = lambda: False
    ) -> Iterator[ZoneEvent | ZonesWatched | ZonesGap]:
        """Events from now on, each once, until `ended`. Ends at once if the cluster has no metastore."""
        while not self._begin():
            if ended() or isinstance(self._rejected, Unsupported):
                return
            self._pause(LOOK_S)
        yield self._watched()
        vain = 0
        while not ended():
            answer = self._ask(KeyChanges(ZONES.decode(), self._revision))
            if answer is not None:
                vain = 0
                yield from self._story.changes(answer.keys)
                self._revision = answer.revision
                yield from self._look()
                if answer.more:
                    continue
            else:
                vain += 1
                if (self._rejected is not None or vain >= PATIENCE) and self._begin():
                    vain = 0
                    yield ZonesGap("the metastore has compacted the revisions in between")
                    yield self._watched()
            self._pause(LOOK_S)

    def _watched(self) -> ZonesWatched:
        return ZonesWatched(tuple(self._story.names), self._revision)

    def _begin(self) -> bool:
        keys: list[KeyAnswer] = []
        asked = ScanKeys(ZONES.decode())
        while True:
            answer = self._ask(asked)
            if answer is None:
                return False
            keys += answer.keys
            if not answer.more:
                break
            asked = ScanKeys(ZONES.decode(), answer.keys[-1].key, answer.revision)
        self._story.begin(keys)
        self._revision = answer.revision
        # Present leaders are the starting point, no events.
        list(self._look())
        return True

    def _rows(self) -> dict[str, MemberRow]:
        try:
            return dict(self._client.table().members)
        except CANNOT_ASK:
            return {}

    def _ask(self, query: ScanKeys | KeyChanges) -> KeysFound | None:
        """The first useful answer of a member; None if there is none, with the last rejection in `_rejected`."""
        self._rejected = None
        for member in self._rows():
            try:
                answer: KeysFound = ask_on(self._client.to(member), query)
            except CANNOT_ASK:
                continue
            except Denied:
                raise
            except Refused as rejected:
                self._rejected = rejected
            else:
                return answer
        return None

    def _look(self) -> Iterator[ZoneEvent]:
        if not self._story.names:
            return
        for member, row in self._rows().items():
            try:
                connection = self._client.to(member)
                answer: KnownLeaders = ask_on(connection, ShowLeaders())
            except (*CANNOT_ASK, Unsupported):
                continue
            yield from self._story.leaders(answer.leaders, answer.members)
            yield from self._story.troubles(answer.members.get(answer.node, row.address), answer.troubles)
