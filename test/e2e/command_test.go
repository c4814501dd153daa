package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/test/servers"
)

// commandPolicy is like the sample, with periods that no test outlasts.
const commandPolicy = `
rules:
  - name: everyone
    per: all
    limits: [1000 per 1s]
limits:
  - name: auth.createToken
    config: [{ limit: 20, period: 25920000 }, { limit: 5, period: 2592000 }]
  - name: service.actionName
    config: [{ limit: 600, period: 25920000 }, { limit: 30, period: 2592000 }]
`

// step is one call of "headgate check" and how it must end.
type step struct {
	args []string
	code int
	want string // in what it said
}

// steps takes all of a small limit and then makes mistakes. The words at the end
// of each call say who is asked.
func steps(t *testing.T, asked ...string) {
	t.Helper()
	for _, s := range []step{
		{[]string{"auth.createToken", "user42", "--peek"}, 0, "would be allowed\n"},
		{[]string{"auth.createToken", "user42", "--cost", "4"}, 0, "allowed\nLIMIT "},
		{[]string{"auth.createToken", "user42", "--cost", "2"}, 1, "denied by auth.createToken, 5 per 30d: fits in "},
		{[]string{"auth.createToken", "user42", "--cost", "6"}, 1, "denied by auth.createToken, 5 per 30d: never fits\n"},
		{[]string{"auth.createToken", "user42", "--cost", "6", "--peek"}, 1, "would be denied by auth.createToken, 5 per 30d: never fits\n"},
		{[]string{"auth.createTokem", "user42"}, 2, `there is no rule "auth.createTokem"`},
		{[]string{"auth.createToken", "user42", "--cost", "0"}, 2, "headgate: --cost is 0, must be 1 to 9007199254740991\n"},
		{[]string{"everyone", "user42"}, 2, "headgate: "},
		{[]string{"auth.createToken"}, 2, "headgate: "},
	} {
		args := slices.Concat([]string{"check"}, s.args, asked)
		r := runProgram(t, args...)
		if said := r.stdout + r.stderr; r.code != s.code || !strings.Contains(said, s.want) {
			t.Errorf("headgate %s: exit code %d, want %d, and said\n%s\nwant\n%s", strings.Join(args, " "), r.code, s.code, said, s.want)
		}
	}
	r := runProgram(t, slices.Concat([]string{"check", "service.actionName", "user42", "--json"}, asked)...)
	var v verdict
	if err := json.Unmarshal([]byte(r.stdout), &v); err != nil || r.code != 0 || !v.Allowed || len(v.Decisions) != 2 || v.Decisions[1].Remaining != 29 {
		t.Errorf("--json: exit code %d, %v, and said\n%s%s", r.code, err, r.stdout, r.stderr)
	}
}

// gone asks where nobody answers.
func gone(t *testing.T, asked ...string) {
	t.Helper()
	r := runProgram(t, slices.Concat([]string{"check", "auth.createToken", "user42"}, asked)...)
	if r.code != 3 || r.stdout != "" || !strings.Contains(r.stderr, "  hint: ") || strings.Contains(r.stderr, "geheim") {
		t.Errorf("%v: exit code %d, want 3, and said\n%s%s", asked, r.code, r.stdout, r.stderr)
	}
}

func TestCheckAsksServer(t *testing.T) {
	t.Parallel()
	s := serve(t, "--config", policyFile(t, commandPolicy))
	steps(t, "--server", s.base)
	s.stop(t)
	gone(t, "--server", s.base)
}

func TestCheckAsksStore(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, store *servers.Server) {
		policy := policyFile(t, commandPolicy)
		steps(t, "--store", patiently(store.URL()), "--config", policy)

		// The same counters as a server on that store has.
		s := serve(t, "--store", patiently(store.URL()), "--store-timeout", "30s", "--config", policy)
		if v := s.check(t, `{"checks":[{"rule":"service.actionName","key":"user42"}]}`); len(v.Decisions) != 2 || v.Decisions[1].Remaining != 28 {
			t.Errorf("the server does not see what the command took: %+v", v)
		}
		store.Kill()
		gone(t, "--store", store.URL())
		gone(t, "--server", s.base)
	}, servers.Password("geheim"))
}

func TestServeAndLintExitCodes(t *testing.T) {
	t.Parallel()
	clean := policyFile(t, "rules:\n  - name: a\n    per: all\n    limits: [20 per 60s, 5 per 3s]\n")
	useless := policyFile(t, "rules:\n  - name: a\n    per: all\n    limits: [20 per 60s, 20 per 3s]\n")
	mistaken := policyFile(t, "rules:\n  - name: a\n    limit: [20 per 60s]\n")
	taken := serve(t)
	for _, tt := range []struct {
		args []string
		code int
		want string // in what it said
	}{
		{[]string{"lint", clean, "--hash-key", hashKey}, 0, "no mistakes"},
		{[]string{"lint", useless}, 0, "HG001"},
		{[]string{"lint", useless, "--strict"}, 1, "HG001"},
		{[]string{"lint", clean, mistaken}, 2, mistaken + ":3:5: mistake: "},
		{[]string{"serve", "--config", mistaken}, 2, mistaken + ":3:5: "},
		{[]string{"serve", "--store", "sqlite://geheim"}, 2, "store: "},
		{[]string{"serve", "--listen", strings.TrimPrefix(taken.base, "http://")}, 3, "cannot be served"},
		{[]string{"version"}, 0, "headgate "},
		{[]string{"frobnicate"}, 2, "frobnicate"},
	} {
		r := runProgram(t, tt.args...)
		if said := r.stdout + r.stderr; r.code != tt.code || !strings.Contains(said, tt.want) || strings.Contains(said, "geheim") {
			t.Errorf("headgate %s: exit code %d, want %d, and said\n%s\nwant %q", strings.Join(tt.args, " "), r.code, tt.code, said, tt.want)
		}
	}
}
