package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	// MasterName is the name that Sentinels know the primary by.
	MasterName = "main"

	// wholeWithin is how long a topology may take until it is whole. It takes a
	// second or two; the rest is for a machine that is busy with other tests.
	wholeWithin = 2 * time.Minute

	// mostPause is the longest pause between two looks at several servers.
	mostPause = 80 * time.Millisecond

	// calm is how long a server must be missed until it is replaced while no test waits
	// for that: longer than a busy machine holds one up.
	calm = time.Minute
	// downAfter is how long a primary must be missed by its Sentinels while one does.
	downAfter = 500 * time.Millisecond

	// usualPublishing and quickPublishing are how often Sentinels tell one another what they know:
	// while there may be a failover, and while there is none.
	usualPublishing = time.Second
	quickPublishing = 200 * time.Millisecond
)

// Sentinel is a primary with two replicas, and three Sentinels that watch them. A
// primary that is gone is replaced within about a second once [Sentinel.AwaitFailover]
// waits for it, and not before.
type Sentinel struct {
	// Nodes are the servers that hold data; the first begins as the primary.
	Nodes []*Server
	// Sentinels are those that watch them.
	Sentinels []*Server

	t testing.TB
}

// StartSentinel starts the servers, and waits until all know one another and the
// replicas follow. The options are for the servers that hold data, and those of
// TLS and passwords for the Sentinels as well.
func StartSentinel(t testing.TB, kind Kind, options ...Option) *Sentinel {
	t.Helper()
	s := &Sentinel{t: t}
	s.Nodes = append(s.Nodes, Start(t, kind, append([]Option{replication()}, options...)...))
	primary := s.Nodes[0]
	for range 2 {
		s.Nodes = append(s.Nodes, Start(t, kind, append([]Option{
			replication(), Directive("replicaof", loopback, strconv.Itoa(primary.Port())),
		}, options...)...))
	}
	for range 3 {
		s.Sentinels = append(s.Sentinels, Start(t, kind, watching(primary)))
	}
	await(t, "the Sentinels have their pace", func(ctx context.Context) error { return s.pace(ctx, calm) })
	s.AwaitWhole()
	return s
}

// pace tells the Sentinels after how long a server counts as gone, and to be quick
// besides: their own pace is made for networks that span a continent. It returns an
// error as long as one does not know.
func (s *Sentinel) pace(ctx context.Context, downAfter time.Duration) error {
	for _, sentinel := range s.Sentinels {
		if !sentinel.answers() {
			continue
		}
		// One that has been held up for two seconds does nothing for the tilt-period. While a primary is missed,
		// its replicas are asked what they have each second, and none is good that has not said that within five
		// ping-periods.
		if _, err := sentinel.Do(ctx, "SENTINEL", "DEBUG", "info-period", "200", "ping-period", "250", "ask-period", "100",
			"election-timeout", "1000", "min-link-reconnect-period", "200", "tilt-period", "1000"); err != nil {
			return err
		}
		if _, err := sentinel.Do(ctx, "SENTINEL", "SET", MasterName, "down-after-milliseconds", strconv.FormatInt(downAfter.Milliseconds(), 10)); err != nil {
			return err
		}
	}
	return s.publish(ctx, usualPublishing)
}

// publish sets how often the Sentinels tell one another what they know. One that has not heard of
// a new primary for four of these periods makes a replica of it again, and then nobody has the last
// word until calm is over. It returns an error as long as a Sentinel does not know.
func (s *Sentinel) publish(ctx context.Context, every time.Duration) error {
	for _, sentinel := range s.Sentinels {
		if !sentinel.answers() {
			continue
		}
		if _, err := sentinel.Do(ctx, "SENTINEL", "DEBUG", "publish-period", strconv.FormatInt(every.Milliseconds(), 10)); err != nil {
			return err
		}
	}
	return nil
}

// replication makes replicas follow at once.
func replication() Option {
	return func(s *settings) {
		s.directives = append(s.directives,
			[]string{"repl-diskless-sync", "yes"},
			[]string{"repl-diskless-sync-delay", "0"},
			[]string{"repl-ping-replica-period", "1"})
	}
}

