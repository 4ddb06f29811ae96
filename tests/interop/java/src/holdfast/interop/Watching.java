package holdfast.interop;

import com.hazelcast.cluster.MembershipEvent;
import com.hazelcast.cluster.MembershipListener;
import com.hazelcast.core.HazelcastInstance;
import com.hazelcast.instance.EndpointQualifier;
import com.hazelcast.map.IMap;
import com.hazelcast.map.listener.MapPartitionLostListener;
import com.hazelcast.partition.MigrationListener;
import com.hazelcast.partition.MigrationState;
import com.hazelcast.partition.PartitionService;
import com.hazelcast.partition.ReplicaMigrationEvent;

import java.io.BufferedReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicInteger;

/** What a client hears of members and partitions, while somebody lets them come and go. */
final class Watching {
    private final HazelcastInstance client;
    private final BufferedReader in;

    Watching(HazelcastInstance client, BufferedReader in) {
        this.client = client;
        this.in = in;
    }

    Object watch(IMap<Integer, Integer> map) throws Exception {
        List<String> processes = new CopyOnWriteArrayList<>();
        List<String> came = new CopyOnWriteArrayList<>();
        AtomicInteger moved = new AtomicInteger();
        AtomicInteger failed = new AtomicInteger();
        Set<Integer> lost = new ConcurrentSkipListSet<>();
        Set<Integer> lostOfMap = new ConcurrentSkipListSet<>();
        Map<String, Object> seen = new TreeMap<>();
        List<Object> doors = new ArrayList<>();
        client.getCluster().getMembers().forEach(member -> doors.add(new ArrayList<>(
                List.of(member.getAddressMap().containsKey(EndpointQualifier.MEMBER) ? "MEMBER" : "none",
                        member.getAddressMap().containsKey(EndpointQualifier.CLIENT) ? "CLIENT" : "none"))));
        seen.put("members", doors);
        client.getCluster().addMembershipListener(new MembershipListener() {
            @Override
            public void memberAdded(MembershipEvent event) {
                came.add("came");
            }

            @Override
            public void memberRemoved(MembershipEvent event) {
                came.add("went");
            }
        });
        PartitionService partitions = client.getPartitionService();
        UUID migrations = partitions.addMigrationListener(new MigrationListener() {
            @Override
            public void migrationStarted(MigrationState state) {
                processes.add("started");
            }

            @Override
            public void migrationFinished(MigrationState state) {
                processes.add("finished");
            }

            @Override
            public void replicaMigrationCompleted(ReplicaMigrationEvent event) {
                moved.incrementAndGet();
            }

            @Override
            public void replicaMigrationFailed(ReplicaMigrationEvent event) {
                failed.incrementAndGet();
            }
        });
        UUID losses = partitions.addPartitionLostListener(event -> lost.add(event.getPartitionId()));
        UUID lossesOfMap = map.addPartitionLostListener(
                (MapPartitionLostListener) event -> lostOfMap.add(event.getPartitionId()));
        for (int key = 0; key < 300; key++) {
            map.set(key, key);
        }
        System.out.println("now");
        in.readLine();
        Scenarios.until(() -> came.size() == 2 && lost.size() >= 8 && lostOfMap.equals(lost));
        seen.put("came and went", came);
        seen.put("processes", processes);
        seen.put("moved", List.of(moved.get(), failed.get()));
        seen.put("lost", new TreeSet<>(lost));
        seen.put("lost of the map", new TreeSet<>(lostOfMap));
        seen.put("removed", List.of(partitions.removeMigrationListener(migrations),
                partitions.removePartitionLostListener(losses), map.removePartitionLostListener(lossesOfMap)));
        return seen;
    }
}
