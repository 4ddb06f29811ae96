"""Compares every replica with its owner from here, without a Spark job: for the chaos runs and the tests."""

from __future__ import annotations

from holdfast.client.blocking import Client
from holdfast.spark.audit import audit_partitions


def diverged(address: str) -> list[str]:
    """Every replica that is not proved equal to its owner, in words; for a cluster at rest."""
    with Client(address) as client:
        findings = audit_partitions(client, range(client.partition_count))
    return [str(finding) for finding in findings if finding.verdict != "equal"]
