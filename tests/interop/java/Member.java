import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;

/** A consumer in a group, of either protocol. */
public class Member {
    final KafkaConsumer<byte[], byte[]> consumer;

    /** Group, topics, pattern or null, protocol, instance id or null. */
    Member(String servers, JsonNode given) {
        String protocol = given.get(3).asText();
        Properties settings = Library.settings(
                servers,
                "group.id", given.get(0).asText(),
                // A pattern of the first protocol is matched by the client when it asks for metadata.
                "metadata.max.age.ms", "500");
        if (protocol.equals("consumer")) {
            settings.put("group.protocol", "consumer");
        } else {
            settings.put("heartbeat.interval.ms", "100");
        }
        if (protocol.equals("cooperative")) {
            settings.put("partition.assignment.strategy", CooperativeStickyAssignor.class.getName());
        }
        if (!given.get(4).isNull()) settings.put("group.instance.id", given.get(4).asText());
        consumer = Library.consumer(settings);
        if (given.get(2).isNull()) {
            List<String> topics = new ArrayList<>();
            given.get(1).forEach(each -> topics.add(each.asText()));
            consumer.subscribe(topics);
        } else if (protocol.equals("consumer")) {
            // Matched by the broker, with RE2.
            consumer.subscribe(new SubscriptionPattern(given.get(2).asText()));
        } else {
            consumer.subscribe(Pattern.compile(given.get(2).asText()));
        }
    }

    public Object poll(JsonNode given) {
        List<Object> rows = new ArrayList<>();
        consumer.poll(Duration.ofMillis(100)).forEach(each -> rows.add(Library.row(each)));
        return rows;
    }

    public Object assignment(JsonNode given) {
        List<Object> partitions = new ArrayList<>();
        consumer.assignment().forEach(each -> partitions.add(List.of(each.topic(), each.partition())));
        return partitions;
    }

    public Object commit(JsonNode given) {
        consumer.commitSync(Library.PATIENCE);
        return null;
    }

    public Object close(JsonNode given) {
        consumer.close();
        return null;
    }
}
