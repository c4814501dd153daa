package redis_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/store/redis/doctor"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// TestDiagnose: what is wrong with a server is found, with what to do about it, and
// counters are measured by rule.
func TestDiagnose(t *testing.T) {
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		client := dial(t, s)
		store := stores.Open(t, client, nil)
		rule := headgate.MustRule("api", headgate.Sliding(100, time.Hour))
		tagged, err := headgate.MustRule("pinned", headgate.PerHour(10)).WithTag("x")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 50 {
			checks := []headgate.Check{{Rule: rule, Key: string(rune('a'+i%26)) + string(rune('a'+i/26)), Cost: 5}}
			if i < 10 {
				checks = append(checks, headgate.Check{Rule: tagged, Key: checks[0].Key})
			}
			if _, err := store.Take(t.Context(), headgate.OpTake, checks, nil); err != nil {
				t.Fatal(err)
			}
		}
		find := func(what string) doctor.Finding {
			t.Helper()
			d, err := store.Diagnose(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range d.Findings {
				if f.What == what {
					return f
				}
			}
			t.Fatalf("nothing is said of %s: %+v", what, d.Findings)
			return doctor.Finding{}
		}
		for _, what := range []string{"permissions", "version", "eviction", "latency", "script time", "clock"} {
			if f := find(what); f.Level == doctor.Bad || f.Text == "" {
				t.Errorf("%s: %+v", what, f)
			}
		}
		d, err := store.Diagnose(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]int64{}
		for _, m := range d.Memory {
			if m.BytesPerKey < 50 || m.BytesPerKey > 2000 {
				t.Errorf("%+v", m)
			}
			seen[m.Rule] = m.Keys
		}
		if seen["api"] != 50 || seen["pinned"] != 10 {
			t.Errorf("the keys by rule are %v, want 50 of api and 10 of pinned", seen)
		}

		do := func(words ...string) {
			t.Helper()
			if err := client.Do(context.Background(), client.B().Arbitrary(words...).Build()).Error(); err != nil {
				t.Fatal(err)
			}
		}
		do("CONFIG", "SET", "maxmemory", "200mb")
		do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
		if f := find("eviction"); f.Level != doctor.Bad || !strings.Contains(f.Text, "allkeys-lru at 200 MiB") || !strings.Contains(f.Fix, "noeviction") {
			t.Errorf("an evicting server: %+v", f)
		}
		do("CONFIG", "SET", "maxmemory-policy", "noeviction")
		if f := find("eviction"); f.Level == doctor.Bad {
			t.Errorf("a server that does not evict: %+v", f)
		}

		// A user who may not run scripts, or something in them, is told so.
		for _, without := range [][]string{{"-evalsha", "-eval"}, {"-set"}} {
			do(append([]string{"ACL", "SETUSER", "poor", "reset", "on", ">secret", "~*", "&*", "+@all"}, without...)...)
			poor, err := redis.Open(t.Context(), stores.Patiently("redis://poor:secret@"+s.Addr()), redis.Timeout(10*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			d, err = poor.Diagnose(t.Context())
			poor.Close()
			if err != nil {
				t.Fatal(err)
			}
			if f := d.Findings[0]; f.What != "permissions" || f.Level != doctor.Bad || !strings.Contains(f.Fix, "ACL LOG") || d.Worst() != doctor.Bad {
				t.Errorf("with %v: %+v", without, f)
			}
		}
	})
}

// TestDiagnoseOfAReplica: who names a replica in the place of its primary is told so, and
// where that is, although the connection ends with the first decision; and that it follows
// nobody.
func TestDiagnoseOfAReplica(t *testing.T) {
	servers.Each(t, func(t *testing.T, primary *servers.Server) {
		port := strconv.Itoa(primary.Port())
		s := servers.Start(t, primary.Kind(), servers.Directive("replicaof", "127.0.0.1", port))
		store := stores.OpenURL(t, s.URL())
		find := func(what string) (found doctor.Finding) {
			t.Helper()
			d, err := store.Diagnose(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if at := slices.IndexFunc(d.Findings, func(f doctor.Finding) bool { return f.What == what }); at >= 0 {
				found = d.Findings[at]
			}
			return found
		}
		if f := find("role"); f.Level != doctor.Bad || !strings.Contains(f.Fix, "127.0.0.1:"+port) {
			t.Errorf("of its role: %+v", f)
		}
		if f := find("decisions"); f.Level != doctor.Bad || !strings.Contains(f.Text, "READONLY") {
			t.Errorf("of decisions: %+v", f)
		}
		primary.Kill()
		stores.Until(t, "it is found that nobody is followed", func() bool {
			f := find("replicas")
			return f.Level == doctor.Doubtful && strings.Contains(f.Text, "without its primary")
		})
	})
}

// TestDiagnoseOfAServerThatCannotSave: such a server refuses even PING, and is examined
// all the same.
func TestDiagnoseOfAServerThatCannotSave(t *testing.T) {
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		blockDump(t, s, true)
		stores.Do(t, s, "BGSAVE")
		stores.Until(t, "the save has failed", func() bool {
			info, err := s.Do(t.Context(), "INFO", "persistence")
			return err == nil && strings.Contains(info.(string), "rdb_last_bgsave_status:err")
		})
		store := stores.OpenURL(t, s.URL())
		if err := store.Ping(t.Context()); err != nil {
			t.Errorf("a server that answers: %v", err)
		}
		d, err := store.Diagnose(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, what := range []string{"decisions", "persistence"} {
			at := slices.IndexFunc(d.Findings, func(f doctor.Finding) bool { return f.What == what })
			if at < 0 || d.Findings[at].Level != doctor.Bad || d.Findings[at].Fix == "" {
				t.Errorf("what is said of %s is not that it is bad, and what to do: %+v", what, d.Findings)
			} else if what == "decisions" && !strings.Contains(d.Findings[at].Text, "MISCONF") {
				t.Errorf("the server's own word is missing: %+v", d.Findings[at])
			}
		}
		blockDump(t, s, false)
	}, servers.Directive("save", "3600", "1000"))
}
