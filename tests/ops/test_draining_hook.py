"""What Kubernetes runs before it ends a pod, run as it stands in the manifest against real members."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.ops.test_manifests import container, pod, settings_of
from tests.runtime.certificates import Authority

from holdfast.client.blocking import Client
from holdfast.config.client_tls import ClientTls
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import Op, Request
from holdfast.wire.values import to_stored
from holdfast_lab.fuzz.secured import config_of
from holdfast_lab.processes.local_cluster import LocalCluster

USER, PASSWORD = "app", "a password of the secret"
ENTRIES = 200


def hook() -> list[str]:
    command: list[str] = container()["lifecycle"]["preStop"]["exec"]["command"]
    return command


def test_a_pod_that_is_to_end_drains_and_nothing_is_lost(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    authority = Authority(tmp_path, "ours")
    shown = authority.sign()
    tls = ClientTls(authority.file, shown.certificate, shown.key)
    config = f'[security]\nusername = "{USER}"\npassword = "{PASSWORD}"\n[maps.default]\nbackups = 1\n'
    with LocalCluster(3, config_of(tls) + config, user=(USER, PASSWORD), tls=tls) as cluster:
        cluster.wait_safe(120)
        gone = cluster.members[1]
        with Client(cluster.members[0].client_address, username=USER, password=PASSWORD, tls=tls) as client:
            for number in range(ENTRIES):
                key = to_stored(number)
                place = partition_of(key, 0, client.partition_count)
                client.execute(Request(Op.SET, "m", [place], key, to_stored(number)))
        host, _, port = gone.client_address.rpartition(":")
        settings = settings_of("holdfast-1")
        # What differs here from a pod: the port, where the authority's file is, and a certificate for an address.
        command = [
            part.replace(str(settings.member.client_port), port).replace(settings.tls.ca, authority.file)
            for part in hook()
        ]
        environment = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOLDFAST_MEMBER_PUBLIC_HOST": host,
            "HOLDFAST_SECURITY_USERNAME": USER,
            "HOLDFAST_SECURITY_PASSWORD": PASSWORD,
        }
        told = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=90, check=False
        )
        assert told.returncode == 0, told.stdout + told.stderr
        assert gone.process.wait(120) == 0
        cluster.wait_safe(120)
        status = cluster.status(cluster.members[0])
        assert len(status.members) == 2
        assert status.entries.primary + cluster.status(cluster.members[2]).entries.primary == ENTRIES


def test_the_hook_ends_before_the_pod_is_killed() -> None:
    (text,) = [part for part in hook() if "drain" in part]
    words = text.split()
    limit_s = int(words[words.index("--timeout") + 1])
    assert limit_s == settings_of("holdfast-1").partitions.drain_timeout_s
    assert pod()["spec"]["terminationGracePeriodSeconds"] >= limit_s + 30
