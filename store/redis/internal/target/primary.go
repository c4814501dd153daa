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
// The one that leads names the new primary when it has seen it say that it is one, and it looks once a
// second. What the old primary admits until then is lost. So the replica that it promotes is asked from here,
// and is believed as soon as it says that it is a primary, while that Sentinel goes on with the failover. It
// counts with that Sentinel's epoch and one: the epoch of the failover is that at least, so what a later
// failover has ended with is believed before it. Only a failover that is given up after the promotion loses
// what the replica has admitted, for as long as the old primary would have lost it otherwise.
//
// The client's own way of following the primary is not used: in rueidis 1.0.79, each attempt to
// reach a primary that is gone leaves a goroutine behind that makes further attempts.
type primary struct {
	name   string
	option rueidis.ClientOption // for Sentinels
	server rueidis.ClientOption // for the replica that is to be promoted
	// answerTimeout is how long a Sentinel may take for its first answer. It doubles with each attempt
	// without one.
	answerTimeout time.Duration
	refresh       time.Duration
	moving        func()               // called when a replica is being promoted
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

	given  bool // by the URL
	failed bool // at least once
	news   int  // those of primary when it named another primary than before
	says
	promoted string // what it is promoting, if that has said that it is a primary
	highest  int64  // the highest epoch that it has told
	anew     bool   // it has told a lower one since: it has been set up anew
}

// says is what a Sentinel answers.
type says struct {
	id        string // "" if the user has not the permission to ask for it
	address   string // of the primary; "" if it has not answered lately
	epoch     int64  // 0 if the user has not the permission to ask for it
	promoting string // the address of the replica that it makes the primary; "" if there is none
	others    []other
}

// other is a Sentinel that another one knows.
type other struct{ id, at string }

// names is what a Sentinel says of the primary, with what that has said itself.
func (s *watched) names() (address string, epoch int64) {
	if s.promoting != "" && s.promoting == s.promoted && s.promoting != s.address {
		return s.promoting, s.epoch + 1
	}
	return s.address, s.epoch
}

const (
	// pause is the pause between two attempts to ask a Sentinel. It doubles up to mostPause as long as it
	// does not answer. What it has said before counts until then: it may be the one that leads a failover.
	pause     = 200 * time.Millisecond
	mostPause = 2 * time.Second
	// witnessEvery is how often a replica that is to be promoted is asked whether it has been.
	witnessEvery = 10 * time.Millisecond
	// mostSentinels is from how many Sentinels on those are not asked that only others know.
	mostSentinels = 16
)

// announcements are the channels on which a Sentinel announces that it has chosen the replica to promote,
// and that it names another primary. One that leads a failover names it as soon as it is promoted, and says
// +switch-master later, when the replicas follow it.
var announcements = []string{"+selected-slave", "+failover-state-reconf-slaves", "+switch-master"}

