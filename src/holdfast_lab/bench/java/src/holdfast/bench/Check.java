package holdfast.bench;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;

/** Compares entries with what they should be. */
final class Check {
    private static final int AT_ONCE = 1000;
    private static final int SHOWN = 3;

    private final Grid grid;
    private final List<String> wrong = new ArrayList<>();
    private int checked;

    Check(Grid grid) {
        this.grid = grid;
    }

    interface Judge {
        /** What is wrong with this value; null: nothing. */
        String fault(String key, String value);
    }

    void entries(List<String> keys, Judge judge) {
        for (int begin = 0; begin < keys.size(); begin += AT_ONCE) {
            List<String> some = keys.subList(begin, Math.min(keys.size(), begin + AT_ONCE));
            Map<String, String> found = grid.getAll(new TreeSet<>(some));
            for (String key : some) {
                checked++;
                String fault = judge.fault(key, found.get(key));
                if (fault != null) {
                    wrong.add(key + ": " + fault);
                }
            }
        }
    }

    void size(int expected) {
        int size = grid.size();
        if (size != expected) {
            wrong.add("the map has " + size + " entries instead of " + expected);
        }
    }

    String json() {
        StringBuilder examples = new StringBuilder();
        for (String each : wrong.subList(0, Math.min(SHOWN, wrong.size()))) {
            examples.append(examples.length() == 0 ? "" : ",").append(Outcomes.quote(each));
        }
        return String.format("{\"checked\":%d,\"wrong\":%d,\"examples\":[%s]}", checked, wrong.size(), examples);
    }
}
