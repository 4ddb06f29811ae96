"""The main job: load real data with Spark, lose and add members under load, and prove that nothing is lost.

Four members start. Spark loads the rows. A Hazelcast client writes and reads, while a member is killed, two
join, and the oldest, the master, is drained. Then Spark compares every replica with its owner and every row
with the file, and the client's acknowledged writes are read back.

With a zone the rows live in it, and a second client writes into a map in it, too. After the drain Spark exports both
maps at one cut while the clients write, restores them into another cluster with such a zone, and compares the rows
there with the file. The replicas of the zone are compared with each other.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

from rich.console import Console

from holdfast.errors import ConfigError
from holdfast_lab.demo import pipeline, report
from holdfast_lab.demo.data import Source
from holdfast_lab.demo.data import load as load_source
from holdfast_lab.demo.display import Display
from holdfast_lab.demo.report import Findings
from holdfast_lab.processes.campaign import Campaign, run_campaign
from holdfast_lab.processes.hazelcast_writer import WorkloadProcess, read_back
from holdfast_lab.processes.local_cluster import LocalCluster
from holdfast_lab.processes.ownership import Event, Sampler

CLIENT_MAP, ZONED_MAP = "client", "client-zoned"
ZONE = "demo"
CONFIG = "[maps.default]\nbackups = 1\n"
ZONE_CONFIG = "[metastore]\nvoters = 3\n" + "".join(
    f'[maps.{name}]\nraft_zone = "{ZONE}"\n' for name in (pipeline.MAP, ZONED_MAP)
)
REPLICAS, SCALE_DOWN_S = 3, 2
"""Settings of the zone: joining members get replicas at once, lost ones are replaced after so many seconds."""
CALM_S = 1.5
SETTLE_S = 120.0
MEMBERS_MIN = 2


def main(
    rows: int | None = None,
    members: int = 4,
    csv: str | Path | None = None,
    key: str | Sequence[str] | None = None,
    out: str | Path = "out/demo",
    console: Console | None = None,
    *,
    zone: bool = False,
) -> int:
    """Returns the exit status: 0 if nothing was lost, 1 if something was, 2 if the demo could not start.

    `csv` and `key`: the user's own data (`key`: columns, as a list or separated by commas); `out`: folder for
    the report and the members' logs. `zone`: put the rows into a zone.
    """
    console = console or Console()
    signal.signal(signal.SIGTERM, _end_in_order)
    try:
        least = REPLICAS if zone else MEMBERS_MIN
        if members < least:
            why = f"the zone has {REPLICAS} replicas" if zone else "one will be killed"
            raise ConfigError(f"--members is {members}; it must be at least {least}, for {why}")
        console.print(pipeline.java(), highlight=False)
        began = time.monotonic()
        source = load_source(rows, Path(csv) if csv is not None else None, _columns(key))
    except ConfigError as wrong:
        console.print(f"Error: {wrong}", style="red", highlight=False, markup=False)
        return 2
    findings = Findings(source.title, source.rows, source.key)
    findings.phases.append(report.Phase("read the file, check the key", time.monotonic() - began))
    return run_campaign(MainJob(source, findings, members, Path(out), console, zone=zone))


def _columns(key: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if key is None:
        return None
    parts = key.split(",") if isinstance(key, str) else list(key)
    return tuple(part.strip() for part in parts if part.strip())


def _end_in_order(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


class MainJob(Campaign[Findings]):
    """Three rounds: a member is killed, two join, the master is drained. With a zone a fourth: an export at a cut."""

    judges_failures = False

    def __init__(
        self, source: Source, findings: Findings, members: int, out: Path, console: Console, *, zone: bool
    ) -> None:
        self.began_s = time.monotonic() - sum(phase.seconds for phase in findings.phases)
        super().__init__(findings, console)
        self.source = source
        self.findings = findings
        self.display = Display(console, findings.phases)
        self.out = out
        self.zone = findings.zone = zone
        self.rounds = 4 if zone else 3
        self.members = members

    def prepare(self, stack: ExitStack, folder: Path) -> None:
        stack.enter_context(self.display)
        self.export = folder / "export"
        with self.display.phase(f"start {self.members} members") as words:
            self.cluster = stack.enter_context(self._cluster(self.members, "logs"))
            words.append(f"{self.cluster.status().partitions.count} partitions, one sync backup")
        if self.zone:
            with self.display.phase(f"create a zone of {REPLICAS} replicas") as words:
                words.append(self._create_zone(self.cluster))
        sampler = stack.enter_context(
            Sampler(self.cluster, self.findings.timeline, self.findings.zone_line if self.zone else None)
        )
        self.display.sampler = sampler
        with self.display.phase("start Spark"):
            parquet = folder / "rows.parquet"
            self.source.write_parquet(parquet)
            self.job = stack.enter_context(
                pipeline.Job(parquet, self.source.key, self.cluster.log_dir / "spark.log")
            )
        with self.display.phase("Spark loads the rows") as words:
            loaded = self.job.load(self.cluster.client_addresses())
            words.append(f"{loaded.inserted:,} rows, {loaded.rate:,.0f} a second")
        self.clients = [stack.enter_context(self._client(name, folder)) for name in self._maps()]
        self.display.client = self.clients[0]
        with self.display.phase("a Hazelcast client writes and reads"):
            for client in self.clients:
                client.wait_started()
            time.sleep(CALM_S)

    @contextmanager
    def _cluster(self, members: int, logs: str) -> Iterator[LocalCluster]:
        with LocalCluster(members, CONFIG + ZONE_CONFIG * self.zone, log_dir=self.out / logs) as cluster:
            cluster.wait_settled(SETTLE_S)
            yield cluster

    def _create_zone(self, cluster: LocalCluster) -> str:
        created = cluster.create_zone(ZONE, REPLICAS, SCALE_DOWN_S)
        cluster.wait_settled(SETTLE_S)
        return created

    def round(self, number: int) -> str:
        (self._kill, self._join, self._drain, self._export)[number - 1]()
        time.sleep(CALM_S)
        return ""

    def judge(self) -> None:
        with self.display.phase("the client ends its run"):
            self._finish()
        self._compare()
        if self.zone:
            self._restore()
        self.findings.migrations = self.findings.timeline.moves

    def show(self) -> None:
        findings = self.findings
        findings.seconds = time.monotonic() - self.began_s
        page = self.out / "report.html"
        report.show(findings, self.console)
        report.write_page(findings, page)
        self.console.print(f"Report: {page.resolve()}", highlight=False, soft_wrap=True)

    def _maps(self) -> list[str]:
        return [CLIENT_MAP, ZONED_MAP] if self.zone else [CLIENT_MAP]

    def _client(self, name: str, folder: Path) -> WorkloadProcess:
        log = self.cluster.log_dir / f"{name}.log"
        return WorkloadProcess(self.cluster.client_addresses(), name, folder / f"{name}.json", log)

    def _finish(self) -> None:
        findings = self.findings
        for client in self.clients:
            last = client.finish()
            findings.acknowledged += last.acknowledged
            findings.unknown += last.unknown
            findings.wrong_reads += last.wrong_reads
            findings.longest_pause_ms = max(findings.longest_pause_ms, last.longest_pause_ms)
            if client.name == ZONED_MAP:
                findings.zone_waits = client.history
            else:
                findings.waits = client.history

    def _kill(self) -> None:
        killed = self.cluster.alive[len(self.cluster.alive) // 2]
        with self.display.phase(f"kill {killed.name} (SIGKILL), restore copies"):
            self._event("kill", killed.name)
            self.cluster.kill(killed)
            self.cluster.wait_settled(SETTLE_S)

    def _join(self) -> None:
        with self.display.phase("two members join, partitions move") as words:
            words += [member.name for member in self.cluster.start_members(2)]
            self.cluster.wait_settled(SETTLE_S)

    def _drain(self) -> None:
        drained = self.cluster.alive[0]
        with self.display.phase(f"drain {drained.name}, the master (SIGTERM)") as words:
            self._event("drain", drained.name)
            self.cluster.drain(drained, timeout=SETTLE_S)
            words.append("left with exit status 0")
            self.cluster.wait_settled(SETTLE_S)

    def _export(self) -> None:
        title = "Spark exports the zone's maps at a cut, while the clients write"
        with self.display.phase(title) as words:
            done = self.job.export(self.cluster.client_addresses(), self.export, [ZONED_MAP])
            words.append(", ".join(f"{each.rows:,} entries of {each.name}" for each in done.manifest.maps))

    def _restore(self) -> None:
        findings = self.findings
        with ExitStack() as stack:
            with self.display.phase(f"start another cluster of {REPLICAS} members with such a zone") as words:
                other = stack.enter_context(self._cluster(REPLICAS, "logs-restored"))
                words.append(self._create_zone(other))
            with self.display.phase("Spark restores the export there") as words:
                restored = self.job.restore(other.client_addresses(), self.export)
                words += [f"{each.rows:,} entries of {each.name}: {each.verdict}" for each in restored.maps]
                findings.not_restored = len(restored.maps) - len(restored.of("equal"))
            with self.display.phase("Spark compares every restored row with the file") as words:
                found = self.job.compare_rows(other.client_addresses())
                findings.rows_restored, findings.restored_lost = found.compared, found.wrong
                findings.problems += [f"after the restore: {example}" for example in found.examples]
                words.append(f"{found.compared:,} rows, {found.wrong:,} lost")

    def _event(self, kind: str, member: str) -> None:
        event = Event(time.monotonic(), kind, member)
        self.findings.timeline.events.append(event)
        self.findings.zone_line.events.append(event)

    def _compare(self) -> None:
        findings = self.findings
        addresses = self.cluster.client_addresses()
        with self.display.phase("Spark compares every replica with its owner") as words:
            replicas = self.job.compare_replicas(addresses)
            findings.replicas_compared, findings.diverged = replicas.compared, replicas.wrong
            findings.problems += replicas.examples
            words.append(f"{replicas.compared:,} replicas, {replicas.wrong:,} diverged")
        with self.display.phase("Spark compares every row with the file") as words:
            found = self.job.compare_rows(addresses)
            findings.rows_lost = found.wrong
            findings.problems += found.examples
            words.append(f"{found.compared:,} rows, {found.wrong:,} lost")
        for client in self.clients:
            zoned = client.name == ZONED_MAP
            where = " in the zone" * zoned
            with self.display.phase(f"a fresh client reads back what was acknowledged{where}") as words:
                answer = read_back(addresses, client.name, client.ledger, by_key=zoned)
                findings.writes_lost += int(answer["lost"])
                findings.problems += [
                    f"the key {key} of map {client.name} is not what was acknowledged"
                    for key in answer["examples"]
                ]
                words.append(f"{answer['keys']:,} keys, {answer['lost']:,} lost")
