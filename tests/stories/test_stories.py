"""Every story happens as it is told. To tell it anew: `pytest tests/stories --rewrite`, and read the diff."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.stories.telling import retold, stories


@pytest.mark.parametrize("path", stories(), ids=lambda path: path.stem)
def test_a_story_happens_as_it_is_told(path: Path, request: pytest.FixtureRequest) -> None:
    told = path.read_text(encoding="utf-8")
    happened = retold(told)
    if request.config.getoption("--rewrite"):
        path.write_text(happened, encoding="utf-8")
    else:
        assert happened == told


def test_another_story_is_noticed() -> None:
    told = stories()[0].read_text(encoding="utf-8")
    assert retold(told.replace("v1 ", "v2 ", 1)) != told.replace("v1 ", "v2 ", 1)
