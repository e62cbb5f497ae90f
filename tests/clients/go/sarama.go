package main

import (
	"context"
	"errors"
	"time"

	"github.com/IBM/sarama"
)

// saramaMember is either a partition consumer or a member of a group.
type saramaMember struct {
	*inbox
	partition sarama.PartitionConsumer
	group     sarama.ConsumerGroup
	sessions  chan sarama.ConsumerGroupSession // holds the current one
	stop      context.CancelFunc
	done      chan struct{}
}

type saramaState struct {
	bootstrap []string
	admin     sarama.ClusterAdmin
	client    sarama.Client
	consumer  sarama.Consumer
	members   members[*saramaMember]
}

func saramaConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Metadata.RefreshFrequency = time.Second
	return config
}

func saramaClient(bootstrap string) (map[string]operation, func(error) *int) {
	client, err := sarama.NewClient([]string{bootstrap}, saramaConfig())
	if err != nil {
		panic(err)
	}
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		panic(err)
	}
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		panic(err)
	}
	s := &saramaState{bootstrap: []string{bootstrap}, admin: admin, client: client, consumer: consumer}
	return map[string]operation{
		"hello":   func(*command) (any, error) { return object{"version": moduleVersion("github.com/IBM/sarama")}, nil },
		"produce": s.produce, "assign": s.assign, "seek": s.seek, "join": s.join, "commit": s.commit,
		"take":  func(c *command) (any, error) { return s.members.get(c).take(c) },
		"pause": s.pause, "resume": s.resume, "leave": s.leave,
		"create": s.create, "topics": s.topics, "describe": s.describe, "create_partitions": s.createPartitions,
		"configs": s.configs, "alter": s.alter, "delete_records": s.deleteRecords, "delete_topic": s.deleteTopic,
		"groups": s.groups, "describe_group": s.describeGroup, "log_dirs": s.logDirs, "cluster": s.cluster,
	}, saramaCode
}

func saramaCode(err error) *int {
	var known sarama.KError
	if !errors.As(err, &known) {
		return nil
	}
	code := int(known)
	return &code
}

var saramaCodecs = map[string]sarama.CompressionCodec{
	"gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4,
	"zstd": sarama.CompressionZSTD,
}

func (s *saramaState) produce(c *command) (any, error) {
	config := saramaConfig()
	config.Producer.Return.Successes = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Compression = saramaCodecs[c.Codec]
	if c.Idempotent {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewSyncProducer(s.bootstrap, config)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	var messages []*sarama.ProducerMessage
	for _, r := range c.Records {
		out := &sarama.ProducerMessage{Topic: c.Topic, Partition: c.Partition}
		if r.Key != nil {
			out.Key = sarama.ByteEncoder(r.Key)
		}
		if r.Value != nil {
			out.Value = sarama.ByteEncoder(r.Value)
		}
		for _, h := range r.Headers {
			out.Headers = append(out.Headers, sarama.RecordHeader{Key: h[0], Value: h[1]})
		}
		if r.Timestamp != 0 {
			out.Timestamp = time.UnixMilli(r.Timestamp)
		}
		messages = append(messages, out)
	}
	if err := producer.SendMessages(messages); err != nil {
		var several sarama.ProducerErrors
		if errors.As(err, &several) {
			return nil, several[0].Err
		}
		return nil, err
	}
	return object{"first": messages[0].Offset}, nil
}

func saramaRecord(m *sarama.ConsumerMessage) record {
	out := record{m.Topic, m.Partition, m.Offset, m.Key, m.Value, [][2]text{}, m.Timestamp.UnixMilli()}
	for _, h := range m.Headers {
		out.Headers = append(out.Headers, [2]text{h.Key, h.Value})
	}
	return out
}

func (s *saramaState) position(c *command) (int64, error) {
	switch {
	case c.At.Offset != nil:
		return *c.At.Offset, nil
	case c.At.Timestamp != nil:
		return s.client.GetOffset(c.Topic, c.Partition, *c.At.Timestamp)
	case c.At.Name == "begin":
		return s.client.GetOffset(c.Topic, c.Partition, sarama.OffsetOldest)
	}
	return s.client.GetOffset(c.Topic, c.Partition, sarama.OffsetNewest)
}

func (s *saramaState) assign(c *command) (any, error) {
	at, err := s.position(c)
	if err != nil {
		return nil, err
	}
	// A consumer of its own: one takes each partition once.
	consumer, err := sarama.NewConsumerFromClient(s.client)
	if err != nil {
		return nil, err
	}
	partition, err := consumer.ConsumePartition(c.Topic, c.Partition, at)
	if err != nil {
		return nil, err
	}
	member := &saramaMember{inbox: newInbox(), partition: partition}
	go func() {
		for message := range partition.Messages() {
			member.put(saramaRecord(message))
		}
	}()
	s.members.put(c.Member, member)
	return nil, nil
}

// seek is, in this client, to close the partition and to open it elsewhere.
func (s *saramaState) seek(c *command) (any, error) {
	if s.members.get(c).partition == nil {
		return nil, errMissing
	}
	if err := s.members.get(c).partition.Close(); err != nil {
		return nil, err
	}
	return s.assign(c)
}

func (s *saramaState) join(c *command) (any, error) {
	if c.Pattern != "" || c.Protocol == "consumer" {
		return nil, errMissing
	}
	config := saramaConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	group, err := sarama.NewConsumerGroup(s.bootstrap, c.Group, config)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(background)
	member := &saramaMember{inbox: newInbox(), group: group, stop: stop, done: make(chan struct{}),
		sessions: make(chan sarama.ConsumerGroupSession, 1)}
	topics := c.Topics
	go func() {
		defer close(member.done)
		for ctx.Err() == nil {
			if err := group.Consume(ctx, topics, member); err != nil && ctx.Err() == nil {
				member.fail(err)
			}
		}
	}()
	s.members.put(c.Member, member)
	return nil, nil
}

// Setup is called by the client when a generation of the group begins.
func (m *saramaMember) Setup(session sarama.ConsumerGroupSession) error {
	m.sessions <- session
	return nil
}

// Cleanup is called when the generation has ended.
func (m *saramaMember) Cleanup(sarama.ConsumerGroupSession) error {
	<-m.sessions
	return nil
}

// ConsumeClaim is called for each partition of the member.
func (m *saramaMember) ConsumeClaim(_ sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		m.put(saramaRecord(message))
	}
	return nil
}

func (s *saramaState) commit(c *command) (any, error) {
	member := s.members.get(c)
	session := <-member.sessions
	defer func() { member.sessions <- session }()
	session.MarkOffset(c.Topic, c.Partition, c.Offset, "")
	session.Commit()
	return nil, nil
}

func (s *saramaState) pause(c *command) (any, error) {
	s.members.get(c).group.Pause(map[string][]int32{c.Topic: {c.Partition}})
	// A fetch that is under way still brings what comes while it waits; sarama tells nobody when it has ended.
	time.Sleep(2 * sarama.NewConfig().Consumer.MaxWaitTime)
	return nil, nil
}

func (s *saramaState) resume(c *command) (any, error) {
	s.members.get(c).group.Resume(map[string][]int32{c.Topic: {c.Partition}})
	return nil, nil
}

func (s *saramaState) leave(c *command) (any, error) {
	member := s.members.get(c)
	if member.partition != nil {
		return nil, member.partition.Close()
	}
	member.stop()
	<-member.done
	return nil, member.group.Close()
}
