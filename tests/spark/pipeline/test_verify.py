"""The report of a comparison on Spark. How replicas are compared: tests/replica_comparison."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from holdfast.core.store.replica_comparison import Finding
from holdfast.replica_comparison.comparison_report import Report, key_finding, totals_of
from holdfast.spark.pipeline.verify import FINDINGS, KEYS, Part


def finding(verdict: str, *, kept: bool = True, entries: int = 4) -> Finding:
    return Finding(
        partition=3, map="m", member="backup", verdict=verdict, kept=kept, entries=entries, digest="aa"  # type: ignore[arg-type]
    )  # fmt: skip


EQUAL, NOT_KEPT = finding("equal"), finding("equal", kept=False, entries=0)
DIFFERS = finding("differs", entries=3)


def test_a_report_is_sound_when_every_replica_is_equal() -> None:
    report = Report(totals=totals_of([EQUAL, NOT_KEPT]))
    assert (report.sound, report.copies, report.not_kept, report.entries) == (True, 1, 1, 4)
    assert Report().sound


@pytest.mark.parametrize("verdict", ["differs", "busy", "unreachable", "uncertain"])
def test_a_report_with_any_other_verdict_is_not_sound(verdict: str) -> None:
    report = Report(findings=[DIFFERS], totals=totals_of([EQUAL, finding(verdict)]), partitions=2)
    assert (report.sound, report.differs, report.count("differs")) == (
        False,
        verdict == "differs",
        int(verdict == "differs"),
    )
    assert f"1 {verdict}" in str(report)
    assert "partition 3, map m: backup differs" in str(report)


def test_an_older_replica_is_no_error() -> None:
    assert Report(totals=totals_of([EQUAL, finding("older")])).sound


def test_findings_and_keys_travel_as_rows_and_columns() -> None:
    keys = [key_finding(1, "m", b"\xff\x00", member, value) for member, value in (("a", b"x"), ("b", None))]
    assert [(key.held, key.value_bytes, bool(key.digest)) for key in keys] == [
        (True, 1, True),
        (False, 0, False),
    ]
    part = Part([EQUAL, DIFFERS], totals_of([EQUAL, DIFFERS]), keys, ["m1: lost"], {"m"})
    (batch,) = part.rows()
    import pyarrow as pa

    assert Part.of_job(pa.Table.from_batches([batch])) == [part]
    assert FINDINGS.rows(FINDINGS.table([EQUAL, DIFFERS])) == [EQUAL, DIFFERS]
    assert KEYS.rows(KEYS.table(keys)) == keys
