"""The driver of campaigns, on rounds without processes."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest
from rich.console import Console

from holdfast.errors import HoldfastError
from holdfast_lab.processes.campaign import Campaign, CampaignVerdict, run_campaign


class Rounds(Campaign[CampaignVerdict]):
    fails_in = 0
    judge_fails = False

    def __init__(self, rounds: int) -> None:
        super().__init__(CampaignVerdict(), Console(quiet=True))
        self.rounds = rounds
        self.calls: list[str] = []

    def prepare(self, stack: ExitStack, folder: Path) -> None:
        self.folder = folder
        assert folder.is_dir()
        stack.callback(self.calls.append, "ended")

    def round(self, number: int) -> str:
        self.calls.append(f"round {number}")
        if number == self.fails_in:
            raise HoldfastError("not settled")
        return "well"

    def judge(self) -> None:
        self.calls.append("judged")
        if self.judge_fails:
            raise OSError("no answer")


def test_all_rounds_are_judged_before_the_load_ends() -> None:
    run = Rounds(2)
    assert run.run().good
    assert run.calls == ["round 1", "round 2", "judged", "ended"]
    assert run.verdict.rounds == 2
    assert not run.folder.exists()


@pytest.mark.parametrize("judges", [True, False])
def test_a_failed_round_ends_the_run_and_is_no_good_one(judges: bool) -> None:
    run = Rounds(3)
    run.fails_in, run.judges_failures, run.judge_fails = 2, judges, True
    assert not run.run().good
    assert run.calls == ["round 1", "round 2", *["judged"] * judges, "ended"]
    assert (run.verdict.rounds, run.verdict.failure) == (1, "not settled")


def test_a_judge_that_fails_makes_the_run_fail() -> None:
    run = Rounds(1)
    run.judge_fails = True
    assert run_campaign(run) == 1
    assert run.verdict.failure == "no answer"


def test_without_a_number_rounds_begin_until_the_time_is_over() -> None:
    assert Rounds(0).run().rounds == 0


def test_json_has_the_figures_and_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_campaign(Rounds(1), "one round", {"plan": 7}) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["plan"], found["rounds"], found["good"]) == (7, 1, True)
