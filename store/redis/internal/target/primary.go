package target

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/sleep"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis/internal/guard"
)

// primary follows which server is the primary, by what Sentinels say. All of them are asked and listened
// to, each over one connection, however many calls fail meanwhile. It is safe for concurrent use.
//
// While a failover is under way, Sentinels name different primaries. The one that leads it has a higher
// configuration epoch as soon as it names the new one, and the others take that over, mostly within a
// second. So what the highest epoch says is believed: who believed another one would go back to the old
// primary, which is of no use even if it answers again.
//
// The client's own way of following the primary is not used: in rueidis 1.0.79, each attempt to
// reach a primary that is gone leaves a goroutine behind that makes further attempts.
type primary struct {
	name   string
	option rueidis.ClientOption
	// answerTimeout is how long a Sentinel may take for its first answer. It doubles with each attempt
	// without one.
	answerTimeout time.Duration
	refresh       time.Duration
	moved         func(address string) // called with the address of each new primary
	heard         chan struct{}        // a Sentinel has answered, or is doubted
	settled       chan struct{}        // closed when a Sentinel has answered, or those of the URL have failed
	settle        sync.Once
	end           context.CancelFunc
	ended         sync.WaitGroup

	mu        sync.Mutex // guards what follows
	sentinels []*watched // those of the URL come first
	news      int        // how often a Sentinel has named another primary than before
	doubted   string     // the address that does not answer as a primary
	address   string     // "" as long as no Sentinel has told it
	err       error      // why the last attempt failed
}

// watched is a Sentinel that is asked, and its last answer. The mutex of primary guards all but the first two.
type watched struct {
	at    string
	asked chan struct{} // asks for a look at once

	given   bool   // by the URL
	failed  bool   // at least once
	address string // of the primary; "" if it has not answered lately
	epoch   int64  // 0 if the user has not the permission to ask for it
	news    int    // those of primary when it named another primary than before
	others  []string
}

const (
	// pause is the pause between two attempts to ask a Sentinel. It doubles up to mostPause as long as it
	// does not answer. What it has said before counts until then: it may be the one that leads a failover.
	pause     = 200 * time.Millisecond
	mostPause = 2 * time.Second
	// mostSentinels is from how many Sentinels on those are not asked that only others know.
	mostSentinels = 16
)

// announcements are the channels on which a Sentinel announces that it names another primary. One that
// leads a failover names it as soon as it is promoted, and says +switch-master later, when the replicas
// follow it. Until then the old primary, if it is back, admits what is lost.
var announcements = []string{"+failover-state-reconf-slaves", "+switch-master"}

// follow begins to follow the primary. All Sentinels that the URL names are asked within the time.
// Close ends that.
func (t *Target) follow(within time.Duration, moved func(address string)) (*primary, error) {
	option, err := t.peer(true)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &primary{
		name: t.Master, option: option, refresh: t.refresh, moved: moved, end: cancel, answerTimeout: within,
		heard: make(chan struct{}, 1), settled: make(chan struct{}),
	}
	p.mu.Lock()
	p.watchAll(ctx, t.Hosts, true)
	p.mu.Unlock()
	p.ended.Go(func() { p.run(ctx) })
	return p, nil
}

// Close ends the goroutines and waits for them.
func (p *primary) Close() {
	p.end()
	p.ended.Wait()
}

// look asks the Sentinels again without waiting for the next time.
func (p *primary) look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.sentinels {
		signal(s.asked)
	}
}

// doubt says that the address cannot be connected to, or that it is a replica. If there is nothing else to
// tell by which Sentinel is right, another one that names another address is believed.
func (p *primary) doubt(address string) {
	p.mu.Lock()
	p.doubted = address
	p.mu.Unlock()
	signal(p.heard)
	p.look()
}

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

// run moves to the primary that is to be believed, one move after another.
func (p *primary) run(ctx context.Context) {
	for {
		select {
		case <-p.heard:
		case <-ctx.Done():
			return
		}
		p.mu.Lock()
		old, address := p.address, p.believed()
		p.address = address
		p.mu.Unlock()
		if address == "" {
			continue
		}
		p.settle.Do(func() { close(p.settled) })
		if old != address {
			p.moved(address)
		}
	}
}

// believed returns the address that the Sentinel with the highest epoch names. Of several it is the one
// that was the last to name another primary than before. If that does not tell either, what is believed
// stays, unless it is doubted, and so it does if none has answered lately. The mutex is locked.
func (p *primary) believed() string {
	liking := func(s *watched) int {
		switch s.address {
		case p.doubted:
			return 0
		case p.address:
			return 2
		}
		return 1
	}
	var best *watched
	for _, s := range p.sentinels {
		if s.address != "" && (best == nil || cmp.Or(cmp.Compare(s.epoch, best.epoch), cmp.Compare(s.news, best.news), cmp.Compare(liking(s), liking(best))) > 0) {
			best = s
		}
	}
	if best == nil {
		return p.address
	}
	return best.address
}

// watchAll begins to watch those of the Sentinels that are not watched yet. The mutex is locked.
func (p *primary) watchAll(ctx context.Context, list []string, given bool) {
	for _, at := range list {
		if known := slices.ContainsFunc(p.sentinels, func(s *watched) bool { return s.at == at }); known || !given && len(p.sentinels) >= mostSentinels {
			continue
		}
		s := &watched{at: at, given: given, asked: make(chan struct{}, 1)}
		p.sentinels = append(p.sentinels, s)
		p.ended.Go(func() { p.watch(ctx, s) })
	}
}

