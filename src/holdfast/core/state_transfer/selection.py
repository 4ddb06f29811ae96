"""Selects the content for each receiver by what it has (state_transfer/S-7). Updates that memory no longer holds are
first requested from the journal.
"""

from __future__ import annotations

from holdfast.core.effects import ReadHistory
from holdfast.core.events import HistoryRead
from holdfast.core.model.records import Record
from holdfast.core.model.sync_request import Base, Demand, How
from holdfast.core.outbox import Outbox
from holdfast.core.primary_backup.local_replicas import LocalReplicas
from holdfast.core.state_transfer.content import Content, ContentPart, earlier_updates
from holdfast.core.state_transfer.delta_or_full import Choice, Mine, choose
from holdfast.core.state_transfer.supply import Supply, stretch
from holdfast.core.store.replica import AnyReplica


class Selection:
    def __init__(self, out: Outbox, copies: LocalReplicas, *, journal: bool) -> None:
        """`journal`: this member has one, with older updates."""
        self._out = out
        self._copies = copies
        self._journal = journal
        self._reads: dict[int, tuple[Supply, AnyReplica, int]] = {}
        self._tickets = 0
        self.fills = dict.fromkeys(How, 0)

    def begin(self, supply: Supply, demand: Demand | None) -> bool:
        """Returns whether everything is selected without the journal."""
        assert not supply.choices, "it is chosen once what is sent"
        supply.demand = demand
        for held in self.replicas(supply):
            base = self._base(supply, held.name)
            choice = self._choose(supply, held, base, held.remembered_from)
            if choice.short and self._journal and held.journal != "off" and base is not None:
                self._read(supply, held, base)
            else:
                self._chosen(supply, held, choice)
        if supply.reading:
            return False
        self._finish(supply)
        return True

    def _base(self, supply: Supply, name: str) -> Base | None:
        maps = supply.demand.maps if supply.demand is not None else []
        return next((base for base in maps if base.map == name), None)

    def _choose(self, supply: Supply, held: AnyReplica, base: Base | None, starts: int) -> Choice:
        demand = supply.demand
        same_epoch = demand is None or demand.epoch == self._copies.held[supply.partition].epoch
        compared = base is not None and base.digests and base.lwm == held.counter
        if base is not None and compared and held.state.damaged(adopt=False):
            # Send nothing: the receiver's copy is right, and this one is damaged.
            self._out.note(
                "primary copy is damaged: run holdfast repair",
                level="error",
                partition=supply.partition,
                map=held.name,
            )
            return Choice(How.SAME, "the primary's own content is damaged", base.lwm)
        digests = held.state.range_digests() if base is not None and base.digests else ()
        mine = Mine(held.proven_lineage(), held.counter, held.state.size(), starts, digests)
        return choose(mine, base, same_epoch=same_epoch)

    def _chosen(self, supply: Supply, held: AnyReplica, choice: Choice) -> None:
        assert choice.how is How.FULL or choice.after <= held.counter, (
            "no replica is ahead of the primary (state_transfer/C-1)"
        )
        supply.choices[held.name] = choice
        if choice.how is not How.FULL and choice.after < held.counter and held.tail is not None:
            supply.missed[held.name] = held.tail.since(choice.after)

    def _read(self, supply: Supply, held: AnyReplica, base: Base) -> None:
        """Request older updates from the journal. Updates from now on are sent as they are written."""
        assert base.lwm < held.counter, "something was missed"
        self._tickets += 1
        supply.reading += 1
        self._reads[self._tickets] = (supply, held, held.counter)
        self._out.effects.append(
            ReadHistory(self._tickets, supply.partition, held.name, base.lwm, held.counter)
        )

    def on_history(self, event: HistoryRead) -> Supply | None:
        """Returns the supply if this was its last outstanding request."""
        asked = self._reads.pop(event.ticket, None)
        if asked is None:
            return None
        supply, held, upto = asked
        supply.reading -= 1
        base = self._base(supply, held.name)
        records = stretch(event.records, base.lwm if base is not None else 0, upto)
        if records is not None and base is not None:
            choice = self._choose(supply, held, base, base.lwm)
            if choice.how is not How.FULL:
                supply.missed[held.name] = records
        else:
            starts = event.since if event.since >= 0 else held.remembered_from
            choice = self._choose(supply, held, base, max(starts, base.lwm + 1 if base is not None else 0))
        supply.choices[held.name] = choice
        assert supply.reading >= 0, "each question is answered once"
        if supply.reading:
            return None
        self._finish(supply)
        return supply

    def _finish(self, supply: Supply) -> None:
        parts: list[ContentPart] = []
        for held in self.replicas(supply):
            choice = supply.choices.get(held.name)
            earlier = earlier_updates(held, choice, self._base(supply, held.name))
            if choice is None:
                # The map was created in the meantime.
                parts.append(ContentPart(held, earlier=earlier))
            else:
                self.fills[choice.how] += 1
                parts.append(
                    ContentPart(held, choice.how, choice.ranges, self._missed(supply, held), earlier)
                )
        assert supply.content is None and not supply.reading, "all is chosen, and it was not before"
        supply.content = Content(parts, self._out.now_ns)
        assert not supply.missed, "what was missed is in the content"

    def _missed(self, supply: Supply, held: AnyReplica) -> list[tuple[int, Record]] | None:
        missed = supply.missed.pop(held.name, None)
        return missed and [
            (term, held.state.with_remaining_ttl(record, self._out.now_ns)) for term, record in missed
        ]

    def replicas(self, supply: Supply) -> list[AnyReplica]:
        copy = self._copies.held[supply.partition]
        return [held for held in copy if self._copies.wanted(held.name, supply.index)]

    def forget(self, supply: Supply) -> None:
        """Ignore outstanding answers of the journal."""
        for ticket in [ticket for ticket, asked in self._reads.items() if asked[0] is supply]:
            del self._reads[ticket]
        assert all(asked[0] is not supply for asked in self._reads.values()), (
            "no read of the journal belongs to it any more"
        )

    def reset(self) -> None:
        self._reads.clear()

    @property
    def outstanding(self) -> int:
        return len(self._reads)
