// Package languagebench compares the packages for other languages with what their users have besides.
package languagebench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/servers"
)

// plan is how much is measured.
type plan struct {
	measure.Plan
	// warm is how long everything is asked before.
	warm time.Duration
}

// What is asked of a limit that is exceeded: in Python a window of so many seconds, in Java a bucket.
const (
	windowLimit, windowSeconds  = 400, 2
	bucketBurst, bucketPerHour  = 1000, 720_000
	pythonWorkers, javaPrograms = 4, 2
)

// In each round all are measured under the first condition, and then under the second.
const free, few = 0, 1

const policy = `rules:
  - { name: site-free, match: { route: GET /free }, per: [api_key], %s }
  - { name: site-few, match: { route: GET /few }, per: [api_key], algorithm: sliding_window, limits: [%d per %ds] }
  - { name: free, match: { java: present }, per: [java], limits: [1000000000 per 1h] }
  - { name: few, match: { java: present }, per: [java], limits: [%d per 1h burst %d] }
`

// Languages measures a site in FastAPI with each of its limiters, and checks in Java with each. All
// count in one Redis: Headgate's packages by its service, which is another process. A run for the
// record takes about three minutes.
func Languages(ctx context.Context, w *measure.Work) (_ *report.Text, err error) {
	p := measure.Choose(w, plan{measure.Plan{Rounds: 3, Slice: 4 * time.Second, Callers: 16, Keys: 1000}, 2 * time.Second},
		plan{measure.Plan{Rounds: 1, Slice: 2 * time.Second, Callers: 4, Keys: 10}, time.Second})
	service, err := serve(ctx, w, w.Redis.URL(), "algorithm: sliding_window, limits: [1000000 per 1h]", "--listen", "ADDR")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, service.Stop()) }()
	text := new(report.Text)
	if err := python(ctx, w, &p, service.Addr, text); err != nil {
		return nil, err
	}
	if err := java(ctx, w, &p, service.Addr, text); err != nil {
		return nil, err
	}
	return text, nil
}

// serve starts a service whose limits are counted in the store. free is the limit of what nobody exceeds, and the
// options say where it listens.
func serve(ctx context.Context, w *measure.Work, store, free string, options ...string) (*servers.Process, error) {
	binary, err := w.Server(ctx)
	if err != nil {
		return nil, err
	}
	rules, err := w.Write("languages.yml", fmt.Sprintf(policy, free, windowLimit, windowSeconds, bucketPerHour, bucketBurst))
	if err != nil {
		return nil, err
	}
	return servers.Start(ctx, append([]string{binary, "serve", "--store", store, "--store-timeout", "5s", "--config", rules}, options...))
}

func data(of string) (string, error) { return filepath.Abs("internal/languagebench/testdata/" + of) }

// tool is what scripts/install-test-programs --bench has installed.
func tool(name string) (string, error) {
	path, err := filepath.Abs(filepath.Join("..", "bin", "tools", name))
	if err == nil {
		if _, err = os.Stat(path); err != nil {
			err = fmt.Errorf("%w: bin/tools/%s, which scripts/install-test-programs --bench installs", exec.ErrNotFound, name)
		}
	}
	return path, err
}

