package servers

import (
	"bufio"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

func TestReadReply(t *testing.T) {
	tests := []struct {
		name, in string
		want     any
		err      error
	}{
		{"status", "+OK\r\n", "OK", nil},
		{"empty status", "+\r\n", "", nil},
		{"error", "-NOAUTH Authentication required.\r\n", ReplyError("NOAUTH Authentication required."), nil},
		{"integer", ":-42\r\n", int64(-42), nil},
		{"string", "$3\r\na\r\n\r\n", "a\r\n", nil},
		{"empty string", "$0\r\n\r\n", "", nil},
		{"nil string", "$-1\r\n", nil, nil},
		{"nil array", "*-1\r\n", nil, nil},
		{"nested arrays", "*3\r\n*1\r\n:1\r\n$-1\r\n-ERR\r\n", []any{[]any{int64(1)}, nil, ReplyError("ERR")}, nil},
		{"nothing", "", nil, io.EOF},
		{"half a line", "+OK", nil, io.EOF},
		{"half a string", "$3\r\nab", nil, io.ErrUnexpectedEOF},
		{"half an array", "*2\r\n:1\r\n", nil, io.EOF},
		{"line without a carriage return", "+OK\n", nil, errProtocol},
		{"empty line", "\r\n", nil, errProtocol},
		{"unknown type", "?1\r\n", nil, errProtocol},
		{"no number", ":one\r\n", nil, errProtocol},
		{"number beyond 64 bits", ":9223372036854775808\r\n", nil, errProtocol},
		{"string without an end", "$1\r\nabc", nil, errProtocol},
		{"negative string", "$-2\r\n", nil, errProtocol},
		{"string too long", "$67108865\r\n", nil, errProtocol},
		{"array too long", "*1048577\r\n", nil, errProtocol},
		{"arrays too deep", strings.Repeat("*1\r\n", maxDepth+1) + ":1\r\n", nil, errProtocol},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := readReply(bufio.NewReader(strings.NewReader(tt.in)), maxDepth)
			if !errors.Is(err, tt.err) || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %#v, %v; want %#v, %v", got, err, tt.want, tt.err)
			}
		})
	}
}

// FuzzReadReply sends what was fuzzed through the reader: it must neither panic
// nor read past the reply, and a command that the launcher writes must come back
// as it was.
func FuzzReadReply(f *testing.F) {
	for _, seed := range []string{"+OK\r\n", "-ERR\r\n", ":1\r\n", "$1\r\na\r\n", "*1\r\n*0\r\n", "*-1\r\n", "$9\r\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		if _, err := readReply(bufio.NewReader(strings.NewReader(in)), maxDepth); err != nil && err.Error() == "" {
			t.Error("an error without a text")
		}
		const next = "+next\r\n"
		r := bufio.NewReader(strings.NewReader(command([]string{in, "x"}) + next))
		got, err := readReply(r, maxDepth)
		if want := []any{in, "x"}; err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %#v, %v; want %#v", got, err, want)
		}
		if rest, err := io.ReadAll(r); string(rest) != next || err != nil {
			t.Errorf("what follows the reply is %q, %v; want %q", rest, err, next)
		}
	})
}
