"""What one user may do: asked for each request, decided once for each thing."""

from __future__ import annotations

from holdfast.config.permissions import Action, Kind
from holdfast.config.users import User

KEPT_NAME_MAX = 256
"""Characters. What was decided about a longer name is not kept: it would take too much memory."""
DECIDED_MAX = 10_000
"""Things of which the decision is kept; then it is begun anew. Names come from clients."""
LONGEST_NAME = 1024
"""Characters. Nothing has a longer name; rules are not tried on one, which may have as many as a message has bytes."""
NOTHING: frozenset[Action] = frozenset()


class Rights:
    """Of a user. The same for all its connections."""

    __slots__ = ("_decided", "_user", "everything", "user")

    def __init__(self, user: User | None = None) -> None:
        """None: there are no users, and whoever was let in may do everything."""
        self._user = user
        self.user = user.name if user is not None else ""
        self.everything = user is None or user.everything
        """Whether nothing has to be asked."""
        self._decided: dict[tuple[Kind, str], frozenset[Action]] = {}

    def actions(self, kind: Kind, name: str) -> frozenset[Action]:
        """What the user may do with this thing, unless it may do everything."""
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
        """Whether it may do this with this thing."""
        return self.everything or action in self.actions(kind, name)

    def may_with_all(self, action: Action, kind: Kind, prefix: str) -> bool:
        """Whether it may do this with all things whose names begin like this."""
        if self.everything or self._user is None:
            return self.everything
        if len(prefix) > LONGEST_NAME:
            return False
        return any(action in rule.actions and rule.concerns_all(kind, prefix) for rule in self._user.rules)

    def may_somewhere(self, action: Action, kind: Kind) -> bool:
        """Whether there can be things of this kind with which it may do this."""
        if self.everything or self._user is None:
            return self.everything
        return any(rule.kind is kind and action in rule.actions for rule in self._user.rules)

    def knows(self, kind: Kind, name: str) -> bool:
        """Whether it may do anything with this thing: so much, and it may know of it."""
        return self.everything or bool(self.actions(kind, name))

    def reads_only(self, name: str) -> bool | None:
        """How the data lane serves a map: False, all that it can; True, reads alone; None, nothing of it."""
        if self.everything:
            return False
        permitted = self.actions(Kind.MAP, name)
        if Action.READ not in permitted:
            return None
        return not (Action.PUT in permitted and Action.REMOVE in permitted)


EVERYTHING = Rights()
"""Those of whoever was let in where there are no users."""