// watching makes a server a Sentinel of the primary.
func watching(primary *Server) Option {
	return func(s *settings) {
		s.sentinel = true
		s.certificates = primary.settings.certificates
		s.directives = append(s.directives,
			[]string{"sentinel", "monitor", MasterName, loopback, strconv.Itoa(primary.Port()), "2"},
			[]string{"sentinel", "down-after-milliseconds", MasterName, strconv.FormatInt(calm.Milliseconds(), 10)},
			[]string{"sentinel", "failover-timeout", MasterName, "1000"})
		if password := primary.settings.password; password != "" {
			Password(password)(s)
			s.directives = append(s.directives,
				[]string{"sentinel", "auth-pass", MasterName, password},
				[]string{"sentinel", "sentinel-pass", password})
		}
	}
}

// whole returns an error as long as something is missing.
func (s *Sentinel) whole(ctx context.Context) error {
	for _, sentinel := range s.Sentinels {
		state, err := sentinel.pairs(ctx, "SENTINEL", "MASTER", MasterName)
		if err != nil {
			return err
		}
		if state["num-slaves"] != "2" || state["num-other-sentinels"] != "2" || state["flags"] != "master" {
			return fmt.Errorf("the Sentinel at %s knows %s replicas and %s Sentinels, and calls the primary %s",
				sentinel.Addr(), state["num-slaves"], state["num-other-sentinels"], state["flags"])
		}
	}
	var primaries []string
	for _, node := range s.Nodes {
		primary, err := node.leads(ctx)
		if err != nil {
			return err
		}
		if primary {
			primaries = append(primaries, node.Addr())
		}
	}
	if len(primaries) != 1 { // one that has just been restarted may take itself for one still
		return fmt.Errorf("the primaries are %v", primaries)
	}
	return nil
}

// AwaitWhole waits until there is a primary again that two replicas follow, and
// every Sentinel knows it.
func (s *Sentinel) AwaitWhole() {
	s.t.Helper()
	await(s.t, "the Sentinels name one primary", s.agree)
	// A primary that has come back becomes a replica when Sentinels have seen it for four periods:
	// time for the news of a failover to reach them all, which it has.
	await(s.t, "the Sentinels talk often", func(ctx context.Context) error { return s.publish(ctx, quickPublishing) })
	await(s.t, "the Sentinels know all servers", s.whole)
	await(s.t, "the Sentinels talk as usual", func(ctx context.Context) error { return s.publish(ctx, usualPublishing) })
}

// agree returns an error as long as Sentinels name different primaries.
func (s *Sentinel) agree(ctx context.Context) error {
	first := ""
	for _, sentinel := range s.Sentinels {
		reply, err := sentinel.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterName)
		if err != nil {
			return err
		}
		switch named := fmt.Sprint(reply); first {
		case "":
			first = named
		case named:
		default:
			return fmt.Errorf("the Sentinel at %s names %s, and another one %s", sentinel.Addr(), named, first)
		}
	}
	return nil
}

// Primary is the server that the Sentinels hold for the primary.
func (s *Sentinel) Primary() *Server {
	s.t.Helper()
	return s.primary("a Sentinel names the primary", nil)
}

// AwaitFailover waits until the Sentinels have put another server in the place of
// the primary, and returns it. While it waits, a primary that is missed for half a
// second is replaced.
func (s *Sentinel) AwaitFailover(old *Server) *Server {
	s.t.Helper()
	await(s.t, "the Sentinels are impatient", func(ctx context.Context) error { return s.pace(ctx, downAfter) })
	primary := s.primary("the Sentinels have chosen another primary", old)
	await(s.t, "the Sentinels are patient", func(ctx context.Context) error { return s.pace(ctx, calm) })
	return primary
}

func (s *Sentinel) primary(what string, not *Server) *Server {
	s.t.Helper()
	var primary *Server
	await(s.t, what, func(ctx context.Context) error {
		var failure error
		for _, sentinel := range s.Sentinels {
			reply, err := sentinel.ask(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterName)
			if err != nil {
				failure = err
				continue
			}
			if addr, ok := reply.([]any); ok && len(addr) == 2 {
				for _, node := range s.Nodes {
					if node != not && node.Addr() == net.JoinHostPort(fmt.Sprint(addr[0]), fmt.Sprint(addr[1])) {
						primary = node
						return nil
					}
				}
			}
			failure = fmt.Errorf("the Sentinel at %s answers %v", sentinel.Addr(), reply)
		}
		return failure
	})
	return primary
}

