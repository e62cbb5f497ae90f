import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import java.util.zip.CRC32;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own producer and consumer, writing and reading while things break. Runs until its standard input ends, then
 * takes the answers that it is owed. Events go to standard output in the form of history.py, whose payloads it makes.
 *
 * <p>Arguments: bootstrap, keys ("topic/partition,..."), records a second, the upper part of its first value.
 */
public final class ChaosClient {
    private static final byte[] FILLER = filler();
    private static final PrintStream OUT = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false);

    private static volatile boolean stopping;

    public static void main(String[] arguments) throws Exception {
        System.setOut(System.err);
        List<TopicPartition> keys = new ArrayList<>();
        for (String key : arguments[1].split(",")) {
            int slash = key.lastIndexOf('/');
            keys.add(new TopicPartition(key.substring(0, slash), Integer.parseInt(key.substring(slash + 1))));
        }
        Thread consumer = new Thread(() -> consume(arguments[0], keys), "consumer");
        Thread producer = new Thread(
                () -> produce(arguments[0], keys, Integer.parseInt(arguments[2]), Long.parseLong(arguments[3])), "producer");
        consumer.start();
        producer.start();
        while (System.in.read() >= 0) {
            // Only the end counts.
        }
        stopping = true;
        producer.join();
        consumer.join();
        OUT.flush();
    }

    private static void produce(String bootstrap, List<TopicPartition> keys, int rate, long upper) {
        Random chosen = new Random(upper);
        for (int incarnation = 0; !stopping; incarnation++) {
            String process = incarnation == 0 ? "java-producer" : "java-producer." + incarnation;
            try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(producerSettings(bootstrap))) {
                boolean[] fatal = new boolean[1];
                long begun = System.nanoTime();
                for (long count = 1; !stopping && !fatal[0]; count++) {
                    send(producer, process, count, keys.get(chosen.nextInt(keys.size())), (upper + incarnation << 40) + count, fatal);
                    long ahead = count * 1_000_000_000L / rate - (System.nanoTime() - begun);
                    if (ahead > 0) {
                        Thread.sleep(ahead / 1_000_000, (int) (ahead % 1_000_000));
                    }
                }
                // Closing waits for what is under way, each record until its own time is over.
            } catch (InterruptedException e) {
                return;
            }
        }
    }

    private static void send(KafkaProducer<byte[], byte[]> producer, String process, long op, TopicPartition key, long value, boolean[] fatal) {
        write(process, op, "invoke", "send", key, ",\"value\":" + value);
        try {
            producer.send(new ProducerRecord<>(key.topic(), key.partition(), null, payload(value)), (told, error) -> {
                if (error == null) {
                    write(process, op, "ok", "send", key, ",\"offset\":" + told.offset());
                    return;
                }
                fatal[0] |= !(error instanceof RetriableException);
                write(process, op, "info", "send", key, ",\"error\":\"" + error.getClass().getSimpleName() + "\"");
            });
        } catch (KafkaException error) {
            fatal[0] = true;
            write(process, op, "info", "send", key, ",\"error\":\"" + error.getClass().getSimpleName() + "\"");
        }
    }

    private static void consume(String bootstrap, List<TopicPartition> keys) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("auto.offset.reset", "none");
        settings.put("enable.auto.commit", "false");
        settings.put("request.timeout.ms", "10000");
        long op = 0;
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(keys);
            consumer.seekToBeginning(keys);
            while (!stopping) {
                long at = System.nanoTime();
                ConsumerRecords<byte[], byte[]> polled;
                try {
                    polled = consumer.poll(Duration.ofMillis(300));
                } catch (OffsetOutOfRangeException error) {
                    for (var one : error.offsetOutOfRangePartitions().entrySet()) {
                        write(at, "java-consumer", ++op, "invoke", "poll", one.getKey(), ",\"from\":" + one.getValue());
                        write("java-consumer", op, "fail", "poll", one.getKey(), ",\"error\":\"OFFSET_OUT_OF_RANGE\"");
                        consumer.seek(one.getKey(), one.getValue());
                    }
                    continue;
                }
                for (TopicPartition key : polled.partitions()) {
                    StringBuilder records = new StringBuilder();
                    for (ConsumerRecord<byte[], byte[]> one : polled.records(key)) {
                        long value = one.value().length >= 8 ? ByteBuffer.wrap(one.value()).getLong() : 0;
                        records.append(records.length() == 0 ? "" : ",").append('[').append(one.offset()).append(',')
                                .append(value).append(',').append(crc(one.value(), 0, one.value().length)).append(']');
                    }
                    write(at, "java-consumer", ++op, "invoke", "poll", key, "");
                    write("java-consumer", op, "ok", "poll", key, ",\"records\":[" + records + "]");
                }
            }
        }
    }

    private static Properties producerSettings(String bootstrap) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        settings.put("linger.ms", "5");
        // Small batches, so that five requests are under way.
        settings.put("batch.size", "2000");
        settings.put("request.timeout.ms", "10000");
        settings.put("delivery.timeout.ms", "120000");
        return settings;
    }

    private static byte[] payload(long value) {
        int start = (int) (value * 61 % (FILLER.length / 2));
        int length = (int) (value * 7919 % 900);
        return ByteBuffer.allocate(12 + length).putLong(value).putInt((int) crc(FILLER, start, length))
                .put(FILLER, start, length).array();
    }

    private static byte[] filler() {
        StringBuilder text = new StringBuilder();
        for (long number = 0; number < 2000; number++) {
            text.append(number == 0 ? "" : " ").append(Long.toHexString(number * 2654435761L % (1L << 32)));
        }
        return text.toString().getBytes(java.nio.charset.StandardCharsets.US_ASCII);
    }

    private static long crc(byte[] bytes, int start, int length) {
        CRC32 crc = new CRC32();
        crc.update(bytes, start, length);
        return crc.getValue();
    }

    private static void write(String process, long op, String type, String f, TopicPartition key, String more) {
        write(System.nanoTime(), process, op, type, f, key, more);
    }

    /** System.nanoTime is the clock that Python calls monotonic_ns. */
    private static void write(long at, String process, long op, String type, String f, TopicPartition key, String more) {
        synchronized (OUT) {
            OUT.print("{\"time_ns\":" + at + ",\"process\":\"" + process + "\",\"op\":" + op + ",\"type\":\"" + type
                    + "\",\"f\":\"" + f + "\",\"key\":\"" + key.topic() + "/" + key.partition() + "\"" + more + "}\n");
        }
    }
}
