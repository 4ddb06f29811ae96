"""`python -m holdfast_lab demo`, `chaos`, `resize`, `fuzz`: jobs around a cluster.

What they need is imported when asked for.
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

NEMESES = ("kill", "pause", "cut", "resize", "clock", "blackout")


@click.command
@click.option("--rows", type=click.IntRange(1), help="Only the first rows of the data.")
@click.option(
    "--members", default=4, show_default=True, type=click.IntRange(2), help="Members at the beginning."
)
@click.option(
    "--csv", type=LocalPath(path_type=Path), help="Your own data instead of the flights; needs --key."
)
@click.option("--key", metavar="COLUMN[,COLUMN]", help="The columns of the CSV file that identify a row.")
@click.option(
    "--out", default="out/demo", show_default=True, help="Folder for the report and the members' logs."
)
@click.option("--zone", is_flag=True, help="Also a zone: partitions that are Raft groups, and a map in it.")
def demo(rows: int | None, members: int, csv: Path | None, key: str | None, out: str, *, zone: bool) -> None:
    """Load real data with Spark, lose and add members under load, and prove that nothing is lost.

    The exit status is 1 if anything was lost or diverged, 2 if the data cannot be used.
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
    help="What is done to it: members are killed; stand still; cannot hear each other; come and go; have wrong clocks; "
    "are all killed at once.",
)
@click.option(
    "--minutes", default=10.0, show_default=True, type=click.FloatRange(0, min_open=True), help="How long."
)
@click.option("--rounds", type=click.IntRange(1), help="So many faults, however long they take.")
@click.option("--seed", type=int, help="Who is struck, and when; random if left out.")
@click.option(
    "--java",
    type=LocalPath(path_type=Path, exists=True, file_okay=False),
    help="Where make java-client has built the Java client's program; without it the Python client calls alone.",
)
@click.option(
    "--faketime",
    type=LocalPath(path_type=Path, exists=True, dir_okay=False),
    help="libfaketimeMT.so.1, if it is not where Debian puts it; for clocks.",
)
@click.option("--zones", is_flag=True, help="With a metastore, and a map in a zone beside the other one.")
@click.option(
    "--keep",
    type=LocalPath(path_type=Path),
    help="Folder in which the clients' histories and the members' files and logs are kept.",
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
    zones: bool,
) -> None:
    """Strike a real cluster again and again while official Hazelcast clients call, and judge every answer.

    Each key has to look like one register to all clients: to those calls that changed something, to those that changed
    nothing, and to reads. The exit status is 1 if any answer does not hold, copies differ, or the cluster does not
    recover.
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
            zones=zones,
        )
    )


@click.command
@click.option(
    "--rounds", default=10, show_default=True, type=click.IntRange(1), help="From 3 to 7 members and back."
)
@click.option(
    "--backups",
    multiple=True,
    default=(1, 2),
    show_default="1 and 2",
    type=click.IntRange(1, BACKUPS_MAX),
    help="One map for the client with so many sync backups; may be given more than once.",
)
@click.option(
    "--rate", default=400.0, show_default=True, type=click.FloatRange(1), help="Operations a second."
)
@click.option(
    "--megabytes", default=32, show_default=True, type=click.IntRange(0), help="Data to move, in each map."
)
@click.option("--kills/--no-kills", default=True, show_default=True, help="Kill one member in each round.")
@click.option("--seed", type=int, help="Who is killed and who leaves; random if left out.")
@click.option(
    "--zones",
    is_flag=True,
    help="With a metastore, and one more map, in a zone whose replicas follow the members.",
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
    """Grow a real cluster from 3 to 7 members and back under load, again and again, with a crash in each round.

    A Hazelcast client reads and writes all the while. Shows how long it waited at rest, during movement and around
    crashes. The exit status is 1 if anything that was acknowledged is lost, or copies differ.
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
    "--messages", default=1_000_000, show_default=True, type=click.IntRange(1), help="How many, at about."
)
@click.option("--seed", type=int, help="What is said; random if left out.")
@click.option("--only", type=click.IntRange(0), metavar="NUMBER", help="Only this talk of the seed.")
@click.option(
    "--rate",
    default=2500.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Messages a second at most; 0: as many as there are, which also takes the processor from everybody.",
)
@click.option(
    "--megabytes",
    default=1024,
    show_default=True,
    type=click.IntRange(1),
    help="What a member may take above what it takes at rest.",
)
@click.option(
    "--secret/--no-secret",
    default=True,
    show_default=True,
    help="Whether members have a secret; strangers know it.",
)
@click.option("--users", is_flag=True, help="Say it as a user who may do little, and judge every answer.")
@click.option(
    "--tls-ca",
    type=LocalPath(exists=True, dir_okay=False),
    help="Through TLS: members show --tls-certificate, and trust this CA.",
)
@click.option(
    "--tls-certificate",
    type=LocalPath(exists=True, dir_okay=False),
    help="For 127.0.0.1; members and strangers show it.",
)
@click.option("--tls-key", type=LocalPath(exists=True, dir_okay=False), help="Its key.")
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
    """Say to the three doors of a real cluster what hostile strangers might, made from the layouts of the messages,
    while a client sets and gets a key.

    The exit status is 1 if a member ends, hangs or takes too much memory, or if the client is told something wrong or
    waits more than 5 times as long as at rest. With --users the status is 1 if anything was let through that no rule
    permits, or refused that one does.
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
