"""The cases of the crash matrix: every single fault at every boundary, and every pair of faults.

The boundaries of a stage are those of its run without faults. A second fault strikes at a boundary of the run
with the first one alone, which sends other packets than the run without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from zlib import crc32

from holdfast_lab.sim.matrix.fault_keys import MESSAGES, Fault
from holdfast_lab.sim.matrix.forms import FORMS
from holdfast_lab.sim.matrix.play import Case, Verdict, play

MAIN_KINDS = ("crash", "crash-before", "lost", "late", "twice")
"""Default sweep: each process dies, each control message is lost, delayed, repeated."""
CLIENTS_OWN = ("Forward", "Answer")
"""Messages of clients' requests: processes die at them too, but they are not lost, delayed or repeated
themselves.
"""

Seen = list[tuple[str, str, str]]


@dataclass(slots=True)
class Tally:
    boundaries: int = 0
    cases: int = 0
    not_asked: int = 0
    """Cases in which a fault did not happen: it was beyond what is promised, or came after the end."""
    failed: list[Verdict] = field(default_factory=list)
    acknowledged: int = 0

    def add(self, verdict: Verdict) -> None:
        self.cases += 1
        self.not_asked += not verdict.asked
        self.acknowledged += int(verdict.figures.get("acknowledged", 0))
        if not verdict.ok:
            self.failed.append(verdict)

    def join(self, other: Tally) -> None:
        self.boundaries += other.boundaries
        self.cases += other.cases
        self.not_asked += other.not_asked
        self.failed += other.failed
        self.acknowledged += other.acknowledged


def stages(seeds: int = 1, forms: tuple[str, ...] = ()) -> list[Case]:
    return [
        Case(form.name, master, seed)
        for form in FORMS.values()
        if not forms or form.name in forms
        for master in form.masters
        for seed in range(seeds)
    ]


def single_faults(stage: Case, seen: Seen, kinds: tuple[str, ...], after: int = 0) -> Iterator[Fault]:
    roles = FORMS[stage.form].roles(stage.master)
    for at, (sender, _, message) in enumerate(seen, start=1):
        if at <= after:
            continue
        for kind in kinds:
            if kind in MESSAGES:
                if message not in CLIENTS_OWN:
                    yield Fault(kind, at)
            elif kind.endswith("before"):
                # Only for the sender does a crash before the packet leaves differ from one after.
                yield Fault(kind, at, roles[sender])
            else:
                for role in roles.values():
                    yield Fault(kind, at, role)


def run(case: Case, without: frozenset[str] = frozenset()) -> Verdict:
    """Play a case; an error in the code under test, or in the stage, is a verdict too."""
    try:
        return play(case, without=without)
    except Exception as error:  # noqa: BLE001 - whatever goes wrong belongs to this case
        return Verdict(str(case), [f"{type(error).__name__}: {error}"], True, "")


def one_more(case: Case, first: Verdict, kinds: tuple[str, ...], sample: int = 1) -> Iterator[Case]:
    """The case with one fault more, in every way; `first` is its verdict without. With `sample` only one in
    so many is returned, chosen by their keys.
    """
    after = case.faults[-1].at if case.faults else 0
    if first.asked:  # else its last fault never happens, and nothing follows it
        for fault in single_faults(case, first.boundaries, kinds, after):
            longer = replace(case, faults=(*case.faults, fault))
            if sample == 1 or crc32(str(longer).encode()) % sample == 0:
                yield longer


def sweep(
    case: Case, kinds: tuple[str, ...], *, sample: int = 1, without: frozenset[str] = frozenset()
) -> Tally:
    tally = Tally()
    first = run(case, without)
    if not case.faults:
        tally.add(first)
        tally.boundaries = len(first.boundaries)
    for longer in one_more(case, first, kinds, sample):
        tally.add(run(longer, without))
    return tally


def pair_starts(seeds: int, forms: tuple[str, ...], kinds: tuple[str, ...]) -> Iterator[Case]:
    for stage in stages(seeds, forms):
        for fault in single_faults(stage, run(stage).boundaries, kinds):
            yield replace(stage, faults=(fault,))
