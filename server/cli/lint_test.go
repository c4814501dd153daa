package cli

import (
	"bytes"
	"strings"
	"testing"
)

// TestLintStdin: the standard input is linted like a file, a policy or a gateway file.
func TestLintStdin(t *testing.T) {
	for text, want := range map[string]string{
		"rules: [{ name: a, per: all, limits: [100/min] }]":   `<stdin>:1:39: mistake: limit "100/min": did you mean "100 per 1m"? It is a count, the word per, and a period`,
		"rules: [{ name: a, per: all, limits: [5 per 15m] }]": "<stdin>:1:39: warning HG023: ",
		"upstreams: [{ name: a, urls: [ftp://x] }]":           "<stdin>:1:",
		"upstreams: [{ name: a, servers: 7 }]":                "mistake",
		"static_resources: {}":                                "<stdin>: a configuration of Envoy, 0 warnings\n",
		"":                                                    "<stdin>:1:1: mistake: the file has no policy",
	} {
		var out bytes.Buffer
		c := &call{stdin: strings.NewReader(text), stdout: &out}
		f := lintFile(c, "-", "", "")
		f.print(c)
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q: got\n%swant %q", text, out.String(), want)
		}
	}
}
