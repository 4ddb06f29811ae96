"""What we hand to those who run members (Kubernetes, containers, systemd) names only what there is."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.start import start
from holdfast.config import Settings, load
from holdfast.config.describe import schema
from holdfast.config.schema import SECTIONS

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "ops/kubernetes/holdfast.yaml"
COMPOSE = ROOT / "compose.yaml"
DOCKERFILE = ROOT / "Dockerfile"
UNIT = ROOT / "ops/systemd/holdfast.service"
HTTP_PORT = 5801
LATER = set() if "http" in SECTIONS else {"http"}
"""Sections that a member of this build does not have."""
KUBERNETES = "1.31"

yaml = pytest.importorskip("yaml")


def manifests() -> dict[str, Any]:
    """By kind and name."""
    documents = yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8"))
    return {f"{one['kind']}/{one['metadata']['name']}": one for one in documents}


def pod() -> dict[str, Any]:
    return manifests()["StatefulSet/holdfast"]["spec"]["template"]  # type: ignore[no-any-return]


def container() -> dict[str, Any]:
    (one,) = pod()["spec"]["containers"]
    return one  # type: ignore[no-any-return]


def environment(name: str) -> dict[str, str]:
    """What a pod of this name has in its environment; of secrets something."""
    known = {"POD_NAME": name, "NAMESPACE": "prod"}
    found: dict[str, str] = {}
    for one in container()["env"]:
        if one["name"] in known:
            continue
        text = one.get("value", "a secret")
        found[one["name"]] = re.sub(r"\$\((\w+)\)", lambda match: known[match.group(1)], text)
    return found


def settings_of(name: str) -> Settings:
    text = manifests()["ConfigMap/holdfast"]["data"]["holdfast.toml"]
    for section in LATER:
        text = re.sub(rf"\[{section}\]\n(.+\n)*", "", text)
    return load(text, environment(name))


@pytest.mark.parametrize("path", [MANIFEST, COMPOSE, DOCKERFILE, UNIT], ids=lambda path: path.name)
def test_every_variable_is_a_setting(path: Path) -> None:
    known = {key.variable for key in schema()}
    named = set(re.findall(r"HOLDFAST_[A-Z0-9_]+", path.read_text(encoding="utf-8")))
    assert {one for one in named - known if one.split("_")[1].lower() not in LATER} == set()


def test_the_first_pod_is_the_first_seed_and_all_know_the_others() -> None:
    replicas = manifests()["StatefulSet/holdfast"]["spec"]["replicas"]
    for number in range(replicas):
        settings = settings_of(f"holdfast-{number}")
        seeds = settings.seed_addresses()
        own = (settings.member.public_host, settings.member.member_port)
        assert seeds.index(own) == number
        assert settings.member.name == f"holdfast-{number}"
        assert settings.cluster.initial_members == replicas
    everybody = manifests()["Service/holdfast-members"]
    assert everybody["spec"]["publishNotReadyAddresses"] is True
    assert everybody["spec"]["clusterIP"] == "None"
    assert seeds[-1][0] == "holdfast-members.prod.svc.cluster.local"
    assert manifests()["StatefulSet/holdfast"]["spec"]["serviceName"] == "holdfast-members"


def test_ports_probes_and_selectors_fit_together() -> None:
    settings, one = settings_of("holdfast-0"), container()
    ports = {port["name"]: port["containerPort"] for port in one["ports"]}
    assert ports == {
        "client": settings.member.client_port,
        "member": settings.member.member_port,
        "http": HTTP_PORT,
    }
    text = manifests()["ConfigMap/holdfast"]["data"]["holdfast.toml"]
    assert tomllib.loads(text)["http"]["port"] == HTTP_PORT
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        probe = one[name]["httpGet"]
        assert probe["port"] == "http"
        assert probe["path"] == ("/health/ready" if name == "readinessProbe" else "/health/live")
        assert probe["scheme"] == ("HTTPS" if settings.tls.enabled else "HTTP")
    labels = pod()["metadata"]["labels"]
    for name in ("Service/holdfast", "Service/holdfast-members"):
        service = manifests()[name]["spec"]
        assert service["selector"].items() <= labels.items()
        assert {port["targetPort"] for port in service["ports"]} <= ports.keys()
    assert manifests()["PodDisruptionBudget/holdfast"]["spec"] == {
        "maxUnavailable": 1,
        "selector": {"matchLabels": labels},
    }


def test_a_pod_has_the_time_to_drain_and_a_disk_that_it_may_write() -> None:
    settings, spec, one = settings_of("holdfast-0"), pod()["spec"], container()
    assert spec["terminationGracePeriodSeconds"] >= settings.partitions.drain_timeout_s + 30
    mounts = {mount["name"]: mount["mountPath"] for mount in one["volumeMounts"]}
    assert settings.persistence.directory.startswith(mounts["data"])
    assert settings.tls.certificate.startswith(mounts["tls"])
    claims = {
        one["metadata"]["name"] for one in manifests()["StatefulSet/holdfast"]["spec"]["volumeClaimTemplates"]
    }
    assert mounts.keys() == claims | {volume["name"] for volume in spec["volumes"]}
    assert one["resources"]["limits"]["memory"] == one["resources"]["requests"]["memory"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    start.make_context("start", list(one["args"][1:]))
    assert one["args"][0] == "start"


def test_kubernetes_would_take_the_manifests() -> None:
    validator = pytest.importorskip("kubernetes_validate")
    for document in manifests().values():
        validator.validate(document, KUBERNETES, strict=True)


def test_the_members_of_the_compose_file_find_each_other() -> None:
    services = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]
    assert len(services) == 3
    for name, service in services.items():
        settings = load(None, service["environment"])
        assert settings.member.public_host == settings.member.name == service["hostname"] == name
        assert (name, settings.member.member_port) in settings.seed_addresses()
        assert settings.cluster.initial_members == len(services)
        assert int(service["stop_grace_period"].rstrip("s")) > settings.partitions.drain_timeout_s
        assert all(port.startswith("127.0.0.1:") for port in service["ports"]), "there is no password"


def test_the_image_opens_the_doors_that_there_are() -> None:
    lines = DOCKERFILE.read_text(encoding="utf-8").splitlines()
    default = load().member
    assert f"EXPOSE {default.client_port} {default.member_port} {HTTP_PORT}" in lines
    assert "STOPSIGNAL SIGTERM" in lines
    users = [line for line in lines if line.startswith("USER ")]
    assert users == ["USER {runAsUser}:{runAsGroup}".format(**pod()["spec"]["securityContext"])]


def test_the_unit_lets_a_member_drain_and_does_not_start_what_cannot_be() -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(UNIT)
    service = unit["Service"]
    assert int(service["TimeoutStopSec"]) >= load().partitions.drain_timeout_s + 30
    assert service["KillSignal"] == "SIGTERM"
    assert service["RestartPreventExitStatus"].split() == ["1", "2"]
    assert service["RestartForceExitStatus"].split() == ["4", "70", "75"]
    program, command, *arguments = service["ExecStart"].split()
    assert (Path(program).name, command) == ("holdfast", "start")
    start.make_context("start", arguments)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    copy = tmp_path / UNIT.name
    # It looks for the program, which is not installed here.
    text = UNIT.read_text(encoding="utf-8").replace("/opt/holdfast/bin/holdfast", "/bin/true")
    copy.write_text(text, encoding="utf-8")
    ran = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, [line for line in ran.stderr.splitlines() if UNIT.name in line]) == (0, [])
