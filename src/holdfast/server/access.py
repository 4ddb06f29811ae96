"""Authorization: the permissions that each request of every protocol needs. Unknown requests are rejected.

Each session checks a request once, before anything else. The data lane asks once per map and connection
(`Rights.reads_only`).

- server/P-1: A kind of request without an entry here is rejected, except for users who may do everything.
- server/P-2: A response with a value needs `read`, even if the request stores or removes. Otherwise a user who may
  only write could read by `put`, which returns the old value.
- server/P-3: A transaction can be used only by the connection that began it.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Literal, NamedTuple, Protocol, assert_never

from holdfast.actions.operator_action import OperatorAction
from holdfast.config import RELIABLE_TOPIC_PREFIX
from holdfast.config.permissions import UNNAMED, Action, Kind
from holdfast.core.model.cp import cp_name
from holdfast.core.model.operations import Op, Request
from holdfast.core.model.transaction_orders import (
    BeginTransaction,
    CommitTransaction,
    HoldCommits,
    OperateIn,
    ResumeCommits,
    RollBackTransaction,
    StoreTogether,
    TransactionOrder,
)
from holdfast.core.model.transactions import TransactionId
from holdfast.server.hazelcast.names import NAMES, name_of
from holdfast.server.rights import Rights
from holdfast.wire import own

READ, PUT, REMOVE = Action.READ, Action.PUT, Action.REMOVE
SHOWN_MAX = 256


class Needed(NamedTuple):
    kind: Kind
    name: str
    action: Action
    reach: Literal["this", "all", "some"] = "this"
    """The named thing; all with this prefix; or any one of this kind."""


# -- operations

OPERATIONS: dict[Op, frozenset[Action]] = {
    **dict.fromkeys(
        (
            Op.GET,
            Op.CONTAINS_KEY,
            Op.ENTRY_VIEW,
            Op.GET_ALL,
            Op.SIZE,
            Op.CONTAINS_VALUE,
            Op.KEYS,
            Op.VALUES,
            Op.ENTRIES,
            Op.IS_EMPTY,
        ),
        frozenset({READ}),
    ),
    **dict.fromkeys((Op.SET, Op.TRY_PUT, Op.PUT_ALL, Op.SET_TTL), frozenset({PUT})),
    **dict.fromkeys((Op.PUT, Op.PUT_IF_ABSENT, Op.REPLACE, Op.REPLACE_IF_SAME), frozenset({READ, PUT})),
    **dict.fromkeys(
        (Op.DELETE, Op.TRY_REMOVE, Op.EVICT, Op.EVICT_ALL, Op.CLEAR, Op.DESTROY), frozenset({REMOVE})
    ),
    **dict.fromkeys((Op.REMOVE, Op.REMOVE_IF_SAME), frozenset({READ, REMOVE})),
    Op.CALL: frozenset({Action.CALL}),
    Op.ASK: frozenset({Action.ASK}),
}
"""Permissions by operation. Missing operations are internal to members."""


def of_request(request: Request) -> Iterator[Needed | None]:
    """Permissions for an operation; None: internal, never permitted."""
    actions = OPERATIONS.get(request.op)
    if actions is None:
        yield None
        return
    kind = Kind.SERVICE if request.op in (Op.CALL, Op.ASK) else Kind.MAP
    for action in sorted(actions):
        yield Needed(kind, request.map, action)


# -- the Hazelcast protocol

_TABLE = """
open
    Client.authentication Client.authenticationCustom Client.addClusterViewListener Client.ping Client.statistics
    Client.localBackupListener Client.fetchSchema Client.getDistributedObjects Client.addDistributedObjectListener
    Client.removeDistributedObjectListener Client.removePartitionLostListener Client.removeMigrationListener
    Map.removeEntryListener Map.removePartitionLostListener Queue.removeListener List.removeListener Set.removeListener
    Topic.removeMessageListener ReplicatedMap.removeEntryListener PNCounter.getConfiguredReplicaCount
    MultiMap.removeEntryListener
    CPGroup.createCPGroup Semaphore.getSemaphoreType
somewhere map put
    Client.sendSchema Client.sendAllSchemas
object known
    Client.createProxy Client.createProxies
object destroy
    Client.destroyProxy
cluster watch
    Client.addPartitionLostListener Client.addMigrationListener
map read put remove
    Map.executeOnKey Map.submitToKey Map.executeOnAllKeys Map.executeWithPredicate Map.executeOnKeys
