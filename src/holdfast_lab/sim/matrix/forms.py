"""Forms of a migration, each as the smallest cluster that shows it, with the master in every role.

Case 2 of SHIFT DOWN and of SHIFT UP in the source takes two MOVEs, with a member that holds nothing in
between. From `AB` to `CA`: A hands ownership to C (`CB`), holds nothing, and then takes the place of B.

Members are letters: A is the primary at first. An assignment is written as in the design: `AB-` has owner A,
backup B, and an empty place.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.model.migration import MigrationKind

PRIMARY = "A"
LITE = "L"
"""A member without data; it can be the master."""
EMPTY = "-"


@dataclass(frozen=True, slots=True)
class Form:
    name: str
    kind: MigrationKind
    start: str
    target: str
    masters: dict[str, str]
    """Member by role; each of them is the master in one stage."""
    backups: int = 1
    """Backups of the map `ledger`; the map `deep` has one for each further place."""
    leaving: str = ""
    steps: int = 1

    @property
    def width(self) -> int:
        return len(self.start)

    @property
    def destination(self) -> str:
        return self.masters["destination"]

    @property
    def source(self) -> str:
        """The member that loses a place; if there is none, the primary, which sends the content."""
        return self.masters["source"]

    def hosts(self, master: str) -> list[str]:
        first = self.masters[master]
        here = sorted({*self.start, *self.target, first} - {EMPTY})
        return [first, *(letter for letter in here if letter != first)]

    def roles(self, master: str) -> dict[str, str]:
        names = {letter: "backup" if letter in self.start else "other" for letter in self.hosts(master)}
        names[self.masters[master]] = "master"
        names[PRIMARY] = "primary"
        names[self.source] = "source"
        names[self.destination] = "destination"
        return names


FORMS: dict[str, Form] = {
    form.name: form
    for form in (
        Form(
            "move-owner",
            MigrationKind.MOVE,
            "AB",
            "CB",
            {"source": "A", "destination": "C", "neither": "B", "lite": LITE},
        ),
        Form(
            "move-alone",
            MigrationKind.MOVE,
            "A",
            "C",
            {"source": "A", "destination": "C", "neither": "N"},
            backups=0,
        ),
        Form(
            "move-backup",
            MigrationKind.MOVE,
            "AB",
            "AC",
            {"source": "B", "destination": "C", "primary": "A", "neither": "N"},
        ),
        Form(
            "copy-first", MigrationKind.COPY, "A-", "AB", {"source": "A", "destination": "B", "neither": "N"}
        ),
        Form(
            "copy-backup",
            MigrationKind.COPY,
            "AB-",
            "ABC",
            {"source": "A", "destination": "C", "neither": "B"},
        ),
        Form(
            "shift-down-owner",
            MigrationKind.SHIFT_DOWN,
            "AB-",
            "CBA",
            {"source": "A", "destination": "C", "neither": "B"},
        ),
        Form(
            "shift-down-backup",
            MigrationKind.SHIFT_DOWN,
            "AB-",
            "ACB",
            {"source": "B", "destination": "C", "primary": "A", "neither": "N"},
        ),
        Form(
            "shift-up-empty",
            MigrationKind.SHIFT_UP,
            "AB-D",
            "ABD-",
            {"source": "A", "destination": "D", "neither": "B"},
            backups=2,
        ),
        Form(
            "shift-up-owner",
            MigrationKind.SHIFT_UP,
            "ABC",
            "CB-",
            {"source": "A", "destination": "C", "neither": "B"},
            leaving="A",
        ),
        Form(
            "shift-up-backup",
            MigrationKind.SHIFT_UP,
            "ABC",
            "AC-",
            {"source": "B", "destination": "C", "primary": "A", "neither": LITE},
            leaving="B",
        ),
        Form(
            "both-shifts-owner",
            MigrationKind.SHIFT_UP,
            "ABC-",
            "CB-A",
            {"source": "A", "destination": "C", "neither": "B"},
        ),
        Form(
            "both-shifts-backup",
            MigrationKind.SHIFT_UP,
            "ABC-",
            "AC-B",
            {"source": "B", "destination": "C", "primary": "A", "neither": LITE},
        ),
        Form(
            "exchange-owner",
            MigrationKind.EXCHANGE,
            "AB",
            "BA",
            {"source": "A", "destination": "B", "neither": "N"},
        ),
        Form(
            "exchange-backup",
            MigrationKind.EXCHANGE,
            "ABC",
            "ACB",
            {"source": "B", "destination": "C", "primary": "A", "neither": LITE},
        ),
        Form(
            "shift-down-two-moves",
            MigrationKind.MOVE,
            "AB",
            "CA",
            {"source": "A", "destination": "C", "neither": "B"},
            steps=2,
        ),
        Form(
            "shift-up-two-moves",
            MigrationKind.MOVE,
            "ABC",
            "ACD",
            {"source": "B", "destination": "C", "primary": "A", "neither": "D"},
            steps=2,
        ),
    )
}
