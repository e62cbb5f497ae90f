package main

import "github.com/segmentio/kafka-go"

func (s *segmentioState) create(c *command) (any, error) {
	var entries []kafka.ConfigEntry
	for name, value := range c.Config {
		entries = append(entries, kafka.ConfigEntry{ConfigName: name, ConfigValue: value})
	}
	topic := kafka.TopicConfig{Topic: c.Topic, NumPartitions: c.Partitions, ReplicationFactor: -1, ConfigEntries: entries}
	answer, err := s.client.CreateTopics(background, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{topic}})
	if err == nil {
		err = answer.Errors[c.Topic]
	}
	return nil, err
}

func (s *segmentioState) topics(*command) (any, error) {
	answer, err := s.client.Metadata(background, &kafka.MetadataRequest{})
	if err != nil {
		return nil, err
	}
	topics := []string{}
	for _, topic := range answer.Topics {
		topics = append(topics, topic.Name)
	}
	return object{"topics": topics}, nil
}

func (s *segmentioState) describe(c *command) (any, error) {
	answer, err := s.client.Metadata(background, &kafka.MetadataRequest{Topics: []string{c.Topic}})
	if err != nil {
		return nil, err
	}
	partitions := []object{}
	for _, p := range answer.Topics[0].Partitions {
		partitions = append(partitions, object{"partition": p.ID, "leader": p.Leader.ID, "replicas": len(p.Replicas)})
	}
	return object{"partitions": partitions}, answer.Topics[0].Error
}

func (s *segmentioState) createPartitions(c *command) (any, error) {
	wanted := []kafka.TopicPartitionsConfig{{Name: c.Topic, Count: int32(c.Total)}}
	answer, err := s.client.CreatePartitions(background, &kafka.CreatePartitionsRequest{Topics: wanted})
	if err == nil {
		err = answer.Errors[c.Topic]
	}
	return nil, err
}

func (s *segmentioState) configs(c *command) (any, error) {
	wanted := []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: c.Topic}}
	answer, err := s.client.DescribeConfigs(background, &kafka.DescribeConfigsRequest{Resources: wanted})
	if err != nil {
		return nil, err
	}
	configs := map[string]string{}
	for _, entry := range answer.Resources[0].ConfigEntries {
		configs[entry.ConfigName] = entry.ConfigValue
	}
	return object{"configs": configs}, answer.Resources[0].Error
}

func (s *segmentioState) alter(c *command) (any, error) {
	change := kafka.IncrementalAlterConfigsRequestConfig{
		Name: c.Name, Value: c.Value, ConfigOperation: kafka.ConfigOperationSet,
	}
	resource := kafka.IncrementalAlterConfigsRequestResource{
		ResourceType: kafka.ResourceTypeTopic, ResourceName: c.Topic,
		Configs: []kafka.IncrementalAlterConfigsRequestConfig{change},
	}
	answer, err := s.client.IncrementalAlterConfigs(background, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{resource},
	})
	if err == nil {
		err = answer.Resources[0].Error
	}
	return nil, err
}

func (s *segmentioState) deleteTopic(c *command) (any, error) {
	answer, err := s.client.DeleteTopics(background, &kafka.DeleteTopicsRequest{Topics: []string{c.Topic}})
	if err == nil {
		err = answer.Errors[c.Topic]
	}
	return nil, err
}

func (s *segmentioState) groups(*command) (any, error) {
	answer, err := s.client.ListGroups(background, &kafka.ListGroupsRequest{})
	if err != nil {
		return nil, err
	}
	groups := []string{}
	for _, group := range answer.Groups {
		groups = append(groups, group.GroupID)
	}
	return object{"groups": groups}, answer.Error
}

func (s *segmentioState) describeGroup(c *command) (any, error) {
	answer, err := s.client.DescribeGroups(background, &kafka.DescribeGroupsRequest{GroupIDs: []string{c.Group}})
	if err != nil {
		return nil, err
	}
	group := answer.Groups[0]
	return object{"state": group.GroupState, "members": len(group.Members)}, group.Error
}

func (s *segmentioState) cluster(*command) (any, error) {
	answer, err := s.client.Metadata(background, &kafka.MetadataRequest{})
	if err != nil {
		return nil, err
	}
	brokers := [][3]any{}
	for _, broker := range answer.Brokers {
		brokers = append(brokers, [3]any{broker.ID, broker.Host, broker.Port})
	}
	return object{"cluster": answer.ClusterID, "brokers": brokers}, nil
}
