"""Cuts are kept while a block runs, whoever of the members that were named at first is gone."""

from __future__ import annotations

import threading

import pytest
from tests.server.memory_cluster import MemoryCluster

from holdfast.client.blocking import Client
from holdfast.server.own_session import OwnSession
from holdfast.wire import own
from holdfast.wire.values import to_stored

pytest.importorskip("pyspark")

from holdfast.spark.pipeline.tables import one_cut


def test_a_cut_is_kept_though_the_member_that_was_named_is_gone(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(cluster.addresses()) as client:
        client.set("m", to_stored(1), to_stored(1))
    first = cluster.members[0]
    dead, kept = threading.Event(), threading.Event()
    before = OwnSession._answer

    def answer(session: OwnSession, question: own.Question) -> None:
        if isinstance(question, own.HoldCut) and question.lease_ms and dead.is_set():
            kept.set()
        before(session, question)

    monkeypatch.setattr(OwnSession, "_answer", answer)
    with one_cut(["m"], address=f"127.0.0.1:{first.port}", lease_s=0.4, timeout=60):
        cluster.do(lambda: cluster.kill(first))
        dead.set()
        assert kept.wait(120), "nobody renews the lease"
