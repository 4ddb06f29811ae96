"""A judge of calls of the official Python client: by the names of the protocol's messages, whether they work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from uuid import uuid4

from hazelcast import HazelcastClient
from hazelcast.aggregator import count
from hazelcast.predicate import paging, sql, true
from hazelcast.projection import single_attribute
from hazelcast.serialization.api import IdentifiedDataSerializable

REFUSED = "supported by Holdfast"


def until(question: Callable[[], bool], seconds: float = 120.0) -> bool:
    end = time.monotonic() + seconds
    while not (answer := question()) and time.monotonic() < end:
        time.sleep(0.01)
    return answer


class PutText(IdentifiedDataSerializable):  # type: ignore[misc]
    """The entry processor `put_text` of the members."""

    def __init__(self, text: str) -> None:
        self._text = text

    def write_data(self, output: Any) -> None:
        output.write_string(self._text)

    def read_data(self, given: Any) -> None: ...

    def get_factory_id(self) -> int:
        return 66

    def get_class_id(self) -> int:
        return 1


class Judge:
    """What was found of each call."""

    def __init__(self, client: HazelcastClient, name: str) -> None:
        self.client = client
        self.map = client.get_map(name).blocking()
        self.found = dict.fromkeys(
            ("Client.authentication", "Client.createProxy", "Client.addClusterViewListener"), "works"
        )

    def all(self) -> dict[str, str]:
        self.one_key()
        self.conditions()
        self.whole_maps()
        self.timed()
        self.listeners()
        self.objects()
        self.transactions()
        self.queues()
        self.sets()
        self.lists()
        self.ringbuffers()
        self.topics()
        self.replicated_maps()
        self.numbers()
        self.locks()
        self.multimaps()
        self.atomic_values()
        self.synchronizers()
        self.processors()
        self.refused()
        self.structures()
        return self.found

    def judge(
        self, name: str, wanted: object, call: Callable[..., Any], *arguments: Any, **named: Any
    ) -> None:
        """Whether the call answers this. One that did not once does not, whatever it did before."""
        try:
            answer = call(*arguments, **named)
        except Exception as error:  # noqa: BLE001  (it is what is found)
            said = f"{error} {error.__context__}"  # Of a listener the second is the reason: see the page.
            outcome = "refused" if REFUSED in said else f"failed: {type(error).__name__}: {error}"
        else:
            outcome = "works" if answer == wanted else f"wrong: {answer!r}, not {wanted!r}"
        if self.found.get(name, "works") == "works":
            self.found[name] = outcome

    def one_key(self) -> None:
        entries, judge = self.map, self.judge
        judge("Map.put", None, entries.put, "k", 1)
        judge("Map.put", 1, entries.put, "k", 2)
        judge("Map.get", 2, entries.get, "k")
        judge("Map.get", None, entries.get, "none")
        judge("Map.containsKey", True, entries.contains_key, "k")
        judge("Map.containsKey", False, entries.contains_key, "none")
        judge("Map.containsValue", True, entries.contains_value, 2)
        judge("Map.isLocked", False, entries.is_locked, "k")
        judge("Map.remove", 2, entries.remove, "k")
        judge("Map.remove", None, entries.remove, "k")
        for value in ("text", 1.5, True, 7, uuid4(), [1, 2], {"an": "object"}, b"bytes"):
            judge("Map.set", None, entries.set, "k", value)
            judge("Map.get", value, entries.get, "k")
        judge("Map.putTransient", None, entries.put_transient, "k", "t")
        judge("Map.get", "t", entries.get, "k")
        judge("Map.delete", None, entries.delete, "k")
        judge("Map.get", None, entries.get, "k")
        judge("Map.set", None, entries.set, "k", 1)
        judge("Map.evict", True, entries.evict, "k")
        judge("Map.evict", False, entries.evict, "k")

    def conditions(self) -> None:
        entries, judge = self.map, self.judge
        judge("Map.replace", None, entries.replace, "c", 1)
        judge("Map.putIfAbsent", None, entries.put_if_absent, "c", 1)
        judge("Map.putIfAbsent", 1, entries.put_if_absent, "c", 2)
        judge("Map.replace", 1, entries.replace, "c", 3)
        judge("Map.replaceIfSame", False, entries.replace_if_same, "c", 1, 4)
        judge("Map.replaceIfSame", True, entries.replace_if_same, "c", 3, 4)
        judge("Map.removeIfSame", False, entries.remove_if_same, "c", 3)
        judge("Map.removeIfSame", True, entries.remove_if_same, "c", 4)
        judge("Map.tryPut", True, entries.try_put, "c", 5)
        judge("Map.tryRemove", True, entries.try_remove, "c")
        judge("Map.tryRemove", False, entries.try_remove, "c")

    def whole_maps(self) -> None:
        entries, judge = self.map, self.judge
        everything = {f"key {number}": f"value {number}" for number in range(300)}
        keys, values = sorted(everything), sorted(everything.values())

        def listed(call: Callable[..., Iterable[Any]], *arguments: Any) -> list[Any]:
            return sorted(call(*arguments))

        judge("Map.isEmpty", True, entries.is_empty)
        judge("Map.putAll", None, lambda: entries.put_all(everything) and None)
        judge("Map.size", 300, entries.size)
        judge("Map.getAll", {"key 1": "value 1"}, entries.get_all, ["key 1", "none"])
        judge("Map.keySet", keys, listed, entries.key_set)
        judge("Map.values", values, listed, entries.values)
        judge("Map.entrySet", sorted(everything.items()), listed, entries.entry_set)
        judge("Map.keySetWithPredicate", keys, listed, entries.key_set, true())
        judge("Map.valuesWithPredicate", values, listed, entries.values, true())
        judge("Map.entriesWithPredicate", sorted(everything.items()), listed, entries.entry_set, true())
        judge("Map.flush", None, entries.flush)
        judge("Map.loadAll", None, entries.load_all)
        judge("Map.loadGivenKeys", None, entries.load_all, ["key 1"])
        judge("Map.removeAll", None, entries.remove_all, true())
        judge("Map.size", 0, entries.size)
        entries.put_all(everything)
        judge("Map.evictAll", None, entries.evict_all)
        judge("Map.size", 0, entries.size)
        entries.put_all(everything)
        judge("Map.clear", None, entries.clear)
        judge("Map.isEmpty", True, entries.is_empty)

    def timed(self) -> None:
        entries, judge = self.map, self.judge
        judge("Map.put", None, entries.put, "t1", 1, 0.3)
        judge("Map.set", None, entries.set, "t2", 1, 0.3)
        judge("Map.putIfAbsent", None, entries.put_if_absent, "t3", 1, 0.3)
        judge("Map.putWithMaxIdle", None, entries.put, "t4", 1, max_idle=0.3)
        judge("Map.setWithMaxIdle", None, entries.set, "t5", 1, max_idle=0.3)
        judge("Map.putIfAbsentWithMaxIdle", None, entries.put_if_absent, "t6", 1, max_idle=0.3)
        judge("Map.putTransientWithMaxIdle", None, entries.put_transient, "t7", 1, max_idle=0.3)
        judge("Map.putWithMaxIdle", None, entries.put, "stays", 1, 60, 30)
        view = entries.get_entry_view("stays")
        found = (view.key, view.value, view.ttl, view.max_idle, view.hits)
        judge("Map.getEntryView", ("stays", 1, 60_000, 30_000, -1), lambda: found)
        judge("Map.setTtl", True, entries.set_ttl, "stays", 90)
        judge("Map.size", True, until, lambda: entries.size() == 1)
        entries.clear()

    def listeners(self) -> None:
        entries, judge = self.map, self.judge
        heard: list[str] = []
        ears = {
            "added_func": lambda event: heard.append(f"added {event.key} {event.value}"),
            "updated_func": lambda event: heard.append(f"updated {event.old_value}"),
            "removed_func": lambda event: heard.append(f"removed {event.old_value}"),
            "clear_all_func": lambda _: heard.append("cleared"),
        }

        def write() -> None:
            entries.set("a", 1)
            entries.set("a", 2)
            entries.set("b", 3)
            entries.remove("a")
            entries.clear()

        of_a = ["added a 1", "updated 1", "removed 2", "cleared"]
        for name, wanted, wish in (
            ("Map.addEntryListener", [*of_a, "added b 3"], {}),
            ("Map.addEntryListenerToKey", of_a, {"key": "a"}),
            ("Map.addEntryListenerWithPredicate", [*of_a, "added b 3"], {"predicate": true()}),
            ("Map.addEntryListenerToKeyWithPredicate", of_a, {"key": "a", "predicate": true()}),
        ):
            registration = entries.add_entry_listener(include_value=True, **ears, **wish)
            write()
            until(lambda wanted=wanted: sorted(heard) == sorted(wanted))  # type: ignore[misc]
            judge(name, sorted(wanted), lambda: sorted(heard))
            judge("Map.removeEntryListener", True, entries.remove_entry_listener, registration)
            heard.clear()
        write()
        judge("Map.removeEntryListener", [], lambda: heard)

    def objects(self) -> None:
        client, judge = self.client, self.judge
        name = f"{self.map.name} of its own"
        events: list[str] = []
        registration = client.add_distributed_object_listener(
            lambda event: events.append(event.event_type) if event.name == name else None
        ).result()
        own = client.get_map(name).blocking()
        judge(
            "Client.getDistributedObjects",
            True,
            lambda: name in [one.name for one in client.get_distributed_objects()],
        )
        judge("Client.destroyProxy", True, own.destroy)
        judge("Client.addDistributedObjectListener", True, until, lambda: events == ["CREATED", "DESTROYED"])
        judge(
            "Client.removeDistributedObjectListener",
            True,
            client.remove_distributed_object_listener(registration).result,
        )

    def transactions(self) -> None:
        client, entries, judge = self.client, self.map, self.judge
        name, kind = entries.name, "TransactionalMap."
        transaction = client.new_transaction()
        judge("Transaction.create", None, transaction.begin)
        inside = transaction.get_map(name)
        for call, wanted, method, arguments in (
            ("put", None, inside.put, ("k", 1)),
            ("get", 1, inside.get, ("k",)),
            ("getForUpdate", 1, inside.get_for_update, ("k",)),
            ("containsKey", True, inside.contains_key, ("k",)),
            ("size", 1, inside.size, ()),
            ("isEmpty", False, inside.is_empty, ()),
            ("set", None, inside.set, ("s", 1)),
            ("putIfAbsent", 1, inside.put_if_absent, ("s", 2)),
            ("replace", 1, inside.replace, ("s", 2)),
            ("replaceIfSame", True, inside.replace_if_same, ("s", 2, 3)),
            ("removeIfSame", False, inside.remove_if_same, ("s", 2)),
            ("remove", 3, inside.remove, ("s",)),
            ("set", None, inside.set, ("d", 1)),
            ("delete", None, inside.delete, ("d",)),
            ("keySet", ["k"], inside.key_set, ()),
            ("keySetWithPredicate", ["k"], inside.key_set, (true(),)),
            ("values", [1], inside.values, ()),
            ("valuesWithPredicate", [1], inside.values, (true(),)),
        ):
            judge(kind + call, wanted, method, *arguments)
        judge("Transaction.commit", None, transaction.commit)
        judge("Transaction.commit", 1, entries.get, "k")
        undone = client.new_transaction()
        undone.begin()
        undone.get_map(name).put("k", 2)
        judge("Transaction.rollback", None, undone.rollback)
        judge("Transaction.rollback", 1, entries.get, "k")
        other = client.new_transaction()
        other.begin()
        queue, some, items = other.get_queue("in"), other.get_set("in"), other.get_list("in")
        for call, wanted, method, arguments in (
            ("TransactionalQueue.offer", True, queue.offer, ("a", 1)),
            ("TransactionalQueue.offer", True, queue.offer, ("b",)),
            ("TransactionalQueue.size", 2, queue.size, ()),
            ("TransactionalQueue.peek", "a", queue.peek, (1,)),
            ("TransactionalQueue.poll", "a", queue.poll, (1,)),
            ("TransactionalQueue.take", "b", queue.take, ()),
            ("TransactionalSet.add", True, some.add, ("a",)),
            ("TransactionalSet.size", 1, some.size, ()),
            ("TransactionalSet.remove", True, some.remove, ("a",)),
            ("TransactionalList.add", True, items.add, ("a",)),
            ("TransactionalList.size", 1, items.size, ()),
            ("TransactionalList.remove", False, items.remove, ("b",)),
        ):
            judge(call, wanted, method, *arguments)
        several = other.get_multi_map("in")
        for call, wanted, method, arguments in (
            ("put", True, several.put, ("k", 1)),
            ("put", True, several.put, ("k", 2)),
            ("get", [1, 2], several.get, ("k",)),
            ("valueCount", 2, several.value_count, ("k",)),
            ("size", 2, several.size, ()),
            ("removeEntry", True, several.remove, ("k", 1)),
            ("remove", [2], several.remove_all, ("k",)),
        ):
            judge(f"TransactionalMultiMap.{call}", wanted, method, *arguments)
        other.rollback()

    def in_order(
        self, kind: str, steps: Iterable[tuple[str, object, Callable[..., Any], tuple[Any, ...]]]
    ) -> None:
        """Calls of a collection: name, answer, method and arguments of each."""
        for call, wanted, method, arguments in steps:
            self.judge(f"{kind}.{call}", wanted, method, *arguments)

    def queues(self) -> None:
        queue, taken = self.client.get_queue("q").blocking(), list[str]()
        registration = queue.add_listener(True, print)
        self.in_order(
            "Queue",
            (
                ("offer", True, queue.offer, ("a", 1)),
                ("put", None, queue.put, ("b",)),
                ("addAll", True, queue.add_all, (["c", "d", "e", "f"],)),
                ("size", 6, queue.size, ()),
                ("remainingCapacity", 2**31 - 1, queue.remaining_capacity, ()),
                ("iterator", list("abcdef"), lambda: list(queue.iterator()), ()),
                ("peek", "a", queue.peek, ()),
                ("poll", "a", queue.poll, (1,)),
                ("take", "b", queue.take, ()),
                ("remove", True, queue.remove, ("d",)),
                ("contains", False, queue.contains, ("d",)),
                ("containsAll", True, queue.contains_all, (["c", "f"],)),
                ("compareAndRemoveAll", True, queue.remove_all, (["c"],)),
                ("compareAndRetainAll", True, queue.retain_all, (["f"],)),
                ("drainToMaxSize", 1, queue.drain_to, (taken, 5)),
                ("clear", None, queue.clear, ()),
                ("isEmpty", True, queue.is_empty, ()),
                ("addListener", True, lambda: bool(registration), ()),
                ("removeListener", True, queue.remove_listener, (registration,)),
            ),
        )
        queue.destroy()

    def sets(self) -> None:
        some = self.client.get_set("s").blocking()
        registration = some.add_listener(True, print)
        self.in_order(
            "Set",
            (
                ("add", True, some.add, ("a",)),
                ("addAll", True, some.add_all, (["a", "b", "c"],)),
                ("size", 3, some.size, ()),
                ("getAll", ["a", "b", "c"], some.get_all, ()),
                ("contains", True, some.contains, ("a",)),
                ("containsAll", False, some.contains_all, (["a", "x"],)),
                ("remove", True, some.remove, ("a",)),
                ("compareAndRemoveAll", False, some.remove_all, (["a"],)),
                ("compareAndRetainAll", True, some.retain_all, (["b"],)),
                ("clear", None, some.clear, ()),
                ("isEmpty", True, some.is_empty, ()),
                ("addListener", True, lambda: bool(registration), ()),
                ("removeListener", True, some.remove_listener, (registration,)),
            ),
        )
        some.destroy()

    def lists(self) -> None:
        found = self.client.get_list("l").blocking()
        registration = found.add_listener(True, print)
        self.in_order(
            "List",
            (
                ("add", True, found.add, ("b",)),
                ("addWithIndex", None, found.add_at, (0, "a")),
                ("addAll", True, found.add_all, (["a", "d"],)),
                ("addAllWithIndex", True, found.add_all_at, (1, ["x", "y"])),
                ("getAll", ["a", "x", "y", "b", "a", "d"], found.get_all, ()),
                ("iterator", 6, lambda: len(list(found.iterator())), ()),
                ("listIterator", 4, lambda: len(list(found.list_iterator(2))), ()),
                ("size", 6, found.size, ()),
                ("get", "x", found.get, (1,)),
                ("set", "x", found.set_at, (1, "z")),
                ("indexOf", 0, found.index_of, ("a",)),
                ("lastIndexOf", 4, found.last_index_of, ("a",)),
                ("sub", ["z", "y"], found.sub_list, (1, 3)),
                ("removeWithIndex", "z", found.remove_at, (1,)),
                ("remove", True, found.remove, ("y",)),
                ("contains", False, found.contains, ("y",)),
                ("containsAll", True, found.contains_all, (["a", "b"],)),
                ("compareAndRemoveAll", True, found.remove_all, (["a"],)),
                ("compareAndRetainAll", True, found.retain_all, (["b"],)),
                ("clear", None, found.clear, ()),
                ("isEmpty", True, lambda: self.client.get_list("l").is_empty().result(), ()),
                ("addListener", True, lambda: bool(registration), ()),
                ("removeListener", True, found.remove_listener, (registration,)),
            ),
        )
        found.destroy()

    def locks(self) -> None:
        self._locks("Map", self.map)

    def _locks(self, kind: str, entries: Any) -> None:
        self.in_order(
            kind,
            (
                ("lock", None, entries.lock, ("k",)),
                ("isLocked", True, entries.is_locked, ("k",)),
                ("tryLock", True, entries.try_lock, ("k",)),
                ("unlock", None, entries.unlock, ("k",)),
                ("isLocked", True, entries.is_locked, ("k",)),
                ("forceUnlock", None, entries.force_unlock, ("k",)),
                ("isLocked", False, entries.is_locked, ("k",)),
            ),
        )

    def multimaps(self) -> None:
        found = self.client.get_multi_map("mm").blocking()
        registrations = [found.add_entry_listener(), found.add_entry_listener(key="k")]
        self.in_order(
            "MultiMap",
            (
                ("put", True, found.put, ("k", "a")),
                ("put", False, found.put, ("k", "a")),
                ("putAll", None, found.put_all, ({"k": ["b"], "l": ["a"]},)),
                ("get", ["a", "b"], found.get, ("k",)),
                ("valueCount", 2, found.value_count, ("k",)),
                ("size", 3, found.size, ()),
                ("keySet", ["k", "l"], lambda: sorted(found.key_set()), ()),
                ("values", ["a", "a", "b"], lambda: sorted(found.values()), ()),
                ("entrySet", [("k", "a"), ("k", "b"), ("l", "a")], lambda: sorted(found.entry_set()), ()),
                ("containsKey", False, found.contains_key, ("x",)),
                ("containsValue", True, found.contains_value, ("b",)),
                ("containsEntry", False, found.contains_entry, ("l", "b")),
                ("removeEntry", True, found.remove, ("k", "a")),
                ("remove", ["b"], found.remove_all, ("k",)),
                ("clear", None, found.clear, ()),
                ("addEntryListener", True, lambda: bool(registrations[0]), ()),
                ("addEntryListenerToKey", True, lambda: bool(registrations[1]), ()),
                ("removeEntryListener", True, found.remove_entry_listener, (registrations[0],)),
            ),
        )
        self._locks("MultiMap", found)
        found.destroy()

    def atomic_values(self) -> None:
        cp = self.client.cp_subsystem
        number, value = cp.get_atomic_long("n").blocking(), cp.get_atomic_reference("r").blocking()
        self.judge("CPGroup.createCPGroup", True, lambda: cp.get_atomic_long("n@g") is not None)
        for kind, steps in {
            "AtomicLong": [
                ("addAndGet", 5, number.add_and_get, (5,)),
                ("getAndAdd", 5, number.get_and_add, (1,)),
                ("compareAndSet", True, number.compare_and_set, (6, 7)),
                ("getAndSet", 7, number.get_and_set, (8,)),
                ("get", 8, number.get, ()),
            ],
            "AtomicRef": [
                ("set", None, value.set, ("a",)),
                ("compareAndSet", True, value.compare_and_set, ("a", "b")),
                ("contains", True, value.contains, ("b",)),
                ("get", "b", value.get, ()),
            ],
        }.items():
            self.in_order(kind, steps)
        self.judge("CPGroup.destroyCPObject", None, number.destroy)
        value.destroy()

    def synchronizers(self) -> None:
        cp = self.client.cp_subsystem
        lock, latch = cp.get_lock("l").blocking(), cp.get_count_down_latch("c").blocking()
        permits = cp.get_semaphore("s").blocking()
        session = "CPSession.createSession", "CPSession.generateThreadId"
        for call in (*session, "FencedLock.lock"):
            self.judge(call, True, lambda: lock.lock() > 0)
        self.in_order(
            "FencedLock",
            [
                ("tryLock", True, lambda: lock.try_lock() > 0, ()),
                ("unlock", None, lock.unlock, ()),
                ("getLockOwnership", True, lock.is_locked, ()),
            ],
        )
        self.in_order(
            "CountDownLatch",
            [
                ("trySetCount", True, latch.try_set_count, (1,)),
                ("getCount", 1, latch.get_count, ()),
                ("getRound", None, latch.count_down, ()),
                ("countDown", None, latch.count_down, ()),
                ("await", True, latch.await_latch, (1,)),
            ],
        )
        self.in_order(
            "Semaphore",
            [
                ("getSemaphoreType", True, permits.init, (3,)),
                ("init", False, permits.init, (3,)),
                ("acquire", None, permits.acquire, (1,)),
                ("release", None, permits.release, (1,)),
                ("change", None, permits.increase_permits, (1,)),
                ("drain", 4, permits.drain_permits, ()),
                ("availablePermits", 0, permits.available_permits, ()),
            ],
        )
        for each in (lock, latch, permits):
            each.destroy()

    def processors(self) -> None:
        entries, judge = self.map, self.judge
        entries.clear()
        judge("Map.executeOnKey", "one", entries.execute_on_key, "k", PutText("one"))
        judge("Map.executeOnKeys", [("k", "two")], entries.execute_on_keys, ["k"], PutText("two"))
        judge("Map.executeOnAllKeys", [("k", "three")], entries.execute_on_entries, PutText("three"))
        judge(
            "Map.executeWithPredicate", [("k", "four")], entries.execute_on_entries, PutText("four"), true()
        )
        entries.clear()

    def refused(self) -> None:
        """What Holdfast has not got: the user sees why."""
        entries = self.map
        for name, call in {
            "Map.addIndex": lambda: entries.add_index(["a"]),
            "Map.addInterceptor": lambda: entries.add_interceptor("code"),
            "Map.removeInterceptor": lambda: entries.remove_interceptor("id"),
            "Map.executeWithPredicate, other predicates": lambda: entries.execute_on_entries(
                PutText("new"), sql("this > 1")
            ),
            "Map.aggregate": lambda: entries.aggregate(count()),
            "Map.aggregateWithPredicate": lambda: entries.aggregate(count(), true()),
            "Map.project": lambda: entries.project(single_attribute("a")),
            "Map.projectWithPredicate": lambda: entries.project(single_attribute("a"), true()),
            "Map.keySetWithPredicate, other predicates": lambda: entries.key_set(sql("this > 1")),
            "Map.addEntryListenerWithPredicate, other predicates": lambda: entries.add_entry_listener(
                added_func=print, predicate=sql("this > 1")
            ),
            "Map.keySetWithPagingPredicate": lambda: entries.key_set(paging(true(), 3)),
            "Map.valuesWithPagingPredicate": lambda: entries.values(paging(true(), 3)),
            "Map.entriesWithPagingPredicate": lambda: entries.entry_set(paging(true(), 3)),
        }.items():
            self.judge(name, None, call)

    def ringbuffers(self) -> None:
        ring = self.client.get_ringbuffer("r").blocking()
        self.in_order(
            "Ringbuffer",
            (
                ("add", 0, ring.add, ("a",)),
                ("addAll", 2, ring.add_all, (["b", "c"],)),
                ("size", 3, ring.size, ()),
                ("headSequence", 0, ring.head_sequence, ()),
                ("tailSequence", 2, ring.tail_sequence, ()),
                ("capacity", 10_000, ring.capacity, ()),
                ("remainingCapacity", 10_000, ring.remaining_capacity, ()),
                ("readOne", "b", ring.read_one, (1,)),
                ("readMany", ["b", "c"], lambda: list(ring.read_many(1, 1, 10)), ()),
            ),
        )
        ring.destroy()

    def topics(self) -> None:
        topic, heard = self.client.get_topic("t").blocking(), list[str]()
        registration = topic.add_listener(lambda message: heard.append(message.message))
        self.in_order(
            "Topic",
            (
                ("addMessageListener", True, lambda: bool(registration), ()),
                ("publish", None, topic.publish, ("a",)),
                ("publishAll", None, topic.publish_all, (["b", "c"],)),
                ("publish", ["a", "b", "c"], lambda: until(lambda: len(heard) == 3, 5) and heard, ()),
                ("removeMessageListener", True, topic.remove_listener, (registration,)),
            ),
        )
        topic.destroy()

    def replicated_maps(self) -> None:
        entries = self.client.get_replicated_map("m").blocking()
        registrations = (
            entries.add_entry_listener(added_func=print),
            entries.add_entry_listener("k", added_func=print),
            entries.add_entry_listener(predicate=true(), added_func=print),
            entries.add_entry_listener("k", true(), added_func=print),
        )
        self.in_order(
            "ReplicatedMap",
            (
                ("addEntryListener", True, lambda: bool(registrations[0]), ()),
                ("addEntryListenerToKey", True, lambda: bool(registrations[1]), ()),
                ("addEntryListenerWithPredicate", True, lambda: bool(registrations[2]), ()),
                ("addEntryListenerToKeyWithPredicate", True, lambda: bool(registrations[3]), ()),
                ("put", None, entries.put, ("k", 1)),
                ("put", 1, entries.put, ("k", 2, 60)),
                ("get", 2, entries.get, ("k",)),
                ("putAll", None, entries.put_all, ({"l": 3},)),
                ("size", 2, entries.size, ()),
                ("containsKey", True, entries.contains_key, ("l",)),
                ("containsValue", False, entries.contains_value, (1,)),
                ("keySet", ["k", "l"], lambda: sorted(entries.key_set()), ()),
                ("values", [2, 3], lambda: sorted(entries.values()), ()),
                ("entrySet", [("k", 2), ("l", 3)], lambda: sorted(entries.entry_set()), ()),
                ("remove", 3, entries.remove, ("l",)),
                ("clear", None, entries.clear, ()),
                ("isEmpty", True, entries.is_empty, ()),
                ("removeEntryListener", True, entries.remove_entry_listener, (registrations[0],)),
            ),
        )
        entries.destroy()

    def numbers(self) -> None:
        counter = self.client.get_pn_counter("c").blocking()
        ids = self.client.get_flake_id_generator("i").blocking()
        self.judge("PNCounter.add", 5, counter.add_and_get, 5)
        self.judge("PNCounter.add", 5, counter.get_and_subtract, 2)
        self.judge("PNCounter.get", 3, counter.get)
        self.judge("FlakeIdGenerator.newIdBatch", True, lambda: ids.new_id() < ids.new_id())
        counter.destroy()
        ids.destroy()

    def structures(self) -> None:
        client, cp = self.client, self.client.cp_subsystem
        for name, opened in {
            "ExecutorService": client.get_executor,
            "VectorCollection": client.get_vector_collection,
            "CPMap": getattr(cp, "get_map", None),
            "Sql": lambda _: client.sql.execute("SELECT 1").result(),
        }.items():
            if opened is not None:
                self.judge(name, None, partial(opened, "s"))


def calls(client: HazelcastClient, name: str) -> dict[str, str]:
    """Each call that the client has and members might answer."""
    return Judge(client, name).all()
