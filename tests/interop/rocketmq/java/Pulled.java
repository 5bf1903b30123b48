import com.alibaba.fastjson.JSONArray;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** A lite pull consumer. */
public class Pulled {
    private final DefaultLitePullConsumer consumer;

    public Pulled(String group, String topic) throws Exception {
        consumer = new DefaultLitePullConsumer(group, Library.signer);
        consumer.setNamesrvAddr(Library.servers);
        consumer.setInstanceName("pulls-" + group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.start();
    }

    public Object poll(JSONArray none) {
        List<List<Object>> found = new ArrayList<>();
        for (MessageExt each : consumer.poll(Pushed.POLL_MS)) found.add(Pushed.delivery(each));
        return found;
    }

    public Object close(JSONArray none) {
        consumer.shutdown();
        return null;
    }
}
