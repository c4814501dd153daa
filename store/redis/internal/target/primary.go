package target

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/sleep"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis/internal/guard"
)

// primary follows which server is the primary, by what Sentinels say. One goroutine does so, over
// one connection to one Sentinel at a time, however many calls fail meanwhile. It is safe for
// concurrent use.
//
// The client's own way of following the primary is not used: in rueidis 1.0.79, each attempt to
// reach a primary that is gone leaves a goroutine behind that makes further attempts.
type primary struct {
	name   string
	hosts  []string // the Sentinels that the URL names
	option rueidis.ClientOption
	// answerTimeout is how long a Sentinel may take for its first answer. It doubles with each round
	// in which none has answered.
	answerTimeout time.Duration
	refresh       time.Duration
	moved         func(address string) // called with the address of each new primary
	asked         chan struct{}        // asks for a look at once
	doubted       chan struct{}        // asks for a look, and then at another Sentinel
	settled       chan struct{}        // closed when a Sentinel has answered, or all of them have failed
	settle        sync.Once
	end           context.CancelFunc
	ended         sync.WaitGroup

	sentinels []string // the goroutine's own; the next to be asked comes first

	mu      sync.Mutex // guards what follows
	address string     // "" as long as no Sentinel has told it
	err     error      // why the last attempt failed
}

const (
	// pause is the pause between two rounds in which no Sentinel has answered. It doubles up to
	// mostPause.
	pause     = 200 * time.Millisecond
	mostPause = 2 * time.Second
	// mostSentinels bounds how many Sentinels are known.
	mostSentinels = 32
)

// announcements are the channels on which a Sentinel announces that it names another primary. One that
// leads a failover names it as soon as it is promoted, and says +switch-master later, when the replicas
// follow it. Until then the old primary, if it is back, admits what is lost.
var announcements = []string{"+failover-state-reconf-slaves", "+switch-master"}

// errDoubted is why another Sentinel is asked.
var errDoubted = errors.New("the primary that it names does not answer as one")

// follow begins to follow the primary. All Sentinels that the URL names are asked within the time.
// Close ends that.
func (t *Target) follow(within time.Duration, moved func(address string)) (*primary, error) {
	option, err := t.peer(true)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &primary{
		name: t.Master, hosts: t.Hosts, option: option, refresh: t.refresh, moved: moved, end: cancel,
		answerTimeout: max(within/time.Duration(len(t.Hosts)), time.Millisecond),
		asked:         make(chan struct{}, 1), doubted: make(chan struct{}, 1), settled: make(chan struct{}),
		sentinels: slices.Clone(t.Hosts),
	}
	p.ended.Go(func() { p.run(ctx) })
	return p, nil
}

// Close ends the goroutine and waits for it.
func (p *primary) Close() {
	p.end()
	p.ended.Wait()
}

// look asks the Sentinel again without waiting for the next time.
func (p *primary) look() { signal(p.asked) }