map read
    Map.get Map.containsKey Map.containsValue Map.isLocked Map.getEntryView Map.keySet Map.getAll Map.values
    Map.entrySet Map.keySetWithPredicate Map.valuesWithPredicate Map.entriesWithPredicate Map.size Map.isEmpty
    Map.loadAll Map.loadGivenKeys Map.fetchKeys Map.fetchEntries
map put
    Map.set Map.tryPut Map.putTransient Map.putAll Map.setTtl Map.putTransientWithMaxIdle Map.setWithMaxIdle Map.flush
map read put
    Map.put Map.putIfAbsent Map.replace Map.replaceIfSame Map.putWithMaxIdle Map.putIfAbsentWithMaxIdle
map remove
    Map.delete Map.tryRemove Map.evict Map.evictAll Map.clear Map.removeAll
map read remove
    Map.remove Map.removeIfSame
map listen
    Map.addEntryListenerToKeyWithPredicate Map.addEntryListenerWithPredicate Map.addEntryListenerToKey
    Map.addEntryListener Map.addPartitionLostListener Map.addNearCacheInvalidationListener
maps listen
    Map.fetchNearCacheInvalidationMetadata
transaction use
    Transaction.create Transaction.commit Transaction.rollback
queue read
    Queue.size Queue.peek Queue.iterator Queue.contains Queue.containsAll Queue.remainingCapacity Queue.isEmpty
queue put
    Queue.offer Queue.put Queue.addAll
queue read remove
    Queue.remove Queue.poll Queue.take Queue.drainTo Queue.drainToMaxSize Queue.compareAndRemoveAll
    Queue.compareAndRetainAll
queue remove
    Queue.clear
queue listen
    Queue.addListener
list read
    List.size List.contains List.containsAll List.getAll List.isEmpty List.get List.lastIndexOf List.indexOf List.sub
    List.iterator List.listIterator
list put
    List.add List.addAll List.addAllWithIndex List.addWithIndex
list read put remove
    List.set
list read remove
    List.remove List.compareAndRemoveAll List.compareAndRetainAll List.removeWithIndex
list remove
    List.clear
list listen
    List.addListener
set read
    Set.size Set.contains Set.containsAll Set.getAll Set.isEmpty
set read put
    Set.add Set.addAll
set read remove
    Set.remove Set.compareAndRemoveAll Set.compareAndRetainAll
set remove
    Set.clear
set listen
    Set.addListener
multimap read put
    TransactionalMultiMap.put
multimap read
    TransactionalMultiMap.get TransactionalMultiMap.valueCount TransactionalMultiMap.size
multimap read remove
    TransactionalMultiMap.remove TransactionalMultiMap.removeEntry
queue put
    TransactionalQueue.offer
queue read remove
    TransactionalQueue.take TransactionalQueue.poll
queue read
    TransactionalQueue.peek TransactionalQueue.size
list put
    TransactionalList.add
list read remove
    TransactionalList.remove
list read
    TransactionalList.size
set read put
    TransactionalSet.add
set read remove
    TransactionalSet.remove
set read
    TransactionalSet.size
ringbuffer read
    Ringbuffer.size Ringbuffer.tailSequence Ringbuffer.headSequence Ringbuffer.capacity Ringbuffer.remainingCapacity
    Ringbuffer.readOne Ringbuffer.readMany
ringbuffer put
    Ringbuffer.add Ringbuffer.addAll
topic put
    Topic.publish Topic.publishAll
topic listen
    Topic.addMessageListener
replicated-map read
    ReplicatedMap.size ReplicatedMap.isEmpty ReplicatedMap.containsKey ReplicatedMap.containsValue ReplicatedMap.get
    ReplicatedMap.keySet ReplicatedMap.values ReplicatedMap.entrySet
replicated-map read put
    ReplicatedMap.put
replicated-map put
    ReplicatedMap.putAll
replicated-map read remove
    ReplicatedMap.remove
replicated-map remove
    ReplicatedMap.clear
replicated-map read listen
    ReplicatedMap.addEntryListenerToKeyWithPredicate ReplicatedMap.addEntryListenerWithPredicate
    ReplicatedMap.addEntryListenerToKey ReplicatedMap.addEntryListener
pn-counter read
    PNCounter.get
pn-counter read put
    PNCounter.add
flake-id-generator put
    FlakeIdGenerator.newIdBatch
cardinality-estimator read
    CardinalityEstimator.estimate
cardinality-estimator put
    CardinalityEstimator.add
