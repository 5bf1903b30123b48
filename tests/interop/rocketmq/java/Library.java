import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** What the client and mqadmin are asked for. */
public class Library {
    static final int SECONDS_MAX = 60;
    static String servers;
    /** Signs all requests; null: they are not signed. */
    static RPCHook signer;
    private final DefaultMQProducer producer = new DefaultMQProducer("interop", signer);
    private int transactors;

    static void signAs(String accessKey, String secretKey) {
        signer = new AclClientRPCHook(new SessionCredentials(accessKey, secretKey));
    }

    Library(String nameServers) throws Exception {
        servers = nameServers;
        System.setProperty("rocketmq.namesrv.addr", nameServers);
        producer.setNamesrvAddr(servers);
        producer.start();
    }

    // ---- messages

    public Object send(JSONArray given) throws Exception {
        List<Message> messages = new ArrayList<>();
        for (Object each : given.getJSONArray(1)) messages.add(message(given.getString(0), (JSONArray) each));
        List<List<Object>> placed = new ArrayList<>();
        switch (given.getString(2)) {
            case "batch":
                producer.send(messages);
                break;
            case "one-way":
                for (Message each : messages) producer.sendOneway(each);
                break;
            case "async":
                for (Message each : messages) placed.add(place(sentAsync(each)));
                break;
            default:
                for (int i = 0; i < messages.size(); i++) {
                    int queue = given.getJSONArray(1).getJSONArray(i).getIntValue(5);
                    placed.add(place(sent(messages.get(i), queue)));
                }
        }
        return placed;
    }

    private SendResult sent(Message message, int queue) throws Exception {
        if (queue < 0) return producer.send(message);
        return producer.send(message, (queues, each, chosen) -> queues.get((Integer) chosen), queue);
    }

    private SendResult sentAsync(Message message) throws Exception {
        CompletableFuture<SendResult> sent = new CompletableFuture<>();
        producer.send(message, new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                sent.complete(result);
            }

            @Override
            public void onException(Throwable error) {
                sent.completeExceptionally(error);
            }
        });
        return sent.get(SECONDS_MAX, TimeUnit.SECONDS);
    }

    private static List<Object> place(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) throw new IllegalStateException(result.toString());
        return Arrays.asList(result.getMessageQueue().getQueueId(), result.getQueueOffset());
    }

    static Message message(String topic, JSONArray given) {
        byte[] body = given.getString(0).getBytes(StandardCharsets.UTF_8);
        Message message = new Message(topic, given.getString(1), given.getString(2), body);
        for (Map.Entry<String, Object> each : given.getJSONObject(3).entrySet()) {
            message.putUserProperty(each.getKey(), (String) each.getValue());
        }
        if (given.getIntValue(4) > 0) message.setDelayTimeLevel(given.getIntValue(4));
        return message;
    }

    // ---- transactions

    /** Returns when the decision has been told: at once, or after the broker has asked for it. */
    public Object transact(JSONArray given) throws Exception {
        boolean isByQuestion = given.getBooleanValue(3);
        LocalTransactionState decision =
                given.getString(2).equals("commit")
                        ? LocalTransactionState.COMMIT_MESSAGE
                        : LocalTransactionState.ROLLBACK_MESSAGE;
        CountDownLatch asked = new CountDownLatch(1);
        TransactionMQProducer transactor = new TransactionMQProducer("transacts-" + ++transactors, signer);
        transactor.setNamesrvAddr(servers);
        transactor.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return isByQuestion ? LocalTransactionState.UNKNOW : decision;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                asked.countDown();
                return decision;
            }
        });
        transactor.start();
        try {
            Message message = message(given.getString(0), given.getJSONArray(1));
            transactor.sendMessageInTransaction(message, null);
            if (isByQuestion && !asked.await(SECONDS_MAX, TimeUnit.SECONDS)) {
                throw new IllegalStateException("the broker did not ask");
            }
            // The library tells the broker once the listener has returned, and does not say when.
            if (isByQuestion) TimeUnit.MILLISECONDS.sleep(500);
        } finally {
            transactor.shutdown();
        }
        return null;
    }

    // ---- consumers

    public Object consumer(JSONArray given) throws Exception {
        JSONObject options = given.getJSONObject(2);
        if (options.getString("style").equals("push")) {
            return Agent.add(new Pushed(given.getString(0), given.getString(1), options));
        }
        // Clients of before 4.6 do not have it.
        Class<?> pulled = Class.forName("Pulled");
        return Agent.add(
                pulled.getConstructor(String.class, String.class)
                        .newInstance(given.getString(0), given.getString(1)));
    }

    // ---- mqadmin

    /** What a command prints. */
    public Object mqadmin(JSONArray words) throws Exception {
        PrintStream usual = System.out;
        PrintStream errors = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream caught = new PrintStream(printed, true, "UTF-8");
        System.setOut(caught);
        System.setErr(caught);
        try {
            MQAdminStartup.main0(words.toArray(new String[0]), null);
        } finally {
            System.setOut(usual);
            System.setErr(errors);
        }
        return printed.toString("UTF-8");
    }
}
