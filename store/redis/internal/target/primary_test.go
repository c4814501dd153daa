package target

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// sentinel stands in for a Sentinel.
type sentinel struct {
	address  string
	listener net.Listener
	accepted atomic.Int64 // connections
	hellos   atomic.Int64 // how often it was asked what it is

	mu          sync.Mutex
	reply       string                // to SENTINEL GET-MASTER-ADDR-BY-NAME, or "" if it hangs
	epoch       int                   // of the primary that it names
	hidden      bool                  // the user may not ask for more than the address
	id          string                // "" if the user may not ask for it
	others      []map[string]string   // the Sentinels that it knows
	replicas    []map[string]string   // and the replicas
	role        string                // what it says that it is, when it stands in for a server
	subscribers map[string][]net.Conn // by channel
	held        []net.Conn            // of those who wait for the reply to GET held
}

// naming is the reply that names a primary.
func naming(host, port string) string {
	return fmt.Sprintf("*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(host), host, len(port), port)
}

const (
	nobody  = "_\r\n"
	hanging = ""
	refused = "-NOPERM this user has no permissions to run the command\r\n"
)

// list is a reply of several names with values.
func list(all ...map[string]string) string {
	var reply strings.Builder
	fmt.Fprintf(&reply, "*%d\r\n", len(all))
	for _, one := range all {
		fmt.Fprintf(&reply, "%%%d\r\n", len(one))
		for name, value := range one {
			fmt.Fprintf(&reply, "+%s\r\n+%s\r\n", name, value)
		}
	}
	return reply.String()
}

// instance is how a Sentinel describes a server that it knows.
func (s *sentinel) instance(flags string) map[string]string {
	host, port, _ := net.SplitHostPort(s.address)
	return map[string]string{"runid": s.id, "ip": host, "port": port, "flags": flags}
}

// set changes what it answers.
func (s *sentinel) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func startSentinel(t *testing.T, reply string) *sentinel {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &sentinel{address: l.Addr().String(), listener: l, reply: reply, subscribers: make(map[string][]net.Conn)}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.accepted.Add(1)
			all.Go(func() { s.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait()
	})
	return s
}

func (s *sentinel) serve(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	for r := bufio.NewReader(c); ; {
		words, err := command(r)
		if err != nil {
			return
		}
		s.mu.Lock()
		reply := s.reply
		switch strings.Join(words[:min(2, len(words))], " ") {
		case "HELLO 3":
			if reply != hanging {
				reply = "%3\r\n+server\r\n+redis\r\n+version\r\n+7.0.0\r\n+proto\r\n:3\r\n"
			}
		case "HELLO":
			s.hellos.Add(1)
			reply = list(map[string]string{"role": s.role})[len("*1\r\n"):]
		case "SUBSCRIBE +switch-master", "SUBSCRIBE +failover-state-reconf-slaves", "SUBSCRIBE +selected-slave":
			s.subscribers[words[1]] = append(s.subscribers[words[1]], c)
			reply = ">3\r\n+subscribe\r\n+" + words[1] + "\r\n:1\r\n"
		case "SENTINEL GET-MASTER-ADDR-BY-NAME":
		case "GET held":
			s.held = append(s.held, c)
			reply = hanging
		case "GET k": // by a client that takes it for the primary
			reply = "-READONLY You can't write against a read only replica.\r\n"
		case "SENTINEL MASTER":
			reply = list(map[string]string{"config-epoch": strconv.Itoa(s.epoch)})[len("*1\r\n"):]
			if s.hidden {
				reply = refused
			}
		case "SENTINEL SENTINELS":
			reply = list(s.others...)
		case "SENTINEL REPLICAS":
			reply = list(s.replicas...)
			if s.hidden {
				reply = refused
			}
		case "SENTINEL MYID":
			reply = "+" + s.id + "\r\n"
			if s.id == "" {
				reply = refused
			}
		default:
			reply = "+OK\r\n"
		}
		_, _ = io.WriteString(c, reply)
		s.mu.Unlock()
	}
}

// command reads a command.
func command(r *bufio.Reader) (words []string, err error) {
	number := func(kind string) int {
		line, e := r.ReadString('\n')
		n, e2 := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(line, kind)))
		if e != nil || e2 != nil {
			err = fmt.Errorf("%q: %w, %w", line, e, e2)
		}
		return n
	}
	for range number("*") {
		word := make([]byte, number("$")+2)
		if _, e := io.ReadFull(r, word); e != nil {
			err = e
		}
		if err != nil {
			return nil, err
		}
		words = append(words, string(word[:len(word)-2]))
	}
	return words, err
}

