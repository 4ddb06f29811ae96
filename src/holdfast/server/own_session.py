"""One connection that speaks Holdfast's own protocol (`wire.own`): bytes in, answers out.

The session is given bytes and calls `send` and `close`; it knows no socket. Whatever a client sends, the worst that
happens is that its own connection ends. Large answers are made on demand, page by page, so a slow reader costs the
member no more than the references of one scan.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import assert_never

import msgspec

from holdfast.config import LimitSettings
from holdfast.core.model.ids import MemberId
from holdfast.core.model.keys import partition_of
from holdfast.core.model.operations import (
    DEFAULT_TTL,
    LIFETIME_MS_MAX,
    WHOLE,
    Op,
    Outcome,
    Request,
    Status,
    request_problem,
)
from holdfast.core.model.partition_events import News
from holdfast.core.model.transaction_orders import (
    BeginTransaction,
    CommitTransaction,
    OperateIn,
    RollBackTransaction,
    StoreTogether,
    TransactionAnswer,
    TransactionFate,
)
from holdfast.core.store.digest import RangeDigests, batch_digest, whole
from holdfast.core.store.map_state import MapState
from holdfast.core.store.partition_copy import PartitionCopy
from holdfast.core.store.replica import AnyReplica, map_replica
from holdfast.errors import InvariantBroken, ProtocolError, TooLarge
from holdfast.observe.map_figures import MemberCount
from holdfast.observe.status import EntriesHeld
from holdfast.server import agreed_questions as agreed
from holdfast.server import change_questions as changes
from holdfast.server import cut_questions as cuts
from holdfast.server import replica_digests as replicas
from holdfast.server.access import question_rejection
from holdfast.server.audit_events import AuditEvent, AuditKind, order_of
from holdfast.server.column_put import ColumnPut, as_request
from holdfast.server.flow import EXPECTED_SHARE, REQUEST_UNITS, Flow, Work, slices
from holdfast.server.grid import Grid
from holdfast.server.logins import Login, LoginAnswer
from holdfast.server.open_transactions import OpenTransactions
from holdfast.server.order_bounds import named_partitions, order_problem, with_setting_names
from holdfast.server.reserved import is_reserved, reserved_map_rejection, reserved_rows_rejection
from holdfast.server.rights import EVERYTHING
from holdfast.server.scanning import FIELDS_MAX, Scanned
from holdfast.wire import own

WAITING_MAX = 1024
"""Questions of one connection that may wait for their answer at the same time."""

LONG_BYTES = 64 * 1024
"""A question from this size on is looked at before it is read, and answered in a turn of its own."""
BYTES_PER_UNIT = 16
"""Of questions and answers: what a unit of work reads or makes."""

STATUS_UNITS = 1000
"""What a status takes to be made, beside its bytes."""

RESERVED_PER_SLICE = 256
"""Rows of a map of the members' own: each is read as what it is to be."""

DIGEST_ENTRIES_MAX = 10_000
"""An answer to `AskDigests` ends with the partition that reaches so many entries: some 10 ms of work."""

ITEMS_MAX = 8192
"""Keys and values of one `Execute`, which is carried out at once: some 20 ms of work."""

_FAULTS = {
    Status.PASSIVE: own.FaultKind.PASSIVE,
    Status.NO_ROOM: own.FaultKind.NO_ROOM,
    Status.NO_MEMORY: own.FaultKind.NO_MEMORY,
    Status.LOST: own.FaultKind.LOST,
}
"""Why rows are not stored, as a fault of the own protocol."""

OPERATING = (
    own.AskStatus
    | own.AskTable
    | own.Order
    | own.Watch
    | own.AskMetastore
    | own.OrderZone
    | own.OrderTransaction
)
"""What an operator asks."""
SCAN, PUT_COLUMNS = "scan", "put-columns"
"""What metrics call a page of a scan, and a load of columns."""
NOT_IN_ZONES = (own.AskDigests, own.AskRanges, own.Scan, own.PutColumns, own.AskHeads, own.AskChanges)
"""Questions about one map that are not answered of one that lives in a zone."""