// watch asks a Sentinel again and again, as long as the URL or another Sentinel names it.
func (p *primary) watch(ctx context.Context, s *watched) {
	within, next := p.answerTimeout, pause
	for {
		answered, err := p.ask(ctx, s, within)
		if ctx.Err() != nil {
			return
		}
		if answered {
			within, next = p.answerTimeout, pause
		}
		if !p.fails(s, err, next == mostPause) {
			return
		}
		sleep.For(ctx, sleep.Jittered(next)) // Many processes do not ask at the same time.
		within, next = min(2*within, max(p.answerTimeout, AnswerWithin)), min(2*next, mostPause)
	}
}

// fails notes that a Sentinel does not answer. It reports whether it is still to be watched.
func (p *primary) fails(s *watched, err error, long bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = fmt.Errorf("the Sentinel at %s: %w", s.at, err)
	s.failed = true
	if long {
		s.address, s.news, s.others = "", 0, nil
		signal(p.heard)
	}
	if !slices.ContainsFunc(p.sentinels, func(s *watched) bool { return s.given && !s.failed }) {
		p.settle.Do(func() { close(p.settled) })
	}
	if s.given || s.address != "" || slices.ContainsFunc(p.sentinels, func(other *watched) bool { return slices.Contains(other.others, s.at) }) {
		return true
	}
	p.sentinels = slices.DeleteFunc(p.sentinels, func(one *watched) bool { return one == s })
	return false
}

// ask has a Sentinel tell the primary and announce changes, until it fails. It reports whether the
// Sentinel has answered before that. The first answer must come within the time.
func (p *primary) ask(ctx context.Context, s *watched, within time.Duration) (answered bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(within, func() { cancel(context.DeadlineExceeded) })
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
	client, err := clientOf(ctx, p.option, s.at)
	if err != nil {
		return false, why(err)
	}
	for _, channel := range announcements {
		receiving.Go(func() {
			// When the subscription begins, there is another look for what was announced before.
			hooked := rueidis.WithOnSubscriptionHook(ctx, func(rueidis.PubSubSubscription) { signal(s.asked) })
			// Bounded, because connecting anew ignores the context.
			_, err := guard.Bounded(ctx, func() (struct{}, error) {
				return struct{}{}, client.Receive(hooked, client.B().Subscribe().Channel(channel).Build(), func(m rueidis.PubSubMessage) {
					if slices.Contains(strings.Fields(m.Message), p.name) {
						signal(s.asked)
					}
				})
			})
			if refused := new(rueidis.RedisError); !errors.As(err, &refused) {
				cancel(err)
			} // A user without the permission asks every refresh.
		})
	}
	for {
		address, epoch, others, err := p.question(ctx, client)
		if err != nil {
			return answered, why(err)
		}
		late.Stop()
		answered = true
		p.answer(ctx, s, address, epoch, others)
		select {
		case <-s.asked:
		case <-time.After(p.refresh):
		case <-ctx.Done():
			return answered, why(nil)
		}
		late.Reset(AnswerWithin)
	}
}

// answer notes what a Sentinel has answered.
func (p *primary) answer(ctx context.Context, s *watched, address string, epoch int64, others []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.address != "" && s.address != address {
		p.news++
		s.news = p.news
	}
	s.address, s.epoch, s.others = address, epoch, others
	p.watchAll(ctx, others, false)
	signal(p.heard)
}

// question asks for the address of the primary, the epoch of that, and the addresses of the other
// Sentinels.
func (p *primary) question(ctx context.Context, client rueidis.Client) (address string, epoch int64, others []string, err error) {
	replies, err := guard.Bounded(ctx, func() ([]rueidis.RedisResult, error) {
		// The epoch comes first: should the Sentinel act between the two, a new epoch must not go with the old address.
		return client.DoMulti(ctx, client.B().Arbitrary("SENTINEL", "MASTER", p.name).Build(),
			client.B().SentinelGetMasterAddrByName().Master(p.name).Build(), client.B().SentinelSentinels().Master(p.name).Build()), nil
	})
	if err != nil {
		return "", 0, nil, err
	}
	at, err := replies[1].AsStrSlice()
	if rueidis.IsRedisNil(err) {
		return "", 0, nil, store.Refused(fmt.Errorf("it knows no primary by the name %q", p.name))
	}
	if err != nil {
		return "", 0, nil, err
	}
	if len(at) != 2 {
		return "", 0, nil, fmt.Errorf("it names the primary by %d words, must be a host and a port", len(at))
	}
	// A user may lack the permission for the others.
	state, _ := replies[0].AsStrMap()
	epoch, _ = strconv.ParseInt(state["config-epoch"], 10, 64)
	list, _ := replies[2].ToArray()
	for i := range list {
		if other, err := list[i].AsStrMap(); err == nil && other["ip"] != "" && other["port"] != "" {
			others = append(others, net.JoinHostPort(other["ip"], other["port"]))
		}
	}
	return net.JoinHostPort(at[0], at[1]), epoch, others, nil
}
