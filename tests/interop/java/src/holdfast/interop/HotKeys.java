package holdfast.interop;

import com.hazelcast.core.HazelcastInstance;
import com.hazelcast.map.IMap;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Operations on a few keys of a map, each told in a line of JSON, for a judge of histories.
 *
 * <p>{@code HotKeys run OPTIONS}: {@code --threads} threads choose operations by {@code --seed}, until {@code --seconds}
 * are over, or standard input has a line "stop". Every value is written once only. Options, with their defaults:
 * those of {@link Options#connect}, {@code --map hot}, {@code --client j}, {@code --keys 4} (named k0, k1 ...; with
 * {@code --rotate-s 60} others each minute of CLOCK_MONOTONIC, named k7.0, k7.1 ... in the seventh),
 * {@code --threads 4}, {@code --seconds 10}, {@code --seed 1}, {@code --pause-us 0} between two operations of a thread, on average,
 * {@code --ops set,get,remove,delete,putIfAbsent,replaceIfSame,removeIfSame} (name one twice to have it twice as often;
 * {@code put} and {@code replace} are there, too).
 *
 * <p>{@code HotKeys serve OPTIONS}: standard input tells the operations, one in a line: {@code THREAD OP KEY [ARG [ARG]]}.
 * Those of one THREAD, which is any name, are carried out one after the other, those of several at the same time.
 *
 * <p>A line of the output: {@code {"client": "j/0", "op": "set", "key": "k1", "arg": "j/0/17", "start_ns": 1, "end_ns": 2,
 * "outcome": "ok", "result": null}}. {@code arg} is null, the value written, or [expected, new]; {@code result} is what the
 * call returned, true or false for the conditional ones. The outcome is {@code ok}; {@code refused}: certainly not
 * applied; or {@code unknown}, and the line then has an {@code error}, too. Times are those of CLOCK_MONOTONIC, as
 * {@code time.monotonic_ns()} in Python has them. The first line is {@code {"ready": true}}, the last one {@code {"done":
 * true, "counts": {...}}}.
 */
public final class HotKeys {
    /** Errors that mean that a request was not carried out. Whatever is not named here may have been. */
    private static final Set<String> REFUSALS = Set.of(
            "IllegalArgumentException", "UnsupportedOperationException", "NoDataMemberInClusterException");
    /** What members say in a refusal that is an error of another kind. */
    private static final String REFUSED = "was not applied";

    private final IMap<String, String> map;
    private final Map<String, Integer> counts = new TreeMap<>();

    private HotKeys(IMap<String, String> map) {
        this.map = map;
    }

