"""Permissions of one user, with cached decisions by object."""

from __future__ import annotations

from holdfast.config.permissions import Action, Kind
from holdfast.config.users import User

KEPT_NAME_MAX = 256
"""Decisions about longer names are not cached, to bound memory."""
DECIDED_MAX = 10_000
"""Cached decisions; beyond that the cache is cleared. Clients choose the names."""
LONGEST_NAME = 1024
"""Longer names do not exist; rules are not matched against them, as clients could send megabytes."""
NOTHING: frozenset[Action] = frozenset()


class Rights:
    __slots__ = ("_decided", "_user", "everything", "user")

    def __init__(self, user: User | None = None) -> None:
        """None: no users are configured, and every client has all permissions."""
        self._user = user
        self.user = user.name if user is not None else ""
        self.everything = user is None or user.everything
        self._decided: dict[tuple[Kind, str], frozenset[Action]] = {}

    def actions(self, kind: Kind, name: str) -> frozenset[Action]:
        found = self._decided.get((kind, name))
        if found is not None or self._user is None or len(name) > LONGEST_NAME:
            return found or NOTHING
        permitted = [rule.actions for rule in self._user.rules if rule.concerns(kind, name)]
        found = NOTHING.union(*permitted)
        if len(name) <= KEPT_NAME_MAX:
            if len(self._decided) >= DECIDED_MAX:
                self._decided.clear()
            self._decided[kind, name] = found
        return found

    def may(self, action: Action, kind: Kind, name: str) -> bool:
        return self.everything or action in self.actions(kind, name)

    def may_with_all(self, action: Action, kind: Kind, prefix: str) -> bool:
        if self.everything or self._user is None:
            return self.everything
        if len(prefix) > LONGEST_NAME:
            return False
        return any(action in rule.actions and rule.concerns_all(kind, prefix) for rule in self._user.rules)

    def may_somewhere(self, action: Action, kind: Kind) -> bool:
        if self.everything or self._user is None:
            return self.everything
        return any(rule.kind is kind and action in rule.actions for rule in self._user.rules)

    def knows(self, kind: Kind, name: str) -> bool:
        """Whether any action is permitted, so that the user may know that it exists."""
        return self.everything or bool(self.actions(kind, name))

    def reads_only(self, name: str) -> bool | None:
        """The data lane's service for a map: False: everything, True: reads only, None: nothing."""
        if self.everything:
            return False
        permitted = self.actions(Kind.MAP, name)
        if Action.READ not in permitted:
            return None
        return not (Action.PUT in permitted and Action.REMOVE in permitted)


EVERYTHING = Rights()
"""Rights of all clients if no users are configured."""
