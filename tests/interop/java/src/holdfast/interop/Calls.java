package holdfast.interop;

import com.hazelcast.aggregation.Aggregators;
import com.hazelcast.cardinality.CardinalityEstimator;
import com.hazelcast.collection.IQueue;
import com.hazelcast.config.IndexConfig;
import com.hazelcast.config.IndexType;
import com.hazelcast.core.DistributedObjectEvent;
import com.hazelcast.core.DistributedObjectListener;
import com.hazelcast.core.EntryView;
import com.hazelcast.core.HazelcastInstance;
import com.hazelcast.crdt.pncounter.PNCounter;
import com.hazelcast.flakeidgen.FlakeIdGenerator;
import com.hazelcast.map.EntryProcessor;
import com.hazelcast.map.IMap;
import com.hazelcast.map.listener.EntryAddedListener;
import com.hazelcast.map.listener.EntryExpiredListener;
import com.hazelcast.map.listener.EntryRemovedListener;
import com.hazelcast.map.listener.EntryUpdatedListener;
import com.hazelcast.map.listener.MapClearedListener;
import com.hazelcast.map.listener.MapListener;
import com.hazelcast.map.listener.MapPartitionLostListener;
import com.hazelcast.multimap.MultiMap;
import com.hazelcast.partition.MigrationListener;
import com.hazelcast.partition.MigrationState;
import com.hazelcast.partition.ReplicaMigrationEvent;
import com.hazelcast.projection.Projections;
import com.hazelcast.query.Predicate;
import com.hazelcast.query.Predicates;
import com.hazelcast.replicatedmap.ReplicatedMap;
import com.hazelcast.ringbuffer.OverflowPolicy;
import com.hazelcast.ringbuffer.ReadResultSet;
import com.hazelcast.ringbuffer.Ringbuffer;
import com.hazelcast.topic.ITopic;
import com.hazelcast.transaction.TransactionContext;
import com.hazelcast.transaction.TransactionOptions;
import com.hazelcast.transaction.TransactionalMap;
import com.hazelcast.transaction.TransactionalMultiMap;
import com.hazelcast.transaction.TransactionalQueue;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** A judge of calls: by the names of the protocol's messages, whether they work. */
final class Calls {
    private final HazelcastInstance client;
    private final IMap<String, Object> map;
    private final Map<String, String> found = new TreeMap<>();

    Calls(HazelcastInstance client, String name) {
        this.client = client;
        this.map = client.getMap(name);
        found.put("Client.authentication", "works");
        found.put("Client.createProxy", "works");
        found.put("Client.addClusterViewListener", client.getCluster().getMembers().isEmpty() ? "wrong" : "works");
    }

    Map<String, String> judge() throws Exception {
        oneKey();
        conditions();
        wholeMaps();
        timed();
        listeners();
        objects();
        partitions();
        transactions();
        queues();
        ringbuffers();
        topics();
        replicatedMaps();
        numbers();
        locks();
        multimaps();
        refused();
        structures();
        return found;
    }

    /** Whether the call answers this. One that did not once does not, whatever it did before. */
    private void is(String name, Object wanted, Callable<?> call) {
        String outcome = "works";
        try {
            Object answer = call.call();
            if (!Objects.equals(answer, wanted)) {
                outcome = "wrong: " + answer + ", not " + wanted;
            }
        } catch (Exception error) {
            String reason = error + " " + error.getCause(); // Of a listener the second is the reason.
            outcome = reason.contains("supported by Holdfast") ? "refused"
                    : reason.contains("is an Enterprise feature") ? "withheld" : "failed: " + error;
        }
        String told = outcome;
        found.compute(name, (key, before) -> before == null || before.equals("works") ? told : before);
    }

    private interface Action {
        void act() throws Exception;
    }

    private void does(String name, Action call) {
        is(name, null, () -> {
            call.act();
            return null;
        });
    }

