"""Who may do what is Kafka's to say: behind the proxy each user gets the answers that it gets directly, for topics of
both kinds, whichever mechanism it authenticates with."""

import contextlib

import confluent_kafka
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (AclBinding, AclBindingFilter, AclOperation, AclPermissionType, AdminClient,
                                   ConfigResource, NewTopic, ResourcePatternType, ResourceType, ScramCredentialInfo,
                                   ScramMechanism, UserScramCredentialUpsertion)

from harness import Kafka, wait_for
from workload import QUIET, running_proxies

MECHANISMS = ["PLAIN", "SCRAM-SHA-256"]
USERS = ["writer", "reader", "both", "stranger"]
TOPICS = {"classic": "classic-guarded", "diskless": "diskless-guarded"}
RIGHTS = {
    "writer": [AclOperation.WRITE, AclOperation.DESCRIBE],
    "reader": [AclOperation.READ, AclOperation.DESCRIBE],
    "both": [AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE_CONFIGS],
    "stranger": [],
}


def secret(user):
    return f"secret-of-{user}"


def guarded(port):
    """Clients authenticate; the brokers among themselves, and who sets this up, come in by another port."""
    users = " ".join(f'user_{user}="{secret(user)}"' for user in [*USERS, "proxy"])
    module = "org.apache.kafka.common.security"
    return "\n".join([
        f"listeners=SASL_PLAINTEXT://127.0.0.1:{port},PLAINTEXT://127.0.0.1:{port + 50},"
        f"CONTROLLER://127.0.0.1:{port + 100}",
        f"advertised.listeners=SASL_PLAINTEXT://127.0.0.1:{port},PLAINTEXT://127.0.0.1:{port + 50}",
        f"sasl.enabled.mechanisms={','.join(MECHANISMS)}",
        f"listener.name.sasl_plaintext.plain.sasl.jaas.config={module}.plain.PlainLoginModule required {users};",
        f"listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config={module}.scram.ScramLoginModule required;",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:ANONYMOUS;User:proxy",
    ]) + "\n"


def set_up(trusted):
    """The users' SCRAM secrets and their rights."""
    admin = AdminClient({"bootstrap.servers": trusted, **QUIET})
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    secrets = [UserScramCredentialUpsertion(user, credential, secret(user).encode()) for user in USERS]
    for done in admin.alter_user_scram_credentials(secrets).values():
        done.result(30)
    rights = [AclBinding(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, f"User:{user}", "*", operation,
                         AclPermissionType.ALLOW)
              for user, operations in RIGHTS.items() for operation in operations for topic in TOPICS.values()]
    rights += [AclBinding(ResourceType.GROUP, "none", ResourcePatternType.LITERAL, f"User:{user}", "*",
                          AclOperation.READ, AclPermissionType.ALLOW) for user in USERS]
    for done in admin.create_acls(rights).values():
        done.result(30)
    everything = AclBindingFilter(ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY,
                                  AclPermissionType.ANY)
    wait_for(lambda: len(admin.describe_acls(everything).result(30)) == len(rights), 30, "the rights to be in force")


@pytest.fixture(scope="module")
def secured():
    """A cluster that asks who comes, a proxy before it, and a topic of each kind with a record."""
    with contextlib.ExitStack() as stack:
        kafka = Kafka(1, extra=guarded)
        stack.callback(kafka.stop)
        set_up(f"127.0.0.1:{kafka.base_port + 50}")
        settings = {"listener.security.protocol": "SASL_PLAINTEXT", "upstream.security.protocol": "SASL_PLAINTEXT",
                    "upstream.sasl.username": "proxy", "upstream.sasl.password": secret("proxy")}
        [proxy] = stack.enter_context(running_proxies(kafka, settings=settings))
        as_proxy = login("proxy", "PLAIN")
        admin = AdminClient({"bootstrap.servers": proxy.bootstrap, **as_proxy})
        for done in admin.create_topics([NewTopic(topic, 1) for topic in TOPICS.values()]).values():
            done.result(30)
        for topic in TOPICS.values():
            assert produced(proxy.bootstrap, topic, as_proxy) is None
        yield kafka, proxy


def login(user, mechanism, password=None):
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.username": user,
            "sasl.password": password or secret(user), **QUIET}


def code_of(call):
    """The name of the error that a call raises, or None."""
    try:
        call()
    except KafkaException as error:
        return error.args[0].name()
    return None


def produced(bootstrap, topic, settings):
    """What a producer is told of a record."""
    told = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "message.timeout.ms": 30_000,
                         **settings})
    producer.produce(topic, b"record", partition=0, on_delivery=lambda error, _: told.append(error))
    producer.flush(60)
    [error] = told
    return error and error.name()


def read(consumer, topic):
    """What a consumer is told that asks for the first record."""
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = wait_for(lambda: consumer.poll(0.5), 60, "a record or an error")
    return message.error() and message.error().name()


def outcomes(bootstrap, topic, settings):
    """What a user is told, call by call."""
    told = {"produce": produced(bootstrap, topic, settings)}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, **settings})
    try:
        told["list offsets"] = code_of(lambda: consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30))
        told["fetch"] = read(consumer, topic)
        described = consumer.list_topics(topic, timeout=30).topics[topic]
        told["describe"] = described.error and described.error.name()
        told["all topics"] = topic in consumer.list_topics(timeout=30).topics
        told["group"] = code_of(lambda: consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False))
    finally:
        consumer.close()
    admin = AdminClient({"bootstrap.servers": bootstrap, **settings})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    told["describe settings"] = code_of(lambda: admin.describe_configs([resource])[resource].result(30))
    told["create"] = code_of(lambda: admin.create_topics([NewTopic(f"{topic}-new", 1)])[f"{topic}-new"].result(30))
    told["create partitions"] = code_of(
        lambda: admin.create_partitions([confluent_kafka.admin.NewPartitions(topic, 2)])[topic].result(30))
    told["delete"] = code_of(lambda: admin.delete_topics([topic])[topic].result(30))
    return told


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", USERS)
def test_a_user_is_told_the_same_as_directly(secured, user, mechanism):
    kafka, proxy = secured
    settings = login(user, mechanism)
    direct = outcomes(kafka.bootstrap, TOPICS["classic"], settings)
    assert (direct["produce"] is None) == (AclOperation.WRITE in RIGHTS[user]), direct
    assert (direct["fetch"] is None) == (AclOperation.READ in RIGHTS[user]), direct
    print(user, mechanism, direct)
    for kind in TOPICS:
        assert outcomes(proxy.bootstrap, TOPICS[kind], settings) == direct, kind


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_refused_as_directly(secured, mechanism):
    kafka, proxy = secured
    told = []
    for bootstrap in [kafka.bootstrap, proxy.bootstrap]:
        errors = []
        admin = AdminClient({"bootstrap.servers": bootstrap, "error_cb": errors.append,
                             **login("both", mechanism, password="wrong")})
        wait_for(lambda: admin.poll(0.2) or errors, 30, "the refusal")
        told.append(errors[0].name())
    assert told == ["_AUTHENTICATION"] * 2
