package load

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// errRESP is the error of an answer that is not in Redis's protocol.
var errRESP = fmt.Errorf("%w, nor Redis's protocol", errMalformed)

// deepest is how deep the arrays of an answer may be nested.
const deepest = 8

// newCommand makes a target of a command of Redis's protocol. Its words are the body.
func newCommand(t *Target, r *Request) (*Target, error) {
	words := strings.Fields(string(r.Body))
	switch {
	case len(words) == 0:
		return nil, fmt.Errorf("headgate: the target %s needs a command as its body, such as CL.THROTTLE user42 15 30 60", t.url)
	case t.url.Path != "" && t.url.Path != "/":
		return nil, fmt.Errorf("headgate: the target %s has a path, must be such as redis://127.0.0.1:6379", t.url)
	case r.GRPC || len(r.Header) > 0:
		return nil, fmt.Errorf("headgate: the target %s takes neither headers nor calls of gRPC", t.url)
	}
	t.Name = strings.ToUpper(words[0])
	t.text = fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, word := range words {
		t.text = fmt.Appendf(t.text, "$%d\r\n%s\r\n", len(word), word)
	}
	return t, nil
}

// redis reports whether a URL's server speaks Redis's protocol.
func redis(scheme string) bool { return scheme == "redis" || scheme == "rediss" }

// answeredRESP reads the answer to a command.
func answeredRESP(in *bufio.Reader, command string) (answer, error) {
	value, err := readRESP(in, deepest)
	if err != nil {
		return answer{}, err
	}
	if refused, ok := value.(respError); ok {
		code, _, _ := strings.Cut(string(refused), " ")
		return answer{kind: failed, code: code, class: "failed"}, nil
	}
	return decided(commandHint(command, value), "OK", "LIMITED"), nil
}

// decided is the result for an answer that says in its message what was decided.
func decided(h Hint, admits, denies string) answer {
	if h.Limited {
		return answer{kind: limited, code: denies, class: "limited", status: http.StatusTooManyRequests, inMessage: &h}
	}
	return answer{kind: served, code: admits, class: "ok", inMessage: &h}
}

// commandHint returns what the answer to a command says of the limit: five integers, which
// throttlecrab has in another order than redis-cell, or the members of Headgate's answer.
func commandHint(command string, value any) (h Hint) {
	list, _ := value.([]any)
	if members := respMap(list); members["allowed"] != nil {
		h.Limited = members["allowed"] == int64(0)
		h.Wait = milliseconds(members["retry_after_ms"])
		decisions, _ := members["decisions"].([]any)
		for _, one := range decisions {
			fields, _ := one.([]any)
			d := respMap(fields)
			limit, ok1 := d["capacity"].(int64)
			left, ok2 := d["remaining"].(int64)
			if ok1 && ok2 && d["shadow"] == nil {
				h.Windows = append(h.Windows, Window{Limit: limit, Remaining: left, Reset: milliseconds(d["reset_after_ms"])})
			}
		}
		return h
	}
	var n [5]int64
	if len(list) != len(n) || command != "CL.THROTTLE" && command != "THROTTLE" {
		return h
	}
	for i := range n {
		n[i], _ = list[i].(int64)
	}
	wait, reset := n[3], n[4]
	if h.Limited = n[0] != 0; command == "THROTTLE" {
		h.Limited = n[0] == 0
		wait, reset = reset, wait
	}
	if h.Limited {
		h.Wait = max(time.Duration(wait), 0) * time.Second
	}
	h.Windows = []Window{{Limit: n[1], Remaining: n[2], Reset: max(time.Duration(reset), 0) * time.Second}}
	return h
}

// respMap returns a list of names and values by the names.
func respMap(list []any) map[string]any {
	all := make(map[string]any)
	for i := 0; i+1 < len(list); i += 2 {
		if name, ok := list[i].(string); ok {
			all[name] = list[i+1]
		}
	}
	return all
}

func milliseconds(value any) time.Duration {
	n, _ := value.(int64)
	return time.Duration(max(n, 0)) * time.Millisecond
}

// respError is the text of an error that is the answer to a command.
type respError string

// readRESP reads a value of RESP2: a string, an int64, a respError, nil, or a list of such. The reader
// is limited.
func readRESP(in *bufio.Reader, depth int) (any, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return nil, cut(err)
	}
	kind, text := line[0], strings.TrimRight(line[1:], "\r\n")
	switch kind {
	case '+':
		return text, nil
	case '-':
		return respError(text), nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil || depth == 0:
		return nil, errRESP
	case kind == ':':
		return n, nil
	case n < 0 && (kind == '$' || kind == '*'):
		return nil, nil
	case kind == '$' && n <= maxHead:
		data := make([]byte, n+2)
		if _, err := io.ReadFull(in, data); err != nil {
			return nil, cut(err)
		}
		return string(data[:n]), nil
	case kind == '*':
		var list []any
		for range n {
			value, err := readRESP(in, depth-1)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		return list, nil
	}
	return nil, errRESP
}

// cut returns the error of an answer that ended too early.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