    private void oneKey() {
        is("Map.put", null, () -> map.put("k", 1));
        is("Map.put", 1, () -> map.put("k", 2));
        is("Map.get", 2, () -> map.get("k"));
        is("Map.get", null, () -> map.get("none"));
        is("Map.containsKey", true, () -> map.containsKey("k"));
        is("Map.containsKey", false, () -> map.containsKey("none"));
        is("Map.containsValue", true, () -> map.containsValue(2));
        is("Map.isLocked", false, () -> map.isLocked("k"));
        is("Map.remove", 2, () -> map.remove("k"));
        is("Map.remove", null, () -> map.remove("k"));
        for (Object value : Arrays.asList("text", 1.5, true, 7L, (short) 3, UUID.randomUUID(), List.of("a", "b"))) {
            does("Map.set", () -> map.set("k", value));
            is("Map.get", value, () -> map.get("k"));
        }
        does("Map.putTransient", () -> map.putTransient("k", "t", 60, TimeUnit.SECONDS));
        is("Map.get", "t", () -> map.get("k"));
        does("Map.delete", () -> map.delete("k"));
        is("Map.get", null, () -> map.get("k"));
        does("Map.set", () -> map.set("k", 1));
        is("Map.evict", true, () -> map.evict("k"));
        is("Map.evict", false, () -> map.evict("k"));
    }

    private void conditions() {
        is("Map.replace", null, () -> map.replace("c", 1));
        is("Map.putIfAbsent", null, () -> map.putIfAbsent("c", 1));
        is("Map.putIfAbsent", 1, () -> map.putIfAbsent("c", 2));
        is("Map.replace", 1, () -> map.replace("c", 3));
        is("Map.replaceIfSame", false, () -> map.replace("c", 1, 4));
        is("Map.replaceIfSame", true, () -> map.replace("c", 3, 4));
        is("Map.removeIfSame", false, () -> map.remove("c", 3));
        is("Map.removeIfSame", true, () -> map.remove("c", 4));
        is("Map.tryPut", true, () -> map.tryPut("c", 5, 0, TimeUnit.SECONDS));
        is("Map.tryRemove", true, () -> map.tryRemove("c", 0, TimeUnit.SECONDS));
        is("Map.tryRemove", false, () -> map.tryRemove("c", 0, TimeUnit.SECONDS));
    }

    private void wholeMaps() {
        is("Map.isEmpty", true, map::isEmpty);
        Map<String, Object> all = new TreeMap<>();
        for (int number = 0; number < 300; number++) {
            all.put("key " + number, "value " + number);
        }
        Set<Object> values = new HashSet<>(all.values());
        Predicate<String, Object> always = Predicates.alwaysTrue();
        does("Map.putAll", () -> map.putAll(all));
        is("Map.size", 300, map::size);
        is("Map.getAll", Map.of("key 1", "value 1", "key 2", "value 2"), () -> map.getAll(Set.of("key 1", "key 2", "none")));
        is("Map.keySet", all.keySet(), map::keySet);
        is("Map.values", values, () -> new HashSet<>(map.values()));
        is("Map.entrySet", all.entrySet(), map::entrySet);
        is("Map.keySetWithPredicate", all.keySet(), () -> map.keySet(always));
        is("Map.valuesWithPredicate", values, () -> new HashSet<>(map.values(always)));
        is("Map.entriesWithPredicate", all.entrySet(), () -> map.entrySet(always));
        is("Map.fetchEntries", all, () -> {
            Map<String, Object> walked = new TreeMap<>();
            map.iterator().forEachRemaining(entry -> walked.put(entry.getKey(), entry.getValue()));
            return walked;
        });
        does("Map.flush", map::flush);
        does("Map.loadAll", () -> map.loadAll(true));
        does("Map.loadGivenKeys", () -> map.loadAll(Set.of("key 1"), true));
        does("Map.removeAll", () -> map.removeAll(always));
        is("Map.size", 0, map::size);
        does("Map.putAll", () -> map.putAll(all));
        does("Map.evictAll", map::evictAll);
        is("Map.size", 0, map::size);
        does("Map.putAll", () -> map.putAll(all));
        does("Map.clear", map::clear);
        is("Map.isEmpty", true, map::isEmpty);
    }