multimap read
    MultiMap.get MultiMap.keySet MultiMap.values MultiMap.entrySet MultiMap.containsKey MultiMap.containsValue
    MultiMap.containsEntry MultiMap.size MultiMap.valueCount MultiMap.isLocked
multimap put
    MultiMap.putAll
multimap read put
    MultiMap.put
multimap read remove
    MultiMap.remove MultiMap.removeEntry
multimap remove
    MultiMap.delete MultiMap.clear
multimap listen
    MultiMap.addEntryListenerToKey MultiMap.addEntryListener
multimap lock
    MultiMap.lock MultiMap.tryLock MultiMap.unlock MultiMap.forceUnlock
cp read
    AtomicLong.get AtomicRef.get AtomicRef.contains CountDownLatch.await CountDownLatch.getCount
    CountDownLatch.getRound FencedLock.getLockOwnership Semaphore.availablePermits
cp put
    CountDownLatch.trySetCount CountDownLatch.countDown Semaphore.init Semaphore.change
cp read put
    AtomicLong.addAndGet AtomicLong.compareAndSet AtomicLong.getAndAdd AtomicLong.getAndSet AtomicRef.compareAndSet
    AtomicRef.set
cp lock
    FencedLock.lock FencedLock.tryLock FencedLock.unlock Semaphore.acquire Semaphore.release Semaphore.drain
cp destroy
    CPGroup.destroyCPObject
somewhere cp lock
    CPSession.createSession CPSession.closeSession CPSession.heartbeatSession CPSession.generateThreadId
map read
    TransactionalMap.containsKey TransactionalMap.get TransactionalMap.size TransactionalMap.isEmpty
    TransactionalMap.keySet TransactionalMap.keySetWithPredicate TransactionalMap.values
    TransactionalMap.valuesWithPredicate TransactionalMap.containsValue
map lock
    Map.lock Map.tryLock Map.unlock Map.forceUnlock
map read lock
    TransactionalMap.getForUpdate
map put
    TransactionalMap.set
map read put
    TransactionalMap.put TransactionalMap.putIfAbsent TransactionalMap.replace TransactionalMap.replaceIfSame
map remove
    TransactionalMap.delete
map read remove
    TransactionalMap.remove TransactionalMap.removeIfSame
