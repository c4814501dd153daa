package topologies

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// documented are the rules of a user in docs/redis.md, of the line that makes it.
func documented(t *testing.T, user string) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "user "+user+" on >PASSWORD "); ok {
			return strings.Fields(rest)
		}
	}
	t.Fatalf("docs/redis.md does not say what the user %s may do", user)
	return nil
}

// as is the URL for another user. The password is in a file, as it should be.
func as(t *testing.T, text, user, password string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	scheme, rest, _ := strings.Cut(text, "://")
	if _, host, ok := strings.Cut(rest, "@"); ok {
		rest = host
	}
	sep := "?"
	if strings.Contains(rest, "?") {
		sep = "&"
	}
	return scheme + "://" + user + "@" + rest + sep + "password_file=" + url.QueryEscape(file)
}

// everything calls all that a store can do, and returns the first error. So many rounds of calls use
// up limits and let them come back; a user has to be permitted what scripts do in any of them.
func everything(t *testing.T, store *redis.Store, clustered bool, rounds int) error {
	t.Helper()
	ctx := t.Context()
	if err := store.Ping(ctx); err != nil {
		return err
	}
	if _, _, err := store.Members(ctx, "node", time.Minute); err != nil {
		return err
	}
	if _, _, err := store.Members(ctx, "node", 0); err != nil {
		return err
	}
	if err := passes(t, store); err != nil {
		return err
	}
	if !clustered {
		if err := reserves(t, store); err != nil {
			return err
		}
	}
	// Last, since it takes longest: what is not permitted is found out before.
	second := time.Second
	rules := []*headgate.Rule{
		headgate.MustRule("bucket", headgate.Per(1000, second)),
		headgate.MustRule("buckets", headgate.Per(1000, second), headgate.Per(1000, 2*second)),
		headgate.MustRule("window", headgate.Sliding(400, 30*time.Millisecond), headgate.Sliding(60, second)),
		headgate.MustRule("mixed", headgate.Per(1000, second), headgate.Sliding(1000, second), headgate.Limit{Algorithm: headgate.SlidingCounter, Count: 1000, Period: second}),
		headgate.MustRule("fixed", headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1000, Period: second}, headgate.Blocking(2, second, second, second)),
	}
	for n := range rounds {
		var checks []headgate.Check
		for i, rule := range rules {
			checks = append(checks, headgate.Check{Rule: rule, Key: "k", Cost: int64(1 + n%(9+i))})
			for _, op := range []headgate.Op{headgate.OpTake, headgate.OpPeek, headgate.OpRefund} {
				if n%7 != 6 && op == headgate.OpRefund {
					continue
				}
				if _, err := store.Take(ctx, op, checks[i:], nil); err != nil {
					return fmt.Errorf("%v under %v: %w", op, rule, err)
				}
			}
		}
		if _, err := store.Take(ctx, headgate.OpTake, checks, nil); err != nil {
			return err
		}
	}
	return forget(t, store, headgate.Check{Rule: rules[0], Key: "k"})
}

// reserves calls all that a store can do with reservations, and returns the first error.
func reserves(t *testing.T, store *redis.Store) error {
	t.Helper()
	ctx := t.Context()
	once := headgate.Terms{ID: "once", For: 20 * time.Millisecond}
	checks := []headgate.Check{{Rule: headgate.MustRule("reserved", headgate.PerHour(1000)), Key: "k", Cost: 5, GiveBack: true}}
	if _, err := store.TakeOnce(ctx, once, checks, nil); err != nil {
		return err
	}
	r, _, err := store.Reserve(ctx, headgate.Terms{}, checks, nil)
	if err != nil {
		return err
	}
	if _, err := store.Recall(ctx, r.ID); err != nil {
		return err
	}
	if _, err := store.Settle(ctx, r, []int64{3}, nil); err != nil {
		return err
	}
	if _, _, err := store.Reserve(ctx, headgate.Terms{For: time.Millisecond}, checks, nil); err != nil {
		return err
	}
	time.Sleep(10 * time.Millisecond)
	return store.Sweep(ctx)
}

