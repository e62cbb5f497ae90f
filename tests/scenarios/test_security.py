"""Who may do what is Kafka's to say: behind the proxy each user gets the answers that it gets directly, for topics of
both kinds and with each mechanism, and what a user proves itself with stays between it and Kafka."""

import contextlib
import json
import subprocess
import uuid

import kafka.admin
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (AclBinding, AclBindingFilter, AclOperation, AclPermissionType, AdminClient,
                                   ConfigResource, NewPartitions, NewTopic, ResourcePatternType, ResourceType,
                                   ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion)

from conftest import QUICK
from harness import BINARY, Kafka, wait_for
from workload import QUIET, running_proxies

SCRAM = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
MECHANISMS = ["PLAIN", *SCRAM]
KINDS = {"classic": "classic-guarded", "diskless": "diskless-guarded"}
PARTITIONS = 3
"""Of a topic whose creator does not say how many."""

# What each user may do with the two topics.
RIGHTS = {
    "writer": {AclOperation.WRITE},
    "reader": {AclOperation.READ},
    "both": {AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE_CONFIGS},
    "stranger": set(),
}
# And what others may do with the topics that they create, whose names begin with their own.
CREATORS = {
    "creator": {AclOperation.CREATE, AclOperation.DESCRIBE},
    "describer": {AclOperation.CREATE, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS},
    "leaver": {AclOperation.CREATE, AclOperation.READ, AclOperation.WRITE},
}
CLIENTS = [*RIGHTS, *CREATORS]
USERS = [*CLIENTS, "owner", "proxy"]
METADATA_TOPIC = "__diskless_metadata"
GROUP = "readers"


def secret(user):
    return f"secret-of-{user}"


def guarded(port):
    """Clients authenticate; the brokers among themselves, and who sets this up, come in by another port."""
    users = " ".join(f'user_{user}="{secret(user)}"' for user in USERS)
    module = "org.apache.kafka.common.security"
    listener = "listener.name.sasl_plaintext"
    return "\n".join([
        f"listeners=SASL_PLAINTEXT://127.0.0.1:{port},PLAINTEXT://127.0.0.1:{port + 50},"
        f"CONTROLLER://127.0.0.1:{port + 100}",
        f"advertised.listeners=SASL_PLAINTEXT://127.0.0.1:{port},PLAINTEXT://127.0.0.1:{port + 50}",
        f"sasl.enabled.mechanisms={','.join(MECHANISMS)}",
        f"{listener}.plain.sasl.jaas.config={module}.plain.PlainLoginModule required {users};",
        *(f"{listener}.{mechanism.lower()}.sasl.jaas.config={module}.scram.ScramLoginModule required;"
          for mechanism in SCRAM),
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:ANONYMOUS",
        f"num.partitions={PARTITIONS}",
    ]) + "\n"


def allowed(user, resource, name, *operations, pattern=ResourcePatternType.LITERAL):
    return [AclBinding(resource, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
            for operation in operations]


def rights():
    """What the README says that the proxy itself needs, and what the users have."""
    topic, group, cluster = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.BROKER
    operation = AclOperation
    yield from allowed("proxy", topic, METADATA_TOPIC, operation.CREATE, operation.DESCRIBE,
                       operation.DESCRIBE_CONFIGS, operation.READ, operation.WRITE)
    yield from allowed("proxy", topic, "*", operation.DESCRIBE, operation.DESCRIBE_CONFIGS)
    yield from allowed("proxy", group, "sidestream-metadata-log", operation.DESCRIBE)
    yield from allowed("owner", topic, "*", operation.ALL)
    for user in CLIENTS:
        # Without these a client would be stopped before anybody looks at its rights on a topic.
        yield from allowed(user, cluster, "kafka-cluster", operation.IDEMPOTENT_WRITE)
        yield from allowed(user, group, GROUP, operation.READ)
    for name in KINDS.values():
        for user, operations in RIGHTS.items():
            yield from allowed(user, topic, name, *operations)
    for kind in KINDS:
        for user, operations in CREATORS.items():
            yield from allowed(user, topic, f"{kind}-{user}", *operations, pattern=ResourcePatternType.PREFIXED)


EVERY_RIGHT = AclBindingFilter(ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY,
                               AclPermissionType.ANY)


def set_up(admin):
    """The users' SCRAM secrets and their rights."""
    for mechanism in SCRAM.values():
        secrets = [UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), secret(user).encode())
                   for user in USERS]
        for done in admin.alter_user_scram_credentials(secrets).values():
            done.result(60)
    wanted = list(rights())
    for done in admin.create_acls(wanted).values():
        done.result(60)
    wait_for(lambda: len(admin.describe_acls(EVERY_RIGHT).result(30)) == len(wanted), 60, "the rights to be in force")


class Secured:
    """A cluster that asks who comes and what they may do, and a proxy before it that is no more than one of its users."""

    def __init__(self, cluster, proxy, trusted):
        self.kafka, self.proxy, self.trusted = cluster, proxy, trusted
        self.doors = {("direct", "classic"): cluster.bootstrap, ("proxy", "classic"): proxy.bootstrap,
                      ("proxy", "diskless"): proxy.bootstrap}


