"""The command `holdfast`, with all commands of users and operators."""

from __future__ import annotations

import click

from holdfast.cli import exit_statuses
from holdfast.cli.lazy_group import Entry, LazyGroup, run
from holdfast.version import __version__

COMMANDS = {
    "start": Entry("start:start", "Run one member."),
    "status": Entry("status:status", "Show members, partitions and safety."),
    "top": Entry("top:top", "Show rates, latency, memory and clients of each member."),
    "cluster": Entry("cluster:cluster", "Manage the cluster: state, safety, baseline, upgrade, shutdown."),
    "member": Entry("member:member", "Drain, promote, demote and evict members."),
    "client": Entry("client:client", "List the connections of clients, and end them."),
    "map": Entry("maps:map_group", "Show settings of maps, and change them while the maps are used."),
    "data": Entry("structures:data", "Read maps and structures, and change single entries."),
    "cp": Entry("cp:cp", "List, show and destroy CP objects: locks, semaphores, latches, atomic values."),
    "verify": Entry(
        "verify:verify_command", "Check that replicas are equal: of a cluster, of members, or in files."
    ),
    "repair": Entry("verify:repair_command", "Repair replicas that differ."),
    "journal": Entry("journal:journal", "Read the files of a stopped member."),
    "analyse": Entry("analyse:analyse", "Report on journals and checkpoints of stopped members, on Spark."),
    "plan": Entry("plan:plan", "Show what joins, drains, crashes and changed settings would do."),
    "zone": Entry("zone:zone", "Manage zones: partitions that are Raft groups."),
    "metastore": Entry("metastore:metastore", "Read, change and watch the keys of the metastore."),
    "transactions": Entry("transactions:transactions", "List, show and kill running transactions."),
    "load": Entry("load:load", "Load files into a map, on Spark."),
    "read": Entry("read:read", "Read a map, on Spark: into a file, or its first rows."),
    "changes": Entry("changes:changes", "Follow the changes of a map, on Spark."),
    "export": Entry("export:export", "Export maps to Parquet at a consistent cut, on Spark."),
    "backup": Entry("export:backup", "Export maps to Parquet at a consistent cut, without Spark."),
    "restore": Entry("export:restore", "Restore an export or a backup, with or without Spark."),
    "config": Entry("configuration:config", "Print every setting, check a file, or change running members."),
    "credentials": Entry(
        "making_verifiers:make_verifier", "Create a verifier of a password, or a new token."
    ),
    "help": Entry(
        "help_topics:help_command", "Explain connection options, units, exit statuses or a command."
    ),
}
"""By command, in the order of `--help`: module in `holdfast.cli`, name there, and help line."""


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

    Hazelcast clients connect to it unchanged; Spark reads, writes and verifies it.
    """


def main() -> None:
    run(holdfast)