// TestPermissions: what the documentation lets a user do is enough for everything,
// and none of it can be left out.
func TestPermissions(t *testing.T) {
	t.Parallel()
	rules := documented(t, "headgate")
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		try := func(rules ...string) error {
			t.Helper()
			stores.Do(t, s, append([]string{"ACL", "SETUSER", "headgate", "reset", "on", ">geheim"}, rules...)...)
			stores.Do(t, s, "FLUSHALL")
			stores.Do(t, s, "SCRIPT", "FLUSH")
			store, err := redis.Open(t.Context(), stores.Patiently(as(t, s.URL(), "headgate", "geheim")), redis.Timeout(10*time.Second))
			if err != nil {
				return err
			}
			defer store.Close()
			return everything(t, store, false, 120)
		}
		if err := try(rules...); err != nil {
			t.Fatal(err)
		}
		for i := range rules {
			err := try(append(append([]string{}, rules[:i]...), rules[i+1:]...)...)
			if !errors.Is(err, headgate.ErrUnavailable) || !strings.Contains(err.Error(), "permission") && !strings.Contains(err.Error(), "can't run this command") {
				t.Errorf("without %s: %v; want that the server does not permit it", rules[i], err)
			}
		}
		stores.Do(t, s, "ACL", "LOG", "RESET")
		if err := try(rules...); err != nil {
			t.Fatal(err)
		}
		log, err := s.Do(t.Context(), "ACL", "LOG")
		if err != nil {
			t.Fatal(err)
		}
		if entries, _ := log.([]any); len(entries) != 0 {
			t.Errorf("the server's log of refusals has %v", entries)
		}
	}, servers.Password("admin"))
}

// TestPermissionsOnTopologies: so it is with Sentinels, who have a user of their own, and on a
// cluster, where a few more are needed.
func TestPermissionsOnTopologies(t *testing.T) {
	t.Parallel()
	user := append([]string{"ACL", "SETUSER", "headgate", "reset", "on", ">geheim"}, documented(t, "headgate")...)
	watcher := append([]string{"ACL", "SETUSER", "headgate-watch", "reset", "on", ">geheim too"}, documented(t, "headgate-watch")...)
	eachKind(t, func(t *testing.T, kind servers.Kind) {
		t.Run("sentinel", func(t *testing.T) {
			s := servers.StartSentinel(t, kind, servers.Password("admin"))
			for _, node := range s.Nodes {
				stores.Do(t, node, user...)
			}
			for _, one := range s.Sentinels {
				stores.Do(t, one, watcher...)
			}
			file := filepath.Join(t.TempDir(), "watch")
			if err := os.WriteFile(file, []byte("geheim too"), 0o600); err != nil {
				t.Fatal(err)
			}
			u := as(t, strings.Split(s.URL(), "&sentinel_password_file")[0], "headgate", "geheim") + "&sentinel_user=headgate-watch&sentinel_password_file=" + url.QueryEscape(file)
			store := stores.OpenURL(t, u, redis.Prefix("hg:"))
			if err := everything(t, store, false, 120); err != nil {
				t.Error(err)
			}
			old := s.Primary()
			old.Kill()
			s.AwaitFailover(old)
			stores.Recovers(t, headgate.New(store, headgate.MustRule("r", headgate.PerHour(1000))))
		})
		t.Run("cluster", func(t *testing.T) {
			c := servers.StartCluster(t, kind, servers.Password("admin"))
			for _, node := range c.Nodes {
				stores.Do(t, node, append(user, "+cluster|slots", "+cluster|shards")...)
			}
			store := stores.OpenURL(t, as(t, c.URL(), "headgate", "geheim"), redis.Prefix("hg:"))
			if err := everything(t, store, true, 120); err != nil {
				t.Error(err)
			}
		})
	})
}

