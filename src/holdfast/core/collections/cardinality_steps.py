"""Steps of a cardinality estimator (HyperLogLog): the number of different values among those that were added.

A hash of 64 bits selects a register by its first bits. The register keeps the largest number of leading zeros of the
rest, plus one. Registers are in entries of 256, so that a change is one small update. The estimate is computed from the
number of registers with each value, as in Otmar Ertl, "New cardinality estimation algorithms for HyperLogLog sketches"
(2017), algorithm 6: it needs no tables, and its standard error is 0.8 %.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log

from holdfast.core.model.collections import CollectionStep, StepKind
from holdfast.core.model.decisions import Decision, Update
from holdfast.core.model.records import Change

INDEX_BITS = 14
REGISTERS = 1 << INDEX_BITS
REST_BITS = 64 - INDEX_BITS
PART = 256
"""Registers in one entry, a byte for each."""


def decide_cardinality(entries: Mapping[bytes, bytes], step: CollectionStep) -> Decision:
    if step.kind is StepKind.ESTIMATE:
        return Decision(estimate(entries))
    hashed = step.index % (1 << 64)
    register, rest = hashed >> REST_BITS, hashed % (1 << REST_BITS)
    rank = REST_BITS - rest.bit_length() + 1
    key, place = bytes((register // PART,)), register % PART
    part = entries.get(key, bytes(PART))
    if part[place] >= rank:
        return Decision()
    changed = part[:place] + bytes((rank,)) + part[place + 1 :]
    return Decision(None, (Update(Change.SET, key, changed, 0, 0),))


def estimate(entries: Mapping[bytes, bytes]) -> int:
    registers = b"".join(entries.values())
    counts = [registers.count(rank) for rank in range(REST_BITS + 2)]
    counts[0] += REGISTERS - len(registers)
    total = REGISTERS * _tau(1 - counts[-1] / REGISTERS)
    for count in counts[REST_BITS:0:-1]:
        total = (total + count) / 2
    total += REGISTERS * _sigma(counts[0] / REGISTERS)
    return round(REGISTERS * REGISTERS / (2 * log(2) * total)) if total != float("inf") else 0


def _sigma(x: float) -> float:
    if x == 1:
        return float("inf")
    y, z, before = 1.0, x, -1.0
    while z != before:
        x, before = x * x, z
        z += x * y
        y += y
    return z


def _tau(x: float) -> float:
    if x in (0, 1):
        return 0
    y, z, before = 1.0, 1 - x, -1.0
    while z != before:
        x, before = x**0.5, z
        y /= 2
        z -= (1 - x) ** 2 * y
    return z / 3
