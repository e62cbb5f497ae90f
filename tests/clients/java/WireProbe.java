import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.net.Socket;
import java.net.SocketException;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.util.Collection;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.record.internal.BaseRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.requests.ResponseHeader;

/**
 * One request, one answer, both as JSON, encoded and decoded by Kafka's own classes; a line each on stdin and stdout.
 *
 * <p>{"address": "host:port", "api": 3, "version": 12, "request": {...}} is answered with {"response": {...}}, or with
 * {"closed": true}. A request names the fields that matter: others have their defaults, and those that the version does
 * not have are left out. {"body": "hex"} in place of the request sends these bytes, and gets bytes. A connection is kept
 * for each address until somebody closes it.
 */
public final class WireProbe {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int ANSWER_MILLIS = 20_000;
    private static final short UNSUPPORTED_VERSION = 35;
    private static final String CLIENT_ID = "probe";

    private final Map<String, Socket> connections = new HashMap<>();
    private int correlationId = 0;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        WireProbe probe = new WireProbe();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                probe.call(JSON.readTree(line), answer);
            } catch (Exception error) {
                answer.put("failed", error + " at " + error.getStackTrace()[0]);
            }
            answers.println(answer);
            answers.flush();
        }
    }

    private void call(JsonNode call, ObjectNode answer) throws Exception {
        short key = (short) call.get("api").asInt();
        short version = (short) call.get("version").asInt();
        boolean raw = call.has("body");
        ByteBuffer request = raw
            ? raw(key, version, HexFormat.of().parseHex(call.get("body").asText()))
            : encode(ApiMessageType.fromApiKey(key), version, call.get("request"));
        String address = call.get("address").asText();
        byte[] frame;
        try {
            frame = exchange(address, request);
        } catch (SocketTimeoutException error) {
            close(address);
            answer.put("silent", true);
            return;
        } catch (EOFException | SocketException error) {
            close(address);
            answer.put("closed", true);
            return;
        }
        if (raw) {
            answer.put("body", HexFormat.of().formatHex(frame, 4, frame.length));
        } else {
            answer.set("response", decode(ApiMessageType.fromApiKey(key), version, ByteBuffer.wrap(frame)));
        }
    }

    private byte[] exchange(String address, ByteBuffer request) throws IOException {
        Socket socket = connections.get(address);
        if (socket == null) {
            int colon = address.lastIndexOf(':');
            socket = new Socket(address.substring(0, colon), Integer.parseInt(address.substring(colon + 1)));
            socket.setSoTimeout(ANSWER_MILLIS);
            socket.setTcpNoDelay(true);
            connections.put(address, socket);
        }
        ByteBuffer whole = ByteBuffer.allocate(4 + request.remaining());
        whole.putInt(request.remaining()).put(request);
        OutputStream out = socket.getOutputStream();
        out.write(whole.array());
        out.flush();
        DataInputStream in = new DataInputStream(socket.getInputStream());
        byte[] frame = new byte[in.readInt()];
        in.readFully(frame);
        int answered = ByteBuffer.wrap(frame).getInt();
        if (answered != correlationId) {
            throw new IllegalStateException("asked " + correlationId + ", answered " + answered);
        }
        return frame;
    }

    private void close(String address) throws IOException {
        connections.remove(address).close();
    }

    private ByteBuffer raw(short key, short version, byte[] body) {
        byte[] client = CLIENT_ID.getBytes();
        ByteBuffer out = ByteBuffer.allocate(10 + client.length + body.length);
        out.putShort(key).putShort(version).putInt(++correlationId);
        return out.putShort((short) client.length).put(client).put(body).flip();
    }

    private ByteBuffer encode(ApiMessageType type, short version, JsonNode fields) throws Exception {
        ApiMessage message = type.newRequest();
        fill(message, fields, type.requestSchemas()[version]);
        var header = new RequestHeader(org.apache.kafka.common.protocol.ApiKeys.forId(type.apiKey()), version, CLIENT_ID,
            ++correlationId);
        ByteBuffer head = MessageUtil.toByteBufferAccessor(header.data(), header.headerVersion()).buffer();
        ByteBuffer body = MessageUtil.toByteBufferAccessor(message, version).buffer();
        return ByteBuffer.allocate(head.remaining() + body.remaining()).put(head).put(body).flip();
    }

    private static JsonNode decode(ApiMessageType type, short version, ByteBuffer frame) throws Exception {
        ResponseHeader.parse(frame, type.responseHeaderVersion(version));
        ApiMessage message = type.newResponse();
        boolean isRefused = type == ApiMessageType.API_VERSIONS && frame.getShort(frame.position()) == UNSUPPORTED_VERSION;
        short layout = isRefused ? 0 : version;
        message.read(new ByteBufferAccessor(frame), layout);
        if (frame.hasRemaining()) {
            throw new IllegalStateException(frame.remaining() + " bytes behind the answer");
        }
        Class<?> converter = Class.forName(message.getClass().getName() + "JsonConverter");
        try {
            // Records as their size.
            return (JsonNode) converter.getMethod("write", message.getClass(), short.class, boolean.class)
                .invoke(null, message, layout, false);
        } catch (NoSuchMethodException none) {
            return (JsonNode) converter.getMethod("write", message.getClass(), short.class)
                .invoke(null, message, layout);
        }
    }

    /** Sets the fields of a message that its version has. */
    private static void fill(Object message, JsonNode fields, Schema schema) throws Exception {
        for (Map.Entry<String, JsonNode> field : fields.properties()) {
            org.apache.kafka.common.protocol.types.Type type = find(schema, field.getKey());
            if (type != null) {
                Method setter = setter(message, field.getKey());
                setter.invoke(message, value(field.getValue(), setter.getGenericParameterTypes()[0], type));
            }
        }
    }

    private static Method setter(Object message, String field) throws NoSuchMethodException {
        String name = "set" + Character.toUpperCase(field.charAt(0)) + field.substring(1);
        for (Method method : message.getClass().getMethods()) {
            if (method.getName().equals(name)) {
                return method;
            }
        }
        throw new NoSuchMethodException(message.getClass().getSimpleName() + "." + name);
    }

    /** The type of a field in this version; null where the version does not have the field. */
    private static org.apache.kafka.common.protocol.types.Type find(Schema schema, String field) {
        String name = field.replaceAll("([A-Z])", "_$1").toLowerCase(java.util.Locale.ROOT);
        for (BoundField bound : schema.fields()) {
            if (bound.def.name.equals(name)) {
                return bound.def.type;
            }
            if (bound.def.type instanceof TaggedFields tagged) {
                for (Field inner : tagged.fields().values()) {
                    if (inner.name.equals(name)) {
                        return inner.type;
                    }
                }
            }
        }
        return null;
    }

    private static Object value(JsonNode json, Type wanted, org.apache.kafka.common.protocol.types.Type type)
        throws Exception {
        if (json.isNull()) {
            return null;
        }
        Class<?> raw = (Class<?>) (wanted instanceof ParameterizedType p ? p.getRawType() : wanted);
        if (Collection.class.isAssignableFrom(raw)) {
            return list(json, wanted, raw, type.arrayElementType().get());
        } else if (BaseRecords.class.isAssignableFrom(raw)) {
            return records(json);
        } else if (raw == String.class) {
            return json.asText();
        } else if (raw == boolean.class) {
            return json.asBoolean();
        } else if (raw == byte.class || raw == Byte.class) {
            return (byte) json.asInt();
        } else if (raw == short.class || raw == Short.class) {
            return (short) json.asInt();
        } else if (raw == int.class || raw == Integer.class) {
            return json.asInt();
        } else if (raw == long.class || raw == Long.class) {
            return json.asLong();
        } else if (raw == double.class || raw == Double.class) {
            return json.asDouble();
        } else if (raw == Uuid.class) {
            return Uuid.fromString(json.asText());
        } else if (raw == byte[].class) {
            return json.asText().getBytes();
        } else if (raw == ByteBuffer.class) {
            return ByteBuffer.wrap(json.asText().getBytes());
        }
        Object message = raw.getConstructor().newInstance();
        fill(message, json, (Schema) type);
        return message;
    }

    @SuppressWarnings("unchecked")
    private static Object list(JsonNode json, Type wanted, Class<?> raw,
                               org.apache.kafka.common.protocol.types.Type element) throws Exception {
        // Either List<Element>, or a collection class of its own, whose superclass names the element.
        Type named = wanted instanceof ParameterizedType ? wanted : raw.getGenericSuperclass();
        Collection<Object> list = wanted instanceof ParameterizedType
            ? new java.util.ArrayList<>()
            : (Collection<Object>) raw.getConstructor().newInstance();
        for (JsonNode one : json) {
            list.add(value(one, ((ParameterizedType) named).getActualTypeArguments()[0], element));
        }
        return list;
    }

    /** One batch: {"values": [...], "timestamp": T, "producerId": P, "producerEpoch": E, "baseSequence": S}. */
    private static BaseRecords records(JsonNode json) {
        JsonNode values = json.get("values");
        SimpleRecord[] records = new SimpleRecord[values.size()];
        for (int i = 0; i < records.length; i++) {
            records[i] = new SimpleRecord(json.get("timestamp").asLong() + i, values.get(i).asText().getBytes());
        }
        if (!json.has("producerId")) {
            return MemoryRecords.withRecords(Compression.NONE, records);
        }
        long producer = json.get("producerId").asLong();
        short epoch = (short) json.path("producerEpoch").asInt();
        int sequence = json.path("baseSequence").asInt();
        return json.path("transactional").asBoolean()
            ? MemoryRecords.withTransactionalRecords(Compression.NONE, producer, epoch, sequence, records)
            : MemoryRecords.withIdempotentRecords(Compression.NONE, producer, epoch, sequence, records);
    }
}
