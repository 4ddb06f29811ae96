"""Counts and times of what the data lane has served.

Single operations are not measured: the caller of the lane reports when the responses leave that were made
since the last `close`. The second part of this file is also compiled, as part of `compiled_lane`.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.model.map_counts import MapCounts
from holdfast.core.store import uncompiled as cython
from holdfast.observe.latency_histogram import BUCKETS, FIRST_BIT, LAST_BIT
from holdfast.server.hazelcast.keyed_requests import COUNTED, READS_COUNTED

# -- compiled as well


@cython.cclass
class LaneTally:
    counts: list[int]
    _cells: list[list[int]]
    _sums: list[int]
    _reads: MapCounts
    _read_name: str
    _read_count: cython.longlong
    _unknown: cython.longlong

    def __init__(self) -> None:
        self.counts = [0] * len(COUNTED)
        """Operations since the last `close`, in the order of `COUNTED`."""
        self._cells = [[0] * BUCKETS for _ in COUNTED]
        self._sums = [0] * len(COUNTED)
        self._reads = MapCounts()
        self._read_name = ""
        self._read_count = 0
        self._unknown = 0

    def count_reads_in(self, counts: MapCounts) -> None:
        """`report_reads` adds the reads of each map here from now on."""
        self._reads = counts

    @cython.ccall
    def read(self, name: str, count: cython.longlong) -> cython.void:
        """Count reads of this map, mostly the same one as before."""
        if name != self._read_name:
            self.report_reads()
            self._read_name = name
        self._read_count += count

    @cython.ccall
    def report_reads(self) -> cython.void:
        """Report the reads since the last time."""
        if self._read_count:
            self._reads.add(self._read_name, self._read_count)
            self._read_count = 0

    def close(self, clock: Callable[[], int], began_ns: cython.longlong) -> None:
        """The responses since the last time leave now; the requests came at `began_ns`."""
        for count in self.counts:
            if count:
                self._add(self.counts, 0, clock() - began_ns)
                return

    def take_writes(self) -> list[int]:
        """The writes since the last time, whose responses are held back: `settle` counts them later."""
        taken = self.counts
        self.counts = taken[:READS_COUNTED] + [0] * (len(taken) - READS_COUNTED)
        return taken

    @cython.ccall
    def add_writes(self, taken: list[int]) -> cython.void:
        """Add the writes since the last time to those that `take_writes` has returned."""
        number: cython.Py_ssize_t
        count: cython.longlong
        counts: list[int] = self.counts
        for number in range(READS_COUNTED, len(counts)):
            count = counts[number]
            if count:
                counts[number] = 0
                taken[number] += count

    def settle_forwarded(self, kinds: bytes, took_ns: cython.longlong, unknown: cython.longlong) -> None:
        """Another member has carried out these operations (places in `COUNTED`). `unknown`: writes among them whose
        outcome will never be known.
        """
        counts = [0] * len(self._sums)
        for kind in kinds:
            counts[kind] += 1
        self._unknown += unknown
        self._add(counts, 0, took_ns)

    def settle(self, taken: list[int], took_ns: cython.longlong, safe: bool) -> None:
        """Count these writes: their responses leave now, after `took_ns`, or their outcome will never be known."""
        if not safe:
            self._unknown += sum(taken[READS_COUNTED:])
        self._add(taken, READS_COUNTED, took_ns)

    @cython.cfunc
    def _add(self, counts: list[int], first: cython.Py_ssize_t, took_ns: cython.longlong) -> cython.void:
        """Add these operations, from `first` on, with this duration, and clear their counts."""
        number: cython.Py_ssize_t
        count: cython.longlong
        bucket: cython.int = self._bucket(took_ns)
        for number in range(first, len(counts)):
            count = counts[number]
            if count:
                counts[number] = 0
                cells = self._cells[number]
                cells[bucket] += count
                self._sums[number] += count * took_ns

    @cython.cfunc
    def _bucket(self, took_ns: cython.longlong) -> cython.int:
        """As `observe.latency_histogram.bucket_of`."""
        bit: cython.int = FIRST_BIT
        if took_ns < (1 << FIRST_BIT):
            return 0
        while bit <= LAST_BIT and took_ns >> (bit + 1):
            bit += 1
        if bit > LAST_BIT:
            return BUCKETS - 1
        return 1 + (bit - FIRST_BIT) * 4 + ((took_ns >> (bit - 2)) & 3)

    @property
    def unknown(self) -> int:
        return self._unknown

    def figures(self) -> list[tuple[str, list[int], int]]:
        """For each operation that occurred: its name, counts by `bucket_of`, and the sum of its times in ns."""
        return [
            (op.name.lower().replace("_", "-"), list(cells), took_ns)
            for op, cells, took_ns in zip(COUNTED, self._cells, self._sums, strict=True)
            if any(cells)
        ]
