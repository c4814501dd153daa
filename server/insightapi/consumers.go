package insightapi

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Consumers are programs that consume queues with contrib/kafka or contrib/rabbitmq, and export the
// Prometheus metrics of kafkaprom or rabbitmqprom. This type reads these metrics, so the programs
// need no further setup.
type Consumers struct {
	// URLs are the URLs of the programs' metrics. A host name with several addresses stands for one
	// program at each of them.
	URLs []string
	// Client sends the requests. Nil means a default client.
	Client *http.Client
	// Resolve returns the addresses of a host name. Nil means the system's resolver.
	Resolve func(ctx context.Context, host string) ([]string, error)

	mu        sync.Mutex // held while the programs are asked; guards what follows
	asked     time.Time
	consumers []Consumer
	programs  []Instance
}

// Consumer is one consumer of a queue.
type Consumer struct {
	// Program is the host and port of the program that it runs in, and Kind what it consumes from:
	// "kafka" or "rabbitmq". Name distinguishes it from other consumers of the program. It has the
	// labels that the program adds to all its metrics.
	Program string `json:"program"`
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	// Lag is the number of messages that wait in the broker or are not done, or -1 if that is not
	// known. Held is the number that the consumer has in memory; Running of these are being handled.
	Lag     int64 `json:"lag"`
	Held    int64 `json:"held"`
	Running int64 `json:"running"`
	// OldestMS is the age of the oldest message in memory, in milliseconds.
	OldestMS int64 `json:"oldest_ms"`
	// Paused is the number of partitions from which nothing is fetched. Behind is the number of
	// partitions that are so far behind that some of their messages are shed.
	Paused int `json:"paused"`
	Behind int `json:"behind"`
	// Away says that the consumer has no connection to the broker.
	Away bool `json:"away"`
	// These count since the start of the program. Handled counts attempts, and Failed those that
	// failed. GivenUp counts messages that were not handled in the end, and Refused those that the
	// gate has held back.
	Handled int64 `json:"handled"`
	Failed  int64 `json:"failed"`
	GivenUp int64 `json:"given_up"`
	Refused int64 `json:"refused"`
	// Partitions are the partitions that are assigned to it, those with the largest lag first.
	// MorePartitions is the number of further ones.
	Partitions     []ConsumerPartition `json:"partitions"`
	MorePartitions int                 `json:"more_partitions"`
}

// ConsumerPartition is a partition that is assigned to a consumer.
type ConsumerPartition struct {
	Topic     string `json:"topic"`
	Partition string `json:"partition"`
	Lag       int64  `json:"lag"`
	Running   int64  `json:"running"`
	OldestMS  int64  `json:"oldest_ms"`
	Paused    bool   `json:"paused"`
	Behind    bool   `json:"behind"`
}

const (
	maxPrograms     = 64
	maxConsumers    = 200
	shownPartitions = 20
	maxMetrics      = 8 << 20 // bytes
	consumersFresh  = time.Second
	kafkaPrefix     = "headgate_kafka_"
	rabbitPrefix    = "headgate_rabbitmq_"
	publisherPrefix = rabbitPrefix + "publisher_"
)

