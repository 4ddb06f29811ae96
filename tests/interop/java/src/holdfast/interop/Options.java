package holdfast.interop;

import com.hazelcast.client.HazelcastClient;
import com.hazelcast.client.config.ClientConfig;
import com.hazelcast.client.config.ClientFailoverConfig;
import com.hazelcast.client.config.ClientNetworkConfig;
import com.hazelcast.config.NearCacheConfig;
import com.hazelcast.core.HazelcastInstance;

import java.util.Map;
import java.util.TreeMap;

/** The options of a program, as {@code --name value}, and the client that they describe. */
final class Options {
    private final Map<String, String> given = new TreeMap<>();

    Options(String[] arguments, int first) {
        for (int at = first; at < arguments.length; at += 2) {
            if (!arguments[at].startsWith("--") || at + 1 == arguments.length) {
                throw new IllegalArgumentException("expected --name value, found " + arguments[at]);
            }
            given.put(arguments[at].substring(2), arguments[at + 1]);
        }
    }

    String text(String name, String otherwise) {
        return given.getOrDefault(name, otherwise);
    }

    int number(String name, int otherwise) {
        return Integer.parseInt(text(name, String.valueOf(otherwise)));
    }

    boolean flag(String name, boolean otherwise) {
        return Boolean.parseBoolean(text(name, String.valueOf(otherwise)));
    }

    /**
     * A connected client. {@code --addresses a:1,b:2}, {@code --cluster dev}, {@code --smart true},
     * {@code --backup-acks true}, {@code --username}, {@code --password}, {@code --connect-ms 20000},
     * {@code --invocation-s 120} (how long a request is retried), {@code --failover-addresses}, {@code --failover-cluster}
     * (another cluster, to which it goes when the first is gone). {@code INTEROP_USER} and {@code INTEROP_PASSWORD} stand
     * for options that are not given. All else is as the client has it by default; above
     * all, it sends no request again that may have been carried out.
     */
    HazelcastInstance connect() {
        return connect(false);
    }

    /** The same; {@code near}: its maps have near caches. */
    HazelcastInstance connect(boolean near) {
        ClientConfig first = configuration(text("cluster", "dev"), text("addresses", "127.0.0.1:5701"));
        if (near) {
            first.addNearCacheConfig(new NearCacheConfig("default"));
        }
        if (!given.containsKey("failover-addresses")) {
            return HazelcastClient.newHazelcastClient(first);
        }
        ClientConfig second = configuration(text("failover-cluster", "dev"), text("failover-addresses", ""));
        return HazelcastClient.newHazelcastFailoverClient(
                new ClientFailoverConfig().addClientConfig(first).addClientConfig(second).setTryCount(3));
    }

    @SuppressWarnings("deprecation")
    private ClientConfig configuration(String cluster, String addresses) {
        ClientConfig config = new ClientConfig();
        config.setClusterName(cluster);
        ClientNetworkConfig network = config.getNetworkConfig();
        network.addAddress(addresses.split(","));
        network.setSmartRouting(flag("smart", true));
        config.setBackupAckToClientEnabled(flag("backup-acks", true));
        config.getConnectionStrategyConfig().getConnectionRetryConfig()
                .setClusterConnectTimeoutMillis(number("connect-ms", 20_000));
        config.setProperty("hazelcast.client.invocation.timeout.seconds", text("invocation-s", "120"));
        config.setProperty("hazelcast.client.statistics.enabled", "false");
        config.setProperty("hazelcast.phone.home.enabled", "false");
        String user = text("username", System.getenv().getOrDefault("INTEROP_USER", ""));
        if (!user.isEmpty()) {
            String password = text("password", System.getenv().getOrDefault("INTEROP_PASSWORD", ""));
            config.getSecurityConfig().setUsernamePasswordIdentityConfig(user, password);
        }
        return config;
    }
}
