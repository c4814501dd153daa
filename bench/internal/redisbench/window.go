package redisbench

import (
	"context"
	_ "embed" // for the script
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/bench/internal/workload"
)

//go:embed scripts/sliding_zset.lua
var slidingZSetScript string

// WindowContender is one exact sliding window under measurement.
type WindowContender struct {
	Name, Note string
	Role       Role
	// Open connects to the server at addr, with all windows held together.
	Open func(ctx context.Context, addr string, windows []Window) (*WindowLimiter, error)
}

// WindowLimiter is an open contender.
type WindowLimiter struct {
	// Take asks for one unit for the key, in all windows.
	Take func(ctx context.Context, key string) (allowed bool, err error)
	// Fill is Take with every limit as large as the first, so that a long log
	// can be written at once.
	Fill func(ctx context.Context, key string) (allowed bool, err error)
	// Owns reports whether a key in the server is this contender's.
	Owns func(key string) bool
	// Close ends the connections.
	Close func() error
}

// WindowResult is what was measured of one contender.
type WindowResult struct {
	Contender        WindowContender
	Admitted, Denied []Sample
	// BytesPerKey is the server's memory for a key whose windows are full.
	BytesPerKey float64
}

// loose are the windows with every limit as large as the first.
func loose(windows []Window) []Window {
	l := make([]Window, len(windows))
	for i, w := range windows {
		l[i] = Window{windows[0].Limit, w.Period}
	}
	return l
}

// windows measures sliding windows whose logs are long. Each key's log is
// filled until just the short window's limit is left in the long one, then left
// alone for as long as the short window lasts. From then on that many requests
// of each key are admitted, and every further one is denied.
func (s *Server) windows(ctx context.Context, plan Plan, contenders []WindowContender) (_ []WindowResult, err error) {
	if err := s.Flush(ctx); err != nil {
		return nil, err
	}
	long, short := plan.Windows[0], plan.Windows[len(plan.Windows)-1]
	passes := int(short.Limit) / plan.Rounds // over all keys, in each round
	if passes == 0 {
		return nil, fmt.Errorf("%d rounds cannot share %d admissions a key", plan.Rounds, short.Limit)
	}
	limiters := make([]*WindowLimiter, len(contenders))
	results := make([]WindowResult, len(contenders))
	for i, c := range contenders {
		plan.progress("%s: filling logs: %s", s.Version, c.Name)
		if limiters[i], err = c.Open(ctx, s.Addr, plan.Windows); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
		defer func() { err = errors.Join(err, limiters[i].Close()) }()
		results[i].Contender = c
		// Key after key in turn, as traffic does: logs grow side by side.
		n := plan.WindowKeys * int(long.Limit-short.Limit)
		if _, err := askAll(ctx, many, times(n), plan.ask(limiters[i].Fill, true)); err != nil {
			return nil, fmt.Errorf("%s: filling: %w", c.Name, err)
		}
	}
	plan.progress("%s: waiting %v for the short window to be free", s.Version, short.Period)
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(short.Period + time.Second):
	}
	phase := func(n int, want bool, add func(*WindowResult, Sample)) error {
		for round := range plan.Rounds {
			for i := range contenders {
				i = (i + round) % len(contenders)
				plan.progress("%s: sliding windows, allowed %t, round %d of %d: %s", s.Version, want, round+1, plan.Rounds, contenders[i].Name)
				sample, err := s.measure(ctx, many, times(n), plan.ask(limiters[i].Take, want))
				if err != nil {
					return fmt.Errorf("%s: %w", contenders[i].Name, err)
				}
				add(&results[i], sample)
			}
		}
		return nil
	}
	if err := phase(passes*plan.WindowKeys, true, func(r *WindowResult, s Sample) { r.Admitted = append(r.Admitted, s) }); err != nil {
		return nil, err
	}
	for i, c := range contenders { // What is left over from the rounds.
		n := (int(short.Limit) - passes*plan.Rounds) * plan.WindowKeys
		if _, err := askAll(ctx, many, times(n), plan.ask(limiters[i].Take, true)); err != nil {
			return nil, fmt.Errorf("%s: using up: %w", c.Name, err)
		}
	}
	if err := phase(passes*plan.WindowKeys, false, func(r *WindowResult, s Sample) { r.Denied = append(r.Denied, s) }); err != nil {
		return nil, err
	}
	for i, c := range contenders {
		keys, err := s.keys(ctx, weighedOneByOne, limiters[i].Owns)
		if err != nil {
			return nil, err
		}
		if results[i].BytesPerKey, err = s.keyMemory(ctx, keys); err != nil {
			return nil, fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	return results, nil
}

// ask goes round the keys, in an order that is not that of their creation.
func (p Plan) ask(take func(context.Context, string) (bool, error), want bool) question {
	// A prime larger than any number of keys visits all of them.
	const prime = 1<<31 - 1
	return func(ctx context.Context, i int) error {
		key := workload.Key(int(uint64(i) * prime % uint64(p.WindowKeys)))
		allowed, err := take(ctx, key)
		if err != nil {
			return fmt.Errorf("key %s: %w", key, err)
		}
		if allowed != want {
			return fmt.Errorf("key %s: allowed is %t, must be %t", key, allowed, want)
		}
		return nil
	}
}

// CommonZSet is the sliding window as it is commonly written.
func CommonZSet() WindowContender {
	return WindowContender{
		Name: "ZSET script", Role: Peer, Open: openZSet,
		Note: "ZREMRANGEBYSCORE, ZCOUNT for each window, ZADD of a random 64-bit id, PEXPIRE; arguments and statistics as JSON; one EVALSHA through rueidis, the server's clock",
	}
}

// zsetRequest is the script's argument.
type zsetRequest struct {
	ID     string       `json:"id"`
	Limits []zsetWindow `json:"limits"`
}

// zsetWindow is a limit of the request, and one of the answer's statistics.
type zsetWindow struct {
	Limit     int64   `json:"limit"`
	Period    float64 `json:"period"` // in seconds
	Used      int64   `json:"used,omitempty"`
	Remaining int64   `json:"remaining,omitempty"`
}

func openZSet(_ context.Context, addr string, windows []Window) (*WindowLimiter, error) {
	client, err := dial(addr)
	if err != nil {
		return nil, err
	}
	script := rueidis.NewLuaScript(slidingZSetScript)
	take := func(windows []Window) func(context.Context, string) (bool, error) {
		limits := make([]zsetWindow, len(windows))
		for i, w := range windows {
			limits[i] = zsetWindow{Limit: w.Limit, Period: w.Period.Seconds()}
		}
		return func(ctx context.Context, key string) (bool, error) {
			request, err := json.Marshal(zsetRequest{ID: fmt.Sprintf("%016x", rand.Uint64()), Limits: limits})
			if err != nil {
				return false, err
			}
			text, err := script.Exec(ctx, client, []string{zsetPrefix + key}, []string{string(request)}).ToString()
			if err != nil {
				return false, err
			}
			var answer struct {
				Allowed bool         `json:"allowed"`
				Stats   []zsetWindow `json:"stats"`
			}
			if err := json.Unmarshal([]byte(text), &answer); err != nil {
				return false, fmt.Errorf("the script answered %q: %w", text, err)
			}
			return answer.Allowed, nil
		}
	}
	return &WindowLimiter{
		Take: take(windows), Fill: take(loose(windows)),
		Owns:  func(key string) bool { return strings.HasPrefix(key, zsetPrefix) },
		Close: closer(client),
	}, nil
}

const zsetPrefix = "zset:"
