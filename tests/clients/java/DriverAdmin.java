import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.LogDirDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;

/** The operations of the admin client. */
final class DriverAdmin {
    private final Admin admin;

    DriverAdmin(String bootstrap) {
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    Object run(JsonNode c) throws ExecutionException, InterruptedException {
        switch (c.get("op").asText()) {
            case "create": create(c); break;
            case "topics": return Map.of("topics", admin.listTopics().names().get());
            case "describe": return describe(c);
            case "create_partitions":
                admin.createPartitions(Map.of(topic(c), NewPartitions.increaseTo(c.get("total").asInt()))).all().get();
                break;
            case "configs": return configs(c);
            case "alter": alter(c); break;
            case "delete_records":
                RecordsToDelete before = RecordsToDelete.beforeOffset(c.get("before").asLong());
                admin.deleteRecords(Map.of(Driver.partition(c), before)).all().get();
                break;
            case "delete_topic": admin.deleteTopics(List.of(topic(c))).all().get(); break;
            case "groups":
                return Map.of("groups", admin.listGroups().all().get().stream().map(group -> group.groupId()).toList());
            case "describe_group": return describeGroup(c.get("group").asText());
            case "log_dirs": return logDirs();
            case "cluster": return cluster();
            default: throw new IllegalArgumentException(c.get("op").asText());
        }
        return Map.of();
    }

    private static String topic(JsonNode c) {
        return c.get("topic").asText();
    }

    private void create(JsonNode c) throws ExecutionException, InterruptedException {
        Map<String, String> config = new HashMap<>();
        c.get("config").fields().forEachRemaining(entry -> config.put(entry.getKey(), entry.getValue().asText()));
        NewTopic topic = new NewTopic(topic(c), Optional.of(c.get("partitions").asInt()), Optional.empty());
        admin.createTopics(List.of(topic.configs(config))).all().get();
    }

    private Object describe(JsonNode c) throws ExecutionException, InterruptedException {
        List<Map<String, Integer>> partitions = new ArrayList<>();
        for (TopicPartitionInfo p : admin.describeTopics(List.of(topic(c))).allTopicNames().get().get(topic(c)).partitions()) {
            partitions.add(Map.of("partition", p.partition(), "leader", p.leader().id(), "replicas", p.replicas().size()));
        }
        return Map.of("partitions", partitions);
    }

    private static ConfigResource resource(JsonNode c) {
        return new ConfigResource(ConfigResource.Type.TOPIC, topic(c));
    }

    private Object configs(JsonNode c) throws ExecutionException, InterruptedException {
        Map<String, String> configs = new HashMap<>();
        admin.describeConfigs(List.of(resource(c))).all().get().get(resource(c)).entries()
            .forEach(entry -> configs.put(entry.name(), entry.value()));
        return Map.of("configs", configs);
    }

    private void alter(JsonNode c) throws ExecutionException, InterruptedException {
        ConfigEntry entry = new ConfigEntry(c.get("name").asText(), c.get("value").asText());
        AlterConfigOp change = new AlterConfigOp(entry, AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(resource(c), List.of(change))).all().get();
    }

    private Object describeGroup(String group) throws ExecutionException, InterruptedException {
        ConsumerGroupDescription described = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        return Map.of("state", described.groupState().toString(), "members", described.members().size());
    }

    private List<Node> nodes() throws ExecutionException, InterruptedException {
        return List.copyOf(admin.describeCluster().nodes().get());
    }

    private Object logDirs() throws ExecutionException, InterruptedException {
        List<Integer> brokers = nodes().stream().map(Node::id).toList();
        List<String> topics = new ArrayList<>();
        for (Map<String, LogDirDescription> broker : admin.describeLogDirs(brokers).allDescriptions().get().values()) {
            for (LogDirDescription directory : broker.values()) {
                if (directory.error() != null) {
                    throw directory.error();
                }
                directory.replicaInfos().keySet().forEach(partition -> topics.add(partition.topic()));
            }
        }
        return Map.of("topics", topics);
    }

    private Object cluster() throws ExecutionException, InterruptedException {
        List<List<Object>> brokers = new ArrayList<>();
        for (Node node : nodes()) {
            brokers.add(List.of(node.id(), node.host(), node.port()));
        }
        return Map.of("cluster", admin.describeCluster().clusterId().get(), "brokers", brokers);
    }
}
