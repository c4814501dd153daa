package prom

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxSeries bounds the nodes and operations that [Nodes] tells apart.
const maxSeries = 1024

// Nodes turns the calls of a store that runs on several servers into a histogram for
// each of them:
//
//	headgate_store_node_duration_seconds{node, op}    how long calls took, errors included
//	headgate_store_node_errors_total{node, op}        calls that failed
//
// Its Observe is what the stores' option Observe needs. It is a
// [prometheus.Collector], to be registered, and safe for concurrent use.
type Nodes struct {
	durations *prometheus.HistogramVec
	errors    *prometheus.CounterVec

	// known spares Observe the work of finding a series by its labels. The map is never
	// changed once it stands here.
	known atomic.Pointer[map[nodeOp]*nodeSeries]
	mu    sync.Mutex // guards the making of another one
}

type nodeOp struct{ node, op string }

type nodeSeries struct {
	durations prometheus.Observer
	errors    prometheus.Counter
}

// NewNodes returns a collector without any nodes. A server that scrapes native histograms
// gets one that is finer still.
func NewNodes() *Nodes {
	n := &Nodes{
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "headgate_store_node_duration_seconds",
			Help: "How long calls to each server of the store took, with redirections; those that failed included. A call may carry several decisions.",
			// 50 µs to 1.2 s, each a quarter more than the one before, so that any quantile,
			// p99.9 too, is known to within that.
			Buckets:                     prometheus.ExponentialBuckets(50e-6, 1.25, 46),
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
		}, []string{"node", "op"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_store_node_errors_total",
			Help: "Calls to each server of the store that failed.",
		}, []string{"node", "op"}),
	}
	n.known.Store(&map[nodeOp]*nodeSeries{})
	return n
}

// Observe counts a call. An empty node is one that is not known, and beyond some
// hundreds of nodes so are those that are new.
func (n *Nodes) Observe(node, op string, took time.Duration, err error) {
	s := (*n.known.Load())[nodeOp{node, op}]
	if s == nil {
		s = n.add(node, op)
	}
	s.durations.Observe(took.Seconds())
	if err != nil {
		s.errors.Inc()
	}
}

func (n *Nodes) add(node, op string) *nodeSeries {
	n.mu.Lock()
	defer n.mu.Unlock()
	known := *n.known.Load()
	if s := known[nodeOp{node, op}]; s != nil {
		return s
	}
	label := node
	if node == "" || len(known) >= maxSeries {
		label = "unknown"
	}
	s := &nodeSeries{n.durations.WithLabelValues(label, op), n.errors.WithLabelValues(label, op)}
	if len(known) >= maxSeries {
		return s
	}
	next := make(map[nodeOp]*nodeSeries, len(known)+1)
	for k, v := range known {
		next[k] = v
	}
	next[nodeOp{node, op}] = s
	n.known.Store(&next)
	return s
}

// Describe implements [prometheus.Collector].
func (n *Nodes) Describe(ch chan<- *prometheus.Desc) {
	n.durations.Describe(ch)
	n.errors.Describe(ch)
}

// Collect implements [prometheus.Collector].
func (n *Nodes) Collect(ch chan<- prometheus.Metric) {
	n.durations.Collect(ch)
	n.errors.Collect(ch)
}