"""
"""Permissions, each with its requests. `open`: only a login; lists of objects show only objects that the user
knows. `object`, `maps`: for each one that the request names. `somewhere`: for any one.
"""


def _read_table() -> dict[int, tuple[str, ...]]:
    numbers = {name: kind for kind, name in NAMES.items()}
    found: dict[int, tuple[str, ...]] = {}
    needed: tuple[str, ...] = ()
    for line in _TABLE.strip().splitlines():
        words = line.split()
        if not line.startswith(" "):
            needed = tuple(words)
            continue
        for name in words:
            assert numbers[name] not in found, f"{name} is here twice"
            found[numbers[name]] = needed
    return found


HAZELCAST: dict[int, tuple[str, ...]] = _read_table()
"""Permissions by kind of request, as words of the table."""

MAP_SERVICE = "hz:impl:mapService"
SERVICES: dict[str, Kind] = {
    MAP_SERVICE: Kind.MAP,
    "hz:impl:queueService": Kind.QUEUE,
    "hz:impl:listService": Kind.LIST,
    "hz:impl:setService": Kind.SET,
    "hz:impl:ringbufferService": Kind.RINGBUFFER,
    "hz:impl:topicService": Kind.TOPIC,
    "hz:impl:reliableTopicService": Kind.RELIABLE_TOPIC,
    "hz:impl:replicatedMapService": Kind.REPLICATED_MAP,
    "hz:impl:PNCounterService": Kind.PN_COUNTER,
    "hz:impl:flakeIdGeneratorService": Kind.FLAKE_ID_GENERATOR,
    "hz:impl:cardinalityEstimatorService": Kind.CARDINALITY_ESTIMATOR,
    "hz:impl:multiMapService": Kind.MULTIMAP,
}
"""Services of the Hazelcast protocol, with the kind of their objects."""


class AnyCall(Protocol):
    """See `wire.hazelcast.layouts.Call`."""

    kind: int
    name: str
    names: list[str]
    service: str
    proxies: list[tuple[str, str]]
    include_value: bool
    group: str


def call_rejection(rights: Rights, call: AnyCall) -> str:
    """The reason to reject this request of the Hazelcast protocol; empty if it is permitted."""
    if rights.everything:
        return ""
    needed = HAZELCAST.get(call.kind)
    what = name_of(call.kind)
    if needed is None:
        return _refused(rights, f"{what} is permitted only to users who may do everything")
    match needed:
        case ("open",):
            return ""
        case ("somewhere", kind, action):
            return _rejection(rights, Needed(Kind(kind), "", Action(action), "some"), what)
        case ("object", action):
            objects = call.proxies or [(call.name, call.service)]
            return next(filter(None, (_object_rejection(rights, what, action, *one) for one in objects)), "")
        case (kind, *actions):
            if call.include_value:
                actions = [*actions, READ]  # A listener's events contain values (server/P-2).
            names = call.names if kind == "maps" else [call.name]
            if kind == Kind.CP:
                names = [cp_name(call.name, call.group)]
            needs = (
                Needed(*permission_of(Kind(kind.removesuffix("s")), _name_of(kind, name)), Action(action))
                for name in names
                for action in actions
            )
            return next(filter(None, (_rejection(rights, need, what) for need in needs)), "")
        case _:  # pragma: no cover - the table is not empty
            return _refused(rights, what)


def _name_of(kind: str, name: str) -> str:
    """The name of the object; empty for kinds with a single object."""
    return "" if Kind(kind.removesuffix("s")) in UNNAMED else name


def permission_of(kind: Kind, name: str) -> tuple[Kind, str]:
    """Kind and name in the rules for this object: the ringbuffer of a reliable topic is part of the topic."""
    if kind is Kind.RINGBUFFER and name.startswith(RELIABLE_TOPIC_PREFIX):
        return Kind.RELIABLE_TOPIC, name.removeprefix(RELIABLE_TOPIC_PREFIX)
    return kind, name


def _object_rejection(rights: Rights, what: str, action: str, name: str, service: str) -> str:
    kind = SERVICES.get(service)
    if kind is None:
        return _refused(rights, f"{what}: no rule can permit objects of {service[:SHOWN_MAX]}")
    kind, name = permission_of(kind, name)
    if action != "known":
        return _rejection(rights, Needed(kind, name, Action(action)), what)
    if rights.knows(kind, name):
        return ""
    return _refused(rights, f"no rule permits anything for {kind} {name[:SHOWN_MAX]!r}")


# -- Holdfast's own protocol


def question_rejection(rights: Rights, question: own.Question, begun: Container[TransactionId]) -> str:
    """The reason to reject a request of the own protocol. `begun`: transactions of this connection."""
    if rights.everything:
        return ""
    what = type(question).__name__
    if isinstance(question, own.Cut | own.HoldCut) and not _rejection(rights, _cluster(Action.VERIFY), what):
        return ""  # A cut shows nothing; replicas of zones are compared at one.
    for need in needs_of(question, begun):
        if need is None:
            return _refused(rights, f"{what} is permitted only to users who may do everything")
        if why := _rejection(rights, need, what):
            return why
    return ""


def action_rejection(rights: Rights, action: OperatorAction) -> str:
    """The reason to reject an action of an operator; empty if it is permitted."""
    if rights.everything:
        return ""
    what = f"action {action.declared.name}"
    needs = (
        Needed(need.kind, need.name, need.action, "all" if need.every else "this") for need in action.needs()
    )
    return next(filter(None, (_rejection(rights, need, what) for need in needs)), "")


def needs_of(question: own.Question, begun: Container[TransactionId]) -> Iterator[Needed | None]:
    """Permissions for a request; None: only for users with all permissions."""
    match question:
        case own.Hello() | own.AskTable() | own.NextPage():
            return  # A page is of a scan of this connection, which was permitted.
        case own.Watch():
            yield _cluster(Action.WATCH)
        case own.AskDigests() | own.AskRanges():
            yield _cluster(Action.VERIFY)
        case own.Execute():
            yield from of_request(question.request)
        case own.Scan() | own.PutColumns() | own.Cut() | own.HoldCut() | own.AskHeads() | own.AskChanges():
            yield from _of_maps(question)
        case own.Act():
            yield None  # `action_rejection` judges the action that it names.
        case own.OrderTransaction():
            yield from _of_transaction(question.order, begun)
        case _:
            assert_never(question)


_AboutMaps = own.Scan | own.PutColumns | own.Cut | own.HoldCut | own.AskHeads | own.AskChanges


def _of_maps(question: _AboutMaps) -> Iterator[Needed]:
    match question:
        case own.Scan():
            yield Needed(Kind.MAP, question.map, READ)
        case own.PutColumns():
            kinds = set(question.kinds) or {own.PutKind.SET}
            yield Needed(Kind.MAP, question.map, REMOVE if kinds == {own.PutKind.REMOVE} else PUT)
            if own.PutKind.REMOVE in kinds:
                yield Needed(Kind.MAP, question.map, REMOVE)
        case own.Cut():
            for name in question.maps:
                yield Needed(Kind.MAP, name, Action.CUT)
        case own.HoldCut():
            # A lease names no maps, but only the creator of a cut knows its id, 16 random bytes.
            yield Needed(Kind.MAP, "", Action.CUT, "some")
        case own.AskHeads():
            yield Needed(Kind.MAP, question.map, Action.CHANGES)
        case own.AskChanges():
            yield Needed(Kind.MAP, question.map, Action.CHANGES)
            yield Needed(Kind.MAP, question.map, READ)  # Changes contain values (server/P-2).
        case _:
            assert_never(question)


def _cluster(action: Action) -> Needed:
    return Needed(Kind.CLUSTER, "", action)


def _of_transaction(order: TransactionOrder, begun: Container[TransactionId]) -> Iterator[Needed | None]:
    use = Needed(Kind.TRANSACTION, "", Action.USE)
    match order:
        case BeginTransaction():
            yield use
        case OperateIn():
            yield use if order.transaction in begun else None
            yield from of_request(order.request)
            if order.for_update:
                yield Needed(Kind.MAP, order.request.map, Action.LOCK)
        case CommitTransaction() | RollBackTransaction():
            yield use if order.transaction in begun else None
        case StoreTogether():
            yield Needed(Kind.MAP, order.map, PUT)
        case HoldCommits() | ResumeCommits():
            yield Needed(Kind.TRANSACTION, "", Action.HOLD)
        case _:
            assert_never(order)


# -- HTTP

HTTP: dict[str, tuple[str, ...]] = {
    "GET /health/live": ("open",),
    "GET /health/ready": ("open",),
    "GET /": ("known",),
    "GET /metrics": ("cluster", "metrics"),
    "GET /v1/actions": ("known",),
    "POST /v1/actions/*": ("action",),
    "GET /v1/queries/*": ("action",),
    "GET /console": ("open",),
    "GET /console/*": ("open",),
    "GET /console/api/me": ("known",),
    "GET /console/api/history": ("cluster", "status"),
    "GET /console/api/events": ("cluster", "watch"),
    "POST /console/api/verify": ("question",),
    "POST /console/api/entry": ("question",),
}
"""Permissions by route. `open`: none, not even a login. `known`: a login. `question`: those of the equivalent
request of the own protocol, which the route's handler checks (`question_rejection`). `action`: those that the
action declares (`action_rejection`). Otherwise a kind and its actions.
"""


def is_open(route: str) -> bool:
    return HTTP.get(route) == ("open",)


def route_rejection(rights: Rights, route: str) -> str:
    """The reason to reject this HTTP request; empty if it is permitted."""
    if rights.everything:
        return ""
    match HTTP.get(route):
        case None:
            return _refused(rights, f"{route} is permitted only to users who may do everything")
        case ("open",) | ("known",) | ("question",) | ("action",):
            return ""
        case (kind, *actions):
            needs = (Needed(Kind(kind), "", Action(action)) for action in actions)
            return next(filter(None, (_rejection(rights, need, route) for need in needs)), "")
        case _:  # pragma: no cover - the table is not empty
            return _refused(rights, route)


# -- messages


def _rejection(rights: Rights, need: Needed, what: str) -> str:
    kind, name, action, reach = need
    shown = f" {name[:SHOWN_MAX]!r}" if name else ""
    match reach:
        case "this":
            permitted, which = rights.may(action, kind, name), f"{kind}{shown}"
        case "all":
            permitted, which = (
                rights.may_with_all(action, kind, name),
                f"every {kind} that begins with{shown or ' anything'}",
            )
        case "some":
            permitted, which = rights.may_somewhere(action, kind), f"some {kind}"
        case _:
            assert_never(reach)
    return (
        "" if permitted else _refused(rights, f"{what} needs '{action}' for {which}, which no rule permits")
    )


def _refused(rights: Rights, why: str) -> str:
    return f"user {rights.user!r} may not do this: {why}. An operator can add a rule to a role of the user"