    private void timed() throws InterruptedException {
        TimeUnit ms = TimeUnit.MILLISECONDS;
        is("Map.put", null, () -> map.put("t1", 1, 300, ms));
        does("Map.set", () -> map.set("t2", 1, 300, ms));
        is("Map.putIfAbsent", null, () -> map.putIfAbsent("t3", 1, 300, ms));
        is("Map.putWithMaxIdle", null, () -> map.put("t4", 1, 60_000, ms, 300, ms));
        does("Map.setWithMaxIdle", () -> map.set("t5", 1, 60_000, ms, 300, ms));
        is("Map.putIfAbsentWithMaxIdle", null, () -> map.putIfAbsent("t6", 1, 60_000, ms, 300, ms));
        does("Map.putTransientWithMaxIdle", () -> map.putTransient("t7", 1, 60_000, ms, 300, ms));
        is("Map.put", null, () -> map.put("stays", 1, 60, TimeUnit.SECONDS, 30, TimeUnit.SECONDS));
        is("Map.getEntryView", List.of("stays", 1, 60_000L, 30_000L, -1L), () -> {
            EntryView<String, Object> view = map.getEntryView("stays");
            return List.of(view.getKey(), view.getValue(), view.getTtl(), view.getMaxIdle(), view.getHits());
        });
        is("Map.setTtl", true, () -> map.setTtl("stays", 90, TimeUnit.SECONDS));
        is("Map.setTtl", false, () -> map.setTtl("none", 90, TimeUnit.SECONDS));
        Scenarios.until(() -> map.size() == 1);
        is("Map.size", 1, map::size);
        map.clear();
    }

    private void listeners() throws Exception {
        List<String> heard = new CopyOnWriteArrayList<>();
        List<MapListener> ears = List.of(
                (EntryAddedListener<String, Object>) event -> heard.add("added " + event.getKey()),
                (EntryUpdatedListener<String, Object>) event -> heard.add("updated " + event.getOldValue()),
                (EntryRemovedListener<String, Object>) event -> heard.add("removed " + event.getOldValue()),
                (EntryExpiredListener<String, Object>) event -> heard.add("expired " + event.getKey()),
                (MapClearedListener) event -> heard.add("cleared"));
        Predicate<String, Object> always = Predicates.alwaysTrue();
        Set<String> ofA = new TreeSet<>(List.of("added a", "updated 1", "removed 2", "cleared"));
        Set<String> all = new TreeSet<>(ofA);
        all.add("added b");
        hears("Map.addEntryListener", all, heard, ears, ear -> map.addEntryListener(ear, true));
        hears("Map.addEntryListenerToKey", ofA, heard, ears, ear -> map.addEntryListener(ear, "a", true));
        hears("Map.addEntryListenerWithPredicate", all, heard, ears, ear -> map.addEntryListener(ear, always, true));
        hears("Map.addEntryListenerToKeyWithPredicate", ofA, heard, ears,
                ear -> map.addEntryListener(ear, always, "a", true));
        write();
        is("Map.removeEntryListener", 0, heard::size);
    }

    private interface Registering {
        UUID register(MapListener ear);
    }

    private void hears(String name, Set<String> wanted, List<String> heard, List<MapListener> ears, Registering how)
            throws InterruptedException {
        List<UUID> registrations = new CopyOnWriteArrayList<>();
        does(name, () -> ears.forEach(ear -> registrations.add(how.register(ear))));
        write();
        Scenarios.until(() -> new TreeSet<>(heard).equals(wanted));
        is(name, wanted, () -> new TreeSet<>(heard));
        is(name, wanted.size(), heard::size);
        registrations.forEach(one -> is("Map.removeEntryListener", true, () -> map.removeEntryListener(one)));
        heard.clear();
    }

    private void write() {
        map.set("a", 1);
        map.set("a", 2);
        map.set("b", 3);
        map.remove("a");
        map.clear();
    }

