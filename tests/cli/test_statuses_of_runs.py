"""With which status commands end that run for long: jobs on Spark, and runs of the demo's kind that found something."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.command_lines import group_of
from tests.server.memory_cluster import MemoryCluster

from holdfast.client.blocking import Client
from holdfast.errors import HoldfastError
from holdfast.wire.values import to_stored
from holdfast_lab.chaos import chaos
from holdfast_lab.fuzz import fuzz
from holdfast_lab.processes.campaign import CampaignVerdict
from holdfast_lab.processes.local_cluster import LocalCluster

BROKEN = 11
"""A seed that shows what the rule all-ack is for."""
JOURNALLED = "[partitions]\ncount = 7\n[maps.default]\njournal = 'sync'\n"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(group_of(arguments), [str(each) for each in arguments])


class Run:
    """Replaces the processes of a campaign: one round, with the given findings or failure."""

    found: CampaignVerdict | Exception
    verdict: CampaignVerdict

    def prepare(self, stack: ExitStack, folder: Path) -> None:
        if isinstance(self.found, Exception):
            raise self.found
        self.verdict = self.found

    def round(self, number: int) -> str:
        return "found"

    def judge(self) -> None: ...


class ChaosRun(Run, chaos.Chaos): ...


class FuzzRun(Run, fuzz.Fuzz): ...


@pytest.mark.parametrize(
    ("found", "status"),
    [(chaos.Verdict(), 0), (chaos.Verdict(diverged=1), 1), (HoldfastError("stuck"), 1)],
    ids=["good", "diverged", "failed"],
)
def test_chaos(monkeypatch: pytest.MonkeyPatch, found: Any, status: int) -> None:
    monkeypatch.setattr(Run, "found", found, raising=False)
    monkeypatch.setattr(chaos, "Chaos", ChaosRun)
    assert run("chaos", "--nemesis", "kill", "--rounds", "1").exit_code == status


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (fuzz.Verdict(), 0),
        (fuzz.Verdict(problems=["a member has ended"]), 1),
        (fuzz.Verdict(under_ms=1e6), 1),
    ],
    ids=["good", "wrong", "slow"],
)
def test_fuzz(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: fuzz.Verdict, status: int) -> None:
    monkeypatch.setattr(Run, "found", found, raising=False)
    monkeypatch.setattr(fuzz, "Fuzz", FuzzRun)
    assert run("fuzz", "--messages", "1", "--logs", tmp_path).exit_code == status


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_jobs_on_spark(tmp_path: Path) -> None:
    good = run("campaign", "--seeds", "3..4", "--settings", "plain", "--json")
    assert good.exit_code == 0, good.output
    assert len(good.stdout.splitlines()) == 2
    bad = run(
        "campaign", "--seeds", f"{BROKEN}..{BROKEN}", "--settings", "plain", "--without", "all-ack", "--json"
    )
    assert bad.exit_code == 1, bad.output
    with LocalCluster(1, JOURNALLED, data_dir=tmp_path / "files") as members:
        members.wait_ready()
        with Client(members.client_addresses()[0]) as client:
            for number in range(50):
                client.set("m", to_stored(number), to_stored("v" * 500))
        journals = members.directory(members.members[0])
        members.kill_all()
    told = run("analyse", journals, "--json")
    assert told.exit_code == 0, told.output
    segment = min(journals.glob("*.seg"))
    data = bytearray(segment.read_bytes())
    data[10_000] ^= 1
    segment.write_bytes(data)
    told = run("analyse", journals, "--report", "damage", "--json")
    assert told.exit_code == 1, told.output


def test_verify_distinguishes_differences_from_replicas_that_could_not_be_compared() -> None:
    with MemoryCluster(3, 31) as cluster:
        with Client(cluster.addresses()) as client:
            for number in range(200):
                client.set("m", to_stored(number), to_stored(number))
        one, two, three = cluster.addresses().split(",")
        sound = run("verify", "--member", one, "--member", two, "--json")
        assert sound.exit_code == 0, sound.output
        cluster.do(lambda: cluster.kill(cluster.members[2]))
        assert run("verify", "--member", one, "--member", three).exit_code == 4
        assert json.loads(sound.stdout)["sound"]
