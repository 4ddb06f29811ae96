"""Steps of a member that requests of one turn share."""

from __future__ import annotations


class SharedSteps:
    def __init__(self) -> None:
        self.number = 0
        """The number of the step in which a request would be handled now."""

    def end(self, number: int) -> None:
        """Send what requests of this step have caused so far, apart from what follows; nothing if it has ended. Here no
        step is shared; the driver has others.
        """
