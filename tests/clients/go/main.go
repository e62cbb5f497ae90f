// Drivers of the Go clients: commands as JSON lines on stdin, answers as JSON lines on stdout.
//
//	clients franz-go|sarama|kafka-go BOOTSTRAP
//
// A command names an operation, which the client has in its table; what is not there is answered as missing. Each
// command runs in a goroutine of its own, because some wait for what others bring about.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

type operation func(*command) (any, error)

type object = map[string]any

// errMissing says that the client has no call for this.
var errMissing = errors.New("missing")

type command struct {
	ID         int               `json:"id"`
	Op         string            `json:"op"`
	Topic      string            `json:"topic"`
	Topics     []string          `json:"topics"`
	Pattern    string            `json:"pattern"`
	Protocol   string            `json:"protocol"`
	Partition  int32             `json:"partition"`
	Partitions int               `json:"partitions"`
	Total      int               `json:"total"`
	Config     map[string]string `json:"config"`
	Codec      string            `json:"codec"`
	Idempotent bool              `json:"idempotent"`
	Records    []record          `json:"records"`
	Member     string            `json:"member"`
	Group      string            `json:"group"`
	At         position          `json:"at"`
	Offset     int64             `json:"offset"`
	Count      int               `json:"count"`
	Seconds    float64           `json:"seconds"`
	Name       string            `json:"name"`
	Value      string            `json:"value"`
	Before     int64             `json:"before"`
}

// record is a record as commands write it and answers show it.
type record struct {
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	Key       text      `json:"key"`
	Value     text      `json:"value"`
	Headers   [][2]text `json:"headers"`
	Timestamp int64     `json:"timestamp"`
}

// text is null, or text; long values that are nothing but filling are written as their length.
type text []byte

func (t *text) UnmarshalJSON(data []byte) error {
	var fill struct{ Fill int }
	if err := json.Unmarshal(data, &fill); err == nil && fill.Fill > 0 {
		*t = []byte(strings.Repeat("x", fill.Fill))
		return nil
	}
	var s *string
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	if s != nil {
		*t = []byte(*s)
	}
	return nil
}

func (t text) MarshalJSON() ([]byte, error) {
	if t == nil {
		return []byte("null"), nil
	}
	if len(t) > 1000 && strings.Count(string(t), "x") == len(t) {
		return json.Marshal(object{"fill": len(t)})
	}
	return json.Marshal(string(t))
}

// position is where to read: "begin", "end", an offset or a timestamp.
type position struct {
	Name      string
	Offset    *int64 `json:"offset"`
	Timestamp *int64 `json:"timestamp"`
}

func (p *position) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		return json.Unmarshal(data, &p.Name)
	}
	type plain position
	return json.Unmarshal(data, (*plain)(p))
}

// inbox keeps the records of a member until they are taken.
type inbox struct {
	mutex   sync.Mutex
	changed chan struct{}
	records []record
	failure error
}

func newInbox() *inbox { return &inbox{changed: make(chan struct{})} }

func (i *inbox) update(change func()) {
	i.mutex.Lock()
	defer i.mutex.Unlock()
	change()
	close(i.changed)
	i.changed = make(chan struct{})
}

func (i *inbox) put(records ...record) {
	i.update(func() { i.records = append(i.records, records...) })
}
func (i *inbox) clear()         { i.update(func() { i.records = nil }) }
func (i *inbox) fail(err error) { i.update(func() { i.failure = err }) }

// take waits for so many records, and hands over what there is when the time is over.
func (i *inbox) take(c *command) (any, error) {
	over := time.After(time.Duration(c.Seconds * float64(time.Second)))
	for {
		i.mutex.Lock()
		enough, changed := len(i.records) >= c.Count, i.changed
		i.mutex.Unlock()
		if !enough {
			select {
			case <-changed:
				continue
			case <-over:
			}
		}
		i.mutex.Lock()
		defer i.mutex.Unlock()
		count := min(c.Count, len(i.records))
		taken := i.records[:count]
		i.records = i.records[count:]
		if count == 0 && i.failure != nil {
			return nil, i.failure
		}
		return object{"records": append([]record{}, taken...)}, nil
	}
}

// members are the consumers that are open, by name.
type members[T any] struct {
	mutex sync.Mutex
	named map[string]T
}

func (m *members[T]) put(name string, member T) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.named == nil {
		m.named = map[string]T{}
	}
	m.named[name] = member
}

func (m *members[T]) get(c *command) T {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.named[c.Member]
}

func moduleVersion(path string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == path {
				return strings.TrimPrefix(module.Version, "v")
			}
		}
	}
	return "unknown"
}

func main() {
	bootstrap := os.Args[2]
	var operations map[string]operation
	var codeOf func(error) *int
	switch os.Args[1] {
	case "franz-go":
		operations, codeOf = franz(bootstrap)
	case "sarama":
		operations, codeOf = saramaClient(bootstrap)
	case "kafka-go":
		operations, codeOf = segmentio(bootstrap)
	}
	var writing sync.Mutex
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var c command
		if err := json.Unmarshal(line, &c); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		go func() {
			reply := answer(&c, operations[c.Op], codeOf)
			data, err := json.Marshal(reply)
			if err != nil {
				panic(err)
			}
			writing.Lock()
			defer writing.Unlock()
			fmt.Println(string(data))
		}()
	}
}

func answer(c *command, do operation, codeOf func(error) *int) object {
	if do == nil {
		return object{"id": c.ID, "missing": true}
	}
	result, err := do(c)
	switch {
	case errors.Is(err, errMissing):
		return object{"id": c.ID, "missing": true}
	case err != nil:
		return object{"id": c.ID, "error": object{"code": codeOf(err), "message": err.Error()}}
	}
	return object{"id": c.ID, "result": result}
}
