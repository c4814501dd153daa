package limiterbench

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

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/workload"
	"github.com/headgate/headgate/store/redis"
)

// window is one sliding window: so many requests in any period.
type window struct {
	limit  int64
	period time.Duration
}

func (w window) String() string { return fmt.Sprintf("%d per %v", w.limit, w.period) }

// windowed are the contenders that hold keys to sliding windows, whatever the limits.
func windowed(windows []window) []contender {
	return []contender{
		{
			name: "Headgate", role: measure.Ours, open: openWindows(windows),
			note: "both windows in one EVALSHA through rueidis, on one packed log; the full state of both limits in the answer",
		},
		{
			name: "ZSET script", open: openZSet(windows),
			note: "ZREMRANGEBYSCORE, ZCOUNT for each window, ZADD of a random 64-bit id, PEXPIRE; arguments and statistics as JSON; one EVALSHA through rueidis, the server's clock",
		},
	}
}

// loose are the windows with every limit as large as the first.
func loose(windows []window) []window {
	l := make([]window, len(windows))
	for i, w := range windows {
		l[i] = window{windows[0].limit, w.period}
	}
	return l
}

// The conditions of a row: its keys are admitted, denied, or weighed.
const (
	admitted = iota
	denied
	weighed
)

// answers are the conditions under which is asked.
var answers = []string{admitted: "admitted", denied: "denied"}

// measureWindows measures sliding windows whose logs are long. Each key's log is
// filled until just the short window's limit is left in the long one, then left
// alone for as long as the short window lasts. From then on that many requests
// of each key are admitted, and every further one is denied.
func (p *redisPlan) measureWindows(ctx context.Context, w *measure.Work, contenders []contender) (_ measure.Rows, err error) {
	long, short := p.windows[0], p.windows[len(p.windows)-1]
	passes := int(short.limit) / p.Rounds // over all keys, in each round
	if passes == 0 {
		return nil, fmt.Errorf("%d rounds cannot share %d admissions a key", p.Rounds, short.limit)
	}
	// Key after key in turn, as traffic does: logs grow side by side.
	limiters, end, err := openAll(ctx, w, contenders, func(l *limiter) error {
		_, err := p.ask(ctx, l.fill, int(long.limit-short.limit), true)
		return err
	})
	defer func() { err = errors.Join(err, end()) }()
	if err != nil {
		return nil, err
	}
	rows := rows(contenders)
	w.Say("waiting %v for the short window to be free", short.period)
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(short.period + time.Second):
	}
	phase := func(condition int) error {
		return p.Turns(ctx, w, rows, []int{condition}, func(_, _, i int) (measure.Sample, error) {
			return measure.Spending(ctx, w.Redis, func() (measure.Sample, error) {
				return p.ask(ctx, limiters[i].take, passes, condition == admitted)
			})
		})
	}
	if err := phase(admitted); err != nil {
		return nil, err
	}
	for i, l := range limiters { // what is left over from the rounds
		if _, err := p.ask(ctx, l.take, int(short.limit)-passes*p.Rounds, true); err != nil {
			return nil, fmt.Errorf("%s: using up: %w", rows[i].Name, err)
		}
	}
	if err := phase(denied); err != nil {
		return nil, err
	}
	for i, l := range limiters {
		bytes, err := w.Redis.KeyMemory(ctx, weighedOneByOne, l.prefix)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", rows[i].Name, err)
		}
		rows[i].Add(weighed, measure.Sample{Done: 1, Bytes: bytes})
	}
	return rows, nil
}

func (p *redisPlan) writeWindows(t *report.Text, rows measure.Rows, brief bool) {
	var names []string
	for _, w := range p.windows {
		names = append(names, w.String())
	}
	ours, zset := &rows[0], &rows[1]
	if !brief {
		table := new(report.Table)
		t.Say("\n**Exact sliding windows**, %s together, %s keys with full logs, %d at a time:\n\n", strings.Join(names, " and "), report.Number(float64(p.windowKeys)), many)
		for i := range rows {
			for condition, answer := range answers {
				table.Append(rows[i : i+1].Table(figures(condition, measure.Column{Name: "answer", Cell: func(*measure.Row) string { return answer }})...))
			}
		}
		t.Say("%s\nMemory of one such key:\n\n%s", table, rows.Table(measure.Median("bytes (MEMORY USAGE)", weighed, measure.Sample.BytesEach)))
	}
	for condition, answer := range answers {
		t.AtMost(0.5, ours.Over(zset, condition, measure.Sample.ScriptTime), "sliding windows, %s: time in scripts ÷ ZSET script", answer)
	}
	t.AtLeast(6, report.Ratio(zset.Median(weighed, measure.Sample.BytesEach), ours.Median(weighed, measure.Sample.BytesEach)), "sliding windows: memory of a key, ZSET script ÷ Headgate")
}

// ask asks so many times about each key. It goes round the keys, in an order that is not that of
// their creation.
func (p *redisPlan) ask(ctx context.Context, take take, times int, want bool) (measure.Sample, error) {
	// A prime larger than any number of keys visits all of them.
	const prime = 1<<31 - 1
	l := limiter{take: take}
	return measure.Closed(ctx, many, measure.Times(times*p.windowKeys), func(_ context.Context, i int) error {
		return l.insist(workload.Wide, workload.Key(int(uint64(i)*prime%uint64(p.windowKeys))), want)
	})
}

func openWindows(windows []window) opening {
	return func(ctx context.Context, addr string, _ workload.Limits) (*limiter, error) {
		store, end, err := connect(ctx, addr, 0)
		if err != nil {
			return nil, err
		}
		open := func(windows []window) (take, error) {
			limits := make([]headgate.Limit, len(windows))
			for i, w := range windows {
				limits[i] = headgate.Sliding(w.limit, w.period)
			}
			return byRule(ctx, store, "windows", limits...)
		}
		take, err1 := open(windows)
		// Under the same name and with the same periods, the counters are the
		// same, whatever the counts.
		fill, err2 := open(loose(windows))
		return &limiter{take: take, fill: fill, prefix: redis.DefaultPrefix, end: end}, errors.Join(err1, err2)
	}
}

//go:embed scripts/sliding_zset.lua
var slidingZSetScript string

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

// openZSet is the sliding window as it is commonly written.
func openZSet(windows []window) opening {
	const prefix = "zset:"
	return func(ctx context.Context, addr string, _ workload.Limits) (*limiter, error) {
		client, end, err := dial(addr)
		if err != nil {
			return nil, err
		}
		script := rueidis.NewLuaScript(slidingZSetScript)
		open := func(windows []window) take {
			limits := make([]zsetWindow, len(windows))
			for i, w := range windows {
				limits[i] = zsetWindow{Limit: w.limit, Period: w.period.Seconds()}
			}
			return func(_ workload.Class, key string) (bool, error) {
				request, err := json.Marshal(zsetRequest{ID: fmt.Sprintf("%016x", rand.Uint64()), Limits: limits})
				if err != nil {
					return false, err
				}
				var answer struct {
					Allowed bool         `json:"allowed"`
					Stats   []zsetWindow `json:"stats"`
				}
				err = script.Exec(ctx, client, []string{prefix + key}, []string{string(request)}).DecodeJSON(&answer)
				return answer.Allowed, err
			}
		}
		return &limiter{take: open(windows), fill: open(loose(windows)), prefix: prefix, end: end}, nil
	}
}
