import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;

/** Answers questions, one JSON line each, by calling the method of that name. See remote_client.py. */
public class Agent {
    static final ObjectMapper JSON = new ObjectMapper();

    /** What questions may be addressed to, by number; the first is the library itself. */
    static final List<Object> objects = new ArrayList<>();

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        objects.add(new Library(arguments[0]));
        BufferedReader questions =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = questions.readLine()) != null; ) {
            answers.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
        }
        System.exit(0);
    }

    static int add(Object made) {
        objects.add(made);
        return objects.size() - 1;
    }

    private static Map<String, Object> answer(JsonNode question) throws Exception {
        Object target = objects.get(question.get("on").asInt());
        String call = question.get("call").asText();
        Method method;
        try {
            method = target.getClass().getMethod(camelCase(call), JsonNode.class);
        } catch (NoSuchMethodException error) {
            return Map.of("missing", call);
        }
        try {
            Object result = method.invoke(target, question.get("with"));
            return java.util.Collections.singletonMap("result", result);
        } catch (InvocationTargetException error) {
            Throwable cause = error.getCause();
            if (cause instanceof ExecutionException) cause = cause.getCause();
            return Map.of("error", cause.toString());
        }
    }

    private static String camelCase(String name) {
        StringBuilder out = new StringBuilder();
        for (String word : name.split("_")) {
            out.append(out.length() == 0 ? word : word.substring(0, 1).toUpperCase() + word.substring(1));
        }
        return out.toString();
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.ISO_8859_1);
    }

    static byte[] bytes(JsonNode text) {
        return text == null || text.isNull() ? null : text.asText().getBytes(StandardCharsets.ISO_8859_1);
    }
}
