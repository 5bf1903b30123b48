import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** A producer with a transactional id. */
public class Transactor {
    private final KafkaProducer<byte[], byte[]> producer;

    Transactor(String servers, String name) {
        producer = Library.producer(Library.settings(servers, "transactional.id", name));
        producer.initTransactions();
    }

    public Object begin(JsonNode given) {
        producer.beginTransaction();
        return null;
    }

    public Object send(JsonNode given) throws Exception {
        List<Future<?>> sent = new ArrayList<>();
        for (JsonNode value : given.get(1)) {
            sent.add(producer.send(new ProducerRecord<>(given.get(0).asText(), 0, null, Agent.bytes(value))));
        }
        producer.flush();
        for (Future<?> each : sent) each.get();
        return null;
    }

    public Object sendOffsets(JsonNode given) {
        Member member = (Member) Agent.objects.get(given.get(0).asInt());
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (TopicPartition each : member.consumer.assignment()) {
            offsets.put(each, new OffsetAndMetadata(member.consumer.position(each)));
        }
        producer.sendOffsetsToTransaction(offsets, member.consumer.groupMetadata());
        return null;
    }

    public Object commit(JsonNode given) {
        producer.commitTransaction();
        return null;
    }

    public Object abort(JsonNode given) {
        producer.abortTransaction();
        return null;
    }

    public Object close(JsonNode given) {
        // One that was fenced with a transaction open has nothing left to wait for.
        producer.close(Duration.ofSeconds(1));
        return null;
    }
}
