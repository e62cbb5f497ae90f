package main

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type franzMember struct {
	*inbox
	client *kgo.Client
	// Held while polling and while moving, so that nothing read before a move comes after it.
	stop context.CancelFunc
	done chan struct{}
}

type franzClient struct {
	bootstrap string
	admin     *kadm.Client
	members   members[*franzMember]
}

func franz(bootstrap string) (map[string]operation, func(error) *int) {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		panic(err)
	}
	f := &franzClient{bootstrap: bootstrap, admin: kadm.NewClient(client)}
	return map[string]operation{
		"hello":   func(*command) (any, error) { return object{"version": moduleVersion("github.com/twmb/franz-go")}, nil },
		"produce": f.produce, "assign": f.assign, "seek": f.seek, "join": f.join, "commit": f.commit,
		"take":  func(c *command) (any, error) { return f.members.get(c).take(c) },
		"pause": f.pause, "resume": f.resume, "leave": f.leave,
		"create": f.create, "topics": f.topics, "describe": f.describe, "create_partitions": f.createPartitions,
		"configs": f.configs, "alter": f.alter, "delete_records": f.deleteRecords, "delete_topic": f.deleteTopic,
		"groups": f.groups, "describe_group": f.describeGroup, "log_dirs": f.logDirs, "cluster": f.cluster,
	}, franzCode
}

func franzCode(err error) *int {
	var known *kerr.Error
	if !errors.As(err, &known) {
		return nil
	}
	code := int(known.Code)
	return &code
}

var franzCodecs = map[string]kgo.CompressionCodec{
	"": kgo.NoCompression(), "none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func (f *franzClient) produce(c *command) (any, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(f.bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(franzCodecs[c.Codec]), kgo.ProducerBatchMaxBytes(1_048_588),
		kgo.ProducerLinger(20 * time.Millisecond),
	}
	if !c.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var records []*kgo.Record
	for _, r := range c.Records {
		out := &kgo.Record{Topic: c.Topic, Partition: c.Partition, Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			out.Headers = append(out.Headers, kgo.RecordHeader{Key: string(h[0]), Value: h[1]})
		}
		if r.Timestamp != 0 {
			out.Timestamp = time.UnixMilli(r.Timestamp)
		}
		records = append(records, out)
	}
	results := client.ProduceSync(context.Background(), records...)
	if err := results.FirstErr(); err != nil {
		return nil, err
	}
	return object{"first": results[0].Record.Offset}, nil
}

func (f *franzClient) open(c *command, options ...kgo.Opt) error {
	client, err := kgo.NewClient(append(options, kgo.SeedBrokers(f.bootstrap), kgo.MetadataMaxAge(time.Second),
		kgo.MetadataMinAge(100*time.Millisecond), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	if err != nil {
		return err
	}
	member := &franzMember{inbox: newInbox(), client: client}
	member.start()
	f.members.put(c.Member, member)
	return nil
}

func (m *franzMember) start() {
	ctx, stop := context.WithCancel(context.Background())
	m.stop, m.done = stop, make(chan struct{})
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			fetches := m.client.PollFetches(ctx)
			fetches.EachError(func(_ string, _ int32, err error) {
				if ctx.Err() == nil {
					m.fail(err)
				}
			})
			fetches.EachRecord(func(r *kgo.Record) { m.put(franzRecord(r)) })
		}
	}()
}

func franzRecord(r *kgo.Record) record {
	out := record{r.Topic, r.Partition, r.Offset, r.Key, r.Value, [][2]text{}, r.Timestamp.UnixMilli()}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, [2]text{text(h.Key), h.Value})
	}
	return out
}

func (f *franzClient) position(c *command) (int64, error) {
	var listed kadm.ListedOffsets
	var err error
	ctx := context.Background()
	switch {
	case c.At.Offset != nil:
		return *c.At.Offset, nil
	case c.At.Timestamp != nil:
		listed, err = f.admin.ListOffsetsAfterMilli(ctx, *c.At.Timestamp, c.Topic)
	case c.At.Name == "begin":
		listed, err = f.admin.ListStartOffsets(ctx, c.Topic)
	default:
		listed, err = f.admin.ListEndOffsets(ctx, c.Topic)
	}
	if err != nil {
		return 0, err
	}
	found, _ := listed.Lookup(c.Topic, c.Partition)
	return found.Offset, found.Err
}

func (f *franzClient) assign(c *command) (any, error) {
	at, err := f.position(c)
	if err != nil {
		return nil, err
	}
	start := map[string]map[int32]kgo.Offset{c.Topic: {c.Partition: kgo.NewOffset().At(at)}}
	return nil, f.open(c, kgo.ConsumePartitions(start))
}

func (f *franzClient) seek(c *command) (any, error) {
	at, err := f.position(c)
	if err != nil {
		return nil, err
	}
	member := f.members.get(c)
	member.stop()
	<-member.done
	member.client.SetOffsets(map[string]map[int32]kgo.EpochOffset{c.Topic: {c.Partition: {Epoch: -1, Offset: at}}})
	member.clear()
	member.start()
	return nil, nil
}

func (f *franzClient) join(c *command) (any, error) {
	options := []kgo.Opt{kgo.ConsumerGroup(c.Group), kgo.DisableAutoCommit()}
	if c.Pattern != "" {
		options = append(options, kgo.ConsumeRegex(), kgo.ConsumeTopics(c.Pattern))
	} else {
		options = append(options, kgo.ConsumeTopics(c.Topics...))
	}
	if c.Protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	}
	return nil, f.open(c, options...)
}

func (f *franzClient) commit(c *command) (any, error) {
	var failed error
	offsets := map[string]map[int32]kgo.EpochOffset{c.Topic: {c.Partition: {Epoch: -1, Offset: c.Offset}}}
	f.members.get(c).client.CommitOffsetsSync(context.Background(), offsets,
		func(_ *kgo.Client, _ *kmsgCommit, answer *kmsgCommitted, err error) {
			failed = err
			if err == nil {
				failed = kerr.ErrorForCode(answer.Topics[0].Partitions[0].ErrorCode)
			}
		})
	return nil, failed
}

func (f *franzClient) pause(c *command) (any, error) {
	f.members.get(c).client.PauseFetchPartitions(map[string][]int32{c.Topic: {c.Partition}})
	return nil, nil
}

func (f *franzClient) resume(c *command) (any, error) {
	f.members.get(c).client.ResumeFetchPartitions(map[string][]int32{c.Topic: {c.Partition}})
	return nil, nil
}

func (f *franzClient) leave(c *command) (any, error) {
	member := f.members.get(c)
	member.stop()
	<-member.done
	member.client.Close()
	return nil, nil
}
