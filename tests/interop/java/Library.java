import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Records in and out; members and transactions are objects of their own. */
public class Library extends Administration {
    static final Duration PATIENCE = Duration.ofSeconds(60);
    static final String LARGE_BYTES_MAX = String.valueOf(16 << 20);

    public Library(String servers) {
        super(servers);
    }

    static Properties settings(String servers, String... pairs) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        for (int at = 0; at < pairs.length; at += 2) settings.put(pairs[at], pairs[at + 1]);
        return settings;
    }

    static KafkaProducer<byte[], byte[]> producer(Properties settings) {
        settings.put("max.request.size", LARGE_BYTES_MAX);
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    static KafkaConsumer<byte[], byte[]> consumer(Properties settings) {
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    public Object produce(JsonNode given) throws Exception {
        String topic = given.get(0).asText();
        Properties settings = settings(
                servers,
                "compression.type", given.get(2).asText(),
                "acks", given.get(3).asText(),
                "enable.idempotence", given.get(4).asText());
        try (KafkaProducer<byte[], byte[]> producer = producer(settings)) {
            List<Future<?>> sent = new ArrayList<>();
            for (JsonNode record : given.get(1)) sent.add(producer.send(read(topic, record)));
            for (Future<?> each : sent) each.get();
        }
        return null;
    }

    private static ProducerRecord<byte[], byte[]> read(String topic, JsonNode record) {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : record.get(2)) {
            headers.add(new RecordHeader(header.get(0).asText(), Agent.bytes(header.get(1))));
        }
        Long timestamp = record.get(3).isNull() ? null : record.get(3).asLong();
        Integer partition = record.get(4).isNull() ? null : record.get(4).asInt();
        return new ProducerRecord<>(
                topic, partition, timestamp, Agent.bytes(record.get(1)), Agent.bytes(record.get(0)), headers);
    }

    public Object consume(JsonNode given) {
        String topic = given.get(0).asText();
        int count = given.get(1).asInt();
        String isolation = given.get(2).asBoolean() ? "read_committed" : "read_uncommitted";
        List<Object> rows = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(settings(servers, "isolation.level", isolation))) {
            List<TopicPartition> partitions = new ArrayList<>();
            consumer.partitionsFor(topic).forEach(each -> partitions.add(new TopicPartition(topic, each.partition())));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            while (rows.size() < count) {
                if (System.nanoTime() > deadline) throw new IllegalStateException(rows.size() + " of " + count + " records came");
                consumer.poll(Duration.ofMillis(200)).forEach(each -> rows.add(row(each)));
            }
        }
        return rows;
    }

    static List<Object> row(ConsumerRecord<byte[], byte[]> record) {
        List<Object> headers = new ArrayList<>();
        record.headers().forEach(each -> headers.add(List.of(each.key(), Agent.text(each.value()))));
        List<Object> row = new ArrayList<>();
        row.add(record.topic());
        row.add(record.partition());
        row.add(record.offset());
        row.add(Agent.text(record.key()));
        row.add(Agent.text(record.value()));
        row.add(headers);
        row.add(record.timestamp());
        return row;
    }

    public Object offsetForTime(JsonNode given) {
        TopicPartition partition = new TopicPartition(given.get(0).asText(), given.get(1).asInt());
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(settings(servers))) {
            return consumer.offsetsForTimes(Map.of(partition, given.get(2).asLong())).get(partition).offset();
        }
    }

    public Object member(JsonNode given) {
        return Agent.add(new Member(servers, given));
    }

    public Object transactor(JsonNode given) {
        return Agent.add(new Transactor(servers, given.get(0).asText()));
    }
}