// moves has the Sentinel name another primary, and announce it, as one that has heard of a failover.
func (s *sentinel) moves(reply string) { s.announces(reply, "+switch-master", "main a 1 b 2") }

// promotes has the Sentinel name another primary, and announce it, as one that leads a failover.
func (s *sentinel) promotes(reply string) {
	s.announces(reply, "+failover-state-reconf-slaves", "master main a 1")
}

func (s *sentinel) announces(reply, channel, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reply = reply
	s.epoch++
	for _, c := range s.subscribers[channel] {
		_, _ = io.WriteString(c, ">3\r\n+message\r\n+"+channel+"\r\n+"+message+"\r\n")
	}
}

// until waits for what must come to be.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited a minute: ", what)
		}
	}
}

// followed follows the primary of Sentinels that are asked only if something has happened. moves
// receives the addresses of primaries.
func followed(t *testing.T, connect time.Duration, sentinels ...*sentinel) (p *primary, moves chan string) {
	t.Helper()
	to := &Target{Topology: Sentinels, Master: "main", ConnectTimeout: connect, refresh: time.Hour}
	for _, s := range sentinels {
		to.Hosts = append(to.Hosts, s.address)
	}
	moves = make(chan string, 16)
	p, err := to.follow(connect, func() {}, func(address string) { moves <- address })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p, moves
}

func TestPrimaryIsFollowed(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]string{
		"hangs": hanging, "knows no such name": nobody, "refuses": "-NOAUTH Authentication required.\r\n", "says something else": "*1\r\n+x\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad, good := startSentinel(t, first), startSentinel(t, naming("10.0.0.1", "6379"))
			p, moves := followed(t, 4*time.Second, bad, good)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			// The first answer may be that no Sentinel has given one, on a machine that is busy.
			if got := <-moves; got != "10.0.0.1:6379" || !p.leads(got) {
				t.Errorf("the primary is %s", got)
			}
			good.moves(naming("fd00::2", "6380"))
			if got := <-moves; got != "[fd00::2]:6380" {
				t.Errorf("the next primary is %s", got)
			}
			good.promotes(naming("10.0.0.3", "6381"))
			if got := <-moves; got != "10.0.0.3:6381" {
				t.Errorf("the primary after that is %s", got)
			}
			if got, err := p.now(ctx); got != "10.0.0.3:6381" || err != nil {
				t.Errorf("the primary is %s, %v", got, err)
			}
		})
	}
}

