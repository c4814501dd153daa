package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/dispatch"
)

// Consumer consumes topics as one member of a group. Make one with New, and call Run
// once. Stats may be called at any time.
type Consumer struct {
	config  Config
	options []kgo.Opt
	// client is made by Run, which joins the group with it. It is set under mu.
	client *kgo.Client
	tiers  map[string]int // the index of each tier's topic
	// batches has an entry for each topic to which letters may go.
	batches map[string]*batching
	ran     atomic.Bool
	// life is the parent of the contexts of handlers. It is not Run's context, because handlers get
	// time to end after that has ended.
	life context.Context

	// expansion is the ratio of the memory that records take to the bytes that the broker sends, as
	// the bits of a float64.
	expansion atomic.Uint64
	// room receives a value when there is room again.
	room chan struct{}
	// committing is held while offsets are committed, so that an older commit never
	// comes after a newer one. It is taken before mu.
	committing sync.Mutex

	mu         sync.Mutex // guards what follows
	told       []func()   // hooks to call after mu was unlocked
	partitions map[place]*partition
	records    int
	bytes      int64
	running    int
	dispatch   *dispatch.Dispatcher[*item]
	counts     Counts
}

// place identifies a partition.
type place struct {
	topic  string
	number int32
}

// New returns a consumer, which does nothing before Run. The error is a
// [*headgate.InvalidError] that lists everything that is wrong with the configuration.
func New(config Config) (*Consumer, error) {
	config.complete()
	if err := config.validate(); err != nil {
		return nil, err
	}
	c := &Consumer{
		config:     config,
		tiers:      make(map[string]int),
		batches:    make(map[string]*batching),
		room:       make(chan struct{}, 1),
		partitions: make(map[place]*partition),
	}
	c.dispatch = c.newDispatcher()
	for topic := range config.allTopics() {
		c.batches[topic] = newBatching()
	}
	topics := append([]string(nil), config.Topics...)
	for i, tier := range config.Retry.Tiers {
		c.tiers[tier.Topic] = i
		topics = append(topics, tier.Topic)
	}
	// Until a batch was seen, this assumes that records are compressed, or small.
	const unknown = 4
	c.expansion.Store(math.Float64bits(unknown))
	whole, partition := fetchSize(config.MaxBytes, 3, unknown)
	// A partition that is assigned or resumed has to wait for the fetch that is under way.
	const wait = 500 * time.Millisecond
	options := append([]kgo.Opt{
		kgo.RebalanceTimeout(max(time.Minute, 2*config.Drain)), kgo.FetchMaxWait(wait),
	}, config.Options...)
	c.options = append(options,
		kgo.SeedBrokers(config.Brokers...), kgo.ConsumerGroup(config.Group), kgo.ConsumeTopics(topics...),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(c.assigned), kgo.OnPartitionsRevoked(c.revoked), kgo.OnPartitionsLost(c.lost),
		kgo.AdjustFetchOffsetsFn(c.begins),
		kgo.FetchMaxBytes(whole), kgo.FetchMaxPartitionBytes(partition),
		kgo.WithHooks(expansion{c}),
	)
	if err := kgo.ValidateOpts(c.options...); err != nil {
		return nil, headgate.Invalid("kafka", "options", "the client refuses the options: %v", err)
	}
	return c, nil
}

// Run consumes until the context ends. Then it stops fetching, waits up to config.Drain for records
// that are being handled, commits, and leaves the group. It then returns nil, or an error that
// wraps [ErrAbandoned].
//
// Before it begins, Run asks the brokers, for as long as it takes, whether all topics exist. If one
// does not for 10 seconds, Run returns a [*headgate.InvalidError]. All other errors go to
// Hooks.Error, and Run continues. Run may be called once.
func (c *Consumer) Run(ctx context.Context) error {
	if c.ran.Swap(true) {
		return errors.New("kafka: Run was called before")
	}
	life, die := context.WithCancel(context.Background())
	defer die()
	c.lock() // the client's first callback waits for it
	client, err := kgo.NewClient(c.options...)
	c.client, c.life = client, life
	c.unlock()
	if err != nil {
		return fmt.Errorf("kafka: making the client: %w", err)
	}
	if err := c.checkTopics(ctx); err != nil {
		c.client.CloseAllowingRebalance()
		if ctx.Err() != nil {
			return nil // the context ended before it could begin
		}
		return err
	}
	var background sync.WaitGroup
	running, stop := context.WithCancel(c.life)
	background.Go(func() { c.regulator(running) })
	background.Go(func() { c.committer(running) })
	background.Go(func() { c.watchEnds(running) })
	err = c.poll(ctx)
	stop()
	background.Wait()
	return errors.Join(err, c.shutDown())
}

// closing bounds the time of the last calls to brokers.
const closing = 15 * time.Second

// shutDown waits for handlers, commits, and leaves the group.
func (c *Consumer) shutDown() error {
	c.client.AllowRebalance()
	c.lock()
	all := listed(c.assignment())
	c.unlock()
	c.remove(all, true)
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	if err := c.client.LeaveGroupContext(ctx); err != nil {
		c.lock()
		c.trouble(fmt.Errorf("kafka: leaving group %q: %w", c.config.Group, err))
		c.unlock()
	}
	if ctx.Err() == nil {
		c.client.Close() // returns at once, because the group was left
	} else {
		go c.client.Close() // it still tries to leave the group
	}
	c.lock()
	defer c.unlock()
	if c.running > 0 {
		return fmt.Errorf("%w: %d records within %v", ErrAbandoned, c.running, c.config.Drain)
	}
	return nil
}

// checkTopics returns an error if a topic does not exist.
func (c *Consumer) checkTopics(ctx context.Context) error {
	need := c.config.allTopics()
	names := make([]string, 0, len(need))
	for topic := range need {
		names = append(names, topic)
	}
	admin := kadm.NewClient(c.client)
	// Some brokers do not know a topic yet that was made a moment ago.
	for patience := time.Now().Add(10 * time.Second); ; {
		topics, err := admin.ListTopics(ctx, names...)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			c.lock()
			c.trouble(fmt.Errorf("kafka: asking for the topics: %w", err))
			c.unlock()
		} else if err = missing(topics, need); err == nil || time.Now().After(patience) {
			return err
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func missing(topics kadm.TopicDetails, need map[string]string) error {
	var problems headgate.Problems
	for topic, field := range need {
		if d, ok := topics[topic]; !ok {
			problems.Add(field, "there is no topic %q: make it first", topic)
		} else if d.Err != nil {
			problems.Add(field, "the topic %q cannot be used: %v", topic, d.Err)
		}
	}
	return problems.Err("kafka")
}

// lock and unlock guard the state. unlock also calls the hooks that tell has collected, because
// they may need the lock themselves.
func (c *Consumer) lock() { c.mu.Lock() }

func (c *Consumer) unlock() {
	told := c.told
	c.told = nil
	c.mu.Unlock()
	for _, f := range told {
		f()
	}
}

// tell makes unlock call f.
func (c *Consumer) tell(f func()) { c.told = append(c.told, f) }

// trouble makes unlock call Hooks.Error. The caller holds the lock.
func (c *Consumer) trouble(err error) {
	if h := c.config.Hooks.Error; h != nil {
		c.tell(func() { h(err) })
	}
}

// signal tells the poll loop that there is room.
func (c *Consumer) signal() {
	select {
	case c.room <- struct{}{}:
	default:
	}
}