@pytest.fixture(scope="module")
def secured():
    with contextlib.ExitStack() as stack:
        cluster = Kafka(1, extra=guarded, jvm=QUICK)
        stack.callback(cluster.stop)
        trusted = AdminClient({"bootstrap.servers": f"127.0.0.1:{cluster.base_port + 50}", **QUIET})
        set_up(trusted)
        settings = {"listener.security.protocol": "SASL_PLAINTEXT", "upstream.security.protocol": "SASL_PLAINTEXT",
                    "upstream.sasl.mechanism": "SCRAM-SHA-256", "upstream.sasl.username": "proxy",
                    "upstream.sasl.password": secret("proxy"), "metadata.topic": METADATA_TOPIC,
                    "diskless.acl.cache.ms": 1000}
        [proxy] = stack.enter_context(
            running_proxies(cluster, settings=settings, environment={"SIDESTREAM_LOG": "debug,sidestream=trace"}))
        owner = login("owner", "PLAIN")
        admin = AdminClient({"bootstrap.servers": proxy.bootstrap, **owner})
        for topic in KINDS.values():
            admin.create_topics([NewTopic(topic, 1)])[topic].result(60)
            assert produced(proxy.bootstrap, topic, owner) is None
        yield Secured(cluster, proxy, trusted)


def login(user, mechanism, password=None):
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.username": user,
            "sasl.password": password or secret(user), **QUIET}


def name_of(error):
    return error and error.name()


def code_of(call):
    """The name of the error that a call raises, or None."""
    try:
        call()
    except KafkaException as error:
        return error.args[0].name()
    return None


def idempotent_producer(bootstrap, settings):
    return Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "message.timeout.ms": 60_000,
                     **settings})


def produced(bootstrap, topic, settings, producer=None):
    """What a producer is told of a record."""
    told = []
    producer = producer or idempotent_producer(bootstrap, settings)
    producer.produce(topic, b"record", partition=0, on_delivery=lambda error, _: told.append(error))
    producer.flush(90)
    [error] = told
    return name_of(error)


def consumer_of(bootstrap, settings):
    return Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False, **settings})


def fetched(consumer, topic):
    """What a consumer is told that asks for the first record."""
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = wait_for(lambda: consumer.poll(0.5), 60, "a record or an error")
    return name_of(message.error())


def outcomes(bootstrap, topic, settings):
    """What a user is told, call by call."""
    told = {"produce": produced(bootstrap, topic, settings)}
    consumer = consumer_of(bootstrap, settings)
    try:
        told["list offsets"] = code_of(lambda: consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30))
        described = consumer.list_topics(topic, timeout=30).topics[topic]
        told["describe"] = name_of(described.error)
        told["partitions"] = len(described.partitions)
        # Without a right to know the topic the library finds no leader to fetch from, and says nothing more.
        told["fetch"] = name_of(described.error) or fetched(consumer, topic)
        told["among all topics"] = topic in consumer.list_topics(timeout=30).topics
        told["commit"] = code_of(lambda: consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False))
    finally:
        consumer.close()
    admin = AdminClient({"bootstrap.servers": bootstrap, **settings})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    new = f"{topic}-new"
    told["settings"] = code_of(lambda: admin.describe_configs([resource])[resource].result(30))
    told["create"] = code_of(lambda: admin.create_topics([NewTopic(new, 1)])[new].result(30))
    told["more partitions"] = code_of(lambda: admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30))
    told["delete"] = code_of(lambda: admin.delete_topics([topic])[topic].result(30))
    return told


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", RIGHTS)
def test_a_user_is_told_the_same_as_directly(secured, user, mechanism):
    settings = login(user, mechanism)
    told = {door: outcomes(bootstrap, KINDS[door[1]], settings) for door, bootstrap in secured.doors.items()}
    direct = told["direct", "classic"]
    denied = {"produce": AclOperation.WRITE, "fetch": AclOperation.READ, "commit": AclOperation.READ,
              "settings": AclOperation.DESCRIBE_CONFIGS}
    for call, needed in denied.items():
        assert direct[call] == (None if needed in RIGHTS[user] else "TOPIC_AUTHORIZATION_FAILED"), call
    assert told == {door: direct for door in secured.doors}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_refused_as_directly(secured, mechanism):
    direct, through = (refused_login(bootstrap, mechanism, "wrong").str().split(": ", 1)[1].split(" (after")[0]
                       for bootstrap in (secured.kafka.bootstrap, secured.proxy.bootstrap))
    assert through == direct


def refused_login(bootstrap, mechanism, password):
    """The error by which a client hears that its password is wrong. That connections broke and all brokers are down is
    told as well, before or after."""
    errors = []
    admin = AdminClient({"bootstrap.servers": bootstrap, "error_cb": errors.append,
                         **login("both", mechanism, password)})

    def refusal():
        admin.poll(0.2)
        return next((error for error in errors if error.code() == KafkaError._AUTHENTICATION), None)

    return wait_for(refusal, 60, "the refusal")


