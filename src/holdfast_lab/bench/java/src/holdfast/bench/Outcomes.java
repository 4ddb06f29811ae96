package holdfast.bench;

import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;

/** The outcomes of one thread's transactions, or of all threads. */
final class Outcomes {
    private static final int ERROR_CHARACTERS = 160;

    private final Map<String, Integer> errors = new TreeMap<>();
    private long[] tookNs = new long[1024];
    private int committed;
    private double inTime;
    private int rolledBack;
    private int unknown;

    /**
     * The load ends at {@code endNs}. A transaction that is running then is finished, and counted in the rate by the share
     * that was done in time: with 64 threads and long transactions the rate would be too low without it.
     */
    void committed(long begunNs, long endedNs, long endNs) {
        if (committed == tookNs.length) {
            tookNs = Arrays.copyOf(tookNs, 2 * committed);
        }
        tookNs[committed++] = endedNs - begunNs;
        inTime += endedNs <= endNs ? 1 : (double) (endNs - begunNs) / (endedNs - begunNs);
    }

    void rolledBack(Throwable error) {
        rolledBack++;
        count(error);
    }

    void unknown(Throwable error) {
        unknown++;
        count(error);
    }

    private void count(Throwable error) {
        // Numbers and ids differ from one to the other.
        String text = (error.getClass().getSimpleName() + ": " + error.getMessage())
                .replaceAll("[0-9a-fA-F-]*[0-9][0-9a-fA-F-]*", "N");
        errors.merge(text.substring(0, Math.min(ERROR_CHARACTERS, text.length())), 1, Integer::sum);
    }

    void add(Outcomes other) {
        int total = committed + other.committed;
        tookNs = Arrays.copyOf(tookNs, Math.max(total, 1));
        System.arraycopy(other.tookNs, 0, tookNs, committed, other.committed);
        committed = total;
        inTime += other.inTime;
        rolledBack += other.rolledBack;
        unknown += other.unknown;
        other.errors.forEach((text, count) -> errors.merge(text, count, Integer::sum));
    }

    String json(double seconds) {
        long[] sorted = Arrays.copyOf(tookNs, committed);
        Arrays.sort(sorted);
        StringBuilder counts = new StringBuilder();
        errors.forEach((text, count) ->
                counts.append(counts.length() == 0 ? "" : ",").append(quote(text)).append(':').append(count));
        return String.format(
                "{\"committed\":%d,\"in_time\":%s,\"rolled_back\":%d,\"unknown\":%d,\"seconds\":%s,"
                        + "\"p50_us\":%s,\"p99_us\":%s,\"errors\":{%s}}",
                committed, inTime, rolledBack, unknown, seconds, us(sorted, 50), us(sorted, 99), counts);
    }

    private static double us(long[] sorted, int percent) {
        return sorted.length == 0 ? 0 : sorted[(int) ((long) sorted.length * percent / 100)] / 1e3;
    }

    static String quote(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char each : text.toCharArray()) {
            if (each == '"' || each == '\\') {
                out.append('\\');
            }
            out.append(each < ' ' ? ' ' : each);
        }
        return out.append('"').toString();
    }
}