// python measures the site with each limiter.
func python(ctx context.Context, w *measure.Work, p *plan, service string, text *report.Text) error {
	app, err := data("")
	if err != nil {
		return err
	}
	peers, err := tool("python-peers-1")
	if err != nil {
		return err
	}
	ours, err := filepath.Abs("../client/python/src")
	if err != nil {
		return err
	}
	rows := measure.Rows{
		{Name: "bare", Role: measure.Floor, Note: "no limit"},
		{Name: "headgate", Role: measure.Ours, Note: "the middleware, and the service"},
		{Name: "slowapi", Note: "a fixed window, which is its default; it asks Redis while the event loop waits"},
		{Name: "limits", Note: "asyncio, a moving window"},
		{Name: "fastapi-limiter", Note: "the bucket of pyrate-limiter in Redis, which counts all clients together"},
	}
	over := make(map[string]float64)
	err = p.Turns(ctx, w, rows, nil, func(_, _, i int) (s measure.Sample, err error) {
		name := rows[i].Name
		if err := w.Redis.Flush(ctx); err != nil {
			return s, err
		}
		site, err := servers.Start(ctx, []string{
			"env", "PYTHONPATH=" + peers + string(filepath.ListSeparator) + ours, "PYTHONDONTWRITEBYTECODE=1", "CONTENDER=" + name, "REDIS=" + w.Redis.URL(), "HEADGATE=http://" + service,
			"LIMIT=" + strconv.Itoa(windowLimit), "PERIOD=" + strconv.Itoa(windowSeconds),
			"python3", "-m", "uvicorn", "--app-dir", app, "--workers", strconv.Itoa(pythonWorkers), "--no-access-log", "--log-level", "error", "--host", "127.0.0.1", "--port", "PORT", "app:app",
		})
		if err != nil {
			return s, err
		}
		defer func() { err = errors.Join(err, site.Stop()) }()
		// The workers begin one after the other, and wait for a core.
		for _, warm := range []time.Duration{0, p.warm, p.warm} {
			if _, _, err := p.ask(ctx, site.Addr, "/free", warm); err != nil {
				return s, err
			}
		}
		if name != "bare" {
			_, admitted, err := p.ask(ctx, site.Addr, "/few", 3*windowSeconds*time.Second)
			if err != nil {
				return s, err
			}
			over[name] = max(over[name], float64(most(admitted, windowSeconds*time.Second))/windowLimit)
		}
		s, _, err = p.ask(ctx, site.Addr, "/free", p.Slice)
		return s, err
	})
	if err != nil {
		return err
	}
	text.Say("FastAPI on uvicorn with %d workers, %d connections in a closed loop, %d keys; the median of %d rounds of %v. The last column is what a limit of %d in %d s let through in some %d s, by the times at which requests were sent and answered, at worst.\n\n",
		pythonWorkers, p.Callers, p.Keys, p.Rounds, p.Slice, windowLimit, windowSeconds, windowSeconds)
	table := &report.Table{Columns: []string{"FastAPI with", "requests/s", "p50, ms", "p99, ms", "p99 added, ms", "most ÷ limit"}}
	for _, r := range rows {
		exact := "–"
		if share, ok := over[r.Name]; ok {
			exact = report.Times(share)
		}
		p99 := r.Median(free, measure.Millis(measure.Sample.P99))
		table.Add(r.Name, report.Number(r.Median(free, measure.Sample.PerSecond)), report.Number(r.Median(free, measure.Millis(measure.Sample.P50))), report.Number(p99),
			report.Number(p99-rows[0].Median(free, measure.Millis(measure.Sample.P99))), exact)
	}
	text.Say("%s\n", table)
	rows.Notes(text)
	text.AtMost(1, over["headgate"], "FastAPI: admitted in any %d s ÷ limit", windowSeconds)
	text.AtLeast(1, rows.Named("headgate").Over(rows.Named("limits"), free, measure.Sample.PerSecond), "FastAPI: requests a second ÷ limits, asyncio")
	return nil
}

// interval is when a request was sent, and when it was answered.
type interval struct{ sent, answered time.Time }

// ask asks a site for a while, each connection again as soon as it is answered, and returns when
// those were that it has let through.
func (p *plan) ask(ctx context.Context, addr, path string, lasts time.Duration) (measure.Sample, []interval, error) {
	type connection struct {
		net.Conn
		*bufio.Reader
	}
	var (
		mu       sync.Mutex
		admitted []interval
		dialer   net.Dialer
	)
	idle := make(chan connection, p.Callers)
	for range p.Callers {
		c, err := dialer.DialContext(ctx, "tcp", addr)
		if err != nil {
			return measure.Sample{}, nil, err
		}
		defer c.Close()
		if err := c.SetDeadline(time.Now().Add(lasts + time.Minute)); err != nil {
			return measure.Sample{}, nil, err
		}
		idle <- connection{c, bufio.NewReader(c)}
	}
	s, err := measure.Closed(ctx, p.Callers, measure.Until(lasts), func(_ context.Context, i int) error {
		c := <-idle
		defer func() { idle <- c }()
		key := i % p.Keys
		if path == "/few" {
			key = 0
		}
		at := time.Now()
		if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: site\r\nX-Api-Key: k%d\r\n\r\n", path, key); err != nil {
			return err
		}
		answer, err := http.ReadResponse(c.Reader, nil)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(answer.Body)
		err = errors.Join(err, answer.Body.Close())
		if err != nil {
			return err
		}
		switch answer.StatusCode {
		case http.StatusOK:
			mu.Lock()
			admitted = append(admitted, interval{at, time.Now()})
			mu.Unlock()
		case http.StatusTooManyRequests:
		default:
			return fmt.Errorf("%s answers with %s: %s", path, answer.Status, body)
		}
		return nil
	})
	return s, admitted, err
}