// TestPrefixes: installations on one server keep apart by their prefixes, and a
// user's key pattern keeps him to his.
func TestPrefixes(t *testing.T) {
	rules := documented(t, "headgate")
	rule := headgate.MustRule("r", headgate.PerHour(10))
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		var both []*redis.Store
		for _, name := range []string{"shop", "blog"} {
			own := strings.ReplaceAll(strings.Join(rules, " "), "hg:*", name+":*")
			stores.Do(t, s, append([]string{"ACL", "SETUSER", name, "on", ">geheim"}, strings.Fields(own)...)...)
			store, err := redis.Open(t.Context(), stores.Patiently(as(t, s.URL(), name, "geheim")+"&prefix="+name+"%3A"), redis.Timeout(10*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(store.Close)
			both = append(both, store)
		}
		for want := int64(9); want > 6; want-- {
			for _, store := range both {
				if d := stores.Allow(t, store, rule, "k"); d.Remaining != want {
					t.Errorf("got %+v, want %d remaining", d, want)
				}
			}
		}
		thief, err := redis.Open(t.Context(), stores.Patiently(as(t, s.URL(), "blog", "geheim")+"&prefix=shop%3A"), redis.Timeout(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(thief.Close)
		if _, err := headgate.New(thief, rule).Allow(t.Context(), "k"); !errors.Is(err, headgate.ErrUnavailable) || !strings.Contains(err.Error(), "NOPERM") {
			t.Errorf("got %v, want NOPERM for the keys of another installation", err)
		}
	})
}

// TestTLS: over every topology and with each kind of server, with a certificate of the client's
// own. How a connection is made depends on neither, so that not every pair is tried.
func TestTLS(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind servers.Kind) {
		certificates := servers.NewCertificates(t)
		strangers := servers.NewCertificates(t)
		s := servers.Start(t, kind, servers.TLS(certificates), servers.Password("geheim"))
		urls := map[string]string{"single": s.URL()}
		if kind == servers.Redis {
			urls["sentinel"] = servers.StartSentinel(t, kind, servers.TLS(certificates), servers.Password("geheim")).URL()
		} else {
			urls["cluster"] = servers.StartCluster(t, kind, servers.TLS(certificates), servers.Password("geheim")).URL()
		}
		for name, text := range urls {
			t.Run(name, func(t *testing.T) {
				if !strings.HasPrefix(text, "rediss") || !strings.Contains(text, "cert_file=") {
					t.Fatalf("%s is no URL for TLS", text)
				}
				if err := everything(t, stores.OpenURL(t, text), name == "cluster", 10); err != nil {
					t.Error(err)
				}
			})
		}
		for name, text := range map[string]string{
			"no certificate":                "rediss://:geheim@" + s.Addr() + "?ca_file=" + certificates.CA,
			"a stranger's certificate":      "rediss://:geheim@" + s.Addr() + "?ca_file=" + certificates.CA + "&cert_file=" + strangers.ClientCert + "&key_file=" + strangers.ClientKey,
			"unknown authority":             strings.ReplaceAll(s.URL(), url.QueryEscape(certificates.CA), url.QueryEscape(strangers.CA)),
			"another name":                  s.URL() + "&server_name=example.com",
			"no TLS":                        "redis://:geheim@" + s.Addr(),
			"the authorities of the system": strings.ReplaceAll(s.URL(), "ca_file=", "client_name="),
		} {
			t.Run(name, func(t *testing.T) {
				_, err := redis.Open(t.Context(), stores.Patiently(text))
				// A server that refuses the client's certificate may close the connection before that
				// has heard why; one that expects TLS says nothing.
				ours := name == "unknown authority" || name == "another name" || name == "the authorities of the system"
				if !errors.Is(err, headgate.ErrUnavailable) || ours && !errors.Is(err, store.ErrRefused) || !strings.Contains(err.Error(), s.Addr()) || strings.Contains(err.Error(), "geheim") {
					t.Errorf("got %v, want that %s cannot be reached", err, s.Addr())
				}
			})
		}
		if store, err := redis.Open(t.Context(), stores.Patiently(s.URL()+"&server_name=localhost")); err != nil {
			t.Error(err)
		} else {
			store.Close()
		}
	})
}

// mistakenTopology: a URL that takes the servers for what they are not is told so.
func mistakenTopology(t *testing.T, c *servers.Cluster) {
	s := servers.StartSentinel(t, c.Nodes[0].Kind())
	for _, test := range []struct {
		name, url, want string
		kind            error
	}{
		{"cluster as a server", "redis://" + c.Nodes[0].Addr(), "write redis-cluster://", headgate.ErrInvalid},
		{"server as a cluster", "redis-cluster://" + s.Nodes[0].Addr(), "write redis:// in the place", headgate.ErrInvalid},
		{"Sentinel as a server", "redis://" + s.Sentinels[0].Addr(), "is a Sentinel; write redis-sentinel://", headgate.ErrInvalid},
		{"server as a Sentinel", "redis-sentinel://" + s.Nodes[0].Addr() + "?master=main", "SENTINEL", store.ErrRefused},
		{"a cluster that was not formed", "redis-cluster://" + servers.Start(t, c.Nodes[0].Kind(), servers.ClusterNode()).Addr(), "has the cluster been formed?", headgate.ErrUnavailable},
		{"another primary's name", "redis-sentinel://" + s.Sentinels[0].Addr() + "?master=other", `the primary "other"`, store.ErrRefused},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := redis.Open(t.Context(), stores.Patiently(test.url))
			if !errors.Is(err, test.kind) || !strings.Contains(err.Error(), test.want) || errors.Is(err, store.ErrRefused) != errors.Is(test.kind, store.ErrRefused) {
				t.Errorf("got %v, want %v that says %q", err, test.kind, test.want)
			}
		})
	}
}