    private void objects() throws Exception {
        String name = map.getName() + " of its own";
        AtomicInteger events = new AtomicInteger();
        UUID registration = client.addDistributedObjectListener(new DistributedObjectListener() {
            @Override
            public void distributedObjectCreated(DistributedObjectEvent event) {
                events.addAndGet(event.getObjectName().equals(name) ? 1 : 0);
            }

            @Override
            public void distributedObjectDestroyed(DistributedObjectEvent event) {
                events.addAndGet(event.getObjectName().equals(name) ? 100 : 0);
            }
        });
        IMap<String, Object> own = client.getMap(name);
        is("Client.getDistributedObjects", true,
                () -> client.getDistributedObjects().stream().anyMatch(one -> one.getName().equals(name)));
        does("Client.destroyProxy", own::destroy);
        Scenarios.until(() -> events.get() == 101);
        is("Client.addDistributedObjectListener", 101, events::get);
        is("Client.removeDistributedObjectListener", true, () -> client.removeDistributedObjectListener(registration));
    }

    private void partitions() {
        MigrationListener nothing = new MigrationListener() {
            @Override
            public void migrationStarted(MigrationState state) {
            }

            @Override
            public void migrationFinished(MigrationState state) {
            }

            @Override
            public void replicaMigrationCompleted(ReplicaMigrationEvent event) {
            }

            @Override
            public void replicaMigrationFailed(ReplicaMigrationEvent event) {
            }
        };
        UUID[] registrations = new UUID[3];
        does("Client.addMigrationListener",
                () -> registrations[0] = client.getPartitionService().addMigrationListener(nothing));
        is("Client.removeMigrationListener", true,
                () -> client.getPartitionService().removeMigrationListener(registrations[0]));
        does("Client.addPartitionLostListener",
                () -> registrations[1] = client.getPartitionService().addPartitionLostListener(event -> { }));
        is("Client.removePartitionLostListener", true,
                () -> client.getPartitionService().removePartitionLostListener(registrations[1]));
        does("Map.addPartitionLostListener",
                () -> registrations[2] = map.addPartitionLostListener((MapPartitionLostListener) event -> { }));
        is("Map.removePartitionLostListener", true, () -> map.removePartitionLostListener(registrations[2]));
    }

    private void transactions() {
        TransactionContext context = client.newTransactionContext(new TransactionOptions());
        does("Transaction.create", context::beginTransaction);
        TransactionalMap<String, Object> inside = context.getMap(map.getName());
        String kind = "TransactionalMap.";
        is(kind + "put", null, () -> inside.put("k", 1));
        is(kind + "get", 1, () -> inside.get("k"));
        is(kind + "getForUpdate", 1, () -> inside.getForUpdate("k"));
        is(kind + "containsKey", true, () -> inside.containsKey("k"));
        is(kind + "size", 1, inside::size);
        is(kind + "isEmpty", false, inside::isEmpty);
        does(kind + "set", () -> inside.set("s", 1));
        is(kind + "putIfAbsent", 1, () -> inside.putIfAbsent("s", 2));
        is(kind + "replace", 1, () -> inside.replace("s", 2));
        is(kind + "replaceIfSame", true, () -> inside.replace("s", 2, 3));
        is(kind + "removeIfSame", false, () -> inside.remove("s", 2));
        is(kind + "remove", 3, () -> inside.remove("s"));
        does(kind + "set", () -> inside.set("d", 1));
        does(kind + "delete", () -> inside.delete("d"));
        is(kind + "keySet", Set.of("k"), inside::keySet);
        is(kind + "keySetWithPredicate", Set.of("k"), () -> inside.keySet(Predicates.alwaysTrue()));
        is(kind + "values", List.of(1), () -> List.copyOf(inside.values()));
        is(kind + "valuesWithPredicate", List.of(1), () -> List.copyOf(inside.values(Predicates.alwaysTrue())));
        does("Transaction.commit", context::commitTransaction);
        is("Transaction.commit", 1, () -> map.get("k"));
        TransactionContext undone = client.newTransactionContext(new TransactionOptions());
        undone.beginTransaction();
        undone.getMap(map.getName()).put("k", 2);
        does("Transaction.rollback", undone::rollbackTransaction);
        is("Transaction.rollback", 1, () -> map.get("k"));
        TransactionContext other = client.newTransactionContext(new TransactionOptions());
        other.beginTransaction();
        TransactionalQueue<String> queue = other.getQueue("in");
        is("TransactionalQueue.offer", true, () -> queue.offer("a", 1, TimeUnit.SECONDS));
        is("TransactionalQueue.offer", true, () -> queue.offer("b"));
        is("TransactionalQueue.size", 2, queue::size);
        is("TransactionalQueue.peek", "a", queue::peek);
        is("TransactionalQueue.poll", "a", queue::poll);
        is("TransactionalQueue.take", "b", queue::take);
        is("TransactionalSet.add", true, () -> other.getSet("in").add("a"));
        is("TransactionalSet.size", 1, () -> other.getSet("in").size());
        is("TransactionalSet.remove", true, () -> other.getSet("in").remove("a"));
        is("TransactionalList.add", true, () -> other.getList("in").add("a"));
        is("TransactionalList.size", 1, () -> other.getList("in").size());
        is("TransactionalList.remove", false, () -> other.getList("in").remove("b"));
        TransactionalMultiMap<String, Integer> several = other.getMultiMap("in");
        is("TransactionalMultiMap.put", true, () -> several.put("k", 1));
        is("TransactionalMultiMap.put", true, () -> several.put("k", 2));
        is("TransactionalMultiMap.get", List.of(1, 2), () -> List.copyOf(several.get("k")));
        is("TransactionalMultiMap.valueCount", 2, () -> several.valueCount("k"));
        is("TransactionalMultiMap.size", 2, several::size);
        is("TransactionalMultiMap.removeEntry", true, () -> several.remove("k", 1));
        is("TransactionalMultiMap.remove", List.of(2), () -> List.copyOf(several.remove("k")));
        other.rollbackTransaction();
    }

