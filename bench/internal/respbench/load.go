package respbench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/bench/internal/workload"
)

// question is what one contender is asked, and how.
type question struct {
	// arguments of the command that asks about a key.
	arguments func(key string) []string
	// begin is what every right answer begins with.
	begin string
	// connections are used at a time, and together is how many commands are sent
	// over one before its answers are read.
	connections, together int
}

// load keeps the server busy for about d, and returns how many commands were
// answered.
func (q *question) load(ctx context.Context, addr string, keys int, d time.Duration) (int, error) {
	batches := q.prepare(keys)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	counts := make([]int, q.connections)
	end := time.Now().Add(d)
	for w := range q.connections {
		wg.Go(func() {
			var err error
			if counts[w], err = q.converse(ctx, addr, batches, w*len(batches)/q.connections, end); err != nil {
				cancel(fmt.Errorf("respbench: %s: %w", addr, err)) // Later causes are ignored.
			}
		})
	}
	wg.Wait()
	sum := 0
	for _, n := range counts {
		sum += n
	}
	if err := context.Cause(ctx); err != nil {
		return 0, err
	}
	return sum, nil
}

// prepare writes the pipelines that are sent, in turn, until every key was asked
// about.
func (q *question) prepare(keys int) [][]byte {
	var batches [][]byte
	for from := 0; from < keys; from += q.together {
		var batch []byte
		for i := range q.together {
			batch = appendCommand(batch, q.arguments(workload.Key((from+i)%keys)))
		}
		batches = append(batches, batch)
	}
	return batches
}

func appendCommand(b []byte, args []string) []byte {
	b = fmt.Appendf(b, "*%d\r\n", len(args))
	for _, arg := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b
}

// converse sends one pipeline after the other over one connection until end.
func (q *question) converse(ctx context.Context, addr string, batches [][]byte, from int, end time.Time) (done int, err error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := c.SetDeadline(end.Add(30 * time.Second)); err != nil {
		return 0, err
	}
	r := bufio.NewReaderSize(c, 64<<10)
	for i := from; ctx.Err() == nil && (done == 0 || time.Now().Before(end)); i++ {
		if _, err := c.Write(batches[i%len(batches)]); err != nil {
			return done, fmt.Errorf("sending: %w", err)
		}
		for range q.together {
			if begin, err := r.Peek(len(q.begin)); err != nil || string(begin) != q.begin {
				return done, errors.Join(fmt.Errorf("an answer begins with %q, not with %q", begin, q.begin), err)
			}
			if err := skipAnswer(r); err != nil {
				return done, err
			}
		}
		done += q.together
	}
	return done, nil
}

// skipAnswer reads one answer of RESP2.
func skipAnswer(r *bufio.Reader) error {
	for left := 1; left > 0; left-- {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return fmt.Errorf("reading an answer: %w", err)
		}
		kind := line[0]
		if kind == '+' || kind == ':' {
			continue
		}
		text := strings.TrimSuffix(string(line[1:]), "\r\n")
		n, err := strconv.Atoi(text)
		switch {
		case err != nil || n < -1 || kind != '$' && kind != '*':
			return fmt.Errorf("the server answered %q", line)
		case kind == '*':
			left += max(n, 0)
		case n >= 0:
			if _, err := r.Discard(n + len("\r\n")); err != nil {
				return fmt.Errorf("reading a string of %d bytes: %w", n, err)
			}
		}
	}
	return nil
}