// TestHighestEpochIsBelieved: what a Sentinel that leads a failover names is believed though others still
// name the old primary, whoever doubts the new one meanwhile, and though that Sentinel goes. If the epoch
// is hidden, the last Sentinel to name another primary than before is believed.
func TestHighestEpochIsBelieved(t *testing.T) {
	t.Parallel()
	for _, hidden := range []bool{false, true} {
		t.Run(fmt.Sprint("hidden ", hidden), func(t *testing.T) {
			t.Parallel()
			const old, next = "10.0.0.1:6379", "10.0.0.2:6379"
			at := func(host string) string { return naming(host, "6379") }
			all := []*sentinel{startSentinel(t, at("10.0.0.1")), startSentinel(t, at("10.0.0.1")), startSentinel(t, at("10.0.0.1"))}
			for _, s := range all {
				s.hidden = hidden
			}
			leader := all[2]
			p, moves := followed(t, time.Minute, all...)
			if got := <-moves; got != old {
				t.Fatalf("the primary is %s", got)
			}
			answer := func(s *sentinel) *watched {
				p.mu.Lock()
				defer p.mu.Unlock()
				for _, one := range p.sentinels {
					if one.at == s.address {
						copied := *one
						return &copied
					}
				}
				return nil
			}
			for _, s := range all {
				until(t, "all have answered", func() bool { return answer(s).address == old })
			}
			leader.promotes(at("10.0.0.2"))
			if got := <-moves; got != next {
				t.Fatalf("the next primary is %s", got)
			}
			p.doubt(next)
			p.doubt(old)
			leader.gone()
			until(t, "the leader is missed", func() bool { return answer(leader).failed })
			if len(moves) != 0 || !p.leads(next) {
				t.Errorf("it goes back to %s", <-moves)
			}
			// Who has been gone for long no longer counts.
			if got := <-moves; got != old {
				t.Errorf("the primary after that is %s", got)
			}
		})
	}
}

// TestPromotedReplicaIsBelieved: the replica that a Sentinel promotes is the primary as soon as it says so,
// before any Sentinel names it, and only as long as that Sentinel goes on. Calls wait meanwhile.
func TestPromotedReplicaIsBelieved(t *testing.T) {
	t.Parallel()
	const old = "10.0.0.1:6379"
	next := startSentinel(t, nobody) // stands in for the replica
	next.role = "replica"
	all := []*sentinel{startSentinel(t, naming("10.0.0.1", "6379")), startSentinel(t, naming("10.0.0.1", "6379"))}
	to := &Target{Topology: Sentinels, Master: "main", ConnectTimeout: time.Minute, refresh: time.Hour, Hosts: []string{all[0].address, all[1].address}}
	moving, moves := make(chan bool, 16), make(chan string, 16)
	p, err := to.follow(time.Minute, func() { moving <- true }, func(address string) { moves <- address })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	if got := <-moves; got != old {
		t.Fatalf("the primary is %s", got)
	}
	chosen := func(flags string) {
		all[0].set(func() { all[0].replicas = []map[string]string{next.instance(flags)} })
		p.look()
	}
	asked := func(before int64) bool { return next.hellos.Load() > before+1 }
	for range 2 { // and when it is promoted again
		chosen("slave,promoted")
		<-moving
		before := next.hellos.Load()
		until(t, "it has been asked after it was chosen", func() bool { return asked(before) })
		if len(moves) != 0 || !p.leads(old) {
			t.Errorf("it is believed, and says that it is a replica")
		}
		next.set(func() { next.role = "master" })
		if got := <-moves; got != next.address {
			t.Errorf("the next primary is %s", got)
		}
		p.doubt(next.address)
		next.set(func() { next.role = "replica" })
		chosen("slave") // the failover was given up
		if got := <-moves; got != old {
			t.Errorf("the primary after that is %s", got)
		}
	}
	if len(moving) != 0 {
		t.Error("calls wait once more")
	}
}

