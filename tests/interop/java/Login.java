import java.io.FileReader;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Logs in with the settings of a file, produces a record, or records for so many seconds, and
 * prints the class of the error, if any. See kafka_logins.py and kafka_token_expiry.py.
 */
public class Login {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        try (FileReader file = new FileReader(arguments[0])) {
            settings.load(file);
        }
        long seconds = arguments.length > 1 ? Long.parseLong(arguments[1]) : 0;
        long end = System.nanoTime() + seconds * 1_000_000_000L;
        String found = "";
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            do {
                producer.send(new ProducerRecord<>("t", "v")).get();
                if (seconds > 0) Thread.sleep(100);
            } while (System.nanoTime() < end);
        } catch (ExecutionException error) {
            found = error.getCause().getClass().getSimpleName();
        } catch (Exception error) {
            found = error.getClass().getSimpleName();
        }
        System.out.println(found);
        System.exit(0);
    }
}
