"""Two of three processes are gone for good: each refusal names the command that leads on, until the survivor serves."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from click.testing import CliRunner, Result
from tests.cluster.test_cluster import text
from tests.cluster.test_commands_live import until
from tests.lab.sim.way_out import named

from holdfast.cli.main import holdfast
from holdfast.client.blocking import Client
from holdfast.core.model.keys import partition_of
from holdfast_lab.processes.local_cluster import LocalCluster

COUNT = 11
CONFIG = f"""
[cluster]
heartbeat_ms = 200
suspect_after_ms = 10000
[partitions]
count = {COUNT}
[limits]
call_timeout_ms = 1000
[metastore]
voters = 3
[maps.default]
backups = 1
[maps.orders]
raft_zone = "z"
"""
KEYS = [f"k{number}" for number in range(40)]
COMMANDS_MOST = 12


class Operator:
    """Knows the address of one member, and reads what commands print."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.given: list[str] = []
        self.told: list[str] = []

    def run(self, *words: str) -> Result:
        result = CliRunner().invoke(holdfast, [*words, "-a", self._address], catch_exceptions=False)
        self.told.append(f"$ {shlex.join(words)} -> {result.exit_code}: {result.output.strip()}")
        return result

    def follow(self, command: str) -> None:
        """Give this command and then those that messages name, until all is served. A command that was carried out is
        not given twice in a row: it takes a moment until it shows.
        """
        while command:
            assert len(self.given) < COMMANDS_MOST, self.told[-12:]
            self.given.append(command)
            result = self.run(*shlex.split(command), "--yes")
            command = (named(result.output) if result.exit_code else "") or self.next_command()

    def next_command(self) -> str:
        """The command that `cluster safe` names next; empty when all is safe."""

        def looked() -> list[str]:
            safe = self.run("cluster", "safe")
            command = named(safe.output)
            new = command and command != self.given[-1]
            return [command] if new or not safe.exit_code else []

        found: list[str] = until(looked)
        return found[0]

    def reads(self, name: str, key: str) -> bool:
        return self.run("data", "get", name, key).output == f"{key}\n"


def test_messages_lead_from_two_of_three_members_killed_to_reads(tmp_path: Path) -> None:
    with LocalCluster(3, CONFIG, log_dir=tmp_path) as cluster:
        cluster.wait_settled()
        first, second, third = cluster.members
        operator = Operator(third.client_address)
        assert operator.run("zone", "create", "z", "--replicas", "3").exit_code == 0
        until(lambda: operator.run("cluster", "safe").exit_code == 0)
        with Client(third.client_address) as client:
            for key in KEYS:
                client.set("orders", text(key), text(key))
                client.set("plain", text(key), text(key))
            until(lambda: operator.run("cluster", "safe").exit_code == 0)
            rows = client.table().rows
        here = [key for key in KEYS if third.uuid in rows[partition_of(text(key), 0, COUNT)].replicas]
        assert 0 < len(here) < len(KEYS), "some ordinary keys have both copies on the others"

        cluster.kill(first)
        cluster.kill(second)
        until(lambda: operator.run("cluster", "safe").exit_code)
        operator.follow("metastore reset")
        assert all(operator.reads("orders", key) for key in KEYS), operator.told[-3:]
        assert all(operator.reads("plain", key) for key in here), operator.told[-3:]
        assert operator.given[1].startswith("member evict"), operator.given
        assert operator.given[-2:] == ["metastore reset", "zone reset z"]
        status = json.loads(operator.run("status", "--json").stdout)
        assert [member["name"] for member in status["members"]] == [third.name]
