package holdfast.bench;

import com.hazelcast.client.HazelcastClient;
import com.hazelcast.client.config.ClientConfig;
import com.hazelcast.core.HazelcastInstance;
import com.hazelcast.map.IMap;
import com.hazelcast.transaction.TransactionContext;
import com.hazelcast.transaction.TransactionException;
import com.hazelcast.transaction.TransactionOptions;
import com.hazelcast.transaction.TransactionOptions.TransactionType;
import com.hazelcast.transaction.TransactionalMap;

import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/** Hazelcast's client, for Hazelcast and Holdfast. Kinds of transactions: {@code one-phase} and {@code two-phase}. */
final class HazelcastGrid implements Grid {
    private static final String MAP = "transactions";
    private static final Map<String, TransactionType> TYPES =
            Map.of("one-phase", TransactionType.ONE_PHASE, "two-phase", TransactionType.TWO_PHASE);

    private final HazelcastInstance client;
    private final IMap<String, String> map;

    HazelcastGrid(String[] addresses) {
        ClientConfig config = new ClientConfig();
        config.getNetworkConfig().addAddress(addresses);
        config.getConnectionStrategyConfig().getConnectionRetryConfig().setClusterConnectTimeoutMillis(30_000);
        config.setProperty("hazelcast.phone.home.enabled", "false");
        client = HazelcastClient.newHazelcastClient(config);
        map = client.getMap(MAP);
    }

    @Override
    public void transact(String kind, long timeoutMs, Consumer<Transaction> work) throws RolledBack, OutcomeUnknown {
        TransactionContext context = client.newTransactionContext(new TransactionOptions()
                .setTransactionType(TYPES.get(kind))
                .setTimeout(timeoutMs, TimeUnit.MILLISECONDS));
        try {
            context.beginTransaction();
            work.accept(new Entries(context.getMap(MAP)));
        } catch (RuntimeException failure) {
            rollBack(context);
            throw new RolledBack(failure);
        }
        try {
            context.commitTransaction();
        } catch (TransactionException failure) {
            rollBack(context);
            throw new RolledBack(failure);
        } catch (RuntimeException failure) {
            throw new OutcomeUnknown(failure);
        }
    }

    private static void rollBack(TransactionContext context) {
        try {
            context.rollbackTransaction();
        } catch (RuntimeException ended) {
            // It is not active any more: the members rolled it back.
        }
    }

    @Override
    public void set(String key, String value) {
        map.set(key, value);
    }

    @Override
    public void setAll(Map<String, String> entries) {
        map.putAll(entries);
    }

    @Override
    public Map<String, String> getAll(Set<String> keys) {
        return map.getAll(keys);
    }

    @Override
    public int size() {
        return map.size();
    }

    @Override
    public void close() {
        client.shutdown();
    }

    private record Entries(TransactionalMap<String, String> map) implements Transaction {
        @Override
        public void set(String key, String value) {
            map.set(key, value);
        }

        @Override
        public String getForUpdate(String key) {
            return map.getForUpdate(key);
        }
    }
}
