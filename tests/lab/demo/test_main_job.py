"""The whole demo on a few rows, and its exit status."""

from __future__ import annotations

import re
import tomllib
from contextlib import ExitStack
from pathlib import Path

import pytest
from rich.console import Console

pytest.importorskip("pyspark")

from holdfast_lab.demo import main_job as run
from holdfast_lab.processes.local_cluster import ClusterError


class Job(run.MainJob):
    """A run without processes, with the given findings or failure."""

    found: dict[str, int]
    failed: Exception | None

    def prepare(self, stack: ExitStack, folder: Path) -> None:
        self.rounds = 1

    def round(self, number: int) -> str:
        if self.failed is not None:
            raise self.failed
        return ""

    def judge(self) -> None:
        for name, value in self.found.items():
            setattr(self.findings, name, value)


@pytest.mark.parametrize(
    ("found", "failure", "status"),
    [
        ({}, None, 0),
        ({"rows_lost": 1}, None, 1),
        ({"diverged": 1}, None, 1),
        ({"writes_lost": 1}, None, 1),
        ({"restored_lost": 1}, None, 1),
        ({"not_restored": 1}, None, 1),
        ({}, ClusterError("m1 has not left"), 1),
    ],
)
def test_the_exit_status_tells_whether_all_was_well(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    found: dict[str, int],
    failure: Exception | None,
    status: int,
) -> None:
    monkeypatch.setattr(Job, "found", found, raising=False)
    monkeypatch.setattr(Job, "failed", failure, raising=False)
    monkeypatch.setattr(run, "MainJob", Job)
    monkeypatch.setattr(run.pipeline, "java", lambda: "Java is here")
    rows = tmp_path / "rows.csv"
    rows.write_text("id,name\n1,a\n2,b\n", encoding="utf-8")
    assert run.main(csv=rows, key="id", out=tmp_path, console=Console(quiet=True)) == status
    assert (tmp_path / "report.html").exists()


def test_a_demo_with_a_zone_needs_as_many_members_as_that_has_replicas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run.pipeline, "java", lambda: "Java is here")
    assert run.main(members=2, out=tmp_path, console=Console(width=110), zone=True) == 2
    assert "--members is 2; it must be at least 3, for the zone has 3 replicas" in capsys.readouterr().out


def test_the_rows_of_a_demo_with_a_zone_are_in_the_zone() -> None:
    settings = tomllib.loads(run.CONFIG + run.ZONE_CONFIG)
    assert settings["maps"][run.pipeline.MAP]["raft_zone"] == run.ZONE


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.interop
def test_the_demo_with_somebodys_own_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["shelf,place,title,weight,bought"]
    lines += [
        f"{n // 50},{n % 50},Book {n},{n / 7:.3f},2024-0{1 + n % 9}-03" if n % 9 else f"{n // 50},{n % 50},,,"
        for n in range(3000)
    ]
    books = tmp_path / "books.csv"
    books.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert (
        run.main(
            members=4,
            csv=books,
            key="shelf,place",
            out=tmp_path / "out",
            console=Console(width=110),
            zone=True,
        )
        == 0
    )
    said = re.sub(r"[│ ]+", " ", capsys.readouterr().out)
    assert said.count("3,000 rows, 0 lost") == 2, "in the zone, and after the restore into another one"
    assert "rows restored elsewhere and compared 3,000" in said
    assert "3,000 entries of rows: equal" in said
    assert " lost 0 " in said
    assert " diverged 0 " in said
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "3,000 books.csv" in page
    assert re.search(r"[1-9][\d,]* replicas, 0 diverged", said)
    assert "Who led which partition of the zone" in page
    assert "m2 killed" in page
    assert "m4, m5 joined" in page
    assert "m1 drained" in page
