"""`python -m holdfast_lab demo`, `chaos`, `resize`, `fuzz`: jobs around a cluster. Each command imports its job when it
runs.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import click

from holdfast.cli.answers import json_option
from holdfast.cli.paths import LocalPath
from holdfast.cli.spark import need_spark
from holdfast.config.schema import BACKUPS_MAX

NEMESES = ("kill", "owner", "pause", "cut", "resize", "clock", "blackout")


@click.command
@click.option("--rows", type=click.IntRange(1), help="Use only the first N rows of the data.")
@click.option(
    "--members", default=4, show_default=True, type=click.IntRange(2), help="Number of members at the start."
)
@click.option(
    "--csv", type=LocalPath(path_type=Path), help="Your own data instead of the flights; needs --key."
)
@click.option("--key", metavar="COLUMN[,COLUMN]", help="The columns of the CSV file that identify a row.")
@click.option(
    "--out", default="out/demo", show_default=True, help="Folder for the report and the members' logs."
)
@click.option(
    "--zone",
    is_flag=True,
    help="Put the rows into a zone (partitions that are Raft groups), and restore an export of them elsewhere.",
)
def demo(rows: int | None, members: int, csv: Path | None, key: str | None, out: str, *, zone: bool) -> None:
    r"""Load real data with Spark, lose and add members under load, and check that nothing is lost.

    The exit status is 1 if data was lost or diverged, and 2 if the input is invalid.

    \b
      python -m holdfast_lab demo --rows 100000
    """
    need_spark("spark,demo")
    from holdfast_lab.demo.main_job import main

    sys.exit(main(rows, members, csv, key, out, zone=zone))


@click.command
@click.option(
    "--nemesis",
    type=click.Choice(NEMESES),
    default="kill",
    show_default=True,
    help="Kind of fault: kill members; kill the owner of a queue and CP objects; pause members; cut the network "
    "between them; add and remove them; change their clocks; kill all at once.",
)
@click.option(
    "--minutes", default=10.0, show_default=True, type=click.FloatRange(0, min_open=True), help="How long."
)
@click.option("--rounds", type=click.IntRange(1), help="Number of faults, instead of a time.")
@click.option("--seed", type=int, help="Seed of the targets and times. Default: random.")
@click.option(
    "--java",
    type=LocalPath(path_type=Path, exists=True, file_okay=False),
    help="Folder with the Java client from make java-client; without it only the Python client calls.",
)
@click.option(
    "--faketime",
    type=LocalPath(path_type=Path, exists=True, dir_okay=False),
    help="Path of libfaketimeMT.so.1 for clocks, if not where Debian installs it.",
)
@click.option(
    "--zones",
    is_flag=False,
    flag_value="stay",
    type=click.Choice(["stay", "move"]),
    help="Add a metastore and a map in a zone. move: the other map moves into the zone or out of it in each round.",
)
@click.option(
    "--keep",
    type=LocalPath(path_type=Path),
    help="Folder for the clients' histories and the members' files and logs.",
)
def chaos(
    nemesis: str,
    minutes: float,
    rounds: int | None,
    seed: int | None,
    java: Path | None,
    faketime: Path | None,
    keep: Path | None,
    *,
    zones: str | None,
) -> None:
    r"""Inject faults into a real cluster while official Hazelcast clients call it, and check every response.

    Each key has to behave as one register for all clients (linearizability), for writes, failed writes and reads. The
    exit status is 1 if a response is wrong, copies differ, or the cluster does not recover.

    \b
      python -m holdfast_lab chaos --nemesis cut --rounds 3
    """
    from holdfast_lab.chaos.chaos import main

    sys.exit(
        main(
            nemesis,
            minutes=minutes,
            rounds=rounds or 0,
            seed=seed,
            java=java,
            faketime=faketime,
            keep=keep,
            zones=zones or "",
        )
    )


@click.command
@click.option(
    "--rounds",
    default=10,
    show_default=True,
    type=click.IntRange(1),
    help="Number of rounds from 3 to 7 members and back.",
)
@click.option(
    "--backups",
    multiple=True,
    default=(1, 2),
    show_default="1 and 2",
    type=click.IntRange(1, BACKUPS_MAX),
    help="Add a map with this number of sync backups; may be repeated.",
)
@click.option(
    "--rate", default=400.0, show_default=True, type=click.FloatRange(1), help="Operations a second."
)
@click.option("--megabytes", default=32, show_default=True, type=click.IntRange(0), help="Data in each map.")
@click.option("--kills/--no-kills", default=True, show_default=True, help="Kill one member per round.")
@click.option("--seed", type=int, help="Seed of the choice of members. Default: random.")
@click.option(
    "--zones",
    is_flag=True,
    help="Add a metastore, and a map in a zone whose replicas follow the members.",
)
@click.option("--logs", type=LocalPath(path_type=Path), help="Folder for the members' logs.")
@json_option
def resize(
    rounds: int,
    backups: tuple[int, ...],
    rate: float,
    megabytes: int,
    seed: int | None,
    logs: Path | None,
    *,
    kills: bool,
    zones: bool,
    as_json: bool,
) -> None:
    r"""Grow a real cluster from 3 to 7 members and back under load, with a crash in each round.

    A Hazelcast client reads and writes meanwhile. The command prints its latency at rest, during migrations and
    around crashes. The exit status is 1 if an acknowledged write is lost, or copies differ.

    \b
      python -m holdfast_lab resize --rounds 2
    """
    from holdfast_lab.chaos.resize import Plan, main

    seed = random.randrange(1_000_000) if seed is None else seed  # noqa: S311 - who dies is no secret
    plan = Plan(
        rounds=rounds,
        backups=tuple(dict.fromkeys(backups)),
        rate=rate,
        megabytes=megabytes,
        kills=kills,
        seed=seed,
        zones=zones,
    )
    sys.exit(main(plan, as_json=as_json, logs=logs))


@click.command
@click.option(
    "--messages",
    default=1_000_000,
    show_default=True,
    type=click.IntRange(1),
    help="Approximate number of messages.",
)
@click.option("--seed", type=int, help="Seed of the messages. Default: random.")
@click.option("--only", type=click.IntRange(0), metavar="NUMBER", help="Only this exchange of the seed.")
@click.option(
    "--rate",
    default=2500.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Maximum rate of messages per second; 0: no limit, which also starves the cluster of processor time.",
)
@click.option(
    "--megabytes",
    default=1024,
    show_default=True,
    type=click.IntRange(1),
    help="Memory that a member may use above its use at rest.",
)
@click.option(
    "--secret/--no-secret",
    default=True,
    show_default=True,
    help="Whether members have a secret, which the fuzzer knows.",
)
@click.option("--users", is_flag=True, help="Fuzz as a user with few permissions, and check every response.")
@click.option(
    "--tls-ca",
    type=LocalPath(exists=True, dir_okay=False),
    help="Use TLS: members use --tls-certificate, and trust this CA.",
)
@click.option(
    "--tls-certificate",
    type=LocalPath(exists=True, dir_okay=False),
    help="Certificate for 127.0.0.1, of members and of the fuzzer.",
)
@click.option(
    "--tls-key", type=LocalPath(exists=True, dir_okay=False), help="Private key of the certificate."
)
@click.option("--logs", type=LocalPath(path_type=Path), help="Folder for the members' logs.")
def fuzz(
    messages: int,
    seed: int | None,
    only: int | None,
    rate: float,
    megabytes: int,
    logs: Path | None,
    tls_ca: str | None,
    tls_certificate: str | None,
    tls_key: str | None,
    *,
    users: bool,
    secret: bool,
) -> None:
    r"""Fuzz the client, member and HTTP ports of a real cluster with messages generated from the protocols, while a
    client sets and gets a key.

    The exit status is 1 if a member ends, hangs or uses too much memory, or if the client gets a wrong response or
    waits more than 5 times as long as at rest; with --users, if a request was accepted without a rule, or rejected in
    spite of one.

    \b
      python -m holdfast_lab fuzz --messages 100000
    """
    from holdfast.config.client_tls import ClientTls
    from holdfast_lab.fuzz.fuzz import Plan, main

    files = (tls_ca, tls_certificate, tls_key)
    if any(files) and not all(files):
        raise click.UsageError("TLS needs all of --tls-ca, --tls-certificate and --tls-key")

    seed = random.randrange(1_000_000) if seed is None else seed  # noqa: S311 - what is said is no secret
    plan = Plan(messages, seed, only, rate, megabytes, users=users, secret=secret)
    plan.tls = ClientTls(*files) if all(files) else None
    sys.exit(main(plan, logs))