// follow begins to follow the primary. All Sentinels that the URL names are asked within the time.
// Close ends that.
func (t *Target) follow(within time.Duration, moving func(), moved func(address string)) (*primary, error) {
	option, err := t.peer(true)
	if err != nil {
		return nil, err
	}
	server, err := t.peer(false)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &primary{
		name: t.Master, option: option, server: server, refresh: t.refresh, moving: moving, moved: moved, end: cancel, answerTimeout: within,
		heard: make(chan struct{}, 1), settled: make(chan struct{}),
	}
	p.mu.Lock()
	for _, at := range t.Hosts {
		p.watchOne(ctx, &watched{at: at, given: true})
	}
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
// stays, unless it is doubted, and so it does if none has answered lately. When most Sentinels have been set
// up anew, their epochs begin at 0, and the others are those that have not been yet. The mutex is locked.
func (p *primary) believed() string {
	liking := func(address string) int {
		switch address {
		case p.doubted:
			return 0
		case p.address:
			return 2
		}
		return 1
	}
	anew := 0
	for _, s := range p.sentinels {
		if s.anew {
			anew++
		}
	}
	var best *watched
	for _, s := range p.sentinels {
		if s.address == "" || 2*anew > len(p.sentinels) && !s.anew {
			continue
		}
		if best == nil {
			best = s
			continue
		}
		address, epoch := s.names()
		bestAddress, bestEpoch := best.names()
		if cmp.Or(cmp.Compare(epoch, bestEpoch), cmp.Compare(s.news, best.news), cmp.Compare(liking(address), liking(bestAddress))) > 0 {
			best = s
		}
	}
	if best == nil {
		return p.address
	}
	address, _ := best.names()
	return address
}

// watchOthers begins to watch the Sentinels that others know and that are not watched yet: when those of
// the URL have answered or failed, because the same one may have a name there and an address here. The
// mutex is locked.
func (p *primary) watchOthers(ctx context.Context) {
	if slices.ContainsFunc(p.sentinels, func(s *watched) bool { return s.given && s.address == "" && !s.failed }) {
		return
	}
	for _, by := range slices.Clone(p.sentinels) {
		for _, o := range by.others {
			known := func(s *watched) bool { return s.at == o.at || s.id != "" && s.id == o.id }
			if len(p.sentinels) < mostSentinels && !slices.ContainsFunc(p.sentinels, known) {
				p.watchOne(ctx, &watched{at: o.at, says: says{id: o.id}})
			}
		}
	}
}

// watchOne begins to watch a Sentinel. The mutex is locked.
func (p *primary) watchOne(ctx context.Context, s *watched) {
	s.asked = make(chan struct{}, 1)
	p.sentinels = append(p.sentinels, s)
	p.ended.Go(func() { p.watch(ctx, s) })
}

// watch asks a Sentinel again and again, as long as the URL or another Sentinel names it.
func (p *primary) watch(ctx context.Context, s *watched) {
	within, next := p.answerTimeout, pause
	for {
		answered, err := p.ask(ctx, s, within)
		if ctx.Err() != nil || errors.Is(err, errTwin) {
			return
		}
		if answered {
			within, next = p.answerTimeout, pause
		}
		if !p.fails(ctx, s, err, next == mostPause) {
			return
		}
		sleep.For(ctx, sleep.Jittered(next)) // Many processes do not ask at the same time.
		within, next = min(2*within, max(p.answerTimeout, AnswerWithin)), min(2*next, mostPause)
	}
}

// fails notes that a Sentinel does not answer. It reports whether it is still to be watched.
func (p *primary) fails(ctx context.Context, s *watched, err error, long bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = fmt.Errorf("the Sentinel at %s: %w", s.at, err)
	s.failed = true
	if long {
		s.says, s.news = says{id: s.id}, 0
		signal(p.heard)
	}
	p.watchOthers(ctx)
	if !slices.ContainsFunc(p.sentinels, func(s *watched) bool { return s.given && !s.failed }) {
		p.settle.Do(func() { close(p.settled) })
	}
	names := func(by *watched) bool {
		return slices.ContainsFunc(by.others, func(o other) bool { return o.at == s.at })
	}
	if s.given || s.address != "" || slices.ContainsFunc(p.sentinels, names) {
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
	var running sync.WaitGroup
	defer func() {
		late.Stop()
		cancel(nil) // which closes the client
		running.Wait()
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
		running.Go(func() {
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
	promoting := ""
	for {
		said, err := p.question(ctx, client)
		if err != nil {
			return answered, why(err)
		}
		late.Stop()
		answered = true
		if !p.answer(ctx, s, said) {
			return answered, errTwin
		}
		if promoting != said.promoting {
			promoting = said.promoting
			running.Go(func() { p.witness(ctx, s, said.promoting) })
		}
		select {
		case <-s.asked:
		case <-time.After(p.refresh):
		case <-ctx.Done():
			return answered, why(nil)
		}
		late.Reset(AnswerWithin)
	}
}

// errTwin is why a Sentinel is not watched any more: the URL names it, too, in another way.
var errTwin = errors.New("it is watched by another name")

// answer notes what a Sentinel has answered. It reports whether it is still to be watched.
func (p *primary) answer(ctx context.Context, s *watched, said says) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.address != "" && s.address != said.address {
		p.news++
		s.news = p.news
	}
	if s.promoting != said.promoting {
		s.promoted = ""
		if said.promoting != "" && said.promoting != said.address && said.promoting != p.address {
			p.moving()
		}
	}
	if said.id == "" {
		said.id = s.id // by others
	}
	s.says = said
	s.anew, s.highest = s.epoch < s.highest, max(s.epoch, s.highest)
	if !slices.ContainsFunc(p.sentinels, func(s *watched) bool { return s.address != "" && !s.anew }) {
		for _, s := range p.sentinels {
			s.anew, s.highest = false, s.epoch
		}
	}
	signal(p.heard)
	twin := func(other *watched) bool { return other.given && other.id != "" && other.id == s.id }
	if !s.given && slices.ContainsFunc(p.sentinels, twin) {
		p.sentinels = slices.DeleteFunc(p.sentinels, func(one *watched) bool { return one == s })
		return false
	}
	p.watchOthers(ctx)
	return true
}

// witness asks the replica that a Sentinel promotes until it says that it is a primary.
func (p *primary) witness(ctx context.Context, s *watched, address string) {
	for again := true; again; { // when it is promoted, its clients lose their connections
		again = p.awaits(s, address) && !p.saysPrimary(ctx, s, address) && sleep.For(ctx, sleep.Jittered(witnessEvery))
	}
}

// awaits reports whether it is not known yet that what a Sentinel promotes is a primary.
func (p *primary) awaits(s *watched, address string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return address != "" && s.promoting == address && s.promoted == ""
}

// saysPrimary asks a replica until it says that it is a primary. It returns false if it does not answer.
func (p *primary) saysPrimary(ctx context.Context, s *watched, address string) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // which closes the client
	client, err := clientOf(ctx, p.server, address)
	if err != nil {
		return false
	}
	for p.awaits(s, address) {
		// HELLO needs no permission.
		said, err := guard.Bounded(ctx, func() (map[string]rueidis.RedisMessage, error) {
			return client.Do(ctx, client.B().Arbitrary("HELLO").Build()).AsMap()
		})
		if err != nil {
			return false
		}
		role := said["role"]
		if word, _ := role.ToString(); word == "master" {
			p.mu.Lock()
			s.promoted = address
			p.mu.Unlock()
			signal(p.heard)
			return true
		}
		sleep.For(ctx, sleep.Jittered(witnessEvery))
	}
	return true
}

// question asks a Sentinel.
func (p *primary) question(ctx context.Context, client rueidis.Client) (said says, err error) {
	sentinel := func(words ...string) rueidis.Completed {
		return client.B().Arbitrary("SENTINEL").Args(words...).Build()
	}
	replies, err := guard.Bounded(ctx, func() ([]rueidis.RedisResult, error) {
		// The epoch comes first: should the Sentinel act between the two, a new epoch must not go with the
		// old address. For the same reason what it promotes comes before the address.
		return client.DoMulti(ctx, sentinel("MASTER", p.name), sentinel("REPLICAS", p.name), sentinel("GET-MASTER-ADDR-BY-NAME", p.name),
			sentinel("SENTINELS", p.name), sentinel("MYID")), nil
	})
	if err != nil {
		return said, err
	}
	at, err := replies[2].AsStrSlice()
	if rueidis.IsRedisNil(err) {
		return said, store.Refused(fmt.Errorf("it knows no primary by the name %q", p.name))
	}
	if err != nil {
		return said, err
	}
	if len(at) != 2 {
		return said, fmt.Errorf("it names the primary by %d words, must be a host and a port", len(at))
	}
	said.address = net.JoinHostPort(at[0], at[1])
	// A user may lack the permission for the others.
	state, _ := replies[0].AsStrMap()
	said.epoch, _ = strconv.ParseInt(state["config-epoch"], 10, 64)
	for _, replica := range instances(replies[1]) {
		if slices.Contains(strings.Split(replica["flags"], ","), "promoted") {
			said.promoting = net.JoinHostPort(replica["ip"], replica["port"])
		}
	}
	for _, one := range instances(replies[3]) {
		said.others = append(said.others, other{one["runid"], net.JoinHostPort(one["ip"], one["port"])})
	}
	said.id, _ = replies[4].ToString()
	return said, nil
}

// instances reads a list of replicas or Sentinels, which all have an address.
func instances(reply rueidis.RedisResult) (all []map[string]string) {
	list, _ := reply.ToArray()
	for i := range list {
		if one, err := list[i].AsStrMap(); err == nil && one["ip"] != "" && one["port"] != "" {
			all = append(all, one)
		}
	}
	return all
}