@pytest.mark.parametrize("user", ["creator", "describer"])
def test_who_creates_a_topic_is_told_of_it_what_they_may_know(secured, user):
    """Kafka does not tell a creator without DESCRIBE_CONFIGS how many partitions there are by default. The proxy finds
    out by itself, and tells no more."""
    told = {}
    for (side, kind), bootstrap in secured.doors.items():
        topic = f"{kind}-{user}-{side}"
        told[side, kind] = created(bootstrap, topic, user)
        settings = login(user, "PLAIN")
        wait_for(lambda: partitions(bootstrap, topic, settings) == PARTITIONS, 30, f"the partitions of {topic}")
    direct = told["direct", "classic"]
    may_know = user == "describer"
    assert direct["num_partitions"] == (PARTITIONS if may_know else -1)
    assert told["proxy", "classic"] == direct
    if may_know:
        assert told["proxy", "diskless"]["configs"].pop("diskless.enable")["value"] == "true"
    assert told["proxy", "diskless"] == direct
    registered = json.loads(secured.proxy.get(f"/topics/diskless-{user}-proxy"))
    assert (registered["kind"], registered["partitions"]) == ("diskless", PARTITIONS)


def created(bootstrap, topic, user):
    """The answer to the creation of a topic whose partitions are Kafka's to choose, but for what differs each time."""
    admin = kafka.admin.KafkaAdminClient(
        bootstrap_servers=bootstrap, security_protocol="SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username=user, sasl_plain_password=secret(user))
    try:
        [answer] = admin.create_topics({topic: {}})["topics"]
    finally:
        admin.close()
    return {key: value for key, value in answer.items() if key not in ("name", "topic_id")}


def partitions(bootstrap, topic, settings):
    consumer = consumer_of(bootstrap, settings)
    try:
        return len(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
    finally:
        consumer.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_right_that_is_taken_away_is_gone_for_clients_that_are_there(secured, kind):
    bootstrap, settings = secured.proxy.bootstrap, login("leaver", "SCRAM-SHA-512")
    topic = f"{kind}-leaver-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap, **settings})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(60)
    producer, consumer = idempotent_producer(bootstrap, settings), consumer_of(bootstrap, settings)
    try:
        assert produced(bootstrap, topic, settings, producer) is None
        assert fetched(consumer, topic) is None
        mine = AclBindingFilter(ResourceType.TOPIC, f"{kind}-leaver", ResourcePatternType.PREFIXED, "User:leaver", None,
                                AclOperation.ANY, AclPermissionType.ANY)
        assert len(secured.trusted.delete_acls([mine])[mine].result(30)) == len(CREATORS["leaver"])
        denied = "TOPIC_AUTHORIZATION_FAILED"
        wait_for(lambda: produced(bootstrap, topic, settings, producer) == denied, 30, "the producer to be refused")
        wait_for(lambda: (m := consumer.poll(0.5)) and name_of(m.error()) == denied, 30, "the consumer to be refused")
    finally:
        consumer.close()


def check(proxy, *changes):
    """`sidestream check` with the proxy's configuration, but for some settings: its exit code and all that it says."""
    words = [word for change in changes for word in ("--set", change)]
    done = subprocess.run([str(BINARY), "check", "--config", str(proxy.directory / "sidestream.toml"), *words],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    return done.returncode, done.stdout


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_proxy_comes_in_with_its_password_alone_and_tells_no_other(secured, mechanism):
    set_mechanism = f'upstream.sasl.mechanism={mechanism}'
    code, told = check(secured.proxy, set_mechanism)
    assert code == 0 and secret("proxy") not in told, told
    wrong = "a-password-that-is-wrong"
    code, told = check(secured.proxy, set_mechanism, f"upstream.sasl.password={wrong}")
    assert code == 1 and "fail  upstream" in told, told
    assert wrong not in told, told


def test_no_secret_is_in_log_metrics_or_errors(secured):
    """The log has all that was done above in it, at its most talkative."""
    proxy = secured.proxy
    wrong = "this-one-is-wrong"
    told = []
    for mechanism in MECHANISMS:
        assert produced(proxy.bootstrap, KINDS["diskless"], login("both", mechanism)) is None
        told.append(refused_login(proxy.bootstrap, mechanism, wrong).str())
    pages = ["/", "/proxies", "/state", "/topics?expand=info", "/metrics"]
    told += [proxy.get(page) for page in pages]
    log = proxy.log.read_text()
    assert "TRACE" in log or "DEBUG" in log, "the log is not talkative"
    told = "\n".join([*told, log])
    for text in [wrong, *(secret(user) for user in USERS)]:
        for form in forms(text):
            assert form not in told, f"{text} is told, as {form}"


def forms(text):
    """A text as it may be found in a log: as it is, in hexadecimal digits, as a list of bytes."""
    return [text, text.encode().hex(), ", ".join(str(byte) for byte in text.encode())]
