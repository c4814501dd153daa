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
	tiers  map[string]int // topics to their places
	// batches has the topics that letters may go to.
	batches map[string]*batching
	ran     atomic.Bool
	// life is the parent of the contexts of handlers: not Run's context, with which
	// handlers would end at once instead of being given time.
	life context.Context

	// expansion is how many times more memory records take than what the broker sends,
	// as the bits of a float64.
	expansion atomic.Uint64
	// room is told when there is room again.
	room chan struct{}
	// committing is held while offsets are committed, so that an older commit never
	// comes after a newer one. It is taken before mu.
	committing sync.Mutex

	mu         sync.Mutex // guards what follows
	told       []func()   // hooks to call when mu is free
	partitions map[place]*partition
	records    int
	bytes      int64
	running    int
	dispatch   *dispatch.Dispatcher[*item]
	counts     Counts
}

// place is where a partition is.
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
	// Until a batch was seen, records may be compressed, or small.
	const unknown = 4
	c.expansion.Store(math.Float64bits(unknown))
	whole, partition := fetchSize(config.MaxBytes, 3, unknown)
	// A partition that is assigned or resumed waits for the fetch that is on its way.
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

// Run consumes until the context ends. Then it fetches nothing more, waits until what is
// being handled has ended, for at most config.Drain, commits, and leaves the group. It
// returns nil then, or an error that is [ErrAbandoned].
//
// Before it begins it asks the brokers, for as long as it takes, whether all topics exist; if
// one does not for 10 seconds, it returns a [*headgate.InvalidError]. All other trouble is
// told to Hooks.Error, and waited out. Run may be called once.
func (c *Consumer) Run(ctx context.Context) error {
	if c.ran.Swap(true) {
		return errors.New("kafka: Run was called before")
	}
	life, die := context.WithCancel(context.Background())
	defer die()
	c.lock() // which the client's first callback waits for
	client, err := kgo.NewClient(c.options...)
	c.client, c.life = client, life
	c.unlock()
	if err != nil {
		return fmt.Errorf("kafka: making the client: %w", err)
	}
	if err := c.checkTopics(ctx); err != nil {
		c.client.CloseAllowingRebalance()
		if ctx.Err() != nil {
			return nil // it was told to end before it could begin
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

// closing bounds what is said to brokers at the end.
const closing = 15 * time.Second

// shutDown ends what is being handled, commits and leaves the group.
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
		c.client.Close() // at once, since the group was left
	} else {
		go c.client.Close() // it goes on trying to leave the group
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
	// One that was made a moment ago is not known to all brokers yet.
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

// lock and unlock guard the state. unlock calls the hooks that were to be called
// meanwhile, which may need the lock themselves.
func (c *Consumer) lock() { c.mu.Lock() }

func (c *Consumer) unlock() {
	told := c.told
	c.told = nil
	c.mu.Unlock()
	for _, f := range told {
		f()
	}
}

// tell has f called when the lock is free.
func (c *Consumer) tell(f func()) { c.told = append(c.told, f) }

// trouble tells Hooks.Error. The caller holds the lock.
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
