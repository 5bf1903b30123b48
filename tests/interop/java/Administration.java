import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;

/** The admin client, call by call. */
public class Administration {
    final String servers;
    private final Admin admin;

    Administration(String servers) {
        this.servers = servers;
        admin = Admin.create(Library.settings(servers));
    }

    private static TopicPartition partition(JsonNode given, int at) {
        return new TopicPartition(given.get(at).asText(), given.get(at + 1).asInt());
    }

    // ---- topics

    public Object createTopic(JsonNode given) throws Exception {
        Map<String, String> config = new HashMap<>();
        given.get(2).properties().forEach(each -> config.put(each.getKey(), each.getValue().asText()));
        NewTopic topic = new NewTopic(given.get(0).asText(), given.get(1).asInt(), (short) 1);
        admin.createTopics(List.of(topic.configs(config))).all().get();
        return null;
    }

    public Object deleteTopic(JsonNode given) throws Exception {
        admin.deleteTopics(List.of(given.get(0).asText())).all().get();
        return null;
    }

    public Object listTopics(JsonNode given) throws Exception {
        return admin.listTopics().names().get();
    }

    public Object describeTopic(JsonNode given) throws Exception {
        String topic = given.get(0).asText();
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
    }

    public Object createPartitions(JsonNode given) throws Exception {
        NewPartitions count = NewPartitions.increaseTo(given.get(1).asInt());
        admin.createPartitions(Map.of(given.get(0).asText(), count)).all().get();
        return null;
    }

    public Object deleteRecords(JsonNode given) throws Exception {
        TopicPartition partition = partition(given, 0);
        RecordsToDelete before = RecordsToDelete.beforeOffset(given.get(2).asLong());
        return admin.deleteRecords(Map.of(partition, before)).lowWatermarks().get(partition).get().lowWatermark();
    }

    public Object listOffsets(JsonNode given) throws Exception {
        TopicPartition partition = partition(given, 0);
        List<Long> found = new ArrayList<>();
        for (OffsetSpec spec : List.of(OffsetSpec.earliest(), OffsetSpec.latest())) {
            found.add(admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get().offset());
        }
        return found;
    }

    // ---- configuration and cluster

    private Map<String, String> config(ConfigResource.Type type, String name) throws Exception {
        ConfigResource resource = new ConfigResource(type, name);
        Map<String, String> values = new HashMap<>();
        for (ConfigEntry each : admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()) {
            values.put(each.name(), each.value());
        }
        return values;
    }

    public Object topicConfig(JsonNode given) throws Exception {
        return config(ConfigResource.Type.TOPIC, given.get(0).asText());
    }

    public Object brokerConfig(JsonNode given) throws Exception {
        return config(ConfigResource.Type.BROKER, "1");
    }

    public Object alterTopicConfig(JsonNode given) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, given.get(0).asText());
        ConfigEntry entry = new ConfigEntry(given.get(1).asText(), given.get(2).asText());
        AlterConfigOp set = new AlterConfigOp(entry, AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(set))).all().get();
        return null;
    }

    public Object describeCluster(JsonNode given) throws Exception {
        return admin.describeCluster().nodes().get().stream().map(each -> each.id()).toList();
    }

    public Object features(JsonNode given) throws Exception {
        Map<String, Integer> levels = new HashMap<>();
        admin.describeFeatures().featureMetadata().get().finalizedFeatures()
                .forEach((name, range) -> levels.put(name, (int) range.maxVersionLevel()));
        return levels;
    }

    public Object logDirectoryBytes(JsonNode given) throws Exception {
        long bytes = 0;
        for (Map<String, LogDirDescription> directories : admin.describeLogDirs(List.of(1)).allDescriptions().get().values()) {
            for (LogDirDescription directory : directories.values()) {
                for (var replica : directory.replicaInfos().entrySet()) {
                    if (replica.getKey().topic().equals(given.get(0).asText())) bytes += replica.getValue().size();
                }
            }
        }
        return bytes;
    }

    public Object electLeader(JsonNode given) throws Exception {
        TopicPartition partition = partition(given, 0);
        Optional<Throwable> error =
                admin.electLeaders(ElectionType.PREFERRED, Set.of(partition)).partitions().get().get(partition);
        return error.map(Throwable::toString).orElse("");
    }

    public Object listReassignments(JsonNode given) throws Exception {
        return admin.listPartitionReassignments().reassignments().get().size();
    }

    public Object alterQuota(JsonNode given) throws Exception {
        ClientQuotaEntity entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, given.get(0).asText()));
        ClientQuotaAlteration.Op set = new ClientQuotaAlteration.Op(given.get(1).asText(), given.get(2).asDouble());
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(set)))).all().get();
        return null;
    }

    public Object quota(JsonNode given) throws Exception {
        ClientQuotaFilterComponent wanted =
                ClientQuotaFilterComponent.ofEntity(ClientQuotaEntity.CLIENT_ID, given.get(0).asText());
        var found = admin.describeClientQuotas(ClientQuotaFilter.containsOnly(List.of(wanted))).entities().get();
        return found.values().iterator().next();
    }

    // ---- groups

    public Object listGroups(JsonNode given) throws Exception {
        return admin.listGroups().all().get().stream().map(each -> each.groupId()).toList();
    }

    public Object describeGroup(JsonNode given) throws Exception {
        String group = given.get(0).asText();
        ConsumerGroupDescription found = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        return List.of(found.groupState().toString(), found.members().size());
    }

    public Object deleteGroup(JsonNode given) throws Exception {
        admin.deleteConsumerGroups(List.of(given.get(0).asText())).all().get();
        return null;
    }

    public Object groupOffsets(JsonNode given) throws Exception {
        List<Object> offsets = new ArrayList<>();
        admin.listConsumerGroupOffsets(given.get(0).asText()).partitionsToOffsetAndMetadata().get()
                .forEach((place, offset) -> offsets.add(List.of(place.topic(), place.partition(), offset.offset())));
        return offsets;
    }

    public Object alterGroupOffset(JsonNode given) throws Exception {
        OffsetAndMetadata offset = new OffsetAndMetadata(given.get(3).asLong());
        admin.alterConsumerGroupOffsets(given.get(0).asText(), Map.of(partition(given, 1), offset)).all().get();
        return null;
    }

    public Object deleteGroupOffset(JsonNode given) throws Exception {
        admin.deleteConsumerGroupOffsets(given.get(0).asText(), Set.of(partition(given, 1))).all().get();
        return null;
    }

    // ---- transactions

    public Object listTransactions(JsonNode given) throws Exception {
        Map<String, String> states = new HashMap<>();
        admin.listTransactions().all().get().forEach(each -> states.put(each.transactionalId(), each.state().toString()));
        return states;
    }

    public Object producerStates(JsonNode given) throws Exception {
        TopicPartition partition = partition(given, 0);
        return admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers().stream()
                .map(each -> each.currentTransactionStartOffset().isPresent())
                .toList();
    }
}
