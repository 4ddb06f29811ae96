"""`holdfast` whose members count and time nothing that they serve: what `holdfast_lab.bench.metrics` compares the
others to.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.cli.main import main
from holdfast.runtime.doors import clients


class UncountedDoor(clients.Door):
    """Clients' door, without a tally."""

    def __init__(self, *arguments: Any) -> None:
        *others, options = arguments
        super().__init__(*others, replace(options, tally=None))


if __name__ == "__main__":
    import holdfast.runtime.node

    # Members have no such setting: nobody would want it who has seen what it saves.
    setattr(holdfast.runtime.node, "Door", UncountedDoor)  # noqa: B010
    main()
