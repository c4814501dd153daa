package resp

import (
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/store/memory"
)

// TestMulti: what stands between MULTI and EXEC is done at EXEC, or not at all.
func TestMulti(t *testing.T) {
	c, _ := startSample(t, Options{})
	queued := "+QUEUED"
	c.exchanges([]exchange{
		{"MULTI", "+OK"},
		{"CL.THROTTLE k 4 1 1", queued},
		{"HG.CHECK mail a COST 5", queued},
		{"PING x", queued},
		{"HG.CHECK mail a COST 0", queued}, // Its mistake is found when it is done.
		{"HG.RESET mail a", queued},
		{"CL.THROTTLE k 4 1 1", queued},
		{"EXEC", "[[0 5 4 -1 1] [allowed 1 …"},
		{"HG.PEEK mail a", "[allowed 1 …"},
		{"CL.THROTTLE k 4 1 1 0", "[0 5 3 -1 2]"},
		{"MULTI", "+OK"},
		{"EXEC", "[]"},
		{"EXEC", "-ERR EXEC without MULTI"},
		{"DISCARD", "-ERR DISCARD without MULTI"},
		{"MULTI", "+OK"},
		{"MULTI", "-ERR MULTI calls can not be nested"},
		{"CL.THROTTLE k 4 1 1", queued},
		{"DISCARD", "+OK"},
		{"MULTI", "+OK"},
		{"CL.THROTTLE k 4 1 1", queued},
		{"GET a", `-ERR unknown command "GET"; …`},
		{"EXEC", "-EXECABORT Transaction discarded because of previous errors; nothing was done"},
		{"MULTI", "+OK"},
		{"CL.THROTTLE k", "-ERR wrong number of arguments for CL.THROTTLE…"},
		{"EXEC", "-EXECABORT …"},
		{"MULTI", "+OK"},
		{"CL.THROTTLE k 4 1 1", queued},
		{"RESET", "+RESET"},
		{"EXEC", "-ERR EXEC without MULTI"},
		{"CL.THROTTLE k 4 1 1 0", "[0 5 3 -1 2]"}, // Nothing but the first was done.
	})
}

// TestMultiIsLogged: a command that waits for EXEC is logged once, when it has been done, and so is
// EXEC.
func TestMultiIsLogged(t *testing.T) {
	log := new(locked)
	_, addr := start(t, over(samplePolicy(t), memory.New()), Options{API: said(t), AccessLog: true, Logger: slog.New(slog.NewTextHandler(log, nil))})
	c := dial(t, addr)
	for _, command := range []string{
		"MULTI", "HG.CHECK mail a", "HG.PEEK mail a COST 0", "HG.POST /v1/check {}", "EXEC", // The API logs HG.POST.
		"MULTI", "PING", "HG.PEEK", "EXEC", // PING is never done.
		"MULTI", "PING", "DISCARD",
	} {
		c.do(command)
	}
	var got []string
	for _, line := range regexp.MustCompile(`command=\S+ failed=\S+`).FindAllString(log.text(), -1) {
		got = append(got, strings.NewReplacer("command=", "", "failed=", "").Replace(line))
	}
	want := []string{
		"MULTI false", "HG.CHECK false", "HG.PEEK true", "EXEC false",
		"MULTI false", "HG.PEEK true", "EXEC true",
		"MULTI false", "DISCARD false",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the log has\n%q, want\n%q", got, want)
	}
}

// TestMultiIsBounded: a client cannot have the server keep whatever it sends.
func TestMultiIsBounded(t *testing.T) {
	c, _ := startSample(t, Options{})
	for what, command := range map[string]string{"commands": "PING", "bytes": "ECHO " + strings.Repeat("x", 60_000)} {
		if got := c.do("MULTI"); got != "+OK" {
			t.Fatal(got)
		}
		refused := 0
		for range maxQueued + 1 {
			if got := c.do(command); strings.HasPrefix(got, "-ERR there are more than 1024 commands, or more than 1048576 bytes") {
				refused++
			} else if got != "+QUEUED" || refused > 0 && what == "bytes" {
				t.Fatalf("%s: %s", what, got)
			}
			if refused > 0 {
				break
			}
		}
		if got := c.do("EXEC"); refused != 1 || !strings.HasPrefix(got, "-EXECABORT") {
			t.Errorf("%s: %d were refused, and EXEC is answered with %s", what, refused, got)
		}
	}
}

// TestDel: the counters of a key are forgotten, of every period, and those of rules and of other
// keys are not.
func TestDel(t *testing.T) {
	c, _ := startSample(t, Options{})
	c.exchanges([]exchange{
		{"DEL k", "1"},
		{"HG.CHECK mail k COST 5", "[allowed 1 …"},
		{"CL.THROTTLE other 0 1 60", "[0 1 0 -1 60]"},
	})
	for period := 1; period <= 40; period++ {
		if got, want := c.do(fmt.Sprintf("CL.THROTTLE k 0 1 %d", period)), fmt.Sprintf("[0 1 0 -1 %d]", period); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
	if got := c.do("DEL k l k"); got != "2" {
		t.Errorf("DEL is answered with %s", got)
	}
	for period := 1; period <= 40; period++ {
		if got, want := c.do(fmt.Sprintf("CL.THROTTLE k 0 1 %d 0", period)), "[0 1 1 -1 0]"; got != want {
			t.Fatalf("period %d: got %s, want %s", period, got, want)
		}
	}
	c.exchanges([]exchange{
		{"CL.THROTTLE other 0 1 60", "[1 1 0 60 60]"},
		{"HG.CHECK mail k", "[allowed 0 …"},
		{"DEL", "-ERR wrong number of arguments for DEL: 0; write DEL key [key ...]"},
		{"DEL" + strings.Repeat(" k", 65), "-ERR DEL: there are 65 keys, must be at most 64"},
	})
}
