package serverbench

import (
	"bufio"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/headgate/headgate/bench/internal/workload"
)

// overRESP is the loop that asks about each key in turn, by pipelines of so many commands.
// Every right answer begins with begin.
func overRESP(keys, connections, together int, begin string, arguments func(key string) []string) *loop {
	l := &loop{connections: connections, answers: together}
	for from := 0; from < keys; from += together {
		var pipeline []byte
		for i := range together {
			pipeline = appendCommand(pipeline, arguments(workload.Key((from+i)%keys)))
		}
		l.messages = append(l.messages, pipeline)
	}
	l.read = func(r *bufio.Reader) error {
		if got, err := r.Peek(len(begin)); err != nil || string(got) != begin {
			return errors.Join(fmt.Errorf("an answer begins with %q, not with %q", got, begin), err)
		}
		return skipRESP(r)
	}
	return l
}

func appendCommand(b []byte, args []string) []byte {
	b = fmt.Appendf(b, "*%d\r\n", len(args))
	for _, arg := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b
}

// skipRESP reads one answer of RESP2.
func skipRESP(r *bufio.Reader) error {
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