class OwnSession:
    """One client's connection, from the bytes after the preamble on."""

    def __init__(
        self,
        grid: Grid,
        send: Callable[[bytes], None],
        close: Callable[[str], None],
        *,
        limits: LimitSettings | None = None,
        request_ids: int = 0,
        release: str = "",
        flow: Flow | None = None,
        let_in: Callable[[bool], str] = lambda operates: "",
        peer: str = "",
    ) -> None:
        """`close` ends the connection once what was sent is written, and takes the reason for the log. `request_ids`:
        how many requests a partition remembers. `release`: the version of Holdfast that clients are told. `flow`: how
        much may be under way. `let_in` says why there is no place for a client that has said hello. `peer`: the
        client's address.
        """
        self._peer = peer
        self._rights = EVERYTHING
        """What the client may do, once it is known."""
        self._proving = False
        """Whether it is being found out who the client is: nothing of it is looked at meanwhile."""
        self._let_in = let_in
        self._operates = False
        """Whether the client is there only to look and to give orders."""
        self._buffers = 0
        self._buffers_seen = -1
        self._heard_ns = 0
        self._flow = flow or Flow()
        self._grid = grid
        self._lane = grid.lane
        self._send = send
        self._close = close
        self._limits = limits or LimitSettings()
        self._request_ids = request_ids
        self._release = release
        self._frames = own.Frames(min(own.GREETING_BYTES_MAX, self._limits.auth_frame_bytes))
        self._admitted = False
        self._gone = False
        self._waiting = 0
        self._scan: Scanned | None = None
        self._acts = False
        """Whether the question that is being answered has reached the member's own machinery, or the data lane: see
        `_meet`."""
        self._watching: own.Watch | None = None
        self._end_watch: Callable[[], object] = _nothing
        self._begun = OpenTransactions(grid)
        """Transactions of this connection that have not ended."""

    def plain(self) -> None:
        """Nothing but this session knows its protocol."""

    def served(self, data: bytes, at: int, out: bytes, unsealed: bytes) -> None:
        """Nothing is served past this session."""
        raise InvariantBroken("the data lane speaks another protocol")

    def unknown(self, answers: bytes) -> None:
        """Nothing is held back past this session."""
        raise InvariantBroken("the data lane speaks another protocol")

    def receive(self, data: bytes) -> None:
        """Take one read buffer. Never raises for what is in it."""
        if self._gone:
            return
        self._buffers += 1
        self._flow.spent = 0
        self._frames.feed(data)
        if self._proving and self._frames.held > self._limits.auth_frame_bytes:
            self._end(own.FaultKind.DENIED, "wait for the answer to hello")
            return
        if not self._flow.halted:
            self._take_all()
        self._flow.coming = self._frames.held

    def go_on(self) -> None:
        """Do what was left to do when the session stopped: one slice of work, or what has arrived and waits."""
        if self._gone:
            return
        self._flow.spent = 0
        if self._flow.works:
            self._flow.step()
        elif self._flow.rest:
            self._take_all()
        self._flow.coming = self._frames.held

    def _take_all(self) -> None:
        """Answer the questions that are here, until one takes longer."""
        self._flow.rest = False
        while self._take():
            pass

    def _take(self) -> bool:
        """The same, up to one that is stepped over. Whether there may be more behind it."""
        flow = self._flow
        try:
            while not self._gone and not self._proving and (body := self._frames.take()) is not None:
                if len(body) < LONG_BYTES:
                    self._handle(body)
                else:
                    flow.begin(self._handling(body))
                if flow.must_halt and not self._gone:
                    flow.rest = True
                    return False
        except TooLarge as large:
            refused, self._frames.refused = self._frames.refused, None
            if refused is None:
                self._end(own.FaultKind.TOO_LARGE, str(large))
                return False
            self._fault(refused, own.FaultKind.TOO_LARGE, f"{large} (limits.frame_bytes)")
            self._grid.knocked(
                "requests refused, because they were too large",
                "a question of a client was refused: %s",
                large,
            )
            return True
        except ProtocolError as broken:
            self._end(own.FaultKind.MALFORMED, str(broken))
        return False

    def _handle(self, body: bytes) -> None:
        """Answer one question. Raises ProtocolError, TooLarge."""
        self._flow.spent += REQUEST_UNITS + len(body) // BYTES_PER_UNIT
        question = own.read_question(body)
        try:
            self._answer(question)
        except (ProtocolError, TooLarge) as broken:
            if self._acts:
                raise InvariantBroken(f"{type(question).__name__}: {broken}") from broken
            raise
        except Exception as error:  # noqa: BLE001  (see `_meet`)
            self._meet(question, error)

    def _handling(self, body: bytes) -> Work:
        """The same of a long one, which is looked at before it is read."""
        try:
            yield from own.count_parts(body)
            yield
            self._handle(body)
        except ProtocolError as broken:
            self._end(own.FaultKind.MALFORMED, str(broken))
        except TooLarge as large:
            self._end(own.FaultKind.TOO_LARGE, str(large))

    def _meet(self, question: own.Question, error: Exception) -> None:
        """An error in this member, for which a question is not answered.

        The rule: while a question is read and checked, and while its answer is made, nothing of the member changes. So
        it is answered with the error, which the log tells with the kind of question, and the member goes on. From the
        moment when the question is handed to what holds the entries or decides for the cluster (`_acts`), its state is
        in doubt: a copy may have changed without the record that its backups need. Then the error goes on up, and the
        member stops.
        """
        if self._acts:
            raise error
        kind = type(question).__name__
        self._grid.faulty(kind, error)
        self._fault(question.id, own.FaultKind.FAILED, f"{kind}: {type(error).__name__}: {error}")

    def _meeting(self, question: own.Question, work: Work) -> Work:
        """`work`, which changes nothing, with what is said of an error in any of its slices."""
        try:
            yield from work
        except Exception as error:  # noqa: BLE001  (see `_meet`)
            self._meet(question, error)

    def _telling(self, kind: str, tell: Callable[..., None], number: int) -> Callable[..., None]:
        """`tell`, which makes the answer to this question when the member calls back: an error in that is answered
        instead, for the member is in the middle of a step of its own.
        """

        def told(*words: object) -> None:
            try:
                tell(*words)
            except Exception as error:  # noqa: BLE001  (whatever it is)
                self._grid.faulty(kind, error)
                self._fault(number, own.FaultKind.UNKNOWN, f"the answer to {kind} could not be made: {error}")

        return told

    def closed(self) -> None:
        """The connection is gone; answers that come later are dropped."""
        self._gone = True
        self._flow.end()
        self._scan = None
        self._watching = None
        self._end_watch()
        self._begun.roll_back_all()
        self._frames = own.Frames(0)

    @property
    def admitted(self) -> bool:
        """Whether the client has said hello and was let in."""
        return self._admitted

    @property
    def coming(self) -> int:
        """Bytes that have come in and were not looked at."""
        return self._frames.held

    def silent_ns(self) -> int:
        """For how long nothing has come from the client, as far as is known: to be asked again and again. Who waits for
        an answer is not silent.
        """
        now_ns = self._grid.now_ns()
        if self._buffers != self._buffers_seen or self._waiting or self._watching or self._flow.works:
            self._buffers_seen = self._buffers
            self._heard_ns = now_ns
        return now_ns - self._heard_ns

    # -- the door

    def _answer(self, question: own.Question) -> None:
        self._acts = False
        if isinstance(question, own.Hello):
            self._hello(question)
            return
        if not self._admitted:
            self._end(own.FaultKind.DENIED, "say hello first")
            return
        if not self._permits(question):
            return
        match question:
            case own.AskStatus():
                self._status(question)
            case own.AskTable():
                self._table(question)
            case own.Execute():
                self._execute(question)
            case own.Scan():
                self._begin_scan(question)
            case own.NextPage():
                self._next_page(question)
            case own.PutColumns():
                self._put_columns(question)
            case own.AskDigests() | own.AskZoneDigests():
                self._digests(question)
            case own.Order():
                self._order(question)
            case own.AskMetastore() | own.OrderZone() | own.OrderTransaction():
                self._passed_on(question)
            case own.Watch():
                self._watch(question)
            case own.AskRanges():
                self._ranges(question)
            case own.Cut() | own.HoldCut():
                self._cut(question)
            case own.AskHeads():
                if self._has_stream(question.id, question.map, question.partitions):
                    self._say(changes.heads(self._grid.changes, question))
            case own.AskChanges():
                self._changes(question)
            case _:
                assert_never(question)

    def _permits(self, question: own.Question) -> bool:
        """Whether the client may ask this; else it is told why not."""
        if self._operates and not isinstance(question, OPERATING):
            detail = "this connection is an operator's: it may look and give orders, and not work with data"
            self._fault(question.id, own.FaultKind.DENIED, detail)
            return False
        rights, audit = self._rights, self._grid.audit
        why = question_rejection(rights, question, self._begun)
        if why:
            self._fault(question.id, own.FaultKind.DENIED, why)
            audit(AuditEvent(AuditKind.REFUSED, rights.user, self._peer, type(question).__name__, why))
            return False
        if why := self._zone_problem(question):
            self._fault(question.id, own.FaultKind.UNSUPPORTED, why)
            return False
        if order := order_of(question, self._begun):
            audit(AuditEvent(AuditKind.ORDER, rights.user, self._peer, type(question).__name__, order))
        return True

    def _zone_problem(self, question: own.Question) -> str:
        """What is not done with a map that lives in a zone; empty when this is, or is about none."""
        if isinstance(question, own.Cut):
            maps = question.maps
        elif isinstance(question, NOT_IN_ZONES):
            maps = [question.map] if question.map is not None else []
        else:
            return ""
        for name in maps:
            if zone := self._grid.zone_of(name):
                return (
                    f"map {name!r} lives in zone {zone!r}: there are no scans, bulk writes, cuts, digests and change "
                    "streams of it; read and write its entries one by one, or with getAll and putAll"
                )
        return ""

    def _hello(self, hello: own.Hello) -> None:
        grid = self._grid
        if hello.version != own.VERSION:
            detail = f"this member speaks version {own.VERSION} of the protocol, not {hello.version}"
            self._end(own.FaultKind.UNSUPPORTED, detail, hello.id)
            return
        login = Login(hello.username, hello.password, hello.token, self._peer)
        self._proving = True
        at_once = True

        def proven(answer: LoginAnswer) -> None:
            if at_once:
                self._welcome(hello, answer)
            elif not self._gone:
                self._flow.begin(later(answer))

        def later(answer: LoginAnswer) -> Work:
            yield
            self._welcome(hello, answer)
            self._flow.rest = not self._gone

        grid.log_in(login, lambda: not self._gone, proven)
        at_once = False

    def _welcome(self, hello: own.Hello, answer: LoginAnswer) -> None:
        """It is known who the client is, or that it is nobody."""
        grid = self._grid
        self._proving = False
        rights = answer.rights
        if rights is None:
            kind = own.FaultKind.NOT_READY if answer.again else own.FaultKind.DENIED
            self._end(kind, answer.again or "the credentials are missing or wrong", hello.id)
            return
        if self._admitted and rights is not self._rights:
            self._end(own.FaultKind.DENIED, "a connection is of one user: open another one", hello.id)
            return
        if hello.cluster is not None and hello.cluster != grid.cluster_name:
            detail = f"this member belongs to cluster {grid.cluster_name!r}, not {hello.cluster!r}"
            self._end(own.FaultKind.DENIED, detail, hello.id)
            return
        full = "" if self._admitted else self._let_in(hello.operates)
        if full:
            self._end(own.FaultKind.NOT_READY, full, hello.id)
            return
        self._admitted = True
        self._rights = rights
        self._operates = hello.operates
        self._frames.limit = self._limits.frame_bytes
        self._frames.skips = True
        self._say(
            own.HelloOk(
                hello.id,
                own.VERSION,
                grid.member_uuid,
                grid.cluster_id,
                grid.cluster_name,
                grid.partition_count,
                self._limits.frame_bytes,
                self._request_ids,
                self._release,
                self._limits.key_bytes,
                self._limits.value_bytes,
            )
        )

    # -- what the cluster looks like

    def _table(self, question: own.AskTable) -> None:
        cards = self._grid.cluster().members
        position = {card.uuid: at for at, card in enumerate(cards)}
        self._say(
            own.TableIs(
                question.id,
                self._grid.table_version(),
                [own.MemberRow(card.uuid, card.host, card.client_port, card.lite) for card in cards],
                [
                    [own.NOBODY if uuid is None else position.get(uuid, own.NOBODY) for uuid in row]
                    for row in self._grid.rows()
                ],
                [self._grid.row(partition).version for partition in range(self._grid.partition_count)],
                self._grid.table_stamp(),
            )
        )

    def _digests(self, question: own.AskDigests | own.AskZoneDigests) -> None:
        if isinstance(question, own.AskZoneDigests):
            if wrong := replicas.question_problem(question):
                self._fault(question.id, own.FaultKind.MALFORMED, wrong)
                return
            work = replicas.summing(self._grid, question, self._say)
            self._flow.begin(self._meeting(question, work))
            return
        if not self._in_range(question.id, question.partitions):
            return
        self._flow.begin(self._meeting(question, self._summing(question)))

    def _summing(self, question: own.AskDigests) -> Work:
        held: list[own.PartitionDigest] = []
        answered = entries = 0
        for partition in question.partitions:
            if entries >= DIGEST_ENTRIES_MAX:
                break
            answered += 1
            copy = self._grid.local_copy(partition)
            if copy is None:
                continue
            parts = [_Snapshot(one) for one in copy if question.map is None or one.name == question.map]
            digests: list[own.MapDigest] = []
            add = digests.append
            entries += sum(part.told.entries for part in parts)
            row = self._grid.row(partition)
            held.append(
                own.PartitionDigest(
                    partition,
                    copy.epoch,
                    row.index_of(MemberId(self._grid.member_uuid)),
                    self._lane.leading[partition] is copy,
                    digests,
                    row.version,
                    list(row.behind),
                    self._grid.unfinished(partition),
                )
            )
            # The sums of what was held at that moment, however long adding up takes.
            for part in parts:
                add((yield from part.sum_up()))
        self._say(own.Digests(question.id, self._grid.table_version(), answered, held))

    def _ranges(self, question: own.AskRanges) -> None:
        if not self._in_range(question.id, [question.partition]):
            return
        copy = self._grid.local_copy(question.partition)
        version = self._grid.row(question.partition).version
        if copy is None:
            self._say(own.Ranges(question.id, version, 0, [], []))
            return
        held = copy.maps.get(question.map) or map_replica(question.map)
        answer = own.Ranges(question.id, version, held.counter, held.proven_lineage(), [])
        keys, values = list(held.state.entries), list(held.state.entries.values())
        self._flow.begin(self._meeting(question, self._ranging(answer, keys, values)))

    def _ranging(self, answer: own.Ranges, keys: list[bytes], values: list[bytes]) -> Work:
        sums = RangeDigests.digests({})
        for begin, end in slices([len(value) for value in values]):
            if begin:
                yield
            some = RangeDigests.digests(dict(zip(keys[begin:end], values[begin:end], strict=True)))
            sums = [whole(pair) for pair in zip(sums, some, strict=True)]
        self._say(msgspec.structs.replace(answer, digests=sums))

    # -- change streams

    def _has_stream(self, number: int, name: str, partitions: list[int]) -> bool:
        malformed = _map_problem(name, 0)
        if malformed is not None:
            self._fault(number, own.FaultKind.MALFORMED, malformed)
            return False
        why = changes.stream_problem(self._grid.changes, name)
        if why:
            self._fault(number, own.FaultKind.UNSUPPORTED, why)
        return (
            not why and self._in_range(number, partitions) and not self._are_lost(number, [name], partitions)
        )

    def _are_lost(self, number: int, maps: list[str], partitions: list[int]) -> bool:
        """Whether one of these maps has lost one of these partitions: then that is the answer (routing/R-12)."""
        for name in maps:
            refused = self._grid.losses.rejection(Request(Op.ENTRIES, name, partitions))
            if refused is not None:
                self._fault(number, own.FaultKind.LOST, refused.detail)
                return True
        return False

    def _changes(self, question: own.AskChanges) -> None:
        wrong = changes.question_problem(question)
        if wrong:
            self._fault(question.id, own.FaultKind.MALFORMED, wrong)
            return
        if not self._has_stream(question.id, question.map, [question.partition]):
            return
        if not self._may_wait(question.id):
            return

        def say(answer: own.Changes) -> None:
            self._answered()
            self._say(answer)

        self._acts = True
        changes.ask(self._grid, question, self._telling("AskChanges", say, question.id))

    # -- what an operator wants, and hears

    def _status(self, question: own.AskStatus) -> None:
        self._flow.spent += STATUS_UNITS
        if not question.counted:
            names = self._grid.map_names()
            zoned = {name: zone for name in names if (zone := self._grid.zone_of(name))}
            status = {**self._grid.status(), "maps": names, "zone_maps": zoned}
            self._say(own.StatusIs(question.id, status))
            return
        if not self._may_wait(question.id):
            return

        def done(count: MemberCount) -> None:
            self._answered()
            told = {
                "counted": {name: msgspec.to_builtins(figure) for name, figure in count.maps.items()},
                "reads": count.reads,
                "running": self._grid.running_migrations(),
            }
            self._say(
                own.StatusIs(
                    question.id, {**self._grid.status(EntriesHeld(count.primary, count.all)), **told}
                )
            )

        self._grid.count_maps(self._telling("AskStatus", done, question.id))

    def _order(self, order: own.Order) -> None:
        if detail := order_problem(order):
            self._fault(order.id, own.FaultKind.MALFORMED, detail)
            return
        if (named := named_partitions(order)) and not self._in_range(order.id, named):
            return
        if not self._may_wait(order.id):
            return

        def done(fate: own.Fate, why: str) -> None:
            self._answered()
            self._say(own.Ordered(order.id, fate, why))

        self._acts = True
        self._grid.order(with_setting_names(order), self._telling("Order", done, order.id))

    def _passed_on(self, question: own.AskMetastore | own.OrderZone | own.OrderTransaction) -> None:
        """What others answer, later."""
        if isinstance(question, own.OrderTransaction):
            self._transaction(question)
        else:
            self._agreed(question)

    def _agreed(self, question: own.AskMetastore | own.OrderZone) -> None:
        """What goes to the metastore."""
        wrong = agreed.question_problem(question)
        if wrong:
            self._fault(question.id, own.FaultKind.MALFORMED, wrong)
            return
        if not self._may_wait(question.id):
            return
        self._acts = True

        def say(answer: own.MetastoreSays | own.ZoneSays) -> None:
            self._answered()
            self._say(answer)

        agreed.ask(self._grid, question, self._telling(type(question).__name__, say, question.id))

    def _transaction(self, question: own.OrderTransaction) -> None:
        order = question.order
        wrong: str | None = None
        if isinstance(order, OperateIn):
            request = order.request
            wrong = _map_problem(request.map, DEFAULT_TTL) or request_problem(
                request, self._grid.partition_count
            )
        elif isinstance(order, StoreTogether):
            wrong = _map_problem(order.map, DEFAULT_TTL) or order.problem()
        if wrong:
            self._fault(question.id, own.FaultKind.MALFORMED, wrong)
            return
        if isinstance(order, BeginTransaction) and (why := self._begun.rejection()):
            refused = TransactionAnswer(TransactionFate.NOT_DONE, why=why)
            self._say(own.TransactionSays(question.id, refused))
            return
        if not self._may_wait(question.id):
            return
        self._acts = True
        if isinstance(order, BeginTransaction):
            self._begun.expect()

        def done(answer: TransactionAnswer) -> None:
            self._answered()
            if isinstance(order, BeginTransaction) and isinstance(answer.value, bytes):
                self._begun.began(answer.value)
            elif isinstance(order, BeginTransaction):
                self._begun.refused()
            elif isinstance(order, CommitTransaction | RollBackTransaction):
                self._begun.ended(order.transaction)
            self._say(own.TransactionSays(question.id, answer))

        self._grid.order_transaction(order, self._telling("OrderTransaction", done, question.id))

    def _watch(self, watch: own.Watch) -> None:
        last = self._grid.last_news
        if watch.after is None:
            self._say(own.Heard(watch.id, [], last, complete=True))
            return
        self._stop_watching()
        news, complete = self._grid.news_since(watch.after)
        if news or not complete:
            news = news[: own.NEWS_MAX]
            self._say(own.Heard(watch.id, news, news[-1].number if news else last, complete))
            return
        self._watching = watch
        self._end_watch = self._grid.on_news(self._telling("Watch", self._heard, watch.id))

    def _heard(self, news: News) -> None:
        watch = self._watching
        if watch is not None and watch.after is not None and news.number > watch.after:
            self._watching = None
            self._end_watch()
            self._say(own.Heard(watch.id, [news], news.number, complete=True))

    def _stop_watching(self) -> None:
        watch, self._watching = self._watching, None
        self._end_watch()
        if watch is not None and watch.after is not None:
            self._say(own.Heard(watch.id, [], watch.after, complete=True))

    # -- single operations

    def _execute(self, question: own.Execute) -> None:
        request = question.request
        wrong = self._rejection(request)
        if wrong is not None:
            self._fault(question.id, *wrong)
            return
        if not self._may_wait(question.id):
            return

        expected = self._flow.most // EXPECTED_SHARE
        self._flow.expected += expected

        def done(outcome: Outcome) -> None:
            self._answered()
            self._flow.expected -= expected
            assert self._flow.expected >= 0, "no more is made than was expected"
            self._say(own.Executed(question.id, outcome))

        self._acts = True
        self._grid.execute(request, self._telling("Execute", done, question.id))

    def _rejection(self, request: Request) -> tuple[own.FaultKind, str] | None:
        count = self._grid.partition_count
        malformed = own.FaultKind.MALFORMED
        refused = (
            _map_problem(request.map, DEFAULT_TTL)
            or self._partitions_problem(request.partitions)
            or request_problem(request, count)
        )
        if refused:
            return malformed, refused
        if len(request.items) > ITEMS_MAX:
            return (
                malformed,
                f"a request carries at most {ITEMS_MAX} keys and values; send several, or columns",
            )
        keys: list[bytes] = []
        values = [request.value, request.expected]
        if request.op is Op.PUT_ALL:
            keys, values = request.items[::2], request.items[1::2]
        elif request.op is Op.GET_ALL:
            keys = request.items
        elif request.op not in WHOLE:
            keys = [request.key]
        for key in keys:
            if partition_of(key, request.key_hash, count) != request.partitions[0]:
                return malformed, f"a key does not belong to partition {request.partitions[0]}"
        reserved = reserved_map_rejection(request)
        return (own.FaultKind.DENIED, reserved) if reserved else self._size_rejection(keys, values)

    def _size_rejection(self, keys: list[bytes], values: list[bytes]) -> tuple[own.FaultKind, str] | None:
        key_max, value_max = self._limits.key_bytes, self._limits.value_bytes
        if keys and max(map(len, keys)) > key_max:
            return own.FaultKind.TOO_LARGE, f"a key of more than {key_max} bytes (limits.key_bytes)"
        if values and max(map(len, values)) > value_max:
            return own.FaultKind.TOO_LARGE, f"a value of more than {value_max} bytes (limits.value_bytes)"
        return None

    # -- cuts

    def _may_cut(self, question: own.Cut | own.HoldCut) -> bool:
        maps = question.maps if isinstance(question, own.Cut) else []
        return not self._are_lost(question.id, maps, question.partitions)

    def _cut(self, question: own.Cut | own.HoldCut) -> None:
        wrong = cuts.rejection(self._grid, question)
        if wrong is not None:
            self._fault(question.id, *wrong)
        elif not self._in_range(question.id, question.partitions):
            return
        elif self._may_cut(question) and self._may_wait(question.id):

            def say(answer: own.Answer) -> None:
                self._answered()
                self._say(answer)

            self._acts = True
            if isinstance(question, own.HoldCut):
                cuts.hold(self._grid, question, self._telling("HoldCut", say, question.id))
            else:
                cuts.make(self._grid, question, self._telling("Cut", say, question.id))

    # -- columns

    def _begin_scan(self, question: own.Scan) -> None:
        answered = self._grid.timing(SCAN)
        self._scan = None
        partition = question.partition
        if not self._in_range(question.id, [partition]):
            return
        if not 0 <= question.limit <= changes.COUNTER_MAX:
            self._fault(question.id, own.FaultKind.MALFORMED, f"a limit is 0 (none) to {changes.COUNTER_MAX}")
            return
        if question.fields is not None and len(question.fields) > FIELDS_MAX:
            self._fault(question.id, own.FaultKind.MALFORMED, f"at most {FIELDS_MAX} fields are cut out")
            return
        if question.cut:
            pin = self._grid.cuts.find(question.cut, partition, question.map)
            if pin is None:
                detail = (
                    f"cut {question.cut.hex()} of {question.map} in partition {partition} is not kept here"
                )
                self._fault(question.id, own.FaultKind.MOVED, detail)
                return
            self._scan = Scanned(question, None, pin.taken_ns, pin)
        else:
            if not question.any_copy and self._are_lost(question.id, [question.map], [partition]):
                return
            copy: PartitionCopy | None = self._lane.leading[partition]
            if copy is None and question.any_copy:
                copy = self._grid.local_copy(partition)
            if copy is None:
                self._fault(question.id, own.FaultKind.MOVED, f"partition {partition} is not served here")
                return
            self._scan = Scanned(question, copy.maps.get(question.map), self._grid.now_ns())
        self._page(question.id, self._scan)
        answered()

    def _next_page(self, question: own.NextPage) -> None:
        if self._scan is None or self._scan.number != question.scan:
            self._fault(question.id, own.FaultKind.MALFORMED, f"scan {question.scan} has ended")
            return
        answered = self._grid.timing(SCAN)
        self._page(question.id, self._scan)
        answered()

    def _page(self, number: int, scan: Scanned) -> None:
        page = scan.take(number)
        if scan.ended:
            self._scan = None
        self._say(page)

    def _put_columns(self, put: own.PutColumns) -> None:
        refused = _map_problem(put.map, put.ttl_ms)
        if refused is not None:
            self._fault(put.id, own.FaultKind.MALFORMED, refused)
            return
        # A partition may have several groups: their rows are bounded.
        if not self._in_range(put.id, put.partitions, once=False) or not self._may_wait(put.id, count=False):
            return
        unfit = self._grid.rejection(as_request(put), put.columns.size_bytes)
        if unfit is not None:
            self._fault(put.id, _FAULTS.get(unfit.status, own.FaultKind.NOT_READY), unfit.detail)
            return
        self._flow.begin(self._meeting(put, self._storing(put)))

    def _storing(self, put: own.PutColumns) -> Work:
        """Read, check and store the rows, slice by slice."""
        try:
            rows = yield from ColumnPut.reading(put, self._grid.partition_count)
        except ProtocolError as broken:
            self._end(own.FaultKind.MALFORMED, str(broken))
            return
        wrong = rows.rejection(LIFETIME_MS_MAX) or self._size_rejection(rows.keys, rows.values)
        step = RESERVED_PER_SLICE if is_reserved(put.map) else own.ROWS_MAX
        for begin in range(0, len(rows.keys), step):
            if begin:
                yield
            some = slice(begin, begin + step)
            if reserved := reserved_rows_rejection(put, zip(rows.keys[some], rows.values[some], strict=True)):
                wrong = (own.FaultKind.DENIED, reserved)
                break
        if wrong is not None:
            self._fault(put.id, *wrong)
            return
        self._waiting += 1
        answered = self._grid.timing(PUT_COLUMNS)

        def say(answer: own.PutDone) -> None:
            answered()
            self._answered()
            self._say(answer)

        self._acts = True
        yield from rows.storing(self._grid, self._telling("PutColumns", say, put.id))

    # -- answering

    def _in_range(self, number: int, partitions: list[int], *, once: bool = True) -> bool:
        """Whether these are partitions, each of them `once`."""
        wrong = self._partitions_problem(partitions, once=once)
        if wrong:
            self._fault(number, own.FaultKind.MALFORMED, wrong)
        return not wrong

    def _partitions_problem(self, partitions: list[int], *, once: bool = True) -> str:
        count = self._grid.partition_count
        if len(partitions) > count or not all(0 <= partition < count for partition in partitions):
            return f"partitions are 0 to {count - 1}, at most {count} in a question"
        if once and len(set(partitions)) != len(partitions):
            return "a partition is named once in a question"
        return ""

    def _answered(self) -> None:
        """A question waits no more."""
        assert self._waiting > 0, "each question is answered once"
        self._waiting -= 1

    def _may_wait(self, number: int, *, count: bool = True) -> bool:
        if self._waiting >= WAITING_MAX:
            detail = f"{WAITING_MAX} questions of this connection wait for their answer already"
            self._fault(number, own.FaultKind.NOT_READY, detail)
            return False
        if count:
            self._waiting += 1
        return True

    def _fault(self, number: int, kind: own.FaultKind, detail: str) -> None:
        self._say(own.Fault(number, kind, detail))

    def _end(self, kind: own.FaultKind, detail: str, number: int = 0) -> None:
        self._fault(number, kind, detail)
        self.closed()
        self._close(detail)

    def _say(self, answer: own.Answer) -> None:
        if not self._gone:
            said = own.frame(answer)
            self._flow.spent += len(said) // BYTES_PER_UNIT
            self._send(said)


