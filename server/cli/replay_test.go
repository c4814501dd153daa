package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// replayLog is the traffic of a web site; see tune/testdata/README.md.
const replayLog = "../../tune/testdata/access.log.gz"

// command runs a command and returns what it printed.
func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, problems bytes.Buffer
	code = Run(t.Context(), args, &out, &problems, "v1")
	return code, out.String(), problems.String()
}

func policyFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestReplay(t *testing.T) {
	t.Parallel()
	perClient := policyFile(t, "rules:\n  - { name: client, per: [ip], limits: [30 per 1m burst 40] }\n")
	lax := policyFile(t, "rules:\n  - { name: client, per: [ip], limits: [3000 per 1m] }\n")
	wrong := policyFile(t, "rules: 1\n")
	dir := t.TempDir()
	whole, err := os.ReadFile(replayLog)
	if err != nil {
		t.Fatal(err)
	}
	cutOff, wide := filepath.Join(dir, "cut.log.gz"), filepath.Join(dir, "wide.log")
	if err := errors.Join(os.WriteFile(cutOff, whole[:len(whole)*95/100], 0o600), os.WriteFile(wide, []byte("1\x009\x002\x00"), 0o600)); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		args []string
		code int
		want []string
	}{
		{"anonymous", []string{"--config", perClient, "--anonymize", replayLog}, CodeOK, []string{"client-"}},
		{"against", []string{"--config", perClient, "--against", lax, replayLog}, CodeOK, []string{"AGAINST THE RULES IN FORCE, which deny 0: 61 newly denied"}},
		{"an expectation that holds", []string{"--config", lax, "--expect", "denied<0.1%", "--expect", "requests=10000", "--expect", "denied[client]=0", replayLog}, CodeOK, nil},
		{"one that does not", []string{"--config", perClient, "--expect", "denied<0.1%", replayLog}, CodeNo, []string{"10,000 requests of 1,753 clients", "DENIED WITH LIMITS", "75.97.9.59", "--expect denied<0.1% does not hold: it is 0.61 % (61 of 10000)"}},
		{"one that compares with nothing", []string{"--config", perClient, "--expect", "newly_denied=0", replayLog}, CodeUsage, []string{"give --against FILE"}},
		{"one that is none", []string{"--config", perClient, "--expect", "denied!", replayLog}, CodeUsage, []string{"is not such as denied<0.1%"}},
		{"one about no rule", []string{"--config", perClient, "--expect", "denied[x]=0", replayLog}, CodeUsage, []string{`the rule "x"`}},
		{"no such log", []string{"--config", perClient, "no-such.log"}, CodeUnavailable, []string{"no-such.log"}},
		{"no such policy", []string{"--config", "no-such.yaml", replayLog}, CodeUsage, []string{"no-such.yaml"}},
		{"a policy with mistakes", []string{"--config", wrong, replayLog}, CodeUsage, []string{"the policy has"}},
		{"a format that is none", []string{"--config", perClient, "--format", "apache", replayLog}, CodeUsage, []string{"apache", "log_format"}},
		{"a log that is none", []string{"--config", perClient, "replay_test.go"}, CodeUsage, []string{"no format that is known"}},
		{"a map that is none", []string{"--config", perClient, "--map", "ip", replayLog}, CodeUsage, []string{"NAME=FIELD"}},
		{"a client that is none", []string{"--config", perClient, "--client", "tenant", replayLog}, CodeUsage, []string{`--client is "tenant"`}},
		{"a proxy that is none", []string{"--config", perClient, "--trust", "10.0.0.0/8,proxy", replayLog}, CodeUsage, []string{`--trust is "proxy"`, "10.0.0.0/8"}},
		{"a map of a field that is not there", []string{"--config", perClient, "--map", "api_key=x", "--format", `$remote_addr - $u [$time_local] "$request" $status`, replayLog}, CodeOK, []string{"WARNING: No line has a value for --map api_key=x."}},
		{"an expectation of a log without addresses", []string{"--config", perClient, "--map", "ip=x", "--format", `$remote_addr - $u [$time_local] "$request" $status`, "--expect", "denied=0", replayLog}, CodeNo, []string{"No line has a client's address", `The rule "client" binds no request`}},
		{"a log that was cut off", []string{"--config", lax, cutOff}, CodeOK, []string{"9,", "requests", "WARNING: A log could not be read to its end", "unexpected EOF"}},
		{"an expectation of it", []string{"--config", lax, "--expect", "denied=0", cutOff}, CodeNo, []string{"could not be read to its end"}},
		{"a log in UTF-16", []string{"--config", perClient, wide}, CodeUsage, []string{"UTF-16", "iconv"}},
		{"no log", []string{"--config", perClient}, CodeUsage, []string{"log"}},
		{"numbers out of range", []string{"--config", perClient, "--top", "0", "--warmup=-1s", replayLog}, CodeUsage, []string{"--top is 0", "--warmup is -1s"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := command(t, append([]string{"replay"}, tt.args...)...)
			if code != tt.code {
				t.Fatalf("exit code %d, want %d\n%s%s", code, tt.code, stdout, stderr)
			}
			for _, want := range tt.want {
				if !strings.Contains(stdout+stderr, want) {
					t.Errorf("%q is not in\n%s%s", want, stdout, stderr)
				}
			}
		})
	}
}

