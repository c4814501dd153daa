package chaos

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	client "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/headgate/headgate/test/servers"
)

// usual is the usual design of one region: it counts for itself, publishes its counter at the home each
// second, and adds what it has last heard of the others.
type usual struct {
	name   int
	to     *client.Client
	mu     sync.Mutex // guards what follows
	window int64
	own    int
	others int
}

// allow admits a request if all counters together are below the limit.
func (u *usual) allow(now time.Time, limit int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if window := now.UnixNano() / int64(usualPeriod); window != u.window {
		u.window, u.own, u.others = window, 0, 0
	}
	if u.own+u.others >= limit {
		return false
	}
	u.own++
	return true
}

// exchange publishes the counter, and hears of the others'.
func (u *usual) exchange(ctx context.Context) {
	key := func(window int64, region int) string {
		return "usual:" + strconv.FormatInt(window, 10) + ":" + strconv.Itoa(region)
	}
	u.mu.Lock()
	window, own := u.window, u.own
	u.mu.Unlock()
	if err := u.to.Set(ctx, key(window, u.name), own, time.Minute).Err(); err != nil {
		return
	}
	sum := 0
	for i := range regionNames {
		if n, err := u.to.Get(ctx, key(window, i)).Int(); err == nil && i != u.name {
			sum += n
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.window == window {
		u.others = max(u.others, sum)
	}
}

const (
	usualPeriod = 10 * time.Second
	usualEvery  = time.Second
)

// usuals are three such regions, each of which is asked for the whole limit.
type usuals struct {
	home  *servers.Server
	lines []*servers.Line
	all   []*usual
}

const usualLimit = regionsRate * int(usualPeriod/time.Second)

// startUsual starts them, as far from the home as the others.
func startUsual(t testing.TB) *usuals {
	t.Helper()
	s := &usuals{home: servers.Start(t, servers.Redis)}
	for i := range regionNames {
		line := servers.StartLine(t, s.home.Addr(), delays[i])
		to := client.NewClient(&client.Options{Addr: line.Addr(), DisableIdentity: true, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
		t.Cleanup(func() { _ = to.Close() })
		s.lines, s.all = append(s.lines, line), append(s.all, &usual{name: i, to: to})
	}
	return s
}

// run returns the most that is admitted in a window beyond the limit, as a part of it: while they are
// connected, and while they are cut off.
func (s *usuals) run(ctx context.Context) (connected, cut float64) {
	connected = s.offer(ctx)
	for _, l := range s.lines {
		l.Lead(s.home.Addr(), true)
	}
	return connected, s.offer(ctx)
}

func (s *usuals) offer(ctx context.Context) float64 {
	ctx, cancel := context.WithTimeout(ctx, 2*usualPeriod)
	defer cancel()
	var running sync.WaitGroup
	var mu sync.Mutex // guards admitted
	admitted := map[int64]int{}
	for _, u := range s.all {
		running.Go(func() {
			for ctx.Err() == nil {
				u.exchange(ctx)
				time.Sleep(usualEvery)
			}
		})
		running.Go(func() {
			for next := time.Now(); ctx.Err() == nil; {
				next = next.Add(time.Duration(rand.ExpFloat64() / regionsRate * float64(time.Second)))
				time.Sleep(time.Until(next))
				if now := time.Now(); u.allow(now, usualLimit) {
					mu.Lock()
					admitted[now.UnixNano()/int64(usualPeriod)]++
					mu.Unlock()
				}
			}
		})
	}
	running.Wait()
	most := 0
	for _, n := range admitted {
		most = max(most, n)
	}
	return float64(most-usualLimit) / float64(usualLimit)
}
