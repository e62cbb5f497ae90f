package main

import (
	"net"
	"strconv"

	"github.com/IBM/sarama"
)

func (s *saramaState) create(c *command) (any, error) {
	config := map[string]*string{}
	for name, value := range c.Config {
		config[name] = &value
	}
	detail := &sarama.TopicDetail{NumPartitions: int32(c.Partitions), ReplicationFactor: -1, ConfigEntries: config}
	return nil, s.admin.CreateTopic(c.Topic, detail, false)
}

func (s *saramaState) topics(*command) (any, error) {
	listed, err := s.admin.ListTopics()
	topics := []string{}
	for topic := range listed {
		topics = append(topics, topic)
	}
	return object{"topics": topics}, err
}

func (s *saramaState) describe(c *command) (any, error) {
	described, err := s.admin.DescribeTopics([]string{c.Topic})
	if err != nil {
		return nil, err
	}
	if described[0].Err != sarama.ErrNoError {
		return nil, described[0].Err
	}
	partitions := []object{}
	for _, p := range described[0].Partitions {
		partitions = append(partitions, object{"partition": p.ID, "leader": p.Leader, "replicas": len(p.Replicas)})
	}
	return object{"partitions": partitions}, nil
}

func (s *saramaState) createPartitions(c *command) (any, error) {
	return nil, s.admin.CreatePartitions(c.Topic, int32(c.Total), nil, false)
}

func (s *saramaState) configs(c *command) (any, error) {
	entries, err := s.admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: c.Topic})
	configs := map[string]string{}
	for _, entry := range entries {
		configs[entry.Name] = entry.Value
	}
	return object{"configs": configs}, err
}

func (s *saramaState) alter(c *command) (any, error) {
	change := sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &c.Value}
	changes := map[string]sarama.IncrementalAlterConfigsEntry{c.Name: change}
	return nil, s.admin.IncrementalAlterConfig(sarama.TopicResource, c.Topic, changes, false)
}

func (s *saramaState) deleteRecords(c *command) (any, error) {
	return nil, s.admin.DeleteRecords(c.Topic, map[int32]int64{c.Partition: c.Before})
}

func (s *saramaState) deleteTopic(c *command) (any, error) {
	return nil, s.admin.DeleteTopic(c.Topic)
}

func (s *saramaState) groups(*command) (any, error) {
	listed, err := s.admin.ListConsumerGroups()
	groups := []string{}
	for group := range listed {
		groups = append(groups, group)
	}
	return object{"groups": groups}, err
}

func (s *saramaState) describeGroup(c *command) (any, error) {
	described, err := s.admin.DescribeConsumerGroups([]string{c.Group})
	if err != nil {
		return nil, err
	}
	if described[0].Err != sarama.ErrNoError {
		return nil, described[0].Err
	}
	return object{"state": described[0].State, "members": len(described[0].Members)}, nil
}

func (s *saramaState) logDirs(*command) (any, error) {
	brokers := []int32{}
	for _, broker := range s.client.Brokers() {
		brokers = append(brokers, broker.ID())
	}
	described, err := s.admin.DescribeLogDirs(brokers)
	topics := []string{}
	for _, dirs := range described {
		for _, dir := range dirs {
			if dir.ErrorCode != sarama.ErrNoError {
				return nil, dir.ErrorCode
			}
			for _, topic := range dir.Topics {
				topics = append(topics, topic.Topic)
			}
		}
	}
	return object{"topics": topics}, err
}

func (s *saramaState) cluster(*command) (any, error) {
	described, _, err := s.admin.DescribeCluster()
	brokers := [][3]any{}
	for _, broker := range described {
		host, port, _ := net.SplitHostPort(broker.Addr())
		number, _ := strconv.Atoi(port)
		brokers = append(brokers, [3]any{broker.ID(), host, number})
	}
	return object{"brokers": brokers}, err
}
