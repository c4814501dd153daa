package resp

import (
	"reflect"
	"strings"
	"testing"
)

// parsed parses all of text and returns the commands in it, and what is left.
func parsed(t testing.TB, text string) (commands [][]string, rest string, err error) {
	t.Helper()
	p := parser{maxBytes: MaxCommand, maxArguments: MaxArguments}
	for {
		size, err := p.parse([]byte(text))
		if err != nil || size == 0 {
			return commands, text, err
		}
		words := append([]string(nil), p.words...)
		for _, s := range p.args {
			words = append(words, text[s.from:s.to])
		}
		commands = append(commands, words)
		text = text[size:]
	}
}

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		text string
		want [][]string
		rest string
	}{
		{"*1\r\n$4\r\nPING\r\n", [][]string{{"PING"}}, ""},
		{"*2\r\n$0\r\n\r\n$2\r\n\r\n\r\n*1\r\n$1\r\na\r\n*", [][]string{{"", "\r\n"}, {"a"}}, "*"},
		{"*0\r\n*1\r\n$1\r\na\r\n", [][]string{nil, {"a"}}, ""},
		{"*01\r\n$01\r\na\r\n", [][]string{{"a"}}, ""},
		{"PING\r\n", [][]string{{"PING"}}, ""},
		{"\r\n\n  \n", [][]string{nil, nil, nil}, ""},
		{"  hg.check\tlogin  user42 \nPING", [][]string{{"hg.check", "login", "user42"}}, "PING"},
		{`a "b c" 'd "e' "\x41\n\"\\\q" ""` + "\n", [][]string{{"a", "b c", `d "e`, "A\n\"\\q", ""}}, ""},
		{`'it\'s' 'back\slash' x"y"` + "\n", [][]string{{"it's", `back\slash`, "xy"}}, ""},
		{`"\x4" "\x4g"` + "\n", [][]string{{"x4", "x4g"}}, ""},
		{"*3\r\n$1\r\na\r\n$3\r\nab", nil, "*3\r\n$1\r\na\r\n$3\r\nab"},
		{"*1\r", nil, "*1\r"},
		{"*", nil, "*"},
	} {
		got, rest, err := parsed(t, tt.text)
		if err != nil || rest != tt.rest || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%q: %q, rest %q, %v; want %q, rest %q", tt.text, got, rest, err, tt.want, tt.rest)
		}
	}
}

