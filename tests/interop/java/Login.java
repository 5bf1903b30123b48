import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Logs in, produces a record, and prints the class of the error, if any. See kafka_logins.py. */
public class Login {
    public static void main(String[] arguments) {
        String servers = arguments[0], mechanism = arguments[1];
        String name = arguments[2], secret = arguments[3];
        boolean isToken = mechanism.equals("OAUTHBEARER");
        String packages = "org.apache.kafka.common.security.";
        String module =
                isToken
                        ? "oauthbearer.OAuthBearerLoginModule"
                        : mechanism.equals("PLAIN")
                                ? "plain.PlainLoginModule"
                                : "scram.ScramLoginModule";
        String options = isToken ? "" : " username=\"" + name + "\" password=\"" + secret + "\"";
        Map<String, Object> settings =
                new java.util.HashMap<>(
                        Map.of(
                                "bootstrap.servers", servers,
                                "security.protocol", "SASL_PLAINTEXT",
                                "sasl.mechanism", mechanism,
                                "sasl.jaas.config",
                                packages + module + " required" + options + ";",
                                "max.block.ms", "20000",
                                "delivery.timeout.ms", "20000",
                                "request.timeout.ms", "10000"));
        if (isToken) {
            // A file with the token.
            settings.put("sasl.oauthbearer.token.endpoint.url", "file://" + secret);
            settings.put(
                    "sasl.login.callback.handler.class",
                    packages + "oauthbearer.OAuthBearerLoginCallbackHandler");
        }
        String found = "";
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>("t", "v")).get();
        } catch (ExecutionException error) {
            found = error.getCause().getClass().getSimpleName();
        } catch (Exception error) {
            found = error.getClass().getSimpleName();
        }
        System.out.println(found);
        System.exit(0);
    }
}
