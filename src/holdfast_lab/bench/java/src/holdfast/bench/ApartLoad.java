package holdfast.bench;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;

/**
 * Transactions that write entries which no other thread writes at the same time. So the last committed value of each
 * entry is known.
 */
final class ApartLoad {
    static final int ENTRIES = 1 << 14;
    private static final int VALUE_CHARACTERS = 100;
    private static final int AT_ONCE = 100;
    private static final long TIMEOUT_MS = 30_000;

    private final Grid grid;
    private final String[] keys = new String[ENTRIES];
    /** The last committed value of each entry. */
    private final String[] values = new String[ENTRIES];
    /** Values that may have been committed later, of each entry with a transaction of unknown outcome. */
    private final List<List<String>> possible = new ArrayList<>();
    private final boolean[] isWritten = new boolean[ENTRIES];
    private int loads;

    ApartLoad(Grid grid) {
        this.grid = grid;
        for (int number = 0; number < ENTRIES; number++) {
            keys[number] = String.format("key-%012d", number);
            values[number] = value("first", number);
            possible.add(new ArrayList<>());
        }
    }

    void fill() {
        Map<String, String> some = new HashMap<>();
        for (int number = 0; number < ENTRIES; number++) {
            some.put(keys[number], values[number]);
            if (some.size() == AT_ONCE || number == ENTRIES - 1) {
                grid.setAll(some);
                some.clear();
            }
        }
    }

    String run(Map<String, String> options) throws InterruptedException {
        String kind = options.get("kind");
        int threads = Integer.parseInt(options.get("threads"));
        int size = Integer.parseInt(options.get("keys"));
        int load = loads++;
        return Workers.run(options, (thread, endNs, outcomes) -> {
            SplittableRandom dice = new SplittableRandom(1000L * load + thread);
            long begunNs = System.nanoTime();
            for (int count = 0; begunNs < endNs; count++) {
                int[] chosen = choose(dice, size, thread, threads);
                transact(kind, chosen, value(load + "/" + thread, count), begunNs, endNs, outcomes);
                begunNs = System.nanoTime();
            }
        });
    }

    /** Different entries of this thread, in random order. */
    private static int[] choose(SplittableRandom dice, int size, int thread, int threads) {
        int[] chosen = new int[size];
        for (int at = 0; at < size; at++) {
            boolean isNew;
            do {
                chosen[at] = thread + threads * dice.nextInt(ENTRIES / threads);
                isNew = true;
                for (int before = 0; before < at; before++) {
                    isNew &= chosen[before] != chosen[at];
                }
            } while (!isNew);
        }
        return chosen;
    }

    private void transact(String kind, int[] chosen, String value, long begunNs, long endNs, Outcomes outcomes) {
        for (int number : chosen) {
            isWritten[number] = true;
        }
        try {
            if (kind.equals("puts")) {
                for (int number : chosen) {
                    grid.set(keys[number], value);
                }
            } else {
                grid.transact(kind, TIMEOUT_MS, transaction -> {
                    for (int number : chosen) {
                        transaction.set(keys[number], value);
                    }
                });
            }
        } catch (Grid.RolledBack error) {
            outcomes.rolledBack(error.getCause());
            return;
        } catch (Grid.OutcomeUnknown error) {
            outcomes.unknown(error.getCause());
            for (int number : chosen) {
                possible.get(number).add(value);
            }
            return;
        }
        outcomes.committed(begunNs, System.nanoTime(), endNs);
        for (int number : chosen) {
            values[number] = value;
            possible.get(number).clear();
        }
    }

    void check(Check check) {
        List<String> written = new ArrayList<>();
        Map<String, Integer> numbers = new HashMap<>();
        for (int number = 0; number < ENTRIES; number++) {
            if (isWritten[number]) {
                written.add(keys[number]);
                numbers.put(keys[number], number);
                isWritten[number] = false;
            }
        }
        check.entries(written, (key, value) -> {
            int number = numbers.get(key);
            String expected = values[number];
            boolean isRight = expected.equals(value) || possible.get(number).contains(value);
            values[number] = value;
            possible.get(number).clear();
            return isRight ? null : String.format("found %s instead of %s", brief(value), brief(expected));
        });
    }

    private static String value(String name, int number) {
        String text = name + "/" + number + ".";
        return text + "x".repeat(VALUE_CHARACTERS - text.length());
    }

    private static String brief(String value) {
        return value == null ? "nothing" : value.substring(0, value.indexOf('.'));
    }
}