func TestParseMalformed(t *testing.T) {
	for _, tt := range []struct{ text, problem string }{
		{"*x\r\n", "an array's length has 'x' where a digit was expected"},
		{"*-1\r\n", "an array's length has '-'"},
		{"*1\n", "an array's length has '\\n'"},
		{"*1\rx", "the line of an array's length does not end with CR LF"},
		{"*1025\r\n", "the arguments of a command are bounded to 1024"},
		{"*99999999999999999999", "bounded to 1024"},
		{"*000000000001\r\n", "bounded to 1024"},
		{"*1\r\n:1\r\n", "expected '$', found ':'"},
		{"*1\r\n$-1\r\n", "a string's length has '-'"},
		{"*1\r\n$65537\r\n", "the bytes of a command are bounded to 65536"},
		{"*1\r\n$65536\r\n", "a command has more than 65536 bytes"},
		{"*2\r\n$65000\r\n" + strings.Repeat("x", 65000) + "\r\n$1000\r\n", "a command has more than 65536 bytes"},
		{"*1\r\n$1\r\nab\r\n", "there is no end of line after a string of 1 bytes"},
		{"*1000\r\n" + strings.Repeat("$62\r\n"+strings.Repeat("x", 62)+"\r\n", 1000)[:MaxCommand-7], "a command has more than 65536 bytes"},
		{"GET / HTTP/1.1\r\n", "a request of HTTP"},
		{"host: localhost\r\n", "a request of HTTP"},
		{"\x16\x03\x01\x02\x00", "this is TLS"},
		{strings.Repeat("x", maxLine), "a command in one line has more than 4096 bytes"},
		{strings.Repeat("x ", 1025) + "\n", "bounded to 1024"},
		{"\"open\n", "quotes in a command in one line are not balanced"},
		{"'a'b\n", "quotes"},
		{`"a\` + "\n", "quotes"},
	} {
		_, _, err := parsed(t, tt.text)
		if err == nil || !strings.Contains(err.Error(), tt.problem) {
			t.Errorf("%.60q: error %v, want %q", tt.text, err, tt.problem)
		}
	}
}

// A parser that is asked again before there is as much as it needs would do its
// work for nothing; one that waits for more than that would wait for ever.
func TestParseNeeds(t *testing.T) {
	text := wire("HG.CHECK", "login", strings.Repeat("k", 5000), "COST", "2")
	p := parser{maxBytes: MaxCommand, maxArguments: MaxArguments}
	looked := 0
	for n := 1; n <= len(text); n++ {
		if n < p.need {
			continue
		}
		looked++
		size, err := p.parse([]byte(text[:n]))
		if err != nil || size != 0 && n != len(text) || size == 0 && n == len(text) {
			t.Fatalf("%d of %d bytes: size %d, %v", n, len(text), size, err)
		}
	}
	if looked > 60 {
		t.Errorf("the parser looked %d times", looked)
	}
}

// FuzzParse holds the parser to what does not depend on what arrives: its spans lie
// within it, and the same is found whatever parts it arrives in.
func FuzzParse(f *testing.F) {
	f.Add("*2\r\n$4\r\nECHO\r\n$2\r\nhi\r\n*1\r\n$4\r\nPING\r\n", 7)
	f.Add("HG.CHECK \"a b\" 'c' \\x41\r\nPING\n", 3)
	f.Add("*3\r\n$1\r\na\r\n$-1\r\n", 9)
	f.Add("*0\r\n\r\n*1\r\n$0\r\n\r\n", 5)
	f.Fuzz(func(t *testing.T, text string, at int) {
		whole := parser{maxBytes: strangerCommand, maxArguments: strangerArguments}
		size, err := whole.parse([]byte(text))
		if size < 0 || size > len(text) || err != nil && size != 0 || len(whole.args) > strangerArguments || len(whole.words) > strangerArguments {
			t.Fatalf("size %d, %d arguments, %d words, %v", size, len(whole.args), len(whole.words), err)
		}
		for _, s := range whole.args {
			if s.from < 0 || s.to < s.from || s.to > len(text) {
				t.Fatalf("span %v of %d bytes", s, len(text))
			}
		}
		if at < 0 || at >= len(text) {
			return
		}
		part := parser{maxBytes: strangerCommand, maxArguments: strangerArguments}
		n, early := part.parse([]byte(text[:at]))
		switch {
		case early != nil && err == nil && size <= at && size > 0:
			t.Fatalf("the first %d bytes are refused, and found in all: %v", at, early)
		case n > 0 && (n != size || !reflect.DeepEqual(part.words, whole.words) || !reflect.DeepEqual(part.args, whole.args)):
			t.Fatalf("the first %d bytes hold a command of %d, all of them one of %d, %v", at, n, size, err)
		case n == 0 && early == nil && size > 0 && part.need > size:
			t.Fatalf("the parser needs %d bytes for a command of %d", part.need, size)
		}
	})
}

// FuzzParseCommand reads back what clients write.
func FuzzParseCommand(f *testing.F) {
	f.Add("HG.CHECK", "login", "user42")
	f.Add("", "\r\n", "$1\r\n")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		if len(a)+len(b)+len(c) > MaxCommand/2 {
			return
		}
		got, rest, err := parsed(t, wire(a, b, c)+"*")
		if err != nil || rest != "*" || len(got) != 1 || !reflect.DeepEqual(got[0], []string{a, b, c}) {
			t.Errorf("%q, rest %q, %v", got, rest, err)
		}
	})
}
