"""Which of the two command lines a test means: `holdfast`, or that of the laboratory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.cli.lazy_group import LazyGroup
from holdfast.cli.main import holdfast
from holdfast_lab.cli.main import COMMANDS as OF_THE_LABORATORY
from holdfast_lab.cli.main import holdfast_lab


def group_of(words: Sequence[str | Path]) -> LazyGroup:
    """The group that has the command with these words: the first one decides."""
    found = holdfast_lab if words and str(words[0]) in OF_THE_LABORATORY else holdfast
    assert isinstance(found, LazyGroup)
    return found
