package holdfast.bench;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;

/**
 * Transactions on a grid: {@code TransactionLoad hazelcast|ignite ADDRESS,ADDRESS}.
 *
 * <p>Each line of standard input is an order, and each line of standard output its answer in JSON:
 *
 * <ul>
 * <li>{@code fill}: stores all entries;
 * <li>{@code apart kind=two-phase threads=8 keys=2 seconds=2}: transactions that write so many entries each. No two threads
 * share an entry. The kind {@code puts} writes the entries one after the other without a transaction;
 * <li>{@code hot kind=two-phase order=any threads=64 keys=2 seconds=4}: transactions that add 1 to some of ten counters, in
 * ascending order (which excludes deadlocks) or {@code any} order, and are retried when they were rolled back;
 * <li>{@code check}: reads what the loads since the last check have written, and compares it with what was committed.
 * </ul>
 */
public final class TransactionLoad {
    private TransactionLoad() {
    }

    public static void main(String[] arguments) {
        String[] addresses = arguments[1].split(",");
        try (Grid grid = arguments[0].equals("ignite") ? new IgniteGrid(addresses) : new HazelcastGrid(addresses)) {
            obey(grid);
        } catch (Throwable failure) {
            failure.printStackTrace();
            System.exit(1); // Threads of the client would keep the process.
        }
        System.exit(0);
    }

    private static void obey(Grid grid) throws IOException, InterruptedException {
        ApartLoad apart = new ApartLoad(grid);
        HotLoad hot = new HotLoad(grid);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Map<String, String> options = new TreeMap<>();
            String[] words = line.trim().split(" +");
            for (int at = 1; at < words.length; at++) {
                String[] pair = words[at].split("=", 2);
                options.put(pair[0], pair[1]);
            }
            String answer;
            switch (words[0]) {
                case "fill" -> {
                    apart.fill();
                    hot.fill();
                    answer = "{}";
                }
                case "apart" -> answer = apart.run(options);
                case "hot" -> answer = hot.run(options);
                case "check" -> {
                    Check check = new Check(grid);
                    apart.check(check);
                    hot.check(check);
                    check.size(ApartLoad.ENTRIES + HotLoad.COUNTERS);
                    answer = check.json();
                }
                default -> throw new IllegalArgumentException("no order is called " + words[0]);
            }
            System.out.println(answer);
            System.out.flush();
        }
    }
}
