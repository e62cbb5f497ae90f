import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.AppInfoParser;

/** Driver of Kafka's own Java client: commands as JSON lines on stdin, answers as JSON lines on stdout. */
public final class Driver {
    static final ObjectMapper JSON = new ObjectMapper();

    private static PrintStream answers;

    private final String bootstrap;
    private final DriverAdmin admin;
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new ConcurrentHashMap<>();
    private final Map<String, Member> members = new ConcurrentHashMap<>();

    private Driver(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = new DriverAdmin(bootstrap);
    }

    public static void main(String[] arguments) throws Exception {
        // What the clients log goes elsewhere: the answers alone are read.
        answers = System.out;
        System.setOut(System.err);
        Driver driver = new Driver(arguments[0]);
        // A thread for each command, because some wait for what others bring about.
        ExecutorService threads = Executors.newCachedThreadPool();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode command = JSON.readTree(line);
            threads.submit(() -> driver.answer(command));
        }
        System.exit(0);
    }

    private void answer(JsonNode command) {
        ObjectNode reply = JSON.createObjectNode().put("id", command.get("id").asInt());
        try {
            reply.set("result", JSON.valueToTree(run(command)));
        } catch (Throwable error) {
            ObjectNode told = reply.putObject("error").put("message", error.toString());
            Throwable cause = error;
            while (Errors.forException(cause) == Errors.UNKNOWN_SERVER_ERROR && cause.getCause() != null) {
                cause = cause.getCause();
            }
            if (Errors.forException(cause) != Errors.UNKNOWN_SERVER_ERROR) {
                told.put("code", Errors.forException(cause).code()).put("message", cause.toString());
            }
        }
        synchronized (answers) {
            answers.println(reply);
            answers.flush();
        }
    }

    private Object run(JsonNode c) throws Exception {
        switch (c.get("op").asText()) {
            case "hello": return Map.of("version", AppInfoParser.getVersion());
            case "produce": return produce(c);
            case "assign": return assign(c);
            case "join": return join(c);
            case "take": return member(c).take(c.get("count").asInt(), c.get("seconds").asDouble());
            case "seek": return seek(c);
            case "commit": return commit(c);
            case "pause": return member(c).call(consumer -> consumer.pause(List.of(partition(c))));
            case "resume": return member(c).call(consumer -> consumer.resume(List.of(partition(c))));
            case "leave": return leave(c);
            default: return admin.run(c);
        }
    }

    private Member member(JsonNode c) {
        return members.get(c.get("member").asText());
    }

    static TopicPartition partition(JsonNode c) {
        return new TopicPartition(c.get("topic").asText(), c.get("partition").asInt());
    }

    private Object produce(JsonNode c) throws Exception {
        String codec = c.has("codec") ? c.get("codec").asText() : "none";
        boolean idempotent = c.get("idempotent").asBoolean();
        KafkaProducer<byte[], byte[]> producer = producers.computeIfAbsent(codec + idempotent, key -> {
            Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "compression.type", codec,
                "enable.idempotence", idempotent, "linger.ms", 20);
            return new KafkaProducer<>(new HashMap<>(settings), new ByteArraySerializer(), new ByteArraySerializer());
        });
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode r : c.get("records")) {
            List<Header> headers = new ArrayList<>();
            if (r.has("headers")) {
                r.get("headers").forEach(h -> headers.add(new RecordHeader(h.get(0).asText(), toBytes(h.get(1)))));
            }
            Long timestamp = r.has("timestamp") ? r.get("timestamp").asLong() : null;
            TopicPartition to = partition(c);
            sent.add(producer.send(new ProducerRecord<>(to.topic(), to.partition(), timestamp, toBytes(r.get("key")),
                toBytes(r.get("value")), headers)));
        }
        for (Future<RecordMetadata> each : sent) {
            each.get();
        }
        return Map.of("first", sent.get(0).get().offset());
    }

    static byte[] toBytes(JsonNode text) {
        if (text == null || text.isNull()) {
            return null;
        }
        return (text.has("fill") ? "x".repeat(text.get("fill").asInt()) : text.asText()).getBytes();
    }

    private KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(more);
        settings.putAll(Map.of("bootstrap.servers", bootstrap, "auto.offset.reset", "earliest",
            "enable.auto.commit", false, "metadata.max.age.ms", 1000));
        if (!settings.containsKey("group.protocol") && settings.containsKey("group.id")) {
            settings.put("heartbeat.interval.ms", 500);
        }
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private Object assign(JsonNode c) throws Exception {
        KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of());
        consumer.assign(List.of(partition(c)));
        move(consumer, c);
        members.put(c.get("member").asText(), new Member(consumer));
        return Map.of();
    }

    private Object seek(JsonNode c) throws Exception {
        Member member = member(c);
        return member.call(consumer -> {
            move(consumer, c);
            member.forget();
        });
    }

    private static void move(KafkaConsumer<byte[], byte[]> consumer, JsonNode c) {
        JsonNode at = c.get("at");
        TopicPartition partition = partition(c);
        if (at.asText().equals("begin")) {
            consumer.seekToBeginning(List.of(partition));
        } else if (at.asText().equals("end")) {
            consumer.seekToEnd(List.of(partition));
        } else if (at.has("timestamp")) {
            long wanted = at.get("timestamp").asLong();
            consumer.seek(partition, consumer.offsetsForTimes(Map.of(partition, wanted)).get(partition).offset());
        } else {
            consumer.seek(partition, at.get("offset").asLong());
        }
        consumer.position(partition); // resolves it now
    }

    private Object join(JsonNode c) {
        Map<String, Object> settings = new HashMap<>(Map.of("group.id", c.get("group").asText()));
        if (c.has("protocol")) {
            settings.put("group.protocol", c.get("protocol").asText());
        }
        KafkaConsumer<byte[], byte[]> consumer = consumer(settings);
        if (c.has("pattern")) {
            consumer.subscribe(Pattern.compile(c.get("pattern").asText()));
        } else {
            List<String> topics = new ArrayList<>();
            c.get("topics").forEach(topic -> topics.add(topic.asText()));
            consumer.subscribe(topics);
        }
        members.put(c.get("member").asText(), new Member(consumer));
        return Map.of();
    }

    private Object commit(JsonNode c) throws Exception {
        OffsetAndMetadata offset = new OffsetAndMetadata(c.get("offset").asLong());
        return member(c).call(consumer -> consumer.commitSync(Map.of(partition(c), offset)));
    }

    private Object leave(JsonNode c) throws Exception {
        members.remove(c.get("member").asText()).close();
        return Map.of();
    }
}
