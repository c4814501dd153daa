package postgres_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/storetest"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

func TestPermitsConform(t *testing.T) {
	open := sharing(t, servers.StartPostgres(t).URL()+patient)
	t.Run("documents", func(t *testing.T) {
		storetest.RunDocuments(t, func(t testing.TB, clock func() int64) store.Documents { return open(t, clock) })
	})
	storetest.RunPermits(t, max(12, storetest.Steps(t, 0)/1000), func(t testing.TB, clock func() int64) store.Permits { return open(t, clock) })
}

// TestPermitsByTheServersClock: a lease ends by the server's clock, and its row goes.
func TestPermitsByTheServersClock(t *testing.T) {
	t.Parallel()
	s := servers.StartPostgres(t)
	permits := open(t, s, nil)
	before := time.Now()
	a, err := permits.Acquire(t.Context(), store.PermitRequest{Key: "k", Holder: "h", Limit: 1, TTL: time.Second})
	if err != nil || !a.Granted() || a.Lease.Remaining != time.Second {
		t.Fatalf("%+v, %v", a, err)
	}
	stores.Until(t, "the lease ends", func() bool {
		h, err := permits.Holders(t.Context(), "k")
		return err == nil && len(h.Leases) == 0
	})
	if d := time.Since(before); d < time.Second {
		t.Errorf("it ends after %v", d)
	}
	conn := connect(t, s)
	defer conn.Close(context.WithoutCancel(t.Context()))
	stores.Until(t, "the row is gone", func() bool {
		time.Sleep(100 * time.Millisecond) // it takes some seconds
		var rows int
		if err := conn.QueryRow(servers.Bounded(t), "SELECT count(*) FROM headgate").Scan(&rows); err != nil {
			t.Fatal(err)
		}
		return rows == 0
	})
}

// TestFences runs the SQL of docs/permits.md. Holders of different keys have the same slots and do
// not refuse each other's writes; within a key, a later holder refuses those of an earlier one.
func TestFences(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "permits.md"))
	if err != nil {
		t.Fatal(err)
	}
	sql := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(sql) != 2 {
		t.Fatalf("the page has %d blocks of SQL", len(sql))
	}
	s := servers.StartPostgres(t)
	permits, conn, ctx := open(t, s, nil), connect(t, s), servers.Bounded(t)
	defer conn.Close(context.WithoutCancel(t.Context()))
	if _, err := conn.Exec(ctx, sql[0][1]); err != nil {
		t.Fatal(err)
	}
	acquire := func(key, holder string, cost, limit int64) store.Fence {
		t.Helper()
		a, err := permits.Acquire(ctx, store.PermitRequest{Key: key, Holder: holder, Cost: cost, Limit: limit, TTL: time.Hour})
		if err != nil || !a.Granted() {
			t.Fatalf("%+v, %v", a, err)
		}
		return a.Lease.Fence
	}
	release := func(key, holder string, f store.Fence) {
		t.Helper()
		if ok, err := permits.Release(ctx, key, holder, f.Epoch); err != nil || !ok {
			t.Fatalf("%v, %v", ok, err)
		}
	}
	// write reports whether a write with the fence is taken.
	write := func(rule, key string, f store.Fence) bool {
		t.Helper()
		tx, err := conn.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		tag, err := tx.Exec(ctx, sql[1][1], rule, key, f.Slots, f.Epoch)
		if err != nil {
			t.Fatal(err)
		}
		if tag.RowsAffected() < int64(len(f.Slots)) {
			err = tx.Rollback(ctx)
		} else {
			err = tx.Commit(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		return tag.RowsAffected() == int64(len(f.Slots))
	}

	a := acquire("a", "first", 2, 2)
	b := acquire("b", "other", 1, 1)
	if a.Slots[0] != 0 || b.Slots[0] != 0 || b.Epoch < a.Epoch {
		t.Fatalf("the fences are %v and %v, which shows nothing", a, b)
	}
	release("a", "first", a)
	later := acquire("a", "second", 1, 2)
	for i, w := range []struct {
		rule, key string
		fence     store.Fence
		taken     bool
	}{
		{"report", "a", a, true},
		{"report", "b", b, true},
		{"report", "a", a, true}, // not refused because of b
		{"import", "a", later, true},
		{"report", "a", a, true}, // not refused because of another rule
		{"report", "a", later, true},
		{"report", "a", a, false}, // one of its two slots is another holder's
		{"report", "a", store.Fence{Slots: a.Slots[1:], Epoch: a.Epoch}, true},
		{"report", "b", b, true},
		{"report", "a", later, true},
	} {
		if got := write(w.rule, w.key, w.fence); got != w.taken {
			t.Errorf("write %d, of %s %s with %v: taken is %v, want %v", i, w.rule, w.key, w.fence, got, w.taken)
		}
	}
}
