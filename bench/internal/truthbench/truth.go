package truthbench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/servers"
)

// place stands for the address in what readers see; [Hold] listens there.
const place = "127.0.0.1:8099"

// together is how many limiters are audited at the same time: most of it is waiting.
const together = 12

// table is limiters that are compared.
type table struct {
	title    string
	limiters []limiter
}

func (f *field) tables() []table {
	return []table{
		{"One client, kept busy", f.limiters()},
		{"Requests of three units", f.costs()},
		{"Redis is restarted", f.restarted()},
	}
}

// Truth audits all limiters. A run for the record takes about eight minutes, most of which are waiting.
func Truth(ctx context.Context, w *measure.Work) (_ *report.Text, err error) {
	f, stop, err := prepared(ctx, w)
	if err != nil {
		return nil, err
	}
	defer stop()
	t := new(report.Text)
	tables := f.tables()
	if w.Short {
		tables[0].limiters = slices.DeleteFunc(tables[0].limiters, func(l limiter) bool { return !strings.Contains(l.name, "nginx") && l.name != "Headgate, HTTP" })
		tables = tables[:1]
	}
	t.Say("Each limiter is to admit 10 requests in 5 seconds, or the like of it that it can be told. Only what is certain counts, so that a busy machine changes nothing. " +
		"\"Wrong\" is what the answers said wrongly: of when to come again (retry-after), of what is left (remaining), of when the limit is free (reset). " +
		"In the last table, the Redis under the limiter is killed, and there again after two seconds, with its data; requests that fail meanwhile are no decisions.\n")
	var all []*limiter
	for n := range tables {
		for i := range tables[n].limiters {
			all = append(all, &tables[n].limiters[i])
		}
	}
	turn := make(chan struct{}, together)
	failed := make([]error, len(all)) // The others go on.
	err = measure.Each(ctx, len(all), func(ctx context.Context, i int) error {
		turn <- struct{}{}
		defer func() { <-turn }()
		l := all[i]
		if l.missing != nil || ctx.Err() != nil {
			return ctx.Err()
		}
		w.Say("%s", l.name)
		if l.found, failed[i] = f.audit(ctx, l); failed[i] != nil {
			failed[i] = fmt.Errorf("%s: %w", l.name, failed[i])
		}
		return nil
	})
	if err = errors.Join(append(failed, err)...); err != nil {
		return nil, err
	}
	for i := range tables {
		tables[i].write(t)
	}
	return t, nil
}

// prepared is prepare, with the server that the gateway is in front of.
func prepared(ctx context.Context, w *measure.Work) (f *field, stop func(), err error) {
	if f, err = prepare(ctx, w); err != nil {
		return nil, nil, err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, fmt.Errorf("truthbench: %w", err)
	}
	f.upstream = l.Addr().String()
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ok") // whoever asks notices
	})}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) }) // as above
	return f, func() {
		_ = server.Close() // It ends now or later.
		serving.Wait()
	}, nil
}

// Hold starts a limiter by its name, prints the command that audits it, and serves at 127.0.0.1:8099
// until the context ends. Without such a limiter it prints the names of all.
func Hold(ctx context.Context, w *measure.Work, name string, out io.Writer) error {
	f, stop, err := prepared(ctx, w)
	if err != nil {
		return err
	}
	defer stop()
	for n, one := range f.tables() {
		for i := range one.limiters {
			l := &one.limiters[i]
			if id := fmt.Sprintf("%d.%d", n+1, i+1); id != name {
				if name == "" {
					fmt.Fprintf(out, "%s  %s\n", id, l.name)
				}
				continue
			}
			if l.missing != nil {
				return l.missing
			}
			_, end, err := f.start(ctx, l, place)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "%s\n\n    %s\n\n", l.name, l.shown())
			<-ctx.Done()
			return end()
		}
	}
	if name != "" {
		return fmt.Errorf("truthbench: there is no limiter %q", name)
	}
	return nil
}