// Ask asks all programs, or returns the last answer if it is less than a second old. It returns
// their consumers, those with the largest lag first, and for each program whether it has answered.
// It is safe for concurrent use.
func (c *Consumers) Ask(ctx context.Context) ([]Consumer, []Instance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.consumers != nil && time.Since(c.asked) < consumersFresh {
		return c.consumers, c.programs
	}
	// Others get this answer too, so that it must not end with the request of the one who asked.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), peerTimeout)
	defer cancel()
	list, failed := targets(ctx, c.URLs, c.Resolve)
	list = list[:min(len(list), maxPrograms)]
	answers, programs := make([][]Consumer, len(list)), make([]Instance, len(list))
	var all sync.WaitGroup
	for i, target := range list {
		all.Go(func() {
			programs[i] = Instance{Name: target.Host, OK: true}
			var err error
			if answers[i], err = c.get(ctx, target); err != nil {
				programs[i].OK, programs[i].Error = false, err.Error()
			}
		})
	}
	all.Wait()
	found := slices.Concat(answers...)
	slices.SortStableFunc(found, func(a, b Consumer) int {
		return cmp.Or(cmp.Compare(b.Lag, a.Lag), strings.Compare(a.Program, b.Program), strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	})
	c.consumers, c.programs = append([]Consumer{}, found[:min(len(found), maxConsumers)]...), append(programs, failed...)
	c.asked = time.Now()
	return c.consumers, c.programs
}

// errMetrics is the error for metrics that are too long to be read.
var errMetrics = fmt.Errorf("its metrics are longer than %d MiB", maxMetrics>>20)

// get reads the metrics of one program.
func (c *Consumers) get(ctx context.Context, from *url.URL) ([]Consumer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from.String(), nil)
	if err != nil {
		return nil, errAnswer
	}
	request.Header.Set("Accept", "text/plain; version=0.0.4")
	response, err := send(ctx, c.Client, request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	parser, body := expfmt.NewTextParser(model.UTF8Validation), &io.LimitedReader{R: response.Body, N: maxMetrics}
	families, err := parser.TextToMetricFamilies(body)
	switch {
	case ctx.Err() != nil:
		return nil, errLate
	case body.N <= 0:
		return nil, errMetrics
	case err != nil:
		return nil, errAnswer
	}
	return consumersIn(from.Host, families), nil
}

// consumersIn returns the consumers in the metrics of a program.
func consumersIn(program string, families map[string]*dto.MetricFamily) []Consumer {
	consumers := make(map[[2]string]*Consumer)
	partitions := make(map[[4]string]*ConsumerPartition)
	for name, family := range families {
		var kind, metric string
		switch {
		case strings.HasPrefix(name, kafkaPrefix):
			kind, metric = "kafka", name[len(kafkaPrefix):]
		case strings.HasPrefix(name, rabbitPrefix) && !strings.HasPrefix(name, publisherPrefix):
			kind, metric = "rabbitmq", name[len(rabbitPrefix):]
		default:
			continue
		}
		for _, m := range family.GetMetric() {
			labels, own := labelsOf(m)
			id := [2]string{kind, own}
			one := consumers[id]
			if one == nil {
				if len(consumers) == maxConsumers {
					continue
				}
				one = &Consumer{Program: program, Kind: kind, Name: own, Lag: -1, Partitions: []ConsumerPartition{}}
				consumers[id] = one
			}
			value := valueOf(m)
			if topic, ok := labels["topic"]; ok {
				at := [4]string{kind, own, topic, labels["partition"]}
				if partitions[at] == nil {
					partitions[at] = &ConsumerPartition{Topic: topic, Partition: labels["partition"], Lag: -1}
				}
				partitions[at].set(metric, value)
				continue
			}
			one.set(metric, labels, value)
		}
	}
	for at, p := range partitions {
		consumers[[2]string{at[0], at[1]}].add(*p)
	}
	list := make([]Consumer, 0, len(consumers))
	for _, c := range consumers {
		slices.SortFunc(c.Partitions, func(a, b ConsumerPartition) int {
			return cmp.Or(cmp.Compare(b.Lag, a.Lag), strings.Compare(a.Topic, b.Topic), cmp.Compare(len(a.Partition), len(b.Partition)), strings.Compare(a.Partition, b.Partition))
		})
		if n := len(c.Partitions); n > shownPartitions {
			c.Partitions, c.MorePartitions = c.Partitions[:shownPartitions], n-shownPartitions
		}
		list = append(list, *c)
	}
	return list
}

// metricLabels are the labels of the consumers' metrics themselves. All others were added by the
// program.
var metricLabels = []string{"topic", "partition", "outcome", "where", "how", "reason", "why"}

// labelsOf returns the metric's own labels, and as one text the labels that the program has added.
func labelsOf(m *dto.Metric) (labels map[string]string, own string) {
	labels = make(map[string]string, len(m.GetLabel()))
	var added []string
	for _, l := range m.GetLabel() {
		if slices.Contains(metricLabels, l.GetName()) {
			labels[l.GetName()] = l.GetValue()
		} else {
			added = append(added, l.GetName()+"="+l.GetValue())
		}
	}
	slices.Sort(added)
	return labels, strings.Join(added, " ")
}

// valueOf returns the value of a counter, a gauge or an untyped metric. It is 0 for other metrics,
// and for values that an integer cannot represent exactly.
func valueOf(m *dto.Metric) float64 {
	value := m.GetGauge().GetValue()
	switch {
	case m.GetCounter() != nil:
		value = m.GetCounter().GetValue()
	case m.GetUntyped() != nil:
		value = m.GetUntyped().GetValue()
	}
	if math.IsNaN(value) || math.Abs(value) > 1<<53 {
		return 0
	}
	return value
}

func (c *Consumer) set(metric string, labels map[string]string, value float64) {
	n := int64(value)
	switch metric {
	case "running":
		c.Running = n
	case "held_records", "held_messages":
		c.Held = n
	case "ready_messages":
		c.Lag = n
	case "oldest_seconds":
		c.OldestMS = int64(value * 1000)
	case "connected":
		c.Away = n == 0
	case "attempts_total":
		c.Handled += n
		if labels["outcome"] == "failure" {
			c.Failed += n
		}
	case "given_up_total":
		c.GivenUp += n
	case "refused_total":
		c.Refused = n
	}
}

func (p *ConsumerPartition) set(metric string, value float64) {
	switch metric {
	case "lag":
		p.Lag = int64(value)
	case "partition_running":
		p.Running = int64(value)
	case "oldest_seconds":
		p.OldestMS = int64(value * 1000)
	case "paused":
		p.Paused = value != 0
	case "behind":
		p.Behind = value != 0
	}
}

// add adds a partition to its consumer.
func (c *Consumer) add(p ConsumerPartition) {
	c.Partitions = append(c.Partitions, p)
	c.OldestMS = max(c.OldestMS, p.OldestMS)
	if p.Lag >= 0 {
		c.Lag = max(c.Lag, 0) + p.Lag
	}
	if p.Paused {
		c.Paused++
	}
	if p.Behind {
		c.Behind++
	}
}