def _nothing() -> None:
    return None


def _unheard(_: TransactionAnswer) -> None:
    """Nobody is there to be told."""


def _map_problem(name: str, lifetime_ms: int) -> str | None:
    if not 1 <= len(name) <= own.MAP_NAME_MAX:
        return f"a map's name has 1 to {own.MAP_NAME_MAX} characters"
    if not DEFAULT_TTL <= lifetime_ms <= LIFETIME_MS_MAX:
        return f"a lifetime is {DEFAULT_TTL} (the map's own), 0 (for ever) or up to {LIFETIME_MS_MAX} milliseconds"
    return None


class _Snapshot:
    """What a copy holds of a map at one moment, to be summed up."""

    __slots__ = ("_keys", "_values", "told")

    def __init__(self, held: AnyReplica) -> None:
        state = held.state
        entries, digest = (state.entries, 0) if isinstance(state, MapState) else ({}, state.digest())
        self.told = own.MapDigest(
            held.name,
            held.counter,
            len(entries),
            digest,
            list(held.targets),
            held.proven_lineage(),
        )
        """What is told of it; the digest of a map is still to come."""
        self._keys = list(entries)
        self._values = list(entries.values())

    def sum_up(self) -> Generator[None, None, own.MapDigest]:
        """Slice by slice."""
        digest = self.told.digest
        for begin, end in slices([len(value) for value in self._values]):
            if begin:
                yield
            digest = whole((digest, batch_digest(self._keys[begin:end], self._values[begin:end])))
        return msgspec.structs.replace(self.told, digest=digest)
