"""Old copies of directories, put in the place of the newest files of real member processes: refused, every time."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cluster.keepers import Keepers, until

from holdfast.wire.values import to_stored
from holdfast_lab.processes.local_cluster import ManagedMember

pytestmark = pytest.mark.interop

ALONE: dict[str, object] = {"maps__default__backups": 0}
TRIES = 2


def write(cluster: Keepers, numbers: range, text: str = "v") -> None:
    with cluster.client() as client:
        for number in numbers:
            client.set("orders", to_stored(number), to_stored(f"{text}{number}"))


def lost(cluster: Keepers, numbers: range, text: str = "v") -> list[int]:
    """Which of these are not there as they were written."""
    with cluster.client() as client:
        return [
            number
            for number in numbers
            if client.get("orders", to_stored(number)) != to_stored(f"{text}{number}")
        ]


def swap(directory: Path, image: Path, aside: Path) -> None:
    """Put the image in the place of a directory, which is kept aside."""
    shutil.move(directory, aside)
    shutil.copytree(image, directory)


def back(directory: Path, aside: Path) -> None:
    """Put the newest files back."""
    shutil.rmtree(directory)
    shutil.move(aside, directory)


def refused(cluster: Keepers, name: str, words: str, **settings: object) -> None:
    """However often it is started, this member ends with status 2 and says why."""
    for _ in range(TRIES):
        member = cluster.spawn(name, **settings)
        assert cluster.ended(member) == 2, cluster.said(member)
        assert words in cluster.said(member)


def heard(cluster: Keepers) -> None:
    """Wait until the others have heard how far a member has written: a few heartbeats of 100 ms."""
    time.sleep(0.5)


def unserved(cluster: Keepers) -> Callable[[], bool]:
    def waits() -> bool:
        told = cluster.holdfast("cluster", "safe", "-a", cluster.alive[0].client_address)
        return told.returncode == 1 and "no primary" in told.stdout

    return waits


@pytest.mark.slow
def test_an_old_copy_stays_refused_and_the_operator_can_go_on_without_it(tmp_path: Path) -> None:
    with Keepers(tmp_path, **ALONE) as cluster:
        mine, of_before, of_now, aside = (
            cluster.directory("m2"),
            tmp_path / "of the life before",
            tmp_path / "of this life",
            tmp_path / "newest",
        )
        write(cluster, range(100))
        shutil.copytree(mine, of_before)
        cluster.kill(cluster.running("m2"))
        cluster.boot("m2")
        write(cluster, range(100, 200))
        shutil.copytree(mine, of_now)
        write(cluster, range(200, 300))
        heard(cluster)
        cluster.kill(cluster.running("m2"))

        for image in (of_before, of_now):
            swap(mine, image, aside)
            refused(cluster, "m2", "these files are an old copy")
            back(mine, aside)
        # The refusals have cost nothing: the newest files are as good as before.
        cluster.boot("m2")
        until(lambda: not lost(cluster, range(300)))

        # Nobody has the newest files any more.
        cluster.kill(cluster.running("m2"))
        shutil.rmtree(mine)
        refused_once = [cluster.spawn("m2")]
        until(unserved(cluster))
        told = cluster.holdfast("cluster", "accept-loss", "--yes", "-a", cluster.alive[0].client_address)
        assert told.returncode == 0, told.stderr
        cluster.wait_ready(refused_once)
        cluster.wait_safe()
        gone = lost(cluster, range(300))
        assert 0 < len(gone) < 300
        write(cluster, range(300), "again")
        assert lost(cluster, range(300), "again") == []


@pytest.mark.slow
def test_after_a_stop_of_everybody_an_old_copy_is_found_out_also_of_who_forms_the_cluster(
    tmp_path: Path,
) -> None:
    with Keepers(tmp_path, **ALONE) as cluster:
        old = "m1"
        image, aside = tmp_path / "image", tmp_path / "newest"
        write(cluster, range(100))
        shutil.copytree(cluster.directory(old), image)
        write(cluster, range(100, 200))
        # The others write down how far it has come.
        time.sleep(2.5)
        cluster.kill_all()
        swap(cluster.directory(old), image, aside)
        for _ in range(TRIES):
            ancient = cluster.spawn(old)
            time.sleep(1.0)
            others = [cluster.spawn(name) for name in cluster.names if name != old]
            assert cluster.ended(ancient) == 2, cluster.said(ancient)
            assert "these files are an old copy" in cluster.said(ancient)
            assert all(member.process.poll() is None for member in others)
            stop(cluster, others)
        back(cluster.directory(old), aside)
        cluster.boot(*cluster.names)
        until(lambda: not lost(cluster, range(200)))


def stop(cluster: Keepers, members: list[ManagedMember]) -> None:
    for member in members:
        cluster.kill(member)


def test_a_copy_of_the_only_member_is_refused_while_that_one_runs(tmp_path: Path) -> None:
    with Keepers(tmp_path, 1, **ALONE) as cluster:
        write(cluster, range(10))
        copy = tmp_path / "copy"
        shutil.copytree(cluster.directory("m1"), copy)
        refused(
            cluster,
            "m1",
            "member m1 is running with the same files",
            persistence__directory=str(copy),
            member__member_port=0,
            member__client_port=0,
        )
        assert lost(cluster, range(10)) == []
