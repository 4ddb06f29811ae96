"""Sources of a comparison of replicas: a running cluster, listed members, or files. Spark pickles them to its tasks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

from holdfast.client.blocking import Client
from holdfast.client.connection import Broken, Connection, Credentials
from holdfast.client.holdings import check_maps, check_names, names_on
from holdfast.client.replica_questions import CANNOT_ASK, Connects, ask_digests
from holdfast.client_core.routing import parse_addresses
from holdfast.core.model.object_names import is_service
from holdfast.core.store.replica_comparison import Finding, ReplicaDigest, compare_with_newest
from holdfast.errors import ConfigError, NotReady, Unreachable
from holdfast.replica_comparison.comparison_report import Notes, Report, groups_with_other_entries, totals_of
from holdfast.replica_comparison.files_source import FilesSource
from holdfast.replica_comparison.key_differences import Differences, Pause, find_differences
from holdfast.replica_comparison.live import Seen, compare_partitions, look_until_decided, replica_digest


@dataclass(frozen=True)
class Access:
    addresses: tuple[str, ...]
    credentials: Credentials = field(default_factory=Credentials)
    timeout_s: float = 30.0
    release: str | None = None

    def client(self) -> Client:
        known = self.credentials
        return Client(
            self.addresses,
            cluster=known.cluster,
            username=known.username,
            password=known.password,
            token=known.token,
            tls=known.tls,
            timeout_s=self.timeout_s,
            release=self.release,
        )

    def connect(self, address: str) -> Connection:
        """Raises NotReady when the member does not answer; Denied, Unsupported."""
        try:
            connection = Connection(parse_addresses(address)[0], self.credentials, self.timeout_s)
        except Broken as broken:
            raise Unreachable(str(broken)) from broken
        connection.check_release(self.release)
        return connection


@dataclass(frozen=True)
class ClusterSource:
    access: Access
    maps: tuple[str, ...] = ()

    def compare(self, part: int, parts: int, notes: Notes) -> list[Finding]:
        """Compare the partitions whose remainder by `parts` is `part`."""
        with self.access.client() as client:
            return compare_partitions(client, range(part, client.partition_count, parts), self.maps)

    def differences(self, findings: Sequence[Finding]) -> Differences | None:
        with self.access.client() as client:
            return find_differences(client, findings)

    def check(self) -> Report:
        """An empty report about these sources. Raises ConfigError for an unknown map, NotReady."""
        with self.access.client() as client:
            check_maps(client, self.maps)
            return Report(partitions=client.partition_count)


class _Listed:
    def __init__(self, access: Access) -> None:
        self._access = access
        self._open: dict[str, Connection] = {}
        self.why: dict[str, str] = {}

    def to(self, member: str) -> Connection:
        """Raises NotReady when the member does not answer."""
        found = self._open.get(member)
        if found is None or found.closed:
            try:
                found = self._open[member] = self._access.connect(member)
            except NotReady as silent:
                self.why[member] = str(silent)
                raise
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._open.values():
            connection.close()


@dataclass(frozen=True)
class ListedSource:
    """The replicas of these members alone, primaries or not; pickled."""

    access: Access
    maps: tuple[str, ...] = ()

    def compare(self, part: int, parts: int, notes: Notes, pause: Pause = time.sleep) -> list[Finding]:
        silent: set[str] = set()
        with _Listed(self.access) as listed:

            def look(partitions: Sequence[int]) -> dict[int, Seen]:
                return self._look(listed, partitions, silent)

            count = self._partition_count(listed, silent)
            found = look_until_decided(look, range(part, count, parts), pause=pause)
            notes.damage += [
                f"{one}: {listed.why.get(one, 'it stopped responding')}" for one in sorted(silent)
            ]
        return found

    def _partition_count(self, listed: _Listed, silent: set[str]) -> int:
        """According to the first member that answers; 0 if none does."""
        for address in self.access.addresses:
            try:
                return listed.to(address).hello.partition_count
            except CANNOT_ASK:
                silent.add(address)
        return 0

    def _look(self, listed: Connects, partitions: Sequence[int], silent: set[str]) -> dict[int, Seen]:
        only = self.maps[0] if len(self.maps) == 1 else None
        wanted = {address: partitions for address in self.access.addresses if address not in silent}
        answers, without = ask_digests(listed, wanted, only)
        silent |= without
        groups: dict[tuple[int, str], list[ReplicaDigest]] = {}
        for (address, partition), digest in answers.items():
            for held in digest.maps:
                # Only the primary knows which members must hold a service.
                if (not self.maps or held.map in self.maps) and not is_service(held.map):
                    one = replica_digest(address, digest, held)
                    if not one.empty:
                        groups.setdefault((partition, held.map), []).append(one)
        found: dict[int, Seen] = {partition: ([], False) for partition in partitions}
        for (partition, _), group in groups.items():
            found[partition][0].extend(compare_with_newest(group))
        return found

    def differences(self, findings: Sequence[Finding]) -> Differences | None:
        with _Listed(self.access) as listed:
            return find_differences(listed, findings)

    def check(self) -> Report:
        """An empty report about these members. Raises ConfigError when they cannot be compared, NotReady."""
        given = list(self.access.addresses)
        if len(given) < 2:
            raise ConfigError("a comparison of listed members needs the addresses of two of them, or more")
        clusters: dict[str, str] = {}
        names: set[str] = set()
        for address in given:
            connection = self.access.connect(address)
            try:
                clusters[address] = connection.hello.cluster_id
                names.update(names_on(connection))
                count = connection.hello.partition_count
            finally:
                connection.close()
        if len(set(clusters.values())) > 1:
            several = ", ".join(f"{address} of {cluster}" for address, cluster in clusters.items())
            raise ConfigError(f"the members are of several clusters: {several}")
        check_names(self.maps, names)
        return Report(partitions=count, sources=given)


Source = ClusterSource | ListedSource | FilesSource


def verify_source(source: ListedSource | FilesSource) -> Report:
    """Compare all replicas of listed members, or in files, in this process. Raises ConfigError for an unknown
    map.
    """
    began = time.monotonic()
    report, notes = source.check(), Notes()
    report.findings = source.compare(0, 1, notes)
    report.totals, report.damage = totals_of(report.findings), notes.damage
    if isinstance(source, FilesSource):
        check_names(source.maps, notes.maps, notes.damage)
    report.seconds = time.monotonic() - began
    return report


def find_keys(
    report: Report,
    differences: Callable[[Sequence[Finding]], Differences | None],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    groups = groups_with_other_entries(report.findings)
    for done, group in enumerate(groups):
        found = differences(group)
        if found is None:
            report.keys_open += 1
        else:
            report.keys += found.rows()
        progress(done, len(groups))