// most is how many of the intervals lie within one period, at most.
func most(all []interval, period time.Duration) int {
	slices.SortFunc(all, func(a, b interval) int { return a.sent.Compare(b.sent) })
	found := 0
	for i, first := range all {
		count := 0
		for _, one := range all[i:] {
			if one.answered.Sub(first.sent) < period {
				count++
			}
		}
		found = max(found, count)
	}
	return found
}

// java measures checks of each limiter, in processes of their own.
func java(ctx context.Context, w *measure.Work, p *plan, service string, text *report.Text) error {
	peers, err := tool("java-peers-1")
	if err != nil {
		return err
	}
	compiled := filepath.Join(w.Dir, "java")
	source, err := data("Checks.java")
	if err != nil {
		return err
	}
	ours, err := filepath.Glob("../client/java/headgate/src/main/java/io/github/headgate/*.java")
	if err != nil {
		return err
	}
	jars := filepath.Join(peers, "*")
	if out, err := exec.CommandContext(ctx, "javac", append(append([]string{"-nowarn", "--release", "17", "-cp", jars, "-d", compiled}, ours...), source)...).CombinedOutput(); err != nil {
		return fmt.Errorf("javac: %w\n%s", err, out)
	}
	path := compiled + string(filepath.ListSeparator) + jars
	urls := map[string]string{"headgate": "http://" + service, "bucket4j": w.Redis.URL()}
	rows := measure.Rows{
		{Name: "bucket4j", Role: measure.Floor, Note: "in Redis by Lettuce: a bucket is read, and then written if nobody has changed it"},
		{Name: "headgate", Role: measure.Ours, Note: "the client, and the service"},
	}
	over := make(map[string]float64)
	p99 := make(map[string][]float64)
	err = p.Turns(ctx, w, rows, []int{free, few}, func(_, condition, i int) (s measure.Sample, err error) {
		name := rows[i].Name
		if err := w.Redis.Flush(ctx); err != nil {
			return s, err
		}
		programs, rule := 1, "free"
		if condition == few {
			programs, rule = javaPrograms, "few"
		}
		answers := make([]struct{ Done, Admitted, P50, P99 int }, programs)
		began := time.Now()
		err = measure.Each(ctx, programs, func(ctx context.Context, i int) error {
			cmd := exec.CommandContext(ctx, "java", "-XX:+UseSerialGC", "-cp", path, "Checks", name, urls[name], rule, strconv.Itoa(p.Callers),
				millis(p.warm), millis(p.Slice), strconv.Itoa(bucketBurst), strconv.Itoa(bucketPerHour))
			out, err := cmd.Output()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return json.Unmarshal(out[strings.LastIndexByte(string(out), '{'):], &answers[i])
		})
		if err != nil {
			return s, err
		}
		s.Elapsed = p.Slice
		for _, a := range answers {
			s.Done += a.Done
			s.Admitted += a.Admitted
		}
		if condition == few {
			allowed := bucketBurst + bucketPerHour*time.Since(began).Hours()
			over[name] = max(over[name], float64(s.Admitted)/allowed)
		} else {
			p99[name] = append(p99[name], float64(answers[0].P99)/1000)
		}
		return s, nil
	})
	if err != nil {
		return err
	}
	text.Say("\nJava, %d threads in a closed loop, 10,000 keys; and one key whose bucket (%s and %s an hour) is empty, asked by %d processes; the median of %d rounds of %v. The last column is what this bucket let through, of what it may in the time of the processes.\n\n",
		p.Callers, report.Number(bucketBurst), report.Number(bucketPerHour), javaPrograms, p.Rounds, p.Slice)
	table := &report.Table{Columns: []string{"Java with", "checks/s", "p99, ms", "checks/s of one key", "admitted ÷ limit"}}
	for _, r := range rows {
		table.Add(r.Name, report.Number(r.Median(free, measure.Sample.PerSecond)), report.Number(report.Median(p99[r.Name])), report.Number(r.Median(few, measure.Sample.PerSecond)), report.Times(over[r.Name]))
	}
	text.Say("%s\n", table)
	rows.Notes(text)
	text.AtMost(1, over["headgate"], "Java: admitted ÷ limit")
	text.AtLeast(1, rows.Named("headgate").Over(rows.Named("bucket4j"), free, measure.Sample.PerSecond), "Java: checks a second ÷ bucket4j")
	text.AtLeast(1, rows.Named("headgate").Over(rows.Named("bucket4j"), few, measure.Sample.PerSecond), "Java, one key of two processes: checks a second ÷ bucket4j")
	return nil
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
