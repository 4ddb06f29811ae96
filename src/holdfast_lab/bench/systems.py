"""Starts the measured systems on the servers' core: Holdfast, Hazelcast and Redis."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from hazelcast import HazelcastClient

from holdfast.actions.change_zone import CreateZone
from holdfast.client.blocking import Client
from holdfast.client.connection import Credentials
from holdfast.client.operator import act_at_any
from holdfast.core.model.ids import Address
from holdfast_lab.bench import frames
from holdfast_lab.bench.load import Target, cores
from holdfast_lab.processes.local_cluster import HOST, LocalCluster, free_ports

ROOT = Path(__file__).parents[3]
CLUSTER_NAME = "dev"
CONNECTIONS = 50
MOST_CONNECTIONS = 16_000
"""About the maximum of the generator."""


@dataclass(frozen=True, slots=True)
class System:
    name: str
    pids: list[int]
    addresses: list[tuple[str, int]]
    owners: list[int]
    """For a grid: the index of each partition owner's address."""
    is_redis: bool = False
    waits: bool = False
    """Redis: whether a WAIT for the replica follows each SET."""
    warm_up_s: float = 0.3
    """How long each case runs before it is measured."""
    user: tuple[str, str] | None = None
    """Name and password, for members with users."""
    http: str = ""
    """HOST:PORT of the first member's HTTP port, if any."""

    def cpu_seconds(self) -> float:
        return sum(process_cpu_seconds(pid) for pid in self.pids)

    def resident_bytes(self) -> int:
        return sum(_resident_bytes(pid) for pid in self.pids)

    def write_frames(
        self, kind: str, numbers: list[int], folder: Path, value_bytes: int = frames.VALUE_BYTES
    ) -> list[Path]:
        """Requests of one kind (`get`, `set`, `set+wait`) for these keys: one file for each address, in a
        subfolder of `folder`, because each cluster has other owners.
        """
        folder = folder / self.name.replace(" ", "-")
        folder.mkdir(parents=True, exist_ok=True)
        if self.is_redis:
            return [frames.write_redis_frames(kind, numbers, folder, value_bytes)]
        return frames.write_grid_frames(kind, numbers, self.owners, folder, value_bytes)

    @contextmanager
    def targets(self, files: list[Path], connections: int = CONNECTIONS) -> Iterator[list[Target]]:
        """Open `connections` connections, distributed evenly over the files' addresses."""
        with ExitStack() as stack:
            share = max(1, connections // len(files))
            found: list[Target] = []
            for address, file in zip(self.addresses, files, strict=False):
                doors = [stack.enter_context(self.connect(address)) for _ in range(share)]
                found.append(Target(file, doors))
            yield found

    def connect(self, address: tuple[str, int]) -> socket.socket:
        door = socket.create_connection(address, timeout=10)
        door.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self.is_redis:
            _sign_in(door, self.user)
        return door


@contextmanager
def server_core() -> Iterator[None]:
    """Processes started in this block run on the servers' core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cores().server})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def holdfast(
    members: int,
    backups: int,
    journal: str = "off",
    name: str = "Holdfast",
    partitions: int = 271,
    more: str = "",
    user: tuple[str, str] | None = None,
    kind: type[LocalCluster] = LocalCluster,
) -> Iterator[System]:
    """Holdfast members on loopback, all on the servers' core; with a journal each has its own directory.
    `more`: additional settings. `user`: of the connections, for members with users. `kind`: class that starts
    the members.
    """
    config = f"{more}[partitions]\ncount = {partitions}\n"
    config += f'[maps.default]\nbackups = {backups}\njournal = "{journal}"\n'
    config += f"[limits]\nconnections = {MOST_CONNECTIONS}\nconnections_per_address = {MOST_CONNECTIONS}\n"
    config += f"unauthenticated_connections = {MOST_CONNECTIONS}\n"
    with ExitStack() as stack:
        folder = None
        if journal != "off":
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-data-"))
        with server_core():
            cluster = stack.enter_context(kind(members, config, data_dir=folder, user=user))
        cluster.wait_safe(60)
        names = [member.uuid for member in cluster.members]
        name_and_password = user or (None, None)
        with Client(
            cluster.members[0].client_address, username=name_and_password[0], password=name_and_password[1]
        ) as client:
            owners = [names.index(row.owner or "") for row in client.table()]
        addresses = [(HOST, int(member.client_address.rpartition(":")[2])) for member in cluster.members]
        http = cluster.status(cluster.members[0]).http
        yield System(
            name, [member.pid for member in cluster.members], addresses, owners, user=user, http=http
        )


@contextmanager
def holdfast_zone(members: int, partitions: int, name: str, *, files: bool) -> Iterator[System]:
    """The same, with the benchmark's map in a zone of `partitions` partitions and a replica on each member."""
    config = (
        f"[partitions]\ncount = {partitions}\n[metastore]\nvoters = {members}\n"
        f'[maps.{frames.MAP}]\nraft_zone = "z"\n'
    )
    with ExitStack() as stack:
        folder = None
        if files:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-data-"))
        with server_core():
            cluster = stack.enter_context(LocalCluster(members, config, data_dir=folder))
        cluster.wait_safe(60)
        addresses = [(HOST, int(member.client_address.rpartition(":")[2])) for member in cluster.members]
        act_at_any([Address(*each) for each in addresses], Credentials(), CreateZone("z", replicas=members))
        cluster.wait_safe(60)
        names = [member.uuid for member in cluster.members]
        with Client(cluster.members[0].client_address) as client:
            owners = [names.index(row.owner or "") for row in client.table()]
        yield System(name, [member.pid for member in cluster.members], addresses, owners)


def redis_program() -> str | None:
    return shutil.which("redis-server")


def redis_version() -> str:
    told = subprocess.run(
        [redis_program() or "redis-server", "--version"], capture_output=True, text=True, check=True
    )
    return next((word[2:] for word in told.stdout.split() if word.startswith("v=")), told.stdout.strip())


@contextmanager
def redis(replicas: int = 0, append: str = "no", name: str = "Redis") -> Iterator[System]:
    """A Redis server with `replicas` replicas on the servers' core.

    `append`: without persistence ("no"), or with an append-only file that is synced each second ("everysec") or
    before each response ("always"), also on the replicas.
    """
    program = redis_program()
    assert program is not None, "ask redis_program() first"
    ports = free_ports(1 + replicas)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-redis-"))
        started: list[subprocess.Popen[bytes]] = []
        for port in ports:
            own = Path(folder) / str(port)
            own.mkdir()
            command = [program, "--port", str(port), "--bind", HOST, "--save", "", "--dir", str(own)]
            command += (
                ["--appendonly", "no"] if append == "no" else ["--appendonly", "yes", "--appendfsync", append]
            )
            command += ["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"]
            command += ["--maxclients", "16000"]
            if port != ports[0]:
                command += ["--replicaof", HOST, str(ports[0])]
            with server_core():
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            stack.callback(end, process)
            started.append(process)
        for port in ports:
            ask_redis(port, b"PING\r\n", b"+PONG\r\n")
        if replicas:
            ask_redis(ports[0], b"SET ready 1\r\nWAIT %d 100\r\n" % replicas, b"+OK\r\n:%d\r\n" % replicas)
        pids = [process.pid for process in started]
        yield System(name, pids, [(HOST, ports[0])], [], is_redis=True, waits=bool(replicas))


HAZELCAST = "5.5.0"
JAR = ROOT / "tests" / "interop" / "java" / "target" / "clients" / f"hazelcast-{HAZELCAST}.jar"
"""The jar contains client and member."""
HAZELCAST_CONFIG = """<hazelcast xmlns="http://www.hazelcast.com/schema/config">
  <cluster-name>dev</cluster-name>
  <properties>
    <property name="hazelcast.phone.home.enabled">false</property>
    <property name="hazelcast.partition.count">271</property>
    <property name="hazelcast.socket.bind.any">false</property>
  </properties>
  <network>
    <port auto-increment="false">{port}</port>
    <join><multicast enabled="false"/>
      <tcp-ip enabled="{joins}"><members>{members}</members></tcp-ip>
      <auto-detection enabled="false"/></join>
    <interfaces enabled="true"><interface>127.0.0.1</interface></interfaces>
  </network>
  <map name="default"><backup-count>{backups}</backup-count></map>
</hazelcast>
"""


def hazelcast_problem() -> str:
    """The missing requirements of a Hazelcast member; empty: none."""
    if shutil.which("java") is None:
        return "Java is not installed here"
    return "" if JAR.is_file() else f"Hazelcast {HAZELCAST} is not here: `make java-clients` fetches it"


@contextmanager
def hazelcast(
    heap: str = "4g",
    members: int = 1,
    backups: int = 0,
    name: str = "Hazelcast",
    jar: Path = JAR,
    java_options: Sequence[str] = (),
) -> Iterator[System]:
    """Hazelcast members on loopback and on the servers' core, with the release's defaults except for the
    network, the number of sync backups and these options of Java.
    """
    assert jar.is_file(), "ask hazelcast_problem() first"
    ports = free_ports(members)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-hazelcast-")))
        opens = ("java.base/java.lang", "java.base/sun.nio.ch", "java.management/sun.management")
        options = [part for one in opens for part in ("--add-opens", f"{one}=ALL-UNNAMED")]
        options += [*java_options, "-cp", str(jar), "com.hazelcast.core.server.HazelcastMemberStarter"]
        pids: list[int] = []
        for port in ports:
            config = folder / f"hazelcast-{port}.xml"
            joins, others = str(members > 1).lower(), ",".join(f"{HOST}:{each}" for each in ports)
            config.write_text(
                HAZELCAST_CONFIG.format(port=port, joins=joins, members=others, backups=backups)
            )
            command = ["java", f"-Xms{heap}", f"-Xmx{heap}", f"-Dhazelcast.config={config}", *options]
            log = stack.enter_context((folder / "log").open("ab"))
            with server_core():
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder
                )
            stack.callback(end, process)
            pids.append(process.pid)
        addresses = [(HOST, port) for port in ports]
        for address in addresses:
            _wait_for_door(System(name, pids, [address], []), folder / "log")
        owners = _hazelcast_owners(ports) if members > 1 else [0] * 271
        # The warm-up of Java's compiler is long.
        yield System(name, pids, addresses, owners, warm_up_s=5.0)


