import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** Answers questions, one JSON line each, by calling the method of that name. See remote_client.py. */
public class Agent {
    /** What questions may be addressed to, by number; the first is the library itself. */
    static final List<Object> objects = new ArrayList<>();

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, "UTF-8");
        System.setOut(System.err);
        if (arguments.length > 1) Library.signAs(arguments[1], arguments[2]);
        objects.add(new Library(arguments[0]));
        BufferedReader questions =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = questions.readLine()) != null; ) {
            JSONObject answer = answer(JSON.parseObject(line));
            answers.println(JSON.toJSONString(answer, SerializerFeature.WriteMapNullValue));
        }
        // Threads of the library are still there.
        Runtime.getRuntime().halt(0);
    }

    static int add(Object made) {
        objects.add(made);
        return objects.size() - 1;
    }

    private static JSONObject answer(JSONObject question) throws Exception {
        Object target = objects.get(question.getIntValue("on"));
        String call = question.getString("call");
        JSONObject answer = new JSONObject();
        try {
            Method method = target.getClass().getMethod(call, JSONArray.class);
            answer.put("result", method.invoke(target, question.getJSONArray("with")));
        } catch (NoSuchMethodException error) {
            answer.put("missing", call);
        } catch (InvocationTargetException error) {
            answer.put("error", withCauses(error.getCause()));
        }
        return answer;
    }

    private static String withCauses(Throwable error) {
        StringBuilder text = new StringBuilder(String.valueOf(error));
        for (Throwable each = error.getCause(); each != null; each = each.getCause()) {
            text.append(", because of ").append(each);
        }
        return text.toString();
    }
}