// TestReplayJSON: the object begins with the four counts, the rules and the clients.
func TestReplayJSON(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "access.log")
	text := strings.Repeat("192.0.2.1 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"-\"\n", 5) + "broken\n"
	if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	policy := policyFile(t, "rules:\n  - { name: client, per: [ip], limits: [2 per 1m] }\n")
	page := filepath.Join(dir, "report.html")
	code, stdout, stderr := command(t, "replay", "--config", policy, "--json", "--html", page, log)
	if code != CodeOK || stderr != "" {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	d := json.NewDecoder(strings.NewReader(stdout))
	var names []string
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name.(string))
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(names[:6], " "); got != "requests admitted denied unreadable rules clients" {
		t.Errorf("the object begins with %s", got)
	}
	var result struct {
		Requests, Admitted, Denied, Unreadable int
		Rules                                  []struct {
			Rule     string
			Requests int
			Denied   int
		}
		Clients []struct {
			Client string
			Denied int
		}
	}
	if err := json.Unmarshal([]byte(stdout), &result); err != nil {
		t.Fatal(err)
	}
	if result.Requests != 5 || result.Admitted != 2 || result.Denied != 3 || result.Unreadable != 1 || len(result.Rules) != 1 || result.Rules[0].Denied != 3 || len(result.Clients) != 1 || result.Clients[0].Client != "192.0.2.1" || result.Clients[0].Denied != 3 {
		t.Errorf("got %+v", result)
	}
	if html, err := os.ReadFile(page); err != nil || !bytes.Contains(html, []byte("192.0.2.1")) {
		t.Errorf("the report: %v", err)
	}
}

// TestAdvise: what is advised passes lint, and a replay of it shows what it promised.
func TestAdvise(t *testing.T) {
	t.Parallel()
	code, advice, stderr := command(t, "advise", "--quiet", "--capacity", "200", "--cheap", "20ms", "--operation", "GET /report=400ms", replayLog)
	if code != CodeOK || stderr != "" {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	for _, want := range []string{"deny 0 of 10000 requests", "limits: [113 per 1h burst 111]", "limits: [140 per 1s burst 300]", `"GET /report": 20`} {
		if !strings.Contains(advice, want) {
			t.Errorf("%q is not in\n%s", want, advice)
		}
	}
	file := policyFile(t, advice)
	if code, stdout, _ := command(t, "lint", "--strict", file); code != CodeOK {
		t.Errorf("lint: %s", stdout)
	}
	if code, stdout, stderr := command(t, "replay", "--config", file, "--expect", "denied=0", replayLog); code != CodeOK {
		t.Errorf("replay: %s%s", stdout, stderr)
	}
	found := filepath.Join(t.TempDir(), "load.json")
	if err := os.WriteFile(found, []byte(`{"sustainable_per_second": 100}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"from a measurement", []string{"--capacity", found}, CodeOK, "limits: [70 per 1s burst 150]"},
		{"nothing to advise from", nil, CodeUsage, "neither a log nor --capacity"},
		{"not enough", []string{"--per", "user", replayLog}, CodeNo, "have no user"},
		{"the standard input", []string{"-"}, CodeUsage, "cannot be read twice"},
		{"no capacity", []string{"--capacity", "0.1"}, CodeUsage, "the capacity is 0.1"},
		{"no result", []string{"--capacity", "no-such.json"}, CodeUsage, "no-such.json"},
		{"no operation", []string{"--capacity", "10", "--operation", "x"}, CodeUsage, "is not PATTERN=TIME"},
		{"an entry that is not there", []string{"--per", "tenant", replayLog}, CodeUsage, `"tenant"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := command(t, append([]string{"advise"}, tt.args...)...)
			if code != tt.code || !strings.Contains(stdout+stderr, tt.want) {
				t.Errorf("exit code %d, want %d with %q:\n%s%s", code, tt.code, tt.want, stdout, stderr)
			}
		})
	}
}

// TestAdviceKeepsItsPromise: replay of what advise writes denies as many requests, on the
// same log, as the policy's comments say.
func TestAdviceKeepsItsPromise(t *testing.T) {
	t.Parallel()
	promised := regexp.MustCompile(`they deny (\d+) of (\d+) requests`)
	for _, args := range [][]string{nil, {"--percentile", "90", "--headroom", "1"}, {"--percentile", "50", "--headroom", "1"}, {"--route", "GET /favicon.ico", "--percentile", "80", "--capacity", "1"}} {
		code, text, stderr := command(t, append(append([]string{"advise", "--quiet"}, args...), replayLog)...)
		if code != CodeOK {
			t.Fatalf("%v: exit code %d: %s", args, code, stderr)
		}
		found := promised.FindStringSubmatch(text)
		if found == nil {
			t.Fatalf("%v: the policy promises nothing:\n%s", args, text)
		}
		if strings.Contains(strings.Join(args, " "), "--headroom 1") && found[1] == "0" {
			t.Errorf("%v: nothing is denied", args)
		}
		policy := policyFile(t, text)
		if code, stdout, stderr := command(t, "lint", "--strict", policy); code != CodeOK {
			t.Errorf("%v: lint: %s%s", args, stdout, stderr)
		}
		if slices.Contains(args, "--capacity") {
			continue // Its rule for all is beside those from the log, and promised by no log.
		}
		code, stdout, stderr := command(t, "replay", "--quiet", "--config", policy, "--expect", "denied="+found[1], "--expect", "requests="+found[2], replayLog)
		if code != CodeOK {
			t.Errorf("%v promises that %s: exit code %d\n%s%s", args, found[0], code, stdout, stderr)
		}
	}
}