// start starts all that a limiter needs, and listens for it.
func (f *field) start(ctx context.Context, l *limiter, listen string) (_ *front, _ func() error, err error) {
	var ends []func() error
	end := func() error {
		var errs []error
		for _, stop := range slices.Backward(ends) {
			errs = append(errs, stop())
		}
		return errors.Join(errs...)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, end())
		}
	}()
	b, err := newFront(ctx, listen)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	url := ""
	if l.redis {
		// What was written is there again after it was killed.
		r, err := servers.StartRedis(ctx, "redis-server", "--appendonly", "yes", "--appendfsync", "always")
		if err != nil {
			return nil, nil, err
		}
		ends = append(ends, r.Stop)
		if url = r.URL(); l.restarts {
			b.restart = func() error { return r.Restart(ctx, 2*time.Second) }
		}
	}
	if l.door != "" {
		p, err := servers.Start(ctx, f.serve(l.door)(url))
		if err != nil {
			return nil, nil, err
		}
		ends, url = append(ends, p.Stop), p.Addr
	}
	for range max(l.programs, 1) {
		p, err := servers.Start(ctx, l.command(url))
		if err != nil {
			return nil, nil, err
		}
		ends = append(ends, p.Stop)
		b.to = append(b.to, p.Addr)
	}
	b.serve()
	ends = append(ends, b.close)
	return b, end, nil
}

// arguments are those of the audit, of a limiter at an address.
func (l *limiter) arguments(addr string) []string {
	return append(append([]string{"load", "--audit"}, l.flags...), strings.Replace(l.url, "ADDR", addr, 1))
}

// shown is the command of the audit as one types it.
func (l *limiter) shown() string {
	var b strings.Builder
	b.WriteString("headgate")
	for _, word := range l.arguments(place) {
		if strings.ContainsAny(word, " {?") {
			word = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
		b.WriteString(" " + word)
	}
	return b.String()
}

// audit is what an audit has found, as "headgate load --audit --json" writes it.
type audit struct {
	Findings []struct{ About, Outcome, Text string }
	Held     *struct {
		Admitted, Denied int
		Over, Early      int
		RetryShort       float64 `json:"retry_short_ms"`
		RetryLong        float64 `json:"retry_long_ms"`
		RetryCompared    int     `json:"retry_compared"`
	}
}

// audit audits a limiter.
func (f *field) audit(ctx context.Context, l *limiter) (_ *audit, err error) {
	b, end, err := f.start(ctx, l, "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()
	arguments := append(l.arguments(b.addr()), "--json", "--quiet")
	cmd := exec.CommandContext(ctx, f.ours, arguments...)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) { // 1 says that something is wrong.
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(arguments, " "), err, problems.Bytes())
	}
	var answer struct{ Audit *audit }
	if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
		return nil, fmt.Errorf("%s: %w: %s%s", strings.Join(arguments, " "), err, out.Bytes(), problems.Bytes())
	}
	if answer.Audit == nil || answer.Audit.Held == nil || answer.Audit.Held.Denied == 0 {
		return nil, fmt.Errorf("%s: it has audited nothing: %s%s", strings.Join(arguments, " "), out.Bytes(), problems.Bytes())
	}
	return answer.Audit, b.restarted()
}

// wrong is what was found to be wrong, without what the counts say already.
func (a *audit) wrong() (all []string) {
	for _, f := range a.Findings {
		if f.Outcome == "wrong" {
			all = append(all, strings.ReplaceAll(f.About, "_", "-"))
		}
	}
	return all
}

// retry is the error of the announced waits.
func (a *audit) retry() string {
	if a.Held.RetryCompared == 0 {
		return "–"
	}
	return fmt.Sprintf("−%.2f … +%.2f", a.Held.RetryShort/1000, a.Held.RetryLong/1000)
}

// write writes a table.
func (one *table) write(t *report.Text) {
	n := &report.Table{Columns: []string{one.title, "admitted", "over-admitted", "denied early", "error of Retry-After, s", "wrong"}}
	var missing strings.Builder
	for i := range one.limiters {
		l := &one.limiters[i]
		a := l.found
		if a == nil {
			fmt.Fprintf(&missing, "- %s: %v\n", l.name, l.missing)
			continue
		}
		n.Add(l.name, strconv.Itoa(a.Held.Admitted), strconv.Itoa(a.Held.Over), strconv.Itoa(a.Held.Early), a.retry(), strings.Join(a.wrong(), ", "))
		if l.ours {
			t.AtMost(0, float64(a.Held.Over+a.Held.Early+len(a.wrong())), "%s: over-admitted, denied early, and said wrongly", l.name)
		}
	}
	t.Say("\n%s", n)
	if missing.Len() > 0 {
		t.Say("\nNot there:\n\n%s", missing.String())
	}
}
