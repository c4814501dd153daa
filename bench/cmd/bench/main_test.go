package main

import (
	"bytes"
	"runtime"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		args    string
		want    options
		problem string
	}{
		{"", options{}, ""},
		{"-short", options{short: true, out: "-"}, ""},
		{"-short -out x.md", options{short: true, out: "x.md"}, ""},
		{"-only redis -out -", options{only: "redis", out: "-"}, ""},
		{"-only disk", options{}, `"disk", must be one of sizes, memory, policy, redis, `},
		{"memory", options{}, `too many: "memory"`},
		{"-rounds 3", options{}, "not defined"},
	} {
		var stderr bytes.Buffer
		got, err := parse(strings.Fields(c.args), &stderr)
		switch {
		case c.problem != "":
			if err == nil || !strings.Contains(stderr.String(), c.problem) {
				t.Errorf("%q: error %v, said %q; want %q", c.args, err, &stderr, c.problem)
			}
		case err != nil || got != c.want:
			t.Errorf("%q: got %+v, %v, want %+v", c.args, got, err, c.want)
		}
	}
}

func TestExitCodes(t *testing.T) {
	for args, want := range map[string]int{
		"-only disk":           2,
		"-h":                   0,
		"echo -handler xml":    1,
		"echo -what":           2,
		"echo -listen nowhere": 1,
	} {
		var out bytes.Buffer
		if got := run(t.Context(), strings.Fields(args), &out, &out); got != want {
			t.Errorf("bench %s: exit code %d, want %d; said %q", args, got, want, &out)
		}
	}
}

func TestMachine(t *testing.T) {
	if got := model("processor\t: 0\nmodel name\t: Fast 9000 @ 3 GHz\n"); got != "Fast 9000 @ 3 GHz" {
		t.Errorf("model is %q", got)
	}
	if got := model("nothing"); got != runtime.GOOS+"/"+runtime.GOARCH {
		t.Errorf("model is %q", got)
	}
	if got := machine(); !strings.Contains(got, "cores") {
		t.Errorf("machine is %q", got)
	}
}
