package holdfast.interop;

import com.hazelcast.config.IndexConfig;
import com.hazelcast.config.IndexType;
import com.hazelcast.core.DistributedObjectEvent;
import com.hazelcast.core.DistributedObjectListener;
import com.hazelcast.core.EntryEvent;
import com.hazelcast.core.EntryListener;
import com.hazelcast.core.EntryView;
import com.hazelcast.core.HazelcastInstance;
import com.hazelcast.core.LifecycleEvent.LifecycleState;
import com.hazelcast.map.IMap;
import com.hazelcast.map.MapEvent;
import com.hazelcast.map.listener.EntryAddedListener;
import com.hazelcast.map.listener.MapClearedListener;
import com.hazelcast.projection.Projections;
import com.hazelcast.query.Predicates;
import com.hazelcast.transaction.TransactionContext;
import com.hazelcast.transaction.TransactionOptions;
import com.hazelcast.transaction.TransactionOptions.TransactionType;
import com.hazelcast.transaction.TransactionalMap;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;

/**
 * {@code Scenarios NAMES OPTIONS}: one scenario after the other (their names with commas between them), with one client.
 *
 * <p>What was seen goes to standard output as one JSON object, by name of scenario; a line "now" says that the scenario waits
 * for a line on standard input. A client that cannot connect is told as {@code {"refused": ...}}. Options are those of {@link
 * Options#connect} and {@code --map}.
 */
