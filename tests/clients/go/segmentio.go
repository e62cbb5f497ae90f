package main

import (
	"context"
	"errors"
	"time"

	"github.com/segmentio/kafka-go"
)

type segmentioMember struct {
	*inbox
	reader *kafka.Reader
	stop   context.CancelFunc
	done   chan struct{}
}

type segmentioState struct {
	bootstrap string
	client    *kafka.Client
	members   members[*segmentioMember]
}

func segmentio(bootstrap string) (map[string]operation, func(error) *int) {
	s := &segmentioState{bootstrap: bootstrap, client: &kafka.Client{Addr: kafka.TCP(bootstrap), Timeout: 30 * time.Second}}
	return map[string]operation{
		"hello": func(*command) (any, error) {
			return object{"version": moduleVersion("github.com/segmentio/kafka-go")}, nil
		},
		"produce": s.produce, "assign": s.assign, "seek": s.seek, "join": s.join, "commit": s.commit,
		"take":   func(c *command) (any, error) { return s.members.get(c).take(c) },
		"leave":  s.leave,
		"create": s.create, "topics": s.topics, "describe": s.describe, "create_partitions": s.createPartitions,
		"configs": s.configs, "alter": s.alter, "delete_topic": s.deleteTopic,
		"groups": s.groups, "describe_group": s.describeGroup, "cluster": s.cluster,
	}, segmentioCode
}

func segmentioCode(err error) *int {
	var known kafka.Error
	if !errors.As(err, &known) {
		return nil
	}
	code := int(known)
	return &code
}

var segmentioCodecs = map[string]kafka.Compression{
	"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd,
}

// toPartition sends every message to one partition.
type toPartition int

func (p toPartition) Balance(kafka.Message, ...int) int { return int(p) }

func (s *segmentioState) produce(c *command) (any, error) {
	if c.Idempotent {
		return nil, errMissing
	}
	// The transport keeps metadata for seconds and does not look again for a topic that is new since. So each call has one.
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	writer := &kafka.Writer{
		Transport: transport, Addr: kafka.TCP(s.bootstrap), Topic: c.Topic, Balancer: toPartition(c.Partition), RequiredAcks: kafka.RequireAll,
		Compression: segmentioCodecs[c.Codec], BatchTimeout: 20 * time.Millisecond, BatchSize: 1000,
	}
	defer writer.Close()
	var messages []kafka.Message
	for _, r := range c.Records {
		out := kafka.Message{Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			out.Headers = append(out.Headers, kafka.Header{Key: string(h[0]), Value: h[1]})
		}
		if r.Timestamp != 0 {
			out.Time = time.UnixMilli(r.Timestamp)
		}
		messages = append(messages, out)
	}
	err := writer.WriteMessages(background, messages...)
	var several kafka.WriteErrors
	if errors.As(err, &several) {
		for _, one := range several {
			if one != nil {
				return nil, one
			}
		}
	}
	return nil, err
}

func segmentioRecord(m kafka.Message) record {
	out := record{m.Topic, int32(m.Partition), m.Offset, m.Key, m.Value, [][2]text{}, m.Time.UnixMilli()}
	for _, h := range m.Headers {
		out.Headers = append(out.Headers, [2]text{text(h.Key), h.Value})
	}
	return out
}

func (s *segmentioState) open(c *command, config kafka.ReaderConfig) *segmentioMember {
	config.Brokers = []string{s.bootstrap}
	config.MaxWait = 500 * time.Millisecond
	config.MaxBytes = 10 << 20
	member := &segmentioMember{inbox: newInbox(), reader: kafka.NewReader(config)}
	s.members.put(c.Member, member)
	return member
}

func (m *segmentioMember) start() {
	ctx, stop := context.WithCancel(background)
	m.stop, m.done = stop, make(chan struct{})
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			message, err := m.reader.FetchMessage(ctx)
			if err == nil {
				m.put(segmentioRecord(message))
			} else if ctx.Err() == nil {
				m.fail(err)
				return
			}
		}
	}()
}

func (m *segmentioMember) move(at position) error {
	switch {
	case at.Offset != nil:
		return m.reader.SetOffset(*at.Offset)
	case at.Timestamp != nil:
		return m.reader.SetOffsetAt(background, time.UnixMilli(*at.Timestamp))
	case at.Name == "begin":
		return m.reader.SetOffset(kafka.FirstOffset)
	}
	return m.reader.SetOffset(kafka.LastOffset)
}

func (s *segmentioState) assign(c *command) (any, error) {
	member := s.open(c, kafka.ReaderConfig{Topic: c.Topic, Partition: int(c.Partition)})
	if err := member.move(c.At); err != nil {
		return nil, err
	}
	member.start()
	return nil, nil
}

func (s *segmentioState) seek(c *command) (any, error) {
	member := s.members.get(c)
	member.stop()
	<-member.done
	member.clear()
	// The reader finds the end when it reads next, which may be later than what comes next.
	if c.At.Name == "end" {
		end, err := s.end(c)
		if err != nil {
			return nil, err
		}
		c.At = position{Offset: &end}
	}
	if err := member.move(c.At); err != nil {
		return nil, err
	}
	member.start()
	return nil, nil
}

func (s *segmentioState) end(c *command) (int64, error) {
	wanted := map[string][]kafka.OffsetRequest{c.Topic: {kafka.LastOffsetOf(int(c.Partition))}}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		answer, err := s.client.ListOffsets(background, &kafka.ListOffsetsRequest{Topics: wanted})
		if err != nil {
			return 0, err
		}
		found := answer.Topics[c.Topic][0]
		// Until its metadata has the topic, the client asks any broker, and leaves it to its user to ask again.
		if !errors.Is(found.Error, kafka.NotLeaderForPartition) || time.Now().After(deadline) {
			return found.LastOffset, found.Error
		}
	}
}

func (s *segmentioState) join(c *command) (any, error) {
	if c.Pattern != "" || c.Protocol == "consumer" {
		return nil, errMissing
	}
	s.open(c, kafka.ReaderConfig{
		GroupID: c.Group, GroupTopics: c.Topics, StartOffset: kafka.FirstOffset,
		HeartbeatInterval: 500 * time.Millisecond, JoinGroupBackoff: time.Second,
	}).start()
	return nil, nil
}

func (s *segmentioState) commit(c *command) (any, error) {
	last := kafka.Message{Topic: c.Topic, Partition: int(c.Partition), Offset: c.Offset - 1}
	return nil, s.members.get(c).reader.CommitMessages(background, last)
}

func (s *segmentioState) leave(c *command) (any, error) {
	member := s.members.get(c)
	member.stop()
	<-member.done
	return nil, member.reader.Close()
}
