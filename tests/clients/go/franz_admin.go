package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type (
	kmsgCommit    = kmsg.OffsetCommitRequest
	kmsgCommitted = kmsg.OffsetCommitResponse
)

var background = context.Background()

func (f *franzClient) create(c *command) (any, error) {
	config := map[string]*string{}
	for name, value := range c.Config {
		config[name] = kadm.StringPtr(value)
	}
	answer, err := f.admin.CreateTopic(background, int32(c.Partitions), -1, config, c.Topic)
	if err == nil {
		err = answer.Err
	}
	return nil, err
}

func (f *franzClient) topics(*command) (any, error) {
	listed, err := f.admin.ListTopics(background)
	return object{"topics": listed.Names()}, err
}

func (f *franzClient) describe(c *command) (any, error) {
	listed, err := f.admin.ListTopics(background, c.Topic)
	if err != nil {
		return nil, err
	}
	if err := listed[c.Topic].Err; err != nil {
		return nil, err
	}
	partitions := []object{}
	for _, p := range listed[c.Topic].Partitions {
		partitions = append(partitions, object{"partition": p.Partition, "leader": p.Leader, "replicas": len(p.Replicas)})
	}
	return object{"partitions": partitions}, nil
}

func (f *franzClient) createPartitions(c *command) (any, error) {
	answer, err := f.admin.UpdatePartitions(background, c.Total, c.Topic)
	if err == nil {
		err = answer.Error()
	}
	return nil, err
}

func (f *franzClient) configs(c *command) (any, error) {
	answer, err := f.admin.DescribeTopicConfigs(background, c.Topic)
	if err != nil {
		return nil, err
	}
	if answer[0].Err != nil {
		return nil, answer[0].Err
	}
	configs := map[string]*string{}
	for _, entry := range answer[0].Configs {
		configs[entry.Key] = entry.Value
	}
	return object{"configs": configs}, nil
}

func (f *franzClient) alter(c *command) (any, error) {
	change := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: c.Name, Value: &c.Value}}
	answer, err := f.admin.AlterTopicConfigs(background, change, c.Topic)
	if err == nil {
		err = answer[0].Err
	}
	return nil, err
}

func (f *franzClient) deleteRecords(c *command) (any, error) {
	offsets := kadm.Offsets{}
	offsets.AddOffset(c.Topic, c.Partition, c.Before, -1)
	answer, err := f.admin.DeleteRecords(background, offsets)
	if err == nil {
		err = answer.Error()
	}
	return nil, err
}

func (f *franzClient) deleteTopic(c *command) (any, error) {
	answer, err := f.admin.DeleteTopic(background, c.Topic)
	if err == nil {
		err = answer.Err
	}
	return nil, err
}

func (f *franzClient) groups(*command) (any, error) {
	listed, err := f.admin.ListGroups(background)
	return object{"groups": listed.Groups()}, err
}

func (f *franzClient) describeGroup(c *command) (any, error) {
	answer, err := f.admin.DescribeGroups(background, c.Group)
	if err != nil {
		return nil, err
	}
	group := answer[c.Group]
	return object{"state": group.State, "members": len(group.Members)}, group.Err
}

func (f *franzClient) logDirs(*command) (any, error) {
	answer, err := f.admin.DescribeAllLogDirs(background, nil)
	topics := []string{}
	answer.Each(func(dir kadm.DescribedLogDir) {
		if dir.Err != nil {
			err = dir.Err
		}
		for topic := range dir.Topics {
			topics = append(topics, topic)
		}
	})
	return object{"topics": topics}, err
}

func (f *franzClient) cluster(*command) (any, error) {
	answer, err := f.admin.BrokerMetadata(background)
	brokers := [][3]any{}
	for _, b := range answer.Brokers {
		brokers = append(brokers, [3]any{b.NodeID, b.Host, b.Port})
	}
	return object{"cluster": answer.Cluster, "brokers": brokers}, err
}