    private void queues() {
        IQueue<Object> queue = client.getQueue(map.getName());
        is("Queue.offer", true, () -> queue.offer("a"));
        is("Queue.addAll", true, () -> queue.addAll(List.of("b", "c", "d")));
        List<Object> some = new ArrayList<>();
        is("Queue.drainToMaxSize", 1, () -> queue.drainTo(some, 1));
        is("Queue.drainTo", 3, () -> queue.drainTo(some));
        is("Queue.drainTo", 0, () -> queue.drainTo(some));
        is("Queue.drainTo", List.of("a", "b", "c", "d"), () -> some);
    }

    private void ringbuffers() throws Exception {
        Ringbuffer<Object> ring = client.getRingbuffer(map.getName());
        is("Ringbuffer.add", 0L, () -> ring.add("a"));
        is("Ringbuffer.addAll", 2L, () -> ring.addAllAsync(List.of("b", "c"), OverflowPolicy.FAIL)
                .toCompletableFuture().get());
        is("Ringbuffer.size", 3L, ring::size);
        is("Ringbuffer.headSequence", 0L, ring::headSequence);
        is("Ringbuffer.tailSequence", 2L, ring::tailSequence);
        is("Ringbuffer.capacity", 10_000L, ring::capacity);
        is("Ringbuffer.remainingCapacity", 10_000L, ring::remainingCapacity);
        is("Ringbuffer.readOne", "b", () -> ring.readOne(1));
        is("Ringbuffer.readMany", List.of("b", "c"), () -> {
            ReadResultSet<Object> found = ring.readManyAsync(1, 1, 10, null).toCompletableFuture().get();
            return List.of(found.get(0), found.get(1));
        });
    }

