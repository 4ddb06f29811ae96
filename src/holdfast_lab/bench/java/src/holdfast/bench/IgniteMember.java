package holdfast.bench;

import org.apache.ignite.Ignition;
import org.apache.ignite.cache.CacheAtomicityMode;
import org.apache.ignite.cache.CacheWriteSynchronizationMode;
import org.apache.ignite.configuration.CacheConfiguration;
import org.apache.ignite.configuration.ClientConnectorConfiguration;
import org.apache.ignite.configuration.DataRegionConfiguration;
import org.apache.ignite.configuration.DataStorageConfiguration;
import org.apache.ignite.configuration.IgniteConfiguration;
import org.apache.ignite.spi.communication.tcp.TcpCommunicationSpi;
import org.apache.ignite.spi.discovery.tcp.TcpDiscoverySpi;
import org.apache.ignite.spi.discovery.tcp.ipfinder.vm.TcpDiscoveryVmIpFinder;

import java.io.IOException;
import java.util.List;

/**
 * A member of Ignite on loopback: {@code IgniteMember FOLDER CLIENT_THREADS CLIENT_PORT DISCOVERY_PORT COMMUNICATION_PORT
 * SEEDS}. It says "ready", and ends with its standard input.
 */
public final class IgniteMember {
    static final String CACHE = "transactions";
    private static final String HOST = "127.0.0.1";
    private static final long MEMORY_BYTES = 512L << 20;

    private IgniteMember() {
    }

    public static void main(String[] arguments) throws IOException {
        int clientThreads = Integer.parseInt(arguments[1]);
        int clientPort = Integer.parseInt(arguments[2]);
        int discoveryPort = Integer.parseInt(arguments[3]);
        int communicationPort = Integer.parseInt(arguments[4]);
        List<String> seeds = List.of(arguments[5].split(","));

        TcpDiscoverySpi discovery = new TcpDiscoverySpi();
        discovery.setLocalPort(discoveryPort).setLocalPortRange(0);
        discovery.setIpFinder(new TcpDiscoveryVmIpFinder().setAddresses(seeds));
        TcpCommunicationSpi communication = new TcpCommunicationSpi();
        communication.setLocalPort(communicationPort).setLocalPortRange(0);

        Ignition.start(new IgniteConfiguration()
                .setIgniteInstanceName("member-" + clientPort)
                .setWorkDirectory(arguments[0])
                .setLocalHost(HOST)
                .setConnectorConfiguration(null)
                .setDiscoverySpi(discovery)
                .setCommunicationSpi(communication)
                .setClientConnectorConfiguration(new ClientConnectorConfiguration()
                        .setHost(HOST).setPort(clientPort).setPortRange(0).setThreadPoolSize(clientThreads))
                .setDataStorageConfiguration(new DataStorageConfiguration().setDefaultDataRegionConfiguration(
                        new DataRegionConfiguration().setInitialSize(MEMORY_BYTES).setMaxSize(MEMORY_BYTES)))
                .setCacheConfiguration(new CacheConfiguration<String, String>(CACHE)
                        .setAtomicityMode(CacheAtomicityMode.TRANSACTIONAL)
                        .setWriteSynchronizationMode(CacheWriteSynchronizationMode.FULL_SYNC)
                        .setBackups(1)));
        System.out.println("ready");
        while (System.in.read() >= 0) {
            // Wait for the end of standard input: the benchmark has ended, or died.
        }
        Ignition.stopAll(true);
        System.exit(0);
    }
}