// URL is the address of all of it, as stores are configured with it.
func (s *Sentinel) URL() string {
	s.t.Helper()
	hosts := make([]string, len(s.Sentinels))
	for i, sentinel := range s.Sentinels {
		hosts[i] = sentinel.Addr()
	}
	u := url.URL{Scheme: "redis-sentinel", Host: strings.Join(hosts, ","), Path: "/0", RawQuery: "master=" + MasterName}
	s.Nodes[0].settings.addTo(&u)
	if password := s.Nodes[0].settings.password; password != "" {
		file := filepath.Join(s.Sentinels[0].dir, "password")
		if err := os.WriteFile(file, []byte(password), 0o600); err != nil {
			s.t.Fatal(fmt.Errorf("servers: %w", err))
		}
		q := u.Query()
		q.Set("sentinel_password_file", file)
		u.RawQuery = q.Encode()
	}
	return u.String()
}

// leads reports whether the server is a primary. It returns an error if it is a
// replica that does not follow yet.
func (s *Server) leads(ctx context.Context) (bool, error) {
	reply, err := s.Do(ctx, "INFO", "replication")
	if err != nil {
		return false, err
	}
	info := fmt.Sprint(reply)
	if !strings.Contains(info, "role:slave") {
		return true, nil
	}
	if !strings.Contains(info, "master_link_status:up") {
		return false, fmt.Errorf("the replica at %s does not follow yet", s.Addr())
	}
	return false, nil
}

// AwaitReplicas waits until so many replicas have acknowledged all that was written
// to the server before the call.
func (s *Server) AwaitReplicas(n int) {
	s.t.Helper()
	offset := regexp.MustCompile(`(?m)^master_repl_offset:(\d+)`)
	acknowledged := regexp.MustCompile(`(?m)^slave\d+:.*state=online,offset=(\d+)`)
	written := -1
	await(s.t, fmt.Sprintf("%d replicas have what was written to %s", n, s.Addr()), func(ctx context.Context) error {
		reply, err := s.Do(ctx, "INFO", "replication")
		if err != nil {
			return err
		}
		info := fmt.Sprint(reply)
		if written < 0 {
			of := offset.FindStringSubmatch(info)
			if of == nil {
				return fmt.Errorf("%s names no offset", s.Addr())
			}
			if written, err = strconv.Atoi(of[1]); err != nil {
				return err
			}
		}
		have := 0
		for _, of := range acknowledged.FindAllStringSubmatch(info, -1) {
			if at, err := strconv.Atoi(of[1]); err == nil && at >= written {
				have++
			}
		}
		if have < n {
			return fmt.Errorf("%d of %d replicas have it", have, n)
		}
		return nil
	})
}

// must sends a command whose failure fails the test.
func (s *Server) must(args ...string) any {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	reply, err := s.Do(ctx, args...)
	if err != nil {
		s.t.Fatalf("%s on port %d: %v", s.kind.Program(), s.port, err)
	}
	return reply
}

// ask is Do for one of several servers: one that hangs is not waited for.
func (s *Server) ask(ctx context.Context, args ...string) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	return s.Do(ctx, args...)
}

// pairs sends a command that answers with names and values in turn.
func (s *Server) pairs(ctx context.Context, args ...string) (map[string]string, error) {
	reply, err := s.Do(ctx, args...)
	if err != nil {
		return nil, err
	}
	list, _ := reply.([]any)
	pairs := make(map[string]string, len(list)/2)
	for i := 0; i+1 < len(list); i += 2 {
		pairs[fmt.Sprint(list[i])] = fmt.Sprint(list[i+1])
	}
	return pairs, nil
}

// HandOver tells a server to put another one in the place of a primary, again and again until done
// reports that it has. On a busy machine, servers give up what takes longer than a few seconds, and
// a Sentinel also when it has not heard of the replicas for half a second.
func HandOver(t testing.TB, done func() bool, s *Server, command ...string) {
	t.Helper()
	await(t, "a replica has taken over", func(ctx context.Context) error {
		_, err := s.Do(ctx, command...) // an error while the one before is still under way
		for end := time.Now().Add(6 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if done() {
				return nil
			}
		}
		return errors.Join(err, fmt.Errorf("none has, six seconds after %s", strings.Join(command, " ")))
	})
}

// await calls try until it returns no error; if that takes too long, it fails the
// test with the last one. Each try opens connections, so that they become rarer.
func await(t testing.TB, what string, try func(ctx context.Context) error) {
	t.Helper()
	end := time.Now().Add(wholeWithin)
	for pause := 2 * pollTime; ; pause = min(2*pause, mostPause) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		err := try(ctx)
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("servers: waited %v until %s: %v", wholeWithin, what, err)
		}
		time.Sleep(pause)
	}
}
