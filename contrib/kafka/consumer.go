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
	"golang.org/x/sync/semaphore"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/consume"
)

// Consumer consumes topics as one member of a group. Make one with New, and call Run
// once. Stats may be called at any time.
type Consumer struct {
	config  Config
	options []kgo.Opt
	// client is made by Run, which joins the group with it. It is set under the engine's lock.
	client *kgo.Client
	tiers  map[string]int // the index of each tier's topic
	// letters has an entry for each topic to which letters may go.
	letters map[string]lettersOf
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
	// comes after a newer one. It is taken before the engine's lock.
	committing sync.Mutex

	engine     *consume.Engine[*kgo.Record, *item] // its lock guards what follows
	partitions map[place]*partition
	records    int
	bytes      int64
	counts     Counts // those that the engine does not count
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
	handling := config.handling()
	if err := config.validate(&handling); err != nil {
		return nil, err
	}
	c := &Consumer{
		config:     config,
		tiers:      make(map[string]int),
		letters:    make(map[string]lettersOf),
		room:       make(chan struct{}, 1),
		partitions: make(map[place]*partition),
	}
	c.engine = consume.New(handling, consume.Source[*item]{
		Context: func(it *item) context.Context { return it.of.ctx },
		Wants:   func(it *item) bool { return it.of.wants(it) },
		Begin:   func(it *item) { it.of.runs(it) },
		End:     func(it *item) { it.of.ran() },
		Letter:  c.letter,
		Settle:  c.settle,
	})
	for _, t := range config.topics() {
		c.letters[t.name] = lettersOf{semaphore.NewWeighted(int64(handling.Workers)), int64(handling.Workers)}
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
		kgo.RebalanceTimeout(max(time.Minute, 2*handling.Drain)), kgo.FetchMaxWait(wait),
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
	c.engine.Lock() // the client's first callback waits for it
	client, err := kgo.NewClient(c.options...)
	c.client, c.life = client, life
	c.engine.Unlock()
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
	c.engine.Lock()
	all := listed(c.assignment())
	c.engine.Unlock()
	c.remove(all, true)
	ctx, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	if err := c.client.LeaveGroupContext(ctx); err != nil {
		c.engine.Lock()
		c.engine.Trouble(fmt.Errorf("kafka: leaving group %q: %w", c.config.Group, err))
		c.engine.Unlock()
	}
	if ctx.Err() == nil {
		c.client.Close() // returns at once, because the group was left
	} else {
		go c.client.Close() // it still tries to leave the group
	}
	c.engine.Lock()
	defer c.engine.Unlock()
	if c.engine.Running > 0 {
		return fmt.Errorf("%w: %d records within %v", ErrAbandoned, c.engine.Running, c.engine.Config.Drain)
	}
	return nil
}

// checkTopics returns an error if a topic does not exist.
func (c *Consumer) checkTopics(ctx context.Context) error {
	need := c.config.topics()
	names := make([]string, 0, len(need))
	for _, t := range need {
		names = append(names, t.name)
	}
	admin := kadm.NewClient(c.client)
	// Some brokers do not know a topic yet that was made a moment ago.
	for deadline := time.Now().Add(10 * time.Second); ; {
		topics, err := admin.ListTopics(ctx, names...)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			c.engine.Lock()
			c.engine.Trouble(fmt.Errorf("kafka: asking for the topics: %w", err))
			c.engine.Unlock()
		} else if err = missing(topics, need); err == nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func missing(topics kadm.TopicDetails, need []topic) error {
	var problems headgate.Problems
	for _, t := range need {
		if d, ok := topics[t.name]; !ok {
			problems.Add(t.field, "there is no topic %q: make it first", t.name)
		} else if d.Err != nil {
			problems.Add(t.field, "the topic %q cannot be used: %v", t.name, d.Err)
		}
	}
	return problems.Err("kafka")
}

// submit makes an item begin when it is due. The caller holds the lock.
func (c *Consumer) submit(it *item) {
	if early := c.until(it.of, it.Message, time.Now()); early > 0 && !it.IsLetter() {
		c.engine.Wait(it, early)
	} else {
		c.engine.Submit(it)
	}
}

// settle ends an item, starts the next one of its lane, and frees room. What was returned stays in
// the window, so that it is not committed. The caller holds the lock.
func (c *Consumer) settle(it *item, fate consume.Fate) {
	if fate == consume.Returned {
		return
	}
	p := it.of
	next := p.finish(it)
	c.release(p)
	if next != nil && p.wants(next) {
		c.submit(next)
	}
}

// signal tells the poll loop that there is room.
func (c *Consumer) signal() {
	select {
	case c.room <- struct{}{}:
	default:
	}
}
