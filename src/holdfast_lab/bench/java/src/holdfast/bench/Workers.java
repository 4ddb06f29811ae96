package holdfast.bench;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;

/** Runs the threads of a load for some seconds. */
final class Workers {
    private Workers() {
    }

    interface Worker {
        void run(int thread, long endNs, Outcomes outcomes);
    }

    /** Returns the outcomes in JSON. */
    static String run(Map<String, String> options, Worker worker) throws InterruptedException {
        int count = Integer.parseInt(options.get("threads"));
        double seconds = Double.parseDouble(options.get("seconds"));
        CountDownLatch ready = new CountDownLatch(count);
        CountDownLatch begin = new CountDownLatch(1);
        long[] endNs = new long[1];
        List<Throwable> failures = new ArrayList<>();
        List<Outcomes> outcomes = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            int thread = number;
            Outcomes own = new Outcomes();
            outcomes.add(own);
            threads.add(new Thread(() -> {
                ready.countDown();
                try {
                    begin.await();
                    worker.run(thread, endNs[0], own);
                } catch (Throwable failure) {
                    synchronized (failures) {
                        failures.add(failure);
                    }
                }
            }));
        }
        threads.forEach(Thread::start);
        ready.await();
        endNs[0] = System.nanoTime() + (long) (seconds * 1e9);
        begin.countDown();
        Outcomes all = new Outcomes();
        for (int number = 0; number < count; number++) {
            threads.get(number).join();
            all.add(outcomes.get(number));
        }
        if (!failures.isEmpty()) {
            throw new IllegalStateException("a thread of the load failed", failures.get(0));
        }
        return all.json(seconds);
    }
}
