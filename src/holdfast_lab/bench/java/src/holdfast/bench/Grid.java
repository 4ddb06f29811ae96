package holdfast.bench;

import java.util.Map;
import java.util.Set;
import java.util.function.Consumer;

/** A client of the system under load, with one map of strings. Threads share it. */
interface Grid extends AutoCloseable {
    /** Run {@code work} in a transaction of this kind. Returns when it is committed. */
    void transact(String kind, long timeoutMs, Consumer<Transaction> work) throws RolledBack, OutcomeUnknown;

    /** One write outside of a transaction. */
    void set(String key, String value);

    void setAll(Map<String, String> entries);

    Map<String, String> getAll(Set<String> keys);

    int size();

    @Override
    void close();

    /** The operations of a transaction. */
    interface Transaction {
        void set(String key, String value);

        /** The value. No other transaction changes it before this one ends; otherwise this one does not commit. */
        String getForUpdate(String key);
    }

    /** The transaction changed nothing. */
    final class RolledBack extends Exception {
        RolledBack(Throwable cause) {
            super(cause);
        }
    }

    /** The transaction may have been committed. */
    final class OutcomeUnknown extends Exception {
        OutcomeUnknown(Throwable cause) {
            super(cause);
        }
    }
}