// TestSentinelWithTwoNames: a Sentinel that the URL names by host, and that others know by its address, is
// connected to once: by its name if it has answered by that first, and otherwise from then on.
func TestSentinelWithTwoNames(t *testing.T) {
	t.Parallel()
	a, b := startSentinel(t, naming("10.0.0.1", "6379")), startSentinel(t, naming("10.0.0.1", "6379"))
	a.id, b.id = "a", "b"
	a.others = []map[string]string{b.instance("sentinel")}
	b.others = []map[string]string{a.instance("sentinel")}
	_, port, err := net.SplitHostPort(b.address)
	if err != nil {
		t.Fatal(err)
	}
	to := &Target{Topology: Sentinels, Master: "main", ConnectTimeout: time.Minute, refresh: time.Hour, Hosts: []string{a.address, net.JoinHostPort("localhost", port)}}
	p, err := to.follow(time.Minute, func() {}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	watching := func() (all []string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, s := range p.sentinels {
			if s.address != "" {
				all = append(all, s.at)
			}
		}
		return all
	}
	until(t, "both have answered", func() bool { return len(watching()) == 2 })
	if n := b.accepted.Load(); n != 1 || !slices.Equal(watching(), to.Hosts) {
		t.Errorf("%d connections to the second, and %v are watched", n, watching())
	}
	// As if it had failed by its name at first, and was known by its address.
	p.mu.Lock()
	p.watchOne(t.Context(), &watched{at: b.address, says: says{id: "b"}})
	p.mu.Unlock()
	until(t, "it is connected to twice", func() bool { return b.accepted.Load() == 2 })
	until(t, "and not watched twice", func() bool { return slices.Equal(watching(), to.Hosts) })
}

// TestSentinelsSetUpAnew: their epochs begin at 0 again. One that has lost what it knew is not believed,
// most of them are, whatever is left of the old ones, and then the next epoch.
func TestSentinelsSetUpAnew(t *testing.T) {
	t.Parallel()
	at := func(n int) string { return naming(fmt.Sprint("10.0.0.", n), "6379") }
	var all []*sentinel
	for range 3 {
		s := startSentinel(t, at(1))
		s.epoch = 5
		all = append(all, s)
	}
	p, moves := followed(t, time.Minute, all...)
	if got := <-moves; got != "10.0.0.1:6379" {
		t.Fatalf("the primary is %s", got)
	}
	until(t, "all have answered", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return !slices.ContainsFunc(p.sentinels, func(s *watched) bool { return s.highest != 5 })
	})
	sets := func(s *sentinel, epoch, primary int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.epoch, s.reply = epoch, at(primary)
	}
	heard := func(n int) {
		p.look()
		until(t, "what they say is heard", func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			anew := 0
			for _, s := range p.sentinels {
				if s.anew {
					anew++
				}
			}
			return anew == n
		})
	}
	sets(all[0], 0, 2)
	heard(1)
	if len(moves) != 0 || !p.leads("10.0.0.1:6379") {
		t.Errorf("a single one leads to %s", <-moves)
	}
	sets(all[1], 0, 2)
	heard(2)
	if got := <-moves; got != "10.0.0.2:6379" {
		t.Errorf("the next primary is %s", got)
	}
	sets(all[2], 0, 2)
	heard(0) // all begin anew
	sets(all[2], 1, 3)
	p.look()
	if got := <-moves; got != "10.0.0.3:6379" {
		t.Errorf("the primary after that is %s", got)
	}
}

// gone ends the Sentinel.
func (s *sentinel) gone() {
	_ = s.listener.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, all := range s.subscribers {
		for _, c := range all {
			_ = c.Close()
		}
	}
}

// TestNoSentinelKnows: calls fail with the reason, and however many there are, no Sentinel is
// connected to more often.
func TestNoSentinelKnows(t *testing.T) {
	t.Parallel()
	a, b := startSentinel(t, nobody), startSentinel(t, nobody)
	p, _ := followed(t, time.Minute, a, b)
	begun := time.Now()
	for range 1000 {
		_, err := p.now(t.Context())
		if err == nil || !strings.Contains(err.Error(), `knows no primary by the name "main"`) {
			t.Fatalf("got %v", err)
		}
	}
	if n, rounds := a.accepted.Load()+b.accepted.Load(), int64(time.Since(begun)/(pause/2))+2; n > 2*rounds {
		t.Errorf("%d connections in %d rounds", n, rounds)
	}
}