    public static void main(String[] arguments) {
        try {
            work(arguments);
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1); // The client's own threads would keep the process.
        }
    }

    private static void work(String[] arguments) throws Exception {
        Options options = new Options(arguments, 1);
        HazelcastInstance client = options.connect();
        HotKeys keys = new HotKeys(client.getMap(options.text("map", "hot")));
        say(Map.of("ready", true));
        if (arguments[0].equals("run")) {
            keys.run(options);
        } else if (arguments[0].equals("serve")) {
            keys.serve(options);
        } else {
            throw new IllegalArgumentException("run or serve, not " + arguments[0]);
        }
        client.shutdown();
        Map<String, Object> last = new LinkedHashMap<>();
        last.put("done", true);
        last.put("counts", keys.counts);
        say(last);
    }

    private void run(Options options) throws Exception {
        long end = System.nanoTime() + options.number("seconds", 10) * 1_000_000_000L;
        AtomicBoolean stopped = new AtomicBoolean();
        Thread ears = new Thread(() -> {
            try {
                BufferedReader in = input();
                for (String line = in.readLine(); line != null; line = in.readLine()) {
                    if (line.equals("stop")) {
                        stopped.set(true);
                    }
                }
            } catch (IOException gone) {
                // Nobody can say "stop" any more: the time will.
            }
        });
        ears.setDaemon(true);
        ears.start();
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < options.number("threads", 4); number++) {
            String name = options.text("client", "j") + "/" + number;
            Random dice = new Random(31L * options.number("seed", 1) + number);
            Thread thread = new Thread(() -> hammer(name, dice, options, end, stopped), name);
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private void hammer(String name, Random dice, Options options, long end, AtomicBoolean stopped) {
        String[] ops = options.text("ops", "set,get,remove,delete,putIfAbsent,replaceIfSame,removeIfSame").split(",");
        int keys = options.number("keys", 4);
        long rotateNs = options.number("rotate-s", 0) * 1_000_000_000L;
        int pauseUs = options.number("pause-us", 0);
        Map<String, String> seen = new TreeMap<>();
        for (int number = 0; System.nanoTime() - end < 0 && !stopped.get(); number++) {
            String turn = rotateNs == 0 ? "" : System.nanoTime() / rotateNs + ".";
            String key = "k" + turn + dice.nextInt(keys);
            String value = name + "/" + number;
            String op = ops[dice.nextInt(ops.length)];
            String expected = seen.getOrDefault(key, name + "/never");
            Object result;
            switch (op) {
                case "get": case "remove": case "delete":
                    result = tell(name, op, key, null, null);
                    break;
                case "replaceIfSame":
                    result = tell(name, op, key, expected, value);
                    break;
                case "removeIfSame":
                    result = tell(name, op, key, expected, null);
                    break;
                default:
                    result = tell(name, op, key, value, null);
            }
            if (op.equals("set") || op.equals("put") || Boolean.TRUE.equals(result) && op.equals("replaceIfSame")) {
                seen.put(key, value);
            } else if (result instanceof String) {
                seen.put(key, (String) result);
            }
            if (pauseUs > 0) {
                try {
                    Thread.sleep(dice.nextInt(2 * pauseUs) / 1000);
                } catch (InterruptedException stop) {
                    return;
                }
            }
        }
    }

    private void serve(Options options) throws Exception {
        Map<String, BlockingQueue<String[]>> queues = new TreeMap<>();
        List<Thread> threads = new ArrayList<>();
        String[] last = {};
        BufferedReader in = input();
        for (String line = in.readLine(); line != null && !line.equals("stop"); line = in.readLine()) {
            String[] words = line.trim().split(" +");
            if (words.length < 3) {
                throw new IllegalArgumentException("expected THREAD OP KEY [ARG [ARG]], found " + line);
            }
            queues.computeIfAbsent(words[0], thread -> {
                BlockingQueue<String[]> queue = new LinkedBlockingQueue<>();
                String name = options.text("client", "j") + "/" + thread;
                threads.add(new Thread(() -> obey(name, queue), name));
                threads.get(threads.size() - 1).start();
                return queue;
            }).add(words);
        }
        for (BlockingQueue<String[]> queue : queues.values()) {
            queue.add(last);
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private void obey(String name, BlockingQueue<String[]> queue) {
        try {
            for (String[] words = queue.take(); words.length > 0; words = queue.take()) {
                tell(name, words[1], words[2], words.length > 3 ? words[3] : null, words.length > 4 ? words[4] : null);
            }
        } catch (InterruptedException stop) {
            Thread.currentThread().interrupt();
        }
    }

    /** Carry out one operation and tell what became of it; answers its result. */
    private Object tell(String name, String op, String key, String first, String second) {
        String outcome = "ok";
        String error = null;
        Object result = null;
        long start = System.nanoTime();
        try {
            result = perform(op, key, first, second);
        } catch (Throwable failure) { // The client throws checked exceptions undeclared.
            String kind = failure.getClass().getSimpleName();
            boolean refused = REFUSALS.contains(kind)
                    || kind.equals("IllegalStateException") && String.valueOf(failure.getMessage()).contains(REFUSED);
            outcome = refused ? "refused" : "unknown";
            error = kind + ": " + failure.getMessage();
        }
        long end = System.nanoTime();
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("client", name);
        line.put("op", op);
        line.put("key", key);
        line.put("arg", second == null ? first : List.of(first, second));
        line.put("start_ns", start);
        line.put("end_ns", end);
        line.put("outcome", outcome);
        line.put("result", result);
        if (error != null) {
            line.put("error", error);
        }
        synchronized (counts) {
            counts.merge(op + " " + outcome, 1, Integer::sum);
        }
        say(line);
        return result;
    }

    private Object perform(String op, String key, String first, String second) {
        switch (op) {
            case "get":
                return map.get(key);
            case "set":
                map.set(key, first);
                return null;
            case "put":
                return map.put(key, first);
            case "remove":
                return map.remove(key);
            case "delete":
                map.delete(key);
                return null;
            case "putIfAbsent":
                return map.putIfAbsent(key, first);
            case "replace":
                return map.replace(key, first);
            case "replaceIfSame":
                return map.replace(key, first, second);
            case "removeIfSame":
                return map.remove(key, first);
            default:
                throw new IllegalArgumentException("no operation is called " + op);
        }
    }

    private static BufferedReader input() {
        return new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    }

    private static void say(Map<String, ?> line) {
        synchronized (HotKeys.class) {
            System.out.println(Json.of(line));
            System.out.flush();
        }
    }
}
