import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** A push consumer, and what has come to it. */
public class Pushed {
    static final int POLL_MS = 200;
    private static int count;
    private final DefaultMQPushConsumer consumer;
    private final BlockingQueue<List<Object>> came = new LinkedBlockingQueue<>();
    private final Map<String, Integer> attempts = new ConcurrentHashMap<>();
    private final int refused;

    Pushed(String group, String topic, JSONObject options) throws Exception {
        refused = options.getIntValue("refused");
        consumer = new DefaultMQPushConsumer(group, Library.signer, new AllocateMessageQueueAveragely());
        consumer.setNamesrvAddr(Library.servers);
        consumer.setInstanceName("consumer-" + ++count);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        if (options.getIntValue("attempts_max") >= 0) {
            consumer.setMaxReconsumeTimes(options.getIntValue("attempts_max"));
        }
        if (options.getString("model").equals("broadcasting")) broadcast();
        if (options.getString("language").equals("SQL92")) {
            consumer.subscribe(topic, MessageSelector.bySql(options.getString("expression")));
        } else {
            consumer.subscribe(topic, options.getString("expression"));
        }
        if (options.getBooleanValue("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                    take(messages)
                            ? ConsumeOrderlyStatus.SUCCESS
                            : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                    take(messages)
                            ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                            : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        }
        consumer.start();
    }

    /** The package of the value changed between releases. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private void broadcast() throws Exception {
        Class model = DefaultMQPushConsumer.class.getMethod("getMessageModel").getReturnType();
        DefaultMQPushConsumer.class
                .getMethod("setMessageModel", model)
                .invoke(consumer, Enum.valueOf(model, "BROADCASTING"));
    }

    private boolean take(List<MessageExt> messages) {
        boolean isTaken = true;
        for (MessageExt each : messages) {
            List<Object> delivery = delivery(each);
            String body = (String) delivery.get(3);
            came.add(delivery);
            int attempt = attempts.merge(body, 1, Integer::sum);
            isTaken &= !body.startsWith("refuse") || attempt > refused;
        }
        return isTaken;
    }

    static List<Object> delivery(MessageExt message) {
        return Arrays.asList(
                message.getTopic(),
                message.getQueueId(),
                message.getQueueOffset(),
                new String(message.getBody(), StandardCharsets.UTF_8),
                message.getTags() == null ? "" : message.getTags(),
                message.getKeys() == null ? "" : message.getKeys(),
                message.getProperties());
    }

    public Object poll(JSONArray none) throws Exception {
        List<List<Object>> found = new ArrayList<>();
        List<Object> first = came.poll(POLL_MS, TimeUnit.MILLISECONDS);
        if (first != null) found.add(first);
        came.drainTo(found);
        return found;
    }

    public Object close(JSONArray none) {
        consumer.shutdown();
        return null;
    }
}