def _hazelcast_owners(ports: list[int], patience_s: float = 60.0) -> list[int]:
    """Waits until every member owns some."""
    client = HazelcastClient(cluster_name=CLUSTER_NAME, cluster_members=[f"{HOST}:{port}" for port in ports])
    try:
        # The first entry triggers the assignment of partitions.
        client.get_map(frames.MAP).blocking().set("first", "entry")
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            members = {member.uuid: member.address.port for member in client.cluster_service.get_members()}
            owners = [client.partition_service.get_partition_owner(number) for number in range(271)]
            if set(owners) == members.keys() and len(members) == len(ports):
                return [ports.index(members[owner]) for owner in owners]
            time.sleep(0.5)
        raise RuntimeError(f"the members of Hazelcast do not share the partitions: {members}")
    finally:
        client.shutdown()


def _wait_for_door(system: System, log: Path, patience_s: float = 60.0) -> None:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            with system.connect(system.addresses[0]):
                return
        except (OSError, RuntimeError) as error:  # A member that is joining refuses.
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"{system.name} lets nobody in: {error}\n{log.read_text()[-2000:]}"
                ) from error
        time.sleep(0.2)


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def ask_redis(port: int, question: bytes, wanted: bytes, patience_s: float = 20.0) -> None:
    """Repeat the question until the response is `wanted`: the server is up, or its replica is connected."""
    deadline = time.monotonic() + patience_s
    answer = b""
    while time.monotonic() < deadline:
        try:
            with socket.create_connection((HOST, port), timeout=2) as door:
                door.sendall(question)
                answer = b""
                while answer.count(b"\r\n") < wanted.count(b"\r\n"):
                    piece = door.recv(1024)
                    if not piece:
                        break
                    answer += piece
        except OSError:
            pass
        if answer == wanted:
            return
        time.sleep(0.1)
    raise RuntimeError(f"redis-server on port {port} answered {answer!r} instead of {wanted!r}")


def _sign_in(door: socket.socket, user: tuple[str, str] | None = None) -> None:
    door.sendall(frames.sign_in_message(CLUSTER_NAME, user))
    status: int | None = None
    last = False
    while not last:
        length, flags = struct.unpack("<iH", _receive(door, 6))
        payload = _receive(door, length - 6)
        if status is None:
            status = payload[13] if len(payload) > 13 else -1
        last = bool(flags & frames.FINAL)
    if status != 0:
        raise RuntimeError(f"the member refused the bench's connection (status {status})")


def _receive(door: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = door.recv(count - len(data))
        if not piece:
            raise RuntimeError("the member closed the bench's connection")
        data += piece
    return bytes(data)


def process_cpu_seconds(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
