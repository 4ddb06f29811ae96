"""The command `holdfast`: all commands of users and operators."""

from __future__ import annotations

import click

from holdfast.cli import exit_statuses
from holdfast.cli.lazy_group import LazyGroup, run
from holdfast.version import __version__

COMMANDS = {
    "start": "start:start",
    "status": "status:status",
    "cluster": "cluster:cluster",
    "member": "member:member",
    "data": "data:data",
    "verify": "verify:verify_command",
    "repair": "verify:repair_command",
    "journal": "journal:journal",
    "analyse": "analyse:analyse",
    "plan": "plan:plan",
    "whatif": "whatif:whatif",
    "zone": "zone:zone",
    "metastore": "metastore:metastore",
    "transactions": "transactions:transactions",
    "load": "load:load",
    "read": "read:read",
    "audit": "audit:audit",
    "changes": "changes:changes",
    "export": "export:export",
    "backup": "export:backup",
    "restore": "export:restore",
    "config": "configuration:config",
    "credentials": "making_verifiers:make_verifier",
}
"""Module of `holdfast.cli` and name there of each command, in the order in which `--help` lists them."""


@click.group(
    cls=LazyGroup,
    package="holdfast.cli",
    table=COMMANDS,
    statuses=exit_statuses.STATUSES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="holdfast")
def holdfast() -> None:
    """Holdfast: a partitioned, replicated in-memory data grid that keeps every acknowledged write.

    Hazelcast clients connect to it unchanged; Spark reads, writes and audits it.
    """


def main() -> None:
    """Run the command line."""
    run(holdfast)
