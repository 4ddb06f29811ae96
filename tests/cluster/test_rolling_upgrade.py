"""Two builds side by side, on real processes under load: up one by one, and back, as docs/upgrading.md promises."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cluster.keepers import Keepers, until
from tests.cluster.other_builds import (
    FUTURE,
    NEXT,
    build_of,
    command,
    earlier_commit,
    last_below,
    newer_build,
    older_build,
)
from tests.cluster.tellers import ACCOUNTS, TOTAL, Tellers, connect, outside

from holdfast.core.model.levels import HIGHEST, LOWEST, PRIMARY_LOCKS
from holdfast_lab.chaos.chaos import judge_modes, kind_of, python_client
from holdfast_lab.chaos.recorded_calls import Keys
from holdfast_lab.processes.fork_server import COMMAND
from holdfast_lab.processes.local_cluster import ManagedMember

pytestmark = pytest.mark.interop
KEYS = Keys(40, "k")
LOAD: dict[str, object] = {"threads": 4, "pause-us": 8000}
NAMES = ("m1", "m2", "m3")
LEFT = "waved at"
"""What members of the newer build note when they are told what came with its level."""


class Upgraded(Keepers):
    """Three members with files, each of some build, and one backup."""

    def replace(self, name: str, program: list[str], *, drain: bool) -> ManagedMember:
        """End a member, in order or by `kill -9`, and start another build on its files, or on what is left of them."""
        before = self.running(name)
        if drain:
            self.drain(before)
        else:
            self.kill(before)
        after = self.spawn(name, command=program)
        self.wait_ready([after])
        self.wait_safe(60)
        return after

    def told(self) -> str:
        """All that all processes have said."""
        return "".join(self.said(member) for member in self.members)

    def level(self) -> int:
        """What is in force, as all say."""
        (level,) = {status.level.in_force for status in self.statuses().values()}
        return int(level)

    def versions(self) -> dict[str, str]:
        """What each member runs, as one of them says."""
        return {member.name: member.version for member in self.status().members}


@contextmanager
def load(cluster: Upgraded, folder: Path) -> Iterator[None]:
    """The official client calls meanwhile; when it is over every answer must hold, and every key must be readable."""
    addresses = [f"127.0.0.1:{cluster.ports[name][1]}" for name in NAMES]
    with python_client(addresses, folder, "p", LOAD, KEYS, smart=True) as client:
        client.wait_ready()
        yield
        assert client.read_each(KEYS.names(0)) == []
        client.finish()
        judged = judge_modes(client.calls)
        assert not any(judged.broken.values()), judged.broken
        assert not judged.undecided
        counts = Counter(map(kind_of, client.calls))
        assert counts["changed something"] > 100, counts
        assert counts["read"] > 50, counts


def all_copies_are_alike(cluster: Upgraded) -> None:
    looked = cluster.holdfast("verify", "-a", cluster.alive[0].client_address)
    assert looked.returncode == 0, looked.stdout + looked.stderr


def test_what_is_new_waits_until_all_have_it_and_the_operator_wants_it(tmp_path: Path) -> None:
    newer = command(newer_build(tmp_path / "newer"))
    with Upgraded(tmp_path) as cluster, load(cluster, tmp_path):
        assert cluster.level() == HIGHEST
        for name, drain in zip(NAMES, (False, True, False), strict=True):
            cluster.replace(name, newer, drain=drain)
            assert cluster.versions()[name] == FUTURE
        assert set(cluster.versions().values()) == {FUTURE}
        assert cluster.level() == HIGHEST
        assert LEFT not in cluster.told()

        address = cluster.alive[0].client_address
        shown = cluster.holdfast("cluster", "upgrade", "--show", "-a", address).stdout
        assert f"feature level {HIGHEST} in force; all members support {NEXT}" in shown
        raised = cluster.holdfast("cluster", "upgrade", "--yes", "-a", address)
        assert raised.stdout == f"the cluster is at feature level {NEXT}\n", raised.stderr
        assert cluster.level() == NEXT
        until(lambda: LEFT in cluster.told())

        # The older build is told why it can neither open these files nor come in.
        cluster.kill(cluster.running("m3"))
        with_files = cluster.spawn("m3")
        assert cluster.ended(with_files) != 0
        assert (
            f"was written at feature level {NEXT}, and this Holdfast can do {LOWEST} to {HIGHEST}"
            in cluster.said(with_files)
        )
        without = cluster.spawn("m3", persistence__directory=str(tmp_path / "empty"))
        assert cluster.ended(without) != 0
        assert (
            f"this cluster is at feature level {NEXT}, and your Holdfast supports {LOWEST} to {HIGHEST}"
            in cluster.said(without)
        )
        cluster.wait_ready([cluster.spawn("m3", command=newer)])
        cluster.wait_safe(60)
        all_copies_are_alike(cluster)


@pytest.mark.slow
@pytest.mark.parametrize("other", ["an earlier commit", "an older build", "a newer build"])
def test_members_are_replaced_one_by_one_and_back_under_load(other: str, tmp_path: Path) -> None:
    this = COMMAND
    if other == "an earlier commit":
        older, newer = command(build_of(earlier_commit(), tmp_path / "other")), this
    elif other == "an older build":
        older, newer = command(older_build(tmp_path / "other")), this
    else:
        older, newer = this, command(newer_build(tmp_path / "other"))
    with Upgraded(tmp_path, start=False) as cluster:
        for name in NAMES:
            cluster.spawn(name, command=older)
        cluster.wait_ready()
        cluster.wait_settled()
        with load(cluster, tmp_path):
            level = cluster.level()
            for program in (newer, older, newer):
                for number, name in enumerate(NAMES):
                    cluster.replace(name, program, drain=number == 1)
                    assert cluster.level() == level
            assert LEFT not in cluster.told()
            all_copies_are_alike(cluster)
            possible = cluster.status().level.possible
            assert possible == (NEXT if other == "a newer build" else HIGHEST)
            raised = subprocess.run(
                [*newer, "cluster", "upgrade", "--yes", "-a", cluster.alive[0].client_address],
                capture_output=True,
                text=True,
                check=False,
            )
            assert raised.returncode == 0, raised.stderr
            assert cluster.level() == possible
        # And all of it is in the files.
        cluster.kill_all()
        for name in NAMES:
            cluster.spawn(name, command=newer)
        cluster.wait_ready(cluster.alive)
        cluster.wait_safe(60)
        all_copies_are_alike(cluster)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_transfers_go_on_while_an_older_level_is_left(tmp_path: Path) -> None:
    """From a build that has locks on backups to one that has them on primaries alone, and branches in zones."""
    older = command(build_of(last_below(PRIMARY_LOCKS), tmp_path / "other"))
    with Upgraded(tmp_path, start=False) as cluster:
        for name in NAMES:
            cluster.spawn(name, command=older)
        cluster.wait_ready()
        cluster.wait_settled()
        addresses = [f"127.0.0.1:{cluster.ports[name][1]}" for name in NAMES]
        client = connect(addresses)
        client.get_map("accounts").blocking().put_all(dict.fromkeys(range(ACCOUNTS), 100))
        level = cluster.level()
        with Tellers(addresses, 3, outside) as tellers:
            for program in (COMMAND, older, COMMAND):
                for number, name in enumerate(NAMES):
                    cluster.replace(name, program, drain=number == 1)
                    assert cluster.level() == level
            before = tellers.transfers
            raised = cluster.holdfast("cluster", "upgrade", "--yes", "-a", cluster.alive[0].client_address)
            assert raised.returncode == 0, raised.stderr
            assert cluster.level() == HIGHEST
            until(lambda: tellers.transfers > before + 50)
        assert tellers.wrong == []
        assert tellers.looks
        print(f"{tellers.transfers} transfers, {tellers.looks} looks, {tellers.failed} failed")
        assert sum(client.get_map("accounts").blocking().values()) == TOTAL
        client.shutdown()
        all_copies_are_alike(cluster)
