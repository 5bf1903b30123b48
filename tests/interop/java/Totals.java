import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;

/**
 * A Kafka Streams application that counts records per key (see totals.py), until it is terminated.
 * Arguments: servers, application id, source, target, guarantee, state directory.
 */
public class Totals {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] given) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", given[0]);
        settings.put("application.id", given[1]);
        settings.put("processing.guarantee", given[4]);
        settings.put("state.dir", given[5]);
        settings.put("default.key.serde", Serdes.StringSerde.class.getName());
        settings.put("default.value.serde", Serdes.StringSerde.class.getName());
        settings.put("auto.offset.reset", "earliest");
        settings.put("commit.interval.ms", "100");
        settings.put("heartbeat.interval.ms", "500");
        // Every update is written, not the last of several.
        settings.put("statestore.cache.max.bytes", "0");
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(given[2])
                // A key that may have changed makes it write to a topic of its own in between.
                .selectKey((key, value) -> key)
                .groupByKey()
                .aggregate(() -> "", (key, value, total) -> add(value, total))
                .toStream()
                .to(given[3]);
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
            return null;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            CloseOptions leave = CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP);
            streams.close(leave.withTimeout(Duration.ofSeconds(30)));
        }));
        streams.start();
    }

    private static String add(String value, String total) {
        try {
            int seen = total.isEmpty() ? 0 : JSON.readTree(total).get("seen").asInt();
            JsonNode number = JSON.readTree(value).get("number");
            return JSON.writeValueAsString(Map.of("number", number.asInt(), "seen", seen + 1));
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }
}