    private void topics() {
        ITopic<Object> topic = client.getTopic(map.getName());
        ITopic<Object> reliable = client.getReliableTopic(map.getName());
        LinkedBlockingQueue<Object> heard = new LinkedBlockingQueue<>();
        for (ITopic<Object> each : List.of(topic, reliable)) {
            UUID[] registration = {null};
            is("Topic.addMessageListener", true, () -> {
                registration[0] = each.addMessageListener(message -> heard.add(message.getMessageObject()));
                return registration[0] != null;
            });
            is("Topic.publish", "a", () -> {
                each.publish("a");
                return heard.poll(10, TimeUnit.SECONDS);
            });
            is("Topic.publishAll", List.of("b", "c"), () -> {
                each.publishAll(List.of("b", "c"));
                return List.of(heard.poll(10, TimeUnit.SECONDS), heard.poll(10, TimeUnit.SECONDS));
            });
            is("Topic.removeMessageListener", true, () -> each.removeMessageListener(registration[0]));
        }
    }

    private void replicatedMaps() {
        ReplicatedMap<String, Object> entries = client.getReplicatedMap(map.getName());
        is("ReplicatedMap.put", null, () -> entries.put("k", 1));
        is("ReplicatedMap.put", 1, () -> entries.put("k", 2, 1, TimeUnit.HOURS));
        is("ReplicatedMap.get", 2, () -> entries.get("k"));
        does("ReplicatedMap.putAll", () -> entries.putAll(Map.of("l", 3)));
        is("ReplicatedMap.size", 2, entries::size);
        is("ReplicatedMap.containsKey", true, () -> entries.containsKey("l"));
        is("ReplicatedMap.containsValue", false, () -> entries.containsValue(1));
        is("ReplicatedMap.keySet", Set.of("k", "l"), () -> Set.copyOf(entries.keySet()));
        is("ReplicatedMap.values", Set.of(2, 3), () -> Set.copyOf(entries.values()));
        is("ReplicatedMap.entrySet", 2, () -> entries.entrySet().size());
        is("ReplicatedMap.remove", 3, () -> entries.remove("l"));
        does("ReplicatedMap.clear", entries::clear);
        is("ReplicatedMap.isEmpty", true, entries::isEmpty);
    }

    private void numbers() {
        PNCounter counter = client.getPNCounter(map.getName());
        is("PNCounter.add", 5L, () -> counter.addAndGet(5));
        is("PNCounter.add", 5L, () -> counter.getAndSubtract(2));
        is("PNCounter.get", 3L, counter::get);
        FlakeIdGenerator ids = client.getFlakeIdGenerator(map.getName());
        is("FlakeIdGenerator.newIdBatch", true, () -> ids.newId() < ids.newId());
        CardinalityEstimator different = client.getCardinalityEstimator(map.getName());
        for (String each : List.of("a", "b", "c", "a")) {
            does("CardinalityEstimator.add", () -> different.add(each));
        }
        is("CardinalityEstimator.estimate", 3L, different::estimate);
    }

    private void locks() {
        does("Map.lock", () -> map.lock("by a client"));
        is("Map.isLocked", true, () -> map.isLocked("by a client"));
        is("Map.tryLock", true, () -> map.tryLock("by a client"));
        does("Map.unlock", () -> map.unlock("by a client"));
        is("Map.put", null, () -> map.put("by a client", "by its owner"));
        is("Map.isLocked", true, () -> map.isLocked("by a client"));
        does("Map.forceUnlock", () -> map.forceUnlock("by a client"));
        is("Map.isLocked", false, () -> map.isLocked("by a client"));
        is("Map.remove", "by its owner", () -> map.remove("by a client"));
    }