public final class Scenarios {
    private final HazelcastInstance client;
    private final Options options;
    private final BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));

    private Scenarios(HazelcastInstance client, Options options) {
        this.client = client;
        this.options = options;
    }

    public static void main(String[] arguments) {
        try {
            System.out.println(Json.of(play(arguments)));
            System.exit(0);
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1); // The client's own threads would keep the process.
        }
    }

    private static Map<String, Object> play(String[] arguments) throws Exception {
        Options options = new Options(arguments, 1);
        HazelcastInstance client;
        try {
            client = options.connect(options.flag("near", false));
        } catch (IllegalStateException refused) {
            return Map.of("refused", refused.getMessage());
        }
        Scenarios scenarios = new Scenarios(client, options);
        Map<String, Object> seen = new LinkedHashMap<>();
        for (String name : arguments[0].split(",")) {
            seen.put(name, scenarios.play(name, options.text("map", "scenarios") + "-" + name));
        }
        client.shutdown();
        return seen;
    }

    private Object play(String scenario, String map) throws Exception {
        switch (scenario) {
            case "table":
                return new Calls(client, map).judge();
            case "calls":
                return calls(client.getMap(map));
            case "timed":
                return timed(client.getMap(map));
            case "whole":
                return whole(client.getMap(map));
            case "listeners":
                return listeners(client.getMap(map));
            case "walked":
                return walked(client.getMap(map));
            case "destroyed":
                return destroyed(map);
            case "unsupported":
                return unsupported(client.getMap(map));
            case "loss":
                return loss(client.getMap(map));
            case "near":
                return near(client.getMap(map));
            case "watched":
                return new Watching(client, in).watch(client.getMap(map));
            case "failover":
                return failover(client.getMap(map));
            case "transactions":
                return transactions(client.getMap(map), client.getMap(map + "-other"));
            default:
                throw new IllegalArgumentException("no scenario is called " + scenario);
        }
    }

    /** Calls on one key. */
    private static Object calls(IMap<String, Object> map) throws Exception {
        Map<String, Object> seen = new TreeMap<>();
        seen.put("put", Arrays.asList(map.put("k", 1), map.put("k", 2)));
        seen.put("get", Arrays.asList(map.get("k"), map.get("none")));
        seen.put("contains", List.of(map.containsKey("k"), map.containsKey("none"), map.containsValue(2)));
        seen.put("remove", Arrays.asList(map.remove("k"), map.remove("k")));
        map.set("k", "an object");
        seen.put("object", map.get("k"));
        map.delete("k");
        seen.put("delete", map.get("k"));
        seen.put("conditions", Arrays.asList(
                map.replace("c", 1), map.putIfAbsent("c", 1), map.putIfAbsent("c", 2), map.replace("c", 3),
                map.replace("c", 1, 4), map.replace("c", 3, 4), map.remove("c", 5), map.remove("c", 4),
                map.tryPut("c", 5, 0, TimeUnit.SECONDS), map.tryRemove("c", 0, TimeUnit.SECONDS),
                map.tryRemove("c", 0, TimeUnit.SECONDS)));
        map.set("e", 1);
        seen.put("evict", List.of(map.evict("e"), map.evict("e")));
        seen.put("async", Arrays.asList(
                map.setAsync("a", 1).toCompletableFuture().get(), map.putAsync("a", 2).toCompletableFuture().get(),
                map.getAsync("a").toCompletableFuture().get(), map.removeAsync("a").toCompletableFuture().get()));
        int two = 2; // Taken along, these functions are carried out here, with get, replace and putIfAbsent.
        seen.put("computed", Arrays.asList(
                map.computeIfAbsent("f", key -> two), map.computeIfPresent("f", (key, old) -> (int) old + two),
                map.compute("f", (key, old) -> (int) old * two), map.merge("f", 1, (old, one) -> (int) old + two),
                map.compute("f", (key, old) -> two > 0 ? null : old), map.get("f")));
        seen.put("empty", List.of(map.isEmpty(), map.size()));
        return seen;
    }

    /** Entries that end. */
    private static Object timed(IMap<String, Object> map) throws Exception {
        Map<String, Object> seen = new TreeMap<>();
        map.put("short", 1, 300, TimeUnit.MILLISECONDS);
        map.set("idle", 1, 60, TimeUnit.SECONDS, 300, TimeUnit.MILLISECONDS);
        map.putIfAbsent("absent", 1, 300, TimeUnit.MILLISECONDS);
        map.put("kept", 1, 60, TimeUnit.SECONDS, 30, TimeUnit.SECONDS);
        EntryView<String, Object> view = map.getEntryView("kept");
        seen.put("view", List.of(view.getKey(), view.getValue(), view.getTtl(), view.getMaxIdle()));
        seen.put("no view", map.getEntryView("none"));
        seen.put("setTtl", List.of(map.setTtl("kept", 90, TimeUnit.SECONDS), map.getEntryView("kept").getTtl()));
        Thread.sleep(700);
        seen.put("ended", Arrays.asList(map.get("short"), map.get("idle"), map.get("absent"), map.get("kept")));
        map.destroy();
        return seen;
    }

    /** Calls on many keys. */
    private Object whole(IMap<Integer, String> map) {
        Map<String, Object> seen = new TreeMap<>();
        Map<Integer, String> entries = new TreeMap<>();
        for (int key = 0; key < 300; key++) {
            entries.put(key, "v" + key);
        }
        map.putAll(entries);
        map.setAll(Map.of(300, "v300"));
        seen.put("sizes", List.of(map.size(), map.getAll(Set.of(1, 2, 3, 999)).size(), map.keySet().size(), map.values().size(),
                map.entrySet().size(), map.keySet(Predicates.alwaysTrue()).size()));
        seen.put("all", new TreeMap<>(map.getAll(Set.of(1, 2))));
        Map<Integer, String> found = new TreeMap<>();
        map.forEach(found::put);
        seen.put("each", found.size());
        map.clear();
        seen.put("cleared", map.size());
        Set<String> objects = new TreeSet<>();
        client.getDistributedObjects().forEach(object -> objects.add(object.getName()));
        seen.put("objects", objects.contains(map.getName()));
        map.destroy();
        return seen;
    }

    /** What a listener hears. */
    private static Object listeners(IMap<String, Object> map) throws Exception {
        List<Object> heard = new CopyOnWriteArrayList<>();
        EntryListener<String, Object> ears = new EntryListener<>() {
            private void hear(EntryEvent<String, Object> event) {
                heard.add(Arrays.asList(event.getEventType(), event.getKey(), event.getValue(), event.getOldValue()));
            }

            @Override
            public void entryAdded(EntryEvent<String, Object> event) {
                hear(event);
            }

            @Override
            public void entryUpdated(EntryEvent<String, Object> event) {
                hear(event);
            }

            @Override
            public void entryRemoved(EntryEvent<String, Object> event) {
                hear(event);
            }

            @Override
            public void entryEvicted(EntryEvent<String, Object> event) {
                hear(event);
            }

            @Override
            public void entryExpired(EntryEvent<String, Object> event) {
                hear(event);
            }

            @Override
            public void mapCleared(MapEvent event) {
                heard.add(List.of("CLEARED", event.getNumberOfEntriesAffected()));
            }

            @Override
            public void mapEvicted(MapEvent event) {
                heard.add(List.of("EVICTED_ALL", event.getNumberOfEntriesAffected()));
            }
        };
        UUID all = map.addEntryListener(ears, true);
        map.put("a", 1);
        map.put("a", 2);
        map.remove("a");
        map.put("b", 3, 300, TimeUnit.MILLISECONDS);
        until(() -> heard.size() == 5);
        map.putAll(Map.of("c", 1, "d", 2));
        map.clear();
        until(() -> heard.size() == 8);
        boolean removed = map.removeEntryListener(all);
        UUID one = map.addEntryListener(ears, "e", false);
        map.put("f", 1);
        map.put("e", 1);
        until(() -> heard.size() == 9);
        map.removeEntryListener(one);
        map.destroy();
        Map<String, Object> seen = new TreeMap<>();
        seen.put("heard", heard);
        seen.put("removed", removed);
        return seen;
    }

    /** A walk with the map's own iterator, which asks for one page of a partition after the other. */
    private static Object walked(IMap<Integer, String> map) {
        Map<Integer, String> entries = new TreeMap<>();
        for (int key = 0; key < 2_000; key++) {
            entries.put(key, "v" + key);
        }
        Map<String, Object> seen = new TreeMap<>();
        seen.put("empty", map.iterator().hasNext());
        map.putAll(entries);
        map.loadAll(Set.of(1, 2), true);
        map.loadAll(true);
        List<Integer> found = new ArrayList<>();
        boolean right = true;
        for (Map.Entry<Integer, String> entry : map) {
            found.add(entry.getKey());
            right = right && entry.getValue().equals(entries.get(entry.getKey()));
        }
        seen.put("found", List.of(found.size(), new TreeSet<>(found).equals(entries.keySet()), right));
        Iterator<Map.Entry<Integer, String>> removing = map.iterator();
        for (int count = 0; count < 10; count++) {
            removing.next();
            removing.remove();
        }
        seen.put("left", map.size());
        map.destroy();
        return seen;
    }

    /** Listeners end with their map; the one that is made anew has none. */
    private Object destroyed(String name) throws Exception {
        IMap<String, Object> map = client.getMap(name);
        List<Object> heard = new CopyOnWriteArrayList<>();
        map.addEntryListener((EntryAddedListener<String, Object>) event -> heard.add(event.getKey()), false);
        map.addEntryListener((MapClearedListener) event -> heard.add("cleared"), false);
        List<Object> objects = new CopyOnWriteArrayList<>();
        UUID registration = client.addDistributedObjectListener(new DistributedObjectListener() {
            @Override
            public void distributedObjectCreated(DistributedObjectEvent event) {
                objects.add(event.getEventType() + " " + event.getObjectName().equals(name));
            }

            @Override
            public void distributedObjectDestroyed(DistributedObjectEvent event) {
                objects.add(event.getEventType() + " " + event.getObjectName().equals(name));
            }
        });
        for (int key = 0; key < 20; key++) {
            map.set("before " + key, key);
        }
        until(() -> heard.size() == 20);
        map.destroy();
        IMap<String, Object> anew = client.getMap(name);
        anew.addEntryListener((EntryAddedListener<String, Object>) event -> heard.add("anew"), false);
        for (int key = 0; key < 20; key++) {
            anew.set("after " + key, key);
        }
        until(() -> heard.size() == 40);
        Map<String, Object> seen = new TreeMap<>();
        seen.put("heard", new TreeSet<>(heard.subList(20, heard.size())));
        seen.put("count", heard.size());
        until(() -> objects.size() >= 2);
        seen.put("objects", objects);
        client.removeDistributedObjectListener(registration);
        anew.destroy();
        return seen;
    }

    /** A near cache (all maps have one with {@code --near true}), and another client that changes what it holds. */
    private Object near(IMap<Integer, String> map) throws Exception {
        HazelcastInstance other = options.connect(false);
        IMap<Integer, String> plain = other.getMap(map.getName());
        Map<String, Object> seen = new TreeMap<>();
        write(plain, "a");
        read(map, "a");
        long before = map.getLocalMapStats().getNearCacheStats().getHits();
        seen.put("again", read(map, "a"));
        seen.put("hits", map.getLocalMapStats().getNearCacheStats().getHits() - before);
        write(plain, "b");
        until(() -> read(map, "b") == 200);
        seen.put("changed", read(map, "b"));
        plain.clear();
        until(() -> map.get(1) == null);
        seen.put("cleared", map.get(1));
        other.shutdown();
        return seen;
    }

    private static void write(IMap<Integer, String> map, String letter) {
        for (int key = 0; key < 200; key++) {
            map.set(key, letter + key);
        }
    }

    private static int read(IMap<Integer, String> map, String letter) {
        int right = 0;
        for (int key = 0; key < 200; key++) {
            right += (letter + key).equals(map.get(key)) ? 1 : 0;
        }
        return right;
    }

    /** A client that has two clusters to go to. */
    private Object failover(IMap<String, Object> map) throws Exception {
        List<Object> states = new CopyOnWriteArrayList<>();
        client.getLifecycleService().addLifecycleListener(event -> states.add(event.getState()));
        map.set("k", "first");
        String before = client.getCluster().getMembers().iterator().next().getAddress().toString();
        System.out.println("now");
        in.readLine();
        until(() -> states.contains(LifecycleState.CLIENT_CHANGED_CLUSTER));
        map.set("k", "second");
        String after = client.getCluster().getMembers().iterator().next().getAddress().toString();
        return Arrays.asList(map.get("k"), before.equals(after), states);
    }

    /** What Holdfast has not got is refused, and the client goes on. */
    private Object unsupported(IMap<String, Object> map) throws Exception {
        List<Object> seen = new ArrayList<>();
        seen.add(refusal(() -> {
            map.addIndex(new IndexConfig(IndexType.HASH, "a"));
            return null;
        }));
        seen.add(refusal(() -> {
            client.getExecutorService("t").isShutdown();
            return null;
        }));
        seen.add(refusal(() -> map.values(Predicates.sql("this > 1"))));
        seen.add(refusal(() -> map.project(Projections.singleAttribute("a"))));
        seen.add(map.put("k", 1));
        map.destroy();
        return seen;
    }

    /** Writes until told to stop, whatever happens to members, then reads everything back. */
    private Object loss(IMap<String, Integer> map) throws Exception {
        Set<String> heard = ConcurrentHashMap.newKeySet();
        map.addEntryListener((EntryAddedListener<String, Integer>) event -> heard.add(event.getKey()), false);
        Map<String, Integer> acknowledged = new TreeMap<>();
        Map<String, Integer> unknown = new TreeMap<>();
        int number = 0;
        for (; number < 200; number++) {
            map.set("key " + number % 97, number);
            acknowledged.put("key " + number % 97, number);
        }
        System.out.println("now");
        for (int after = 0; after < 300; after += in.ready() ? 1 : 0) {
            number++;
            String key = "key " + number % 97;
            try {
                map.set(key, number);
                acknowledged.put(key, number);
                unknown.remove(key);
            } catch (RuntimeException error) {
                unknown.put(key, number);
            }
        }
        List<Object> wrong = new ArrayList<>();
        acknowledged.forEach((key, value) -> {
            Integer found = map.get(key);
            if (!value.equals(found) && (found == null || !found.equals(unknown.get(key)))) {
                wrong.add(Arrays.asList(key, value, found));
            }
        });
        for (int key = 0; key < 50; key++) {
            map.set("late " + key, key);
        }
        until(() -> heard.size() == 97 + 50);
        Map<String, Object> seen = new TreeMap<>();
        seen.put("acknowledged", number);
        seen.put("unknown", unknown.size());
        seen.put("wrong", wrong);
        seen.put("heard", heard.size());
        map.destroy();
        return seen;
    }

    /** Entries of two maps that change together, or not at all. */
    private Object transactions(IMap<String, Object> map, IMap<String, Object> other) throws Exception {
        Map<String, Object> seen = new TreeMap<>();
        map.putAll(Map.of("kept", 1, "gone", 2, "swapped", 3));
        for (TransactionType type : TransactionType.values()) {
            TransactionContext context = begin(type, 30);
            TransactionalMap<String, Object> mine = context.getMap(map.getName());
            TransactionalMap<String, Object> second = context.getMap(other.getName());
            List<Object> told = new ArrayList<>(Arrays.asList(
                    mine.containsKey("kept"), mine.get("none"), mine.getForUpdate("kept"), mine.size(), mine.isEmpty(),
                    mine.put("new", 4), mine.put("short", 5, 90, TimeUnit.SECONDS), mine.putIfAbsent("new", 6),
                    mine.replace("kept", 7), mine.replace("swapped", 8, 9), mine.replace("swapped", 3, 9),
                    mine.remove("gone"), mine.remove("gone", 2)));
            mine.set("deleted", 1);
            mine.delete("deleted");
            second.set("there", type.name());
            told.addAll(List.of(
                    new TreeSet<>(mine.keySet()), mine.values().size(), mine.keySet(Predicates.alwaysTrue()).size(),
                    mine.values(Predicates.alwaysTrue()).size()));
            told.addAll(Arrays.asList(map.get("kept"), map.get("new"), other.get("there"), context.getTxnId() != null));
            if (type == TransactionType.ONE_PHASE) {
                context.rollbackTransaction();
            } else {
                context.commitTransaction();
            }
            seen.put(type.name(), told);
            seen.put(type.name() + " after", Arrays.asList(
                    new TreeMap<>(map.getAll(Set.of("kept", "gone", "swapped", "new", "deleted"))), other.get("there")));
        }
        seen.put("ttl", map.getEntryView("short").getTtl());
        seen.put("helper", client.executeTransaction(context -> context.<String, Object>getMap(map.getName()).put("kept", 10)));
        TransactionContext holder = begin(TransactionType.TWO_PHASE, 30);
        holder.getMap(map.getName()).set("kept", 11);
        seen.put("held", Arrays.asList(map.tryPut("kept", 12, 100, TimeUnit.MILLISECONDS), map.get("kept")));
        holder.commitTransaction();
        seen.put("freed", Arrays.asList(map.tryPut("kept", 12, 1, TimeUnit.SECONDS), map.get("kept")));
        TransactionContext late = begin(TransactionType.TWO_PHASE, 1);
        late.getMap(map.getName()).set("kept", 13);
        Thread.sleep(1_500);
        seen.put("late", ((List<?>) refusal(() -> {
            late.commitTransaction();
            return "committed";
        })).get(0));
        seen.put("last", map.get("kept"));
        map.destroy();
        other.destroy();
        return seen;
    }

    private TransactionContext begin(TransactionType type, int seconds) {
        TransactionContext context = client.newTransactionContext(new TransactionOptions()
                .setTransactionType(type).setTimeout(seconds, TimeUnit.SECONDS).setDurability(1));
        context.beginTransaction();
        return context;
    }

    private static Object refusal(Callable<?> call) throws Exception {
        try {
            return List.of("done", String.valueOf(call.call()));
        } catch (RuntimeException error) {
            return List.of(error.getClass().getSimpleName(), String.valueOf(error.getMessage()));
        }
    }

    static void until(BooleanSupplier question) throws InterruptedException {
        long deadline = System.nanoTime() + 10_000_000_000L;
        while (!question.getAsBoolean() && System.nanoTime() < deadline) {
            Thread.sleep(20);
        }
    }
}