// TestSentinelIsDoubted: a Sentinel that is cut off from the others names a primary that is gone.
// Another one is believed then, when the store is opened and later.
func TestSentinelIsDoubted(t *testing.T) {
	t.Parallel()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	at := func(address string) string {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			t.Fatal(err)
		}
		return naming(host, port)
	}
	one, other := startSentinel(t, nobody), startSentinel(t, nobody) // and stand in for primaries
	a, b := startSentinel(t, at(gone.Addr().String())), startSentinel(t, at(one.address))
	to, err := Parse("redis-sentinel://"+a.address+","+b.address+"?master=main&refresh=1h&connect_timeout=20s", new(Settings))
	if err != nil {
		t.Fatal(err)
	}
	client, links, err := to.Connect(t.Context(), time.Second, "hg:")
	if err != nil {
		t.Fatal(err)
	}
	defer links.Close()
	defer client.Close()
	// The one that is doubted hears of the next primary, and the one that is believed does not.
	a.moves(at(other.address))
	for deadline := time.Now().Add(time.Minute); !links.primary.leads(other.address); time.Sleep(10 * time.Millisecond) {
		links.Note(client.Do(t.Context(), client.B().Get().Key("k").Build()).Error())
		if time.Now().After(deadline) {
			t.Fatalf("the primary is %v", client.Nodes())
		}
	}
	for deadline := time.Now().Add(time.Minute); other.accepted.Load() == 0; time.Sleep(10 * time.Millisecond) {
		if err := client.Do(t.Context(), client.B().Ping().Build()).Error(); time.Now().After(deadline) {
			t.Fatalf("no call reaches the next primary: %v", err)
		}
	}
}

// TestHandOver: when the primary moves, a call under way is answered by the old one, later calls by
// the new one, and then the old connection is closed. The old primary is a replica by then: what it
// refuses closes no connection to the new one.
func TestHandOver(t *testing.T) {
	t.Parallel()
	old, next := startSentinel(t, nobody), startSentinel(t, nobody) // stand in for primaries
	names := func(s *sentinel) string {
		host, port, err := net.SplitHostPort(s.address)
		if err != nil {
			t.Fatal(err)
		}
		return naming(host, port)
	}
	a := startSentinel(t, names(old))
	to, err := Parse("redis-sentinel://"+a.address+"?master=main&refresh=1h&connect_timeout=20s", new(Settings))
	if err != nil {
		t.Fatal(err)
	}
	client, links, err := to.Connect(t.Context(), 3*time.Second, "hg:")
	if err != nil {
		t.Fatal(err)
	}
	defer links.Close()
	defer client.Close()
	underWay := make(chan error, 1)
	go func() { underWay <- client.Do(t.Context(), client.B().Get().Key("held").Build()).Error() }()
	until(t, "the old primary holds the call", func() bool {
		old.mu.Lock()
		defer old.mu.Unlock()
		return len(old.held) == 1
	})
	follows := client.(shared).Client.(*following)
	follows.within = time.Minute // a busy machine has time
	a.moves(names(next))
	links.primary.look()
	until(t, "another client takes the calls", func() bool { return follows.now.Load().client != follows.Client })
	if err := client.Do(t.Context(), client.B().Ping().Build()).Error(); err != nil {
		t.Errorf("a call to the new primary: %v", err)
	}
	old.mu.Lock()
	_, err = io.WriteString(old.held[0], "-READONLY You can't write against a read only replica.\r\n")
	old.mu.Unlock()
	if err != nil {
		t.Error(err)
	}
	if err = <-underWay; err == nil || !strings.HasPrefix(err.Error(), "READONLY") {
		t.Errorf("the call that was under way ended with %v, want the old primary's answer", err)
	}
	links.Note(err)
	until(t, "the old connection is closed", func() bool {
		links.mu.Lock()
		defer links.mu.Unlock()
		for one := range links.open {
			if one.address == old.address {
				return false
			}
		}
		return len(links.open) == 1
	})
	if n := next.accepted.Load(); n != 1 {
		t.Errorf("the new primary has been connected to %d times", n)
	}
}
