"""The page at the end: what it says, and that it needs nothing from outside."""

from __future__ import annotations

import io
import re
from typing import cast

import pytest
from rich.console import Console
from tests.statuses import listed

from holdfast_lab.demo import report
from holdfast_lab.demo.picture import Picture, grouped
from holdfast_lab.processes.hazelcast_writer import Progress
from holdfast_lab.processes.local_cluster import LocalCluster
from holdfast_lab.processes.ownership import Event, Sampler, Snapshot, Timeline


@pytest.fixture
def timeline() -> Timeline:
    """Two members with two partitions each; the second dies after the second of four samples."""
    line = Timeline(4, names={"a": "m1", "b": "m2"})
    for at_s, owners, copies in ((10, "aabb", 8), (11, "aabb", 8), (12, "aaaa", 4), (13, "aaaa", 4)):
        line.snapshots.append(Snapshot(at_s, tuple(owners), copies, 0, safe=True))
    line.events.append(Event(11.5, "kill", "m2"))
    return line


@pytest.fixture
def findings(timeline: Timeline) -> report.Findings:
    waits = [Progress(pause_ms=5, at_s=10.5), Progress(pause_ms=800, at_s=12)]
    return report.Findings(
        "<rows>", 1234, ("<id>",), [report.Phase("kill m2", 1.5, "a & b")], timeline, waits
    )


def test_the_owners_of_a_partition_follow_each_other(timeline: Timeline) -> None:
    first, *_, last = timeline.stretches()
    assert [(part.owner, part.begin_s, part.end_s) for part in first] == [("a", 10, 13)]
    assert [(part.owner, part.begin_s, part.end_s) for part in last] == [("b", 10, 12), ("a", 12, 13)]


def test_the_picture_tells_who_owned_what_and_when_it_changed(findings: report.Findings) -> None:
    story = Picture(findings.timeline, findings.waits).story()
    assert story["members"] == [{"name": "m1", "place": 0}, {"name": "m2", "place": 1}]
    assert story["base"] == [[0], [0], [1], [1]]
    assert story["changes"] == [(2000, 2, [0]), (2000, 3, [0])]
    assert story["marks"] == [{"at": 1500, "text": "m2 killed", "alarm": True}]
    assert (story["begin"], story["end"]) == (0, 3000)


def test_somebody_has_joined_when_a_member_tells_of_it(timeline: Timeline) -> None:
    sampler = Sampler(cast("LocalCluster", None), timeline)
    sampler._see([listed({"uuid": "a", "name": "m1"}), listed({"uuid": "c", "name": "m3"})], 12.5)
    assert timeline.events[1:] == [Event(12.5, "join", "m3")]
    assert timeline.names["c"] == "m3"


def test_the_page_shows_who_led_a_zone_when_there_was_one(
    findings: report.Findings, timeline: Timeline
) -> None:
    assert "of the zone" not in report.page(findings)
    findings.zone_line = Timeline(2, names={"node-a": "m1"}, events=timeline.events)
    for at_s, leaders, whole in ((10, ("node-a", "node-a"), 2), (13, ("node-a", ""), 1)):
        findings.zone_line.snapshots.append(Snapshot(at_s, leaders, whole, 0, safe=True))
    page = report.page(findings)
    assert page.count("copies_title") == 3
    assert "Who led which partition of the zone" in page
    assert "partitions with all their replicas: 2 when complete, 1 at the lowest" in page


def test_the_page_tells_of_the_restore_of_rows_in_a_zone(findings: report.Findings) -> None:
    assert "restored" not in report.page(findings)
    findings.zone, findings.rows_restored = True, 1234
    page = report.page(findings)
    assert "into a map in a zone" in page
    assert "was restored into another cluster" in page
    assert "rows restored elsewhere and compared" in page


def test_events_of_one_moment_share_a_mark() -> None:
    events = [
        Event(1, "join", "m5"),
        Event(1.2, "join", "m6"),
        Event(1.3, "kill", "m1"),
        Event(8, "join", "m7"),
        Event(9.5, "join", "m8"),
    ]
    assert [(event.kind, names) for event, names in grouped(events)] == [
        ("join", ["m5", "m6"]),
        ("kill", ["m1"]),
        ("join", ["m7"]),
        ("join", ["m8"]),
    ]


def test_the_page_fetches_nothing_and_escapes_what_it_shows(findings: report.Findings) -> None:
    page = report.page(findings)
    assert re.findall(r"https?://[^\s\"'<]+", page) == []
    assert not re.search(r"<(link|img|iframe)|<script[^>]*src|@import|url\(|\bimport\b[ ({*]", page)
    assert "</script" not in page.partition('id="stories">')[2].partition("</script>")[0]
    assert "1,234 &lt;rows&gt;" in page
    assert "key: &lt;id&gt;" in page
    assert "a &amp; b" in page
    assert "Nothing lost, nothing diverged." in page


@pytest.mark.parametrize(
    "field", ["rows_lost", "restored_lost", "not_restored", "writes_lost", "wrong_reads", "diverged"]
)
def test_every_kind_of_loss_is_bad_news(findings: report.Findings, field: str) -> None:
    assert findings.good
    setattr(findings, field, 2)
    assert not findings.good
    assert "Nothing lost" not in report.page(findings)
    assert 'class="card alarm"' in report.page(findings)


def test_the_table_tells_the_figures(findings: report.Findings) -> None:
    findings.writes_lost, findings.longest_pause_ms = 3, 800
    out = io.StringIO()
    report.show(findings, Console(file=out, width=100))
    words = " ".join(re.sub(r"[│┃]", " ", out.getvalue()).split())
    assert "lost 3" in words
    assert "diverged 0" in words
    assert "longest pause the client saw 800 ms" in words
    assert "kill m2 1.5 s" in words