// doubt says that the primary cannot be connected to, or that it is a replica. If the Sentinel still
// names it, another one is asked: the first may be cut off from the others.
func (p *primary) doubt() { signal(p.doubted) }

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// now returns the address of the primary. As long as no Sentinel has been asked it waits for that.
func (p *primary) now(ctx context.Context) (string, error) {
	select {
	case <-p.settled:
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.address == "" {
		return "", errors.Join(ctx.Err(), p.err)
	}
	return p.address, nil
}

// known reports whether a Sentinel has told the primary. There may be none to ask.
func (p *primary) known() bool { return p != nil && !p.leads("") }

// leads reports whether the server at the address is the primary, as far as is known.
func (p *primary) leads(address string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.address == address
}

// run asks one Sentinel as long as it answers, and then the next one.
func (p *primary) run(ctx context.Context) {
	first, next := p.answerTimeout, pause
	for failed := 0; ctx.Err() == nil; {
		sentinel := p.sentinels[0]
		answered, err := p.ask(ctx, sentinel)
		if ctx.Err() != nil {
			return
		}
		p.mu.Lock()
		p.err = fmt.Errorf("the Sentinel at %s: %w", sentinel, err)
		p.mu.Unlock()
		p.sentinels = append(p.sentinels[1:], sentinel)
		if failed++; !answered && failed < len(p.sentinels) {
			continue
		}
		p.settle.Do(func() { close(p.settled) })
		sleep.For(ctx, sleep.Jittered(next)) // Many processes do not ask at the same time.
		if failed = 0; answered {
			p.answerTimeout, next = first, pause
		} else {
			p.answerTimeout, next = min(2*p.answerTimeout, max(first, AnswerWithin)), min(2*next, mostPause)
		}
	}
}

// ask has a Sentinel tell the primary and announce changes, until it fails or is doubted. It reports
// whether the Sentinel has answered before that.
func (p *primary) ask(ctx context.Context, sentinel string) (answered bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(p.answerTimeout, func() { cancel(context.DeadlineExceeded) })
	var receiving sync.WaitGroup
	defer func() {
		late.Stop()
		cancel(nil) // which closes the client
		receiving.Wait()
	}()
	why := func(err error) error {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	client, err := clientOf(ctx, p.option, sentinel)
	if err != nil {
		return false, why(err)
	}
	for _, channel := range announcements {
		receiving.Go(func() {
			// When the subscription begins, there is another look for what was announced before.
			hooked := rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) { p.look() })
			// Bounded, because connecting anew ignores the context.
			_, err := guard.Bounded(ctx, func() (struct{}, error) {
				return struct{}{}, client.Receive(hooked, client.B().Subscribe().Channel(channel).Build(), func(m rueidis.PubSubMessage) {
					if slices.Contains(strings.Fields(m.Message), p.name) {
						p.look()
					}
				})
			})
			if refused := new(rueidis.RedisError); !errors.As(err, &refused) {
				cancel(err)
			} // A user without the permission asks every refresh.
		})
	}
	for doubted, before := false, ""; ; {
		address, others, err := p.question(ctx, client)
		if err != nil {
			return answered, why(err)
		}
		late.Stop()
		answered = true
		p.learn(sentinel, others)
		p.set(address)
		if doubted && address == before {
			return answered, errDoubted
		}
		doubted, before = false, address
		select {
		case <-p.asked:
		case <-p.doubted:
			doubted = true
		case <-time.After(p.refresh):
		case <-ctx.Done():
			return answered, why(nil)
		}
		late.Reset(AnswerWithin)
	}
}

// question asks for the addresses of the primary and of the other Sentinels.
func (p *primary) question(ctx context.Context, client rueidis.Client) (address string, others []string, err error) {
	replies, err := guard.Bounded(ctx, func() ([]rueidis.RedisResult, error) {
		return client.DoMulti(ctx,
			client.B().SentinelGetMasterAddrByName().Master(p.name).Build(), client.B().SentinelSentinels().Master(p.name).Build()), nil
	})
	if err != nil {
		return "", nil, err
	}
	at, err := replies[0].AsStrSlice()
	if rueidis.IsRedisNil(err) {
		return "", nil, store.Refused(fmt.Errorf("it knows no primary by the name %q", p.name))
	}
	if err != nil {
		return "", nil, err
	}
	if len(at) != 2 {
		return "", nil, fmt.Errorf("it names the primary by %d words, must be a host and a port", len(at))
	}
	list, _ := replies[1].ToArray() // a user may lack the permission
	for i := range list {
		if other, err := list[i].AsStrMap(); err == nil && other["ip"] != "" && other["port"] != "" {
			others = append(others, net.JoinHostPort(other["ip"], other["port"]))
		}
	}
	return net.JoinHostPort(at[0], at[1]), others, nil
}

// learn makes the Sentinels that are known the one that has answered, those of the URL, and those
// that it knows. They keep their order, and new ones come last.
func (p *primary) learn(answered string, others []string) {
	known := slices.Concat([]string{answered}, p.hosts, others)
	known = known[:min(len(known), mostSentinels)]
	p.sentinels = slices.DeleteFunc(p.sentinels, func(one string) bool { return !slices.Contains(known, one) })
	for _, one := range known {
		if !slices.Contains(p.sentinels, one) {
			p.sentinels = append(p.sentinels, one)
		}
	}
}

// set notes the address of the primary.
func (p *primary) set(address string) {
	p.mu.Lock()
	old := p.address
	p.address, p.err = address, nil
	p.mu.Unlock()
	p.settle.Do(func() { close(p.settled) })
	if old != address {
		p.moved(address)
	}
}
