import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;

/** A consumer with a thread, which alone calls it: it polls, and other calls wait their turn. */
final class Member {
    interface Call {
        void on(KafkaConsumer<byte[], byte[]> consumer) throws Exception;
    }

    private final KafkaConsumer<byte[], byte[]> consumer;
    private final BlockingQueue<Runnable> calls = new LinkedBlockingQueue<>();
    private final List<Map<String, Object>> records = new ArrayList<>();
    private RuntimeException failure;
    private volatile boolean open = true;

    Member(KafkaConsumer<byte[], byte[]> consumer) {
        this.consumer = consumer;
        new Thread(this::run).start();
    }

    private void run() {
        while (open) {
            Runnable call = calls.poll();
            if (call != null) {
                call.run();
                continue;
            }
            try {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    put(record);
                }
            } catch (RuntimeException error) {
                fail(error);
            }
        }
    }

    Object call(Call call) throws Exception {
        CompletableFuture<Void> done = new CompletableFuture<>();
        calls.add(() -> {
            try {
                call.on(consumer);
                done.complete(null);
            } catch (Throwable error) {
                done.completeExceptionally(error);
            }
        });
        done.get();
        return Map.of();
    }

    void close() throws Exception {
        call(each -> {
            open = false;
            each.close();
        });
    }

    synchronized void forget() {
        records.clear();
    }

    private synchronized void fail(RuntimeException error) {
        failure = error;
    }

    private synchronized void put(ConsumerRecord<byte[], byte[]> r) {
        List<List<Object>> headers = new ArrayList<>();
        r.headers().forEach(h -> {
            List<Object> header = new ArrayList<>();
            header.add(h.key());
            header.add(text(h.value()));
            headers.add(header);
        });
        Map<String, Object> shown = new HashMap<>();
        shown.put("topic", r.topic());
        shown.put("partition", r.partition());
        shown.put("offset", r.offset());
        shown.put("key", text(r.key()));
        shown.put("value", text(r.value()));
        shown.put("headers", headers);
        shown.put("timestamp", r.timestamp());
        records.add(shown);
        notifyAll();
    }

    private static Object text(byte[] data) {
        if (data == null) {
            return null;
        }
        String text = new String(data);
        return text.length() > 1000 && text.chars().allMatch(c -> c == 'x') ? Map.of("fill", text.length()) : text;
    }

    /** Waits for so many records, and hands over what there is when the time is over. */
    synchronized Object take(int count, double seconds) throws InterruptedException {
        long deadline = System.nanoTime() + (long) (seconds * 1e9);
        for (long left; records.size() < count && (left = (deadline - System.nanoTime()) / 1_000_000) > 0; ) {
            wait(left);
        }
        List<Map<String, Object>> first = records.subList(0, Math.min(count, records.size()));
        List<Map<String, Object>> taken = new ArrayList<>(first);
        first.clear();
        if (taken.isEmpty() && failure != null) {
            throw failure;
        }
        return Map.of("records", taken);
    }
}
