package holdfast.bench;

import org.apache.ignite.Ignition;
import org.apache.ignite.cache.CachePeekMode;
import org.apache.ignite.client.ClientCache;
import org.apache.ignite.client.ClientConnectionException;
import org.apache.ignite.client.ClientException;
import org.apache.ignite.client.ClientTransaction;
import org.apache.ignite.client.IgniteClient;
import org.apache.ignite.configuration.ClientConfiguration;
import org.apache.ignite.transactions.TransactionConcurrency;
import org.apache.ignite.transactions.TransactionIsolation;

import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.function.Consumer;

/**
 * Ignite's thin client. Kinds of transactions: {@code pessimistic} (repeatable read: reads lock) and {@code optimistic}
 * (serializable: reads are validated at commit).
 */
final class IgniteGrid implements Grid {
    private final IgniteClient client;
    private final ClientCache<String, String> cache;
    private final Entries entries = new Entries();

    IgniteGrid(String[] addresses) {
        client = Ignition.startClient(new ClientConfiguration().setAddresses(addresses));
        cache = client.cache(IgniteMember.CACHE);
    }

    @Override
    public void transact(String kind, long timeoutMs, Consumer<Transaction> work) throws RolledBack, OutcomeUnknown {
        boolean isOptimistic = kind.equals("optimistic");
        try (ClientTransaction transaction = client.transactions().txStart(
                isOptimistic ? TransactionConcurrency.OPTIMISTIC : TransactionConcurrency.PESSIMISTIC,
                isOptimistic ? TransactionIsolation.SERIALIZABLE : TransactionIsolation.REPEATABLE_READ,
                timeoutMs)) {
            // The transaction is that of this thread.
            work.accept(entries);
            commit(transaction);
        } catch (ClientException failure) {
            throw new RolledBack(failure);
        }
    }

    private static void commit(ClientTransaction transaction) throws OutcomeUnknown {
        try {
            transaction.commit();
        } catch (ClientConnectionException failure) {
            throw new OutcomeUnknown(failure);
        } catch (ClientException failure) {
            // The one error after which a part may be committed.
            if (String.valueOf(failure.getMessage()).toLowerCase(Locale.ROOT).contains("heuristic")) {
                throw new OutcomeUnknown(failure);
            }
            throw failure;
        }
    }

    @Override
    public void set(String key, String value) {
        cache.put(key, value);
    }

    @Override
    public void setAll(Map<String, String> entries) {
        cache.putAll(entries);
    }

    @Override
    public Map<String, String> getAll(Set<String> keys) {
        return cache.getAll(keys);
    }

    @Override
    public int size() {
        return cache.size(CachePeekMode.PRIMARY);
    }

    @Override
    public void close() {
        client.close();
    }

    private final class Entries implements Transaction {
        @Override
        public void set(String key, String value) {
            cache.put(key, value);
        }

        @Override
        public String getForUpdate(String key) {
            return cache.get(key);
        }
    }
}