    private void multimaps() {
        MultiMap<String, String> some = client.getMultiMap("mm");
        is("MultiMap.put", true, () -> some.put("k", "a"));
        is("MultiMap.put", false, () -> some.put("k", "a"));
        does("MultiMap.putAll", () -> some.putAllAsync(Map.of("k", List.of("b"), "l", List.of("a")))
                .toCompletableFuture().join());
        is("MultiMap.get", Set.of("a", "b"), () -> Set.copyOf(some.get("k")));
        is("MultiMap.valueCount", 2, () -> some.valueCount("k"));
        is("MultiMap.size", 3, some::size);
        is("MultiMap.keySet", Set.of("k", "l"), () -> Set.copyOf(some.keySet()));
        is("MultiMap.values", 3, () -> some.values().size());
        is("MultiMap.entrySet", 3, () -> some.entrySet().size());
        is("MultiMap.containsKey", false, () -> some.containsKey("x"));
        is("MultiMap.containsValue", true, () -> some.containsValue("b"));
        is("MultiMap.containsEntry", false, () -> some.containsEntry("l", "b"));
        is("MultiMap.removeEntry", true, () -> some.remove("k", "a"));
        is("MultiMap.remove", 1, () -> some.remove("k").size());
        does("MultiMap.delete", () -> some.delete("l"));
        is("MultiMap.size", 0, some::size);
        does("MultiMap.clear", some::clear);
        does("MultiMap.lock", () -> some.lock("k"));
        is("MultiMap.isLocked", true, () -> some.isLocked("k"));
        is("MultiMap.tryLock", true, () -> some.tryLock("k"));
        does("MultiMap.unlock", () -> some.unlock("k"));
        does("MultiMap.forceUnlock", () -> some.forceUnlock("k"));
        is("MultiMap.isLocked", false, () -> some.isLocked("k"));
    }

    /** What Holdfast has not got: the user sees why. */
    private void refused() {
        EntryProcessor<String, Object, Object> processor = new Processor();
        Predicate<String, Object> always = Predicates.alwaysTrue();
        does("Map.addIndex", () -> map.addIndex(new IndexConfig(IndexType.HASH, "a")));
        does("Map.executeOnKey, other objects", () -> map.executeOnKey("k", processor));
        does("Map.submitToKey, other objects", () -> map.submitToKey("k", processor).toCompletableFuture().join());
        does("Map.executeOnKeys, other objects", () -> map.executeOnKeys(Set.of("k"), processor));
        does("Map.executeOnAllKeys, other objects", () -> map.executeOnEntries(processor));
        does("Map.executeWithPredicate, other objects", () -> map.executeOnEntries(processor, always));
        does("Map.aggregate", () -> map.aggregate(Aggregators.count()));
        does("Map.aggregateWithPredicate", () -> map.aggregate(Aggregators.count(), always));
        does("Map.project", () -> map.project(Projections.singleAttribute("a")));
        does("Map.projectWithPredicate", () -> map.project(Projections.singleAttribute("a"), always));
        Predicate<String, Object> other = Predicates.sql("this > 1");
        does("Map.keySetWithPredicate, other predicates", () -> map.keySet(other));
        does("Map.addEntryListenerWithPredicate, other predicates",
                () -> map.addEntryListener((EntryAddedListener<String, Object>) event -> { }, other, true));
        does("Map.keySetWithPagingPredicate", () -> map.keySet(Predicates.pagingPredicate(3)));
        does("Map.valuesWithPagingPredicate", () -> map.values(Predicates.pagingPredicate(3)));
        does("Map.entriesWithPagingPredicate", () -> map.entrySet(Predicates.pagingPredicate(3)));
    }

    private void structures() {
        String name = "s";
        does("ExecutorService", () -> client.getExecutorService(name).isShutdown());
        does("DurableExecutor", () -> client.getDurableExecutorService(name).isShutdown());
        does("ScheduledExecutor", () -> client.getScheduledExecutorService(name).getAllScheduledFutures());
        does("AtomicLong", () -> client.getCPSubsystem().getAtomicLong(name).get());
        does("AtomicRef", () -> client.getCPSubsystem().getAtomicReference(name).get());
        does("CountDownLatch", () -> client.getCPSubsystem().getCountDownLatch(name).getCount());
        does("FencedLock", () -> client.getCPSubsystem().getLock(name).lock());
        does("Semaphore", () -> client.getCPSubsystem().getSemaphore(name).availablePermits());
        does("Sql", () -> client.getSql().execute("SELECT 1").close());
        does("DynamicConfig", () -> client.getConfig().addMapConfig(new com.hazelcast.config.MapConfig(name)));
    }

    /** An entry processor; members have no Java to run it with. */
    private static final class Processor implements EntryProcessor<String, Object, Object> {
        private static final long serialVersionUID = 1L;

        @Override
        public Object process(Map.Entry<String, Object> entry) {
            return entry.getValue();
        }
    }
}
