package holdfast.interop;

import com.hazelcast.client.HazelcastClient;
import com.hazelcast.client.config.ClientConfig;
import com.hazelcast.client.config.ClientNetworkConfig;
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
     * {@code --invocation-s 120} (how long a request is retried). All else is as the client has it by default; above
     * all, it sends no request again that may have been carried out.
     */
    @SuppressWarnings("deprecation")
    HazelcastInstance connect() {
        ClientConfig config = new ClientConfig();
        config.setClusterName(text("cluster", "dev"));
        ClientNetworkConfig network = config.getNetworkConfig();
        network.addAddress(text("addresses", "127.0.0.1:5701").split(","));
        network.setSmartRouting(flag("smart", true));
        config.setBackupAckToClientEnabled(flag("backup-acks", true));
        config.getConnectionStrategyConfig().getConnectionRetryConfig()
                .setClusterConnectTimeoutMillis(number("connect-ms", 20_000));
        config.setProperty("hazelcast.client.invocation.timeout.seconds", text("invocation-s", "120"));
        config.setProperty("hazelcast.client.statistics.enabled", "false");
        config.setProperty("hazelcast.phone.home.enabled", "false");
        if (given.containsKey("username")) {
            config.getSecurityConfig().setUsernamePasswordIdentityConfig(text("username", ""), text("password", ""));
        }
        return HazelcastClient.newHazelcastClient(config);
    }
}
