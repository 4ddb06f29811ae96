"""Change streams of maps: the position of a stream, and the changes between two positions.

A reader remembers for each partition the last update it has seen, as counter and term. It asks the primary
for later changes, then other members: every member with the same history may answer.

A position survives a moved partition because it names an update, not a member. Example: a reader of partition
5 stands at update 17 of term 3. Member 1, the primary, dies; member 2 takes over with term 4 and continues
with update 18. Member 2 knows that update 17 of term 3 lies in its own history, and sends 18, 19, ... If
update 17 had been lost with member 1, update 17 of member 2 would be of term 4: the histories differ, and the
reader gets ChangesGone instead of a silent gap.

It survives `holdfast map move`, too. Then the numbers of updates have a gap, and heads report where
(`Head.switches`): update 17 of term 3 was the last one at the former place, and readers of it continue after
update 1099511627806 of term 2. The updates in between copied the map. All members are asked for changes
before the gap, as those that had the map before retain them for a while.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.client.blocking import Client
from holdfast.client.blocking_retries import BlockingRetries
from holdfast.client.connection import Broken
from holdfast.client_core.routing import PASSING, RoutingTable
from holdfast.errors import ChangesGone, NotReady, ProtocolError
from holdfast.wire import own

ROUNDS = 8
"""In so many consecutive rounds all members must report that they lack a change, before it counts as gone:
while partitions move or a primary takes over, there are moments in which no member can answer.
"""
MOVED_BY = 1 << 40
"""A moved map skips at least so many update numbers."""
BYTES_MAX = 1 << 20
"""An answer ends with the change that reaches this size."""


def heads(
    client: Client, map_name: str, partitions: Iterable[int], *, timeout_s: float = 30.0
) -> dict[int, own.Head]:
    """Position of the newest change of the map in each of these partitions; each of one moment.

    Raises NotReady, naming a partition without a primary until the timeout, and Unsupported if the map has no change
    stream.
    """
    left = list(dict.fromkeys(partitions))
    found: dict[int, own.Head] = {}
    retries = BlockingRetries(timeout_s)
    fresh = False
    while True:
        left, why = _ask_heads(client, map_name, left, found, fresh=fresh)
        if not left:
            return found
        if not retries.sleep():
            raise NotReady(f"partition {left[0]} is not served for {timeout_s:g} s: {why}")
        fresh = True


def _ask_heads(
    client: Client, map_name: str, partitions: list[int], found: dict[int, own.Head], *, fresh: bool
) -> tuple[list[int], str]:
    """Ask every owner once, all at the same time. Returns the rest, and the reason."""
    try:
        table = client.known_table(map_name, fresh=fresh)
    except PASSING as passing:
        return partitions, str(passing)
    by_owner: dict[str | None, list[int]] = {}
    for partition in partitions:
        by_owner.setdefault(table.owner(partition), []).append(partition)
    left = by_owner.pop(None, [])
    why = "it has no owner now" if left else ""
    posted = []
    for owner, mine in by_owner.items():
        try:
            connection = client.to(str(owner))
            number = connection.next_number()
            connection.post(own.AskHeads(number, map_name, mine))
        except (Broken, *PASSING) as passing:
            left, why = left + mine, str(passing)
        else:
            posted.append((connection, number, mine))
    for connection, number, mine in posted:
        try:
            answer = connection.collect(number, own.Heads)
        except (Broken, *PASSING) as passing:
            left, why = left + mine, str(passing)
            continue
        found.update({head.partition: head for head in answer.heads})
        if answer.moved:
            left, why = left + answer.moved, f"{connection.address} does not serve it"
    return left, why


def read_changes(
    client: Client,
    map_name: str,
    partition: int,
    after: int,
    after_term: int,
    upto: int,
    *,
    upto_term: int = 0,
    bytes_max: int = BYTES_MAX,
    timeout_s: float = 30.0,
) -> list[own.Changes]:
    """The changes after update `after` up to update `upto`: in order, each once, none missing.

    `upto` is at most a reported head, and `upto_term` its term (`Head.term_at`), by which any member knows
    whether it has that update; without it the primary is asked for the term. The last answer has the position that was
    reached, also if there are no changes, because the map was moved.

    Raises: ChangesGone if no member has all of the changes any more, or update `after` is not in the present history;
    NotReady if a member that may have them cannot be asked for `timeout_s` since the last progress.
    """
    found: list[own.Changes] = []
    if upto <= after:
        if after and not 0 < upto_term == after_term:
            _check_history(client, map_name, partition, after, after_term, upto, timeout_s)
        return found
    reader = _Reader(client, map_name, partition, bytes_max, timeout_s)
    if upto - after >= MOVED_BY:
        head = heads(client, map_name, [partition], timeout_s=timeout_s)[partition]
        if not head.follows(after, after_term):
            raise ChangesGone(map_name, partition, after, upto, _not_in_history(head, after, after_term))
        while (switch := head.switch_after(after)) is not None and switch.start <= upto:
            if after < switch.end:
                found += reader.read(after, after_term, switch.end, switch.end_term)
            after, after_term = switch.start, switch.start_term
            found.append(_nothing(after, after_term))
    if after < upto:
        found += reader.read(after, after_term, upto, upto_term)
    return found


def _nothing(upto: int, term: int) -> own.Changes:
    return own.Changes(0, upto, [], [], b"", [], own.ColumnBatch.of([], []), bytes(4), b"", term=term)


def _check_history(
    client: Client, map_name: str, partition: int, after: int, after_term: int, upto: int, timeout_s: float
) -> None:
    """Nothing is new, unless updates that were read are lost. Ask the primary whether they are in its history."""
    head = heads(client, map_name, [partition], timeout_s=timeout_s)[partition]
    if not head.follows(after, after_term):
        raise ChangesGone(map_name, partition, after, upto, _not_in_history(head, after, after_term))


def _not_in_history(head: own.Head, after: int, after_term: int) -> str:
    history = f"the history that leads to update {head.counter} of term {head.term}"
    return f"update {after} of term {after_term} is not of {history}"


class _Reader:
    def __init__(
        self, client: Client, map_name: str, partition: int, bytes_max: int, timeout_s: float
    ) -> None:
        self._client = client
        self._map = map_name
        self._partition = partition
        self._bytes_max = bytes_max
        self._timeout_s = timeout_s
        self._upto = self._upto_term = 0
        self.refused = False
        """Whether in the last round all members of a fresh table reported that they do not have the changes."""
        self.why = ""

    def read(self, after: int, after_term: int, upto: int, upto_term: int) -> list[own.Changes]:
        """The changes in a part of the history without a move. `upto_term`: 0: not known."""
        self._upto, self._upto_term = upto, upto_term
        found: list[own.Changes] = []
        retries = BlockingRetries(self._timeout_s)
        refusals = 0
        fresh = False
        while True:
            answer = self.round(after, after_term, fresh=fresh)
            if answer is not None:
                found.append(answer)
                after, after_term = answer.upto, answer.term
                if after >= upto:
                    return found
                retries.progressed()
                refusals, fresh = 0, False
                continue
            refusals = refusals + 1 if self.refused else 0
            if refusals >= ROUNDS:
                raise ChangesGone(self._map, self._partition, after, upto, self.why)
            if not retries.sleep():
                raise NotReady(
                    f"map {self._map!r}, partition {self._partition}: changes after update {after} cannot be read "
                    f"for {self._timeout_s:g} s: {self.why}"
                )
            fresh = True

    def round(self, after: int, after_term: int, *, fresh: bool) -> own.Changes | None:
        self.refused = False
        try:
            table = self._client.known_table(self._map, fresh=fresh)
            if not self._upto_term and not self._find_term(after, after_term):
                return None
        except (Broken, *PASSING) as passing:
            self.why = str(passing)
            return None
        # An old table may name members without the changes, and miss those that have them: it proves nothing.
        everybody = fresh and table.owner(self._partition) is not None
        reasons: list[str] = []
        for member in _in_turn(table, self._partition):
            try:
                connection = self._client.to(member)
                number = connection.next_number()
                question = own.AskChanges(
                    number,
                    self._map,
                    self._partition,
                    after,
                    after_term,
                    self._upto,
                    self._bytes_max,
                    self._upto_term,
                )
                answer = connection.ask(question, own.Changes)
            except (Broken, *PASSING) as passing:
                everybody = False
                reasons.append(f"{member}: {passing}")
                continue
            if answer.upto > self._upto:
                raise ProtocolError(f"{connection.address} returned more changes than requested")
            if answer.upto > after:
                return answer
            if not answer.why:
                # It may answer later: the update is not safe yet, or the member is busy.
                everybody = False
            reasons.append(f"{member}: {answer.why or 'nothing yet'}")
        self.refused = everybody
        self.why = "; ".join(reasons) or "the partition has no owner now"
        return None

    def _find_term(self, after: int, after_term: int) -> bool:
        head = heads(self._client, self._map, [self._partition], timeout_s=0)[self._partition]
        self._upto_term = head.term_at(self._upto)
        self.why = f"the primary has updates up to {head.counter} at most"
        self.refused = not head.follows(after, after_term) and not self._upto_term
        return bool(self._upto_term)


def _in_turn(table: RoutingTable, partition: int) -> Iterator[str]:
    holders = [member for member in table.rows[partition].replicas if member is not None]
    yield from dict.fromkeys([*holders, *(row.uuid for row in table.data_members)])
