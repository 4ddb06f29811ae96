"""`holdfast` without counters and timers of requests: the reference of `holdfast_lab.bench.metrics`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.cli.main import main
from holdfast.runtime.doors import clients


class UncountedDoor(clients.Door):
    def __init__(self, *arguments: Any) -> None:
        *others, options = arguments
        super().__init__(*others, replace(options, tally=None))


if __name__ == "__main__":
    import holdfast.runtime.node

    # Members have no such setting, because it would save too little.
    setattr(holdfast.runtime.node, "Door", UncountedDoor)  # noqa: B010
    main()
