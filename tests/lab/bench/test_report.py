"""The page with the figures: ratios, warnings, and that what people wrote around them stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_lab.bench import report, systems
from holdfast_lab.bench.load import Sample
from holdfast_lab.bench.run import SINGLE, Measured

TITLE = SINGLE[0].title


def measured(per_second: float, *, generator: float = 0.5, others: float = 0.0) -> Measured:
    rounds = [Sample(int(per_second * factor), 1.0, 100, 200, 300, generator) for factor in (1, 0.5, 1.5)]
    return Measured(rounds, [10.0] * 3, [others] * 3)


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> report.Page:
    monkeypatch.setattr(systems, "redis_version", lambda: "7")
    results = {(TITLE, "Holdfast"): measured(40_000), (TITLE, "Redis"): measured(100_000)}
    memory = {"Holdfast": 300.0, "Redis": 200.0}
    return report.Page([TITLE], results, memory, {}, 1000, 3, 1.0, 50, "python -m holdfast_lab.bench")


def test_rates_are_medians_and_ratios_name_what_is_required(page: report.Page) -> None:
    first, memory = page.rows()
    assert first[:4] == [TITLE, "40,000", "100,000", "0.40 (needs 0.50)"]
    assert memory[:4] == ["bytes of memory per entry", "300", "200", "1.50"]


def test_without_redis_there_are_no_ratios(page: report.Page) -> None:
    del page.results[TITLE, "Redis"], page.memory["Redis"]
    first, memory = page.rows()
    assert first[2:4] == memory[2:4] == ["-", "-"]
    assert any("Redis is not installed here" in remark for remark in page.remarks())


def test_what_spoils_the_figures_is_said(page: report.Page) -> None:
    said = "\n".join(page.remarks())
    assert "never the limit: at most 50%" in said
    assert "Other processes" not in said
    page.results[TITLE, "Holdfast"] = measured(40_000, generator=0.99, others=0.2)
    said = "\n".join(page.remarks())
    assert f"The generator itself was the limit for: {TITLE} on Holdfast (99% of its core)" in said
    assert f"{TITLE} on Holdfast (20%)" in said


def test_only_the_figures_of_a_page_are_replaced(page: report.Page, tmp_path: Path) -> None:
    target = tmp_path / "docs" / "performance.md"
    page.write(target)
    text = target.read_text(encoding="utf-8")
    assert "| 40,000 | 100,000 |" in text
    target.write_text("mine before\n" + text + "\nmine after\n", encoding="utf-8")
    page.results[TITLE, "Holdfast"] = measured(60_000)
    page.write(target)
    text = target.read_text(encoding="utf-8")
    assert "| 60,000 | 100,000 |" in text
    assert "40,000" not in text
    assert text.startswith("mine before\n")
    assert text.endswith("mine after\n")
