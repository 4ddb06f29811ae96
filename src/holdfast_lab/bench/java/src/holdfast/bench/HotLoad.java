package holdfast.bench;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicLongArray;

/** Transactions that read a few of ten counters and add 1 to each, and are retried until they are committed. */
final class HotLoad {
    static final int COUNTERS = 10;
    private static final int VALUE_CHARACTERS = 100;

    private final Grid grid;
    /** Additions that were committed, and those of unknown outcome, since the last check. */
    private final AtomicLongArray added = new AtomicLongArray(COUNTERS);
    private final AtomicLongArray possible = new AtomicLongArray(COUNTERS);
    private final long[] before = new long[COUNTERS];
    private int loads;

    HotLoad(Grid grid) {
        this.grid = grid;
    }

    void fill() {
        Map<String, String> counters = new HashMap<>();
        for (int number = 0; number < COUNTERS; number++) {
            counters.put(key(number), value(0));
        }
        grid.setAll(counters);
    }

    String run(Map<String, String> options) throws InterruptedException {
        String kind = options.get("kind");
        int size = Integer.parseInt(options.get("keys"));
        long timeoutMs = Long.parseLong(options.get("timeout_ms"));
        boolean isAnyOrder = options.get("order").equals("any");
        int load = loads++;
        return Workers.run(options, (thread, endNs, outcomes) -> {
            SplittableRandom dice = new SplittableRandom(1000L * load + thread);
            while (System.nanoTime() < endNs) {
                int[] chosen = choose(dice, size);
                if (!isAnyOrder) {
                    Arrays.sort(chosen);
                }
                persist(kind, timeoutMs, chosen, endNs, outcomes);
            }
        });
    }

    private static int[] choose(SplittableRandom dice, int size) {
        int[] all = new int[COUNTERS];
        for (int at = 0; at < COUNTERS; at++) {
            int other = dice.nextInt(at + 1);
            all[at] = all[other];
            all[other] = at;
        }
        return Arrays.copyOf(all, size);
    }

    /** Try until it is committed, or its outcome is unknown, or the time is over. */
    private void persist(String kind, long timeoutMs, int[] chosen, long endNs, Outcomes outcomes) {
        long begunNs = System.nanoTime();
        do {
            try {
                grid.transact(kind, timeoutMs, transaction -> {
                    for (int number : chosen) {
                        long count = Long.parseLong(transaction.getForUpdate(key(number)));
                        transaction.set(key(number), value(count + 1));
                    }
                });
            } catch (Grid.RolledBack error) {
                outcomes.rolledBack(error.getCause());
                continue;
            } catch (Grid.OutcomeUnknown error) {
                outcomes.unknown(error.getCause());
                for (int number : chosen) {
                    possible.incrementAndGet(number);
                }
                return;
            }
            outcomes.committed(begunNs, System.nanoTime(), endNs);
            for (int number : chosen) {
                added.incrementAndGet(number);
            }
            return;
        } while (System.nanoTime() < endNs);
    }

    void check(Check check) {
        List<String> keys = new ArrayList<>();
        for (int number = 0; number < COUNTERS; number++) {
            keys.add(key(number));
        }
        check.entries(keys, (key, value) -> {
            int number = keys.indexOf(key);
            long least = before[number] + added.getAndSet(number, 0);
            long most = least + possible.getAndSet(number, 0);
            long count = value == null ? 0 : Long.parseLong(value);
            before[number] = count;
            return count >= least && count <= most ? null
                    : String.format("%d additions are there, %d to %d were committed", count, least, most);
        });
    }

    private static String key(int number) {
        return String.format("hot-%012d", number);
    }

    private static String value(long count) {
        return String.format("%0" + VALUE_CHARACTERS + "d", count);
    }
}
