package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/httpapi"
)

const adminToken = "correct-horse-battery"

// rulesOf is a policy with one rule.
func rulesOf(limit string) string {
	return fmt.Sprintf("rules:\n  - name: login\n    per: [user]\n    limits: [%s]\n", limit)
}

// badRules has two mistakes.
const badRules = "rules:\n  - name: login\n    per: all\n    limits: [many]\n  - name: login\n    per: all\n    limits: [0 per 1s]\n"

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// replace exchanges the file by an atomic rename.
func replace(t *testing.T, name, text string) {
	t.Helper()
	write(t, name+".new", text)
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}

// limit is that of the rule in force, and its version.
func (r *running) limit() string {
	now := r.Policy()
	return fmt.Sprintf("%s, version %d", now.Rules()[0].Limits.Limits()[0].String(), now.Version)
}

// until waits for the rule to have the limit.
func (r *running) until(t *testing.T, want string) {
	t.Helper()
	for deadline := time.Now().Add(within); r.limit() != want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("in force is %s, want %s\n%s", r.limit(), want, r.log)
		}
	}
}

func (r *running) reload(t *testing.T, token string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.base+"/v1/reload", nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, strings.TrimSuffix(string(text), "\n")
}

// swap has the link ..data of a ConfigMap's directory lead to another directory,
// as the kubelet does it.
func swap(t *testing.T, dir, version, text string) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, version, "headgate.yaml"), text)
	link := filepath.Join(dir, "..data_tmp")
	if err := os.Symlink(version, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link, filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
}

// TestFileChanges: every way in which a file changes is noticed.
func TestFileChanges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := func(change func(*testing.T, string, string)) func(*testing.T) (string, func(string)) {
		return func(t *testing.T) (string, func(string)) {
			file := filepath.Join(t.TempDir(), "headgate.yaml")
			write(t, file, rulesOf("1 per 1h"))
			return file, func(text string) { change(t, file, text) }
		}
	}
	tests := map[string]func(t *testing.T) (string, func(string)){
		"in place": plain(write),
		"rename":   plain(replace),
		"removed for a while": plain(func(t *testing.T, file, text string) {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
			write(t, file, text)
		}),
		"config map": func(t *testing.T) (string, func(string)) {
			swap(t, dir, "..1", rulesOf("1 per 1h"))
			file := filepath.Join(dir, "headgate.yaml")
			if err := os.Symlink(filepath.Join("..data", "headgate.yaml"), file); err != nil {
				t.Fatal(err)
			}
			n := 1
			return file, func(text string) {
				n++
				swap(t, dir, fmt.Sprintf("..%d", n), text)
			}
		},
	}
	for name, prepare := range tests {
		t.Run(name, func(t *testing.T) {
			file, change := prepare(t)
			r := start(t, Settings{PolicyFile: file, lookEvery: time.Millisecond})
			r.until(t, "1 per 1h, version 1")
			change(rulesOf("2 per 1h"))
			r.until(t, "2 per 1h, version 2")
			change(rulesOf("3 per 1h"))
			r.until(t, "3 per 1h, version 3")
			r.logs(t, "version=3 hash="+r.Policy().Hash+" rules=1")
			r.logs(t, `because="a file has changed"`)
			if _, rules := r.do(t, "GET", "/v1/rules", ""); !strings.HasPrefix(rules, `{"version":3,"hash":"`+r.Policy().Hash+`","rules":[`) {
				t.Errorf("/v1/rules is %s", rules)
			}
		})
	}
}

// lookOnce is one look at the files, as watch does it regularly.
func (s *source) lookOnce(last snapshot) snapshot {
	return s.notice(last, s.watched, func(reason string) { _, _, _ = s.reloadLocked(reason) })
}

// TestHalfWritten: what a look sees for the first time is not taken yet.
func TestHalfWritten(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "headgate.yaml")
	write(t, file, rulesOf("1 per 1h"))
	r := start(t, Settings{PolicyFile: file, lookEvery: time.Hour})
	s := r.source
	write(t, file, rulesOf("2 per 1h"))
	seen := s.lookOnce(nil)
	if r.limit() != "1 per 1h, version 1" {
		t.Errorf("the first look has put %s in force", r.limit())
	}
	write(t, file, rulesOf("3 per 1h"))
	if seen = s.lookOnce(seen); r.limit() != "1 per 1h, version 1" {
		t.Errorf("a look that saw another change has put %s in force", r.limit())
	}
	if seen = s.lookOnce(seen); r.limit() != "3 per 1h, version 2" {
		t.Errorf("in force is %s when nothing has changed for a while", r.limit())
	}
	// A file with mistakes is told once, not at every look.
	write(t, file, badRules)
	for range 5 {
		seen = s.lookOnce(seen)
	}
	if n := s.counts[failed].Load(); n != 1 {
		t.Errorf("%d reloads have failed, want 1", n)
	}
	// What it was before is what is in force.
	write(t, file, rulesOf("3 per 1h"))
	for range 5 {
		seen = s.lookOnce(seen)
	}
	if s.failed.Load() != nil || s.counts[unchanged].Load() != 1 || r.limit() != "3 per 1h, version 2" {
		t.Errorf("after the mistakes are gone: %s, %v", r.limit(), s.failed.Load())
	}
}

// TestFilesBeside: files that the policy names are looked at as it is itself.
func TestFilesBeside(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, beside := filepath.Join(dir, "headgate.yaml"), filepath.Join(dir, "subjects.yaml")
	write(t, file, "subjects: {by: user, file: subjects.yaml}\nrules:\n  - name: login\n    per: [user]\n    limits: {tier: {free: [1 per 1h], \"*\": [5 per 1h]}}\n")
	write(t, beside, "anna: {tier: free}\n")
	r := start(t, Settings{PolicyFile: file, lookEvery: time.Millisecond})
	const anna = `{"descriptor":{"user":"anna"}}`
	if _, body := r.do(t, "POST", "/v1/peek", anna); !strings.Contains(body, `"limit":"1 per 1h"`) {
		t.Fatalf("%s", body)
	}
	replace(t, beside, "bert: {tier: free}\n")
	for deadline := time.Now().Add(within); ; time.Sleep(time.Millisecond) {
		if _, body := r.do(t, "POST", "/v1/peek", anna); strings.Contains(body, `"limit":"5 per 1h"`) {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("%s\n%s", body, r.log)
		}
	}
}

// TestBadFile: a file with mistakes changes nothing, and everybody who should
// know does.
func TestBadFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "headgate.yaml")
	write(t, file, rulesOf("1 per 1h"))
	r := start(t, Settings{PolicyFile: file, AdminToken: adminToken, lookEvery: time.Hour})
	hash := r.Policy().Hash
	const check = `{"descriptor":{"user":"anna"}}`
	r.do(t, "POST", "/v1/check", check)

	write(t, file, badRules)
	status, body := r.reload(t, adminToken)
	if status != http.StatusUnprocessableEntity || !strings.Contains(body, `"detail":"the policy file has 3 mistakes; version 1 stays in force","version":1,"hash":"`+hash+`","mistakes":[{"file":"`+file+`","line":`) {
		t.Errorf("the admin is answered with %d %s", status, body)
	}
	var answer struct{ Mistakes []httpapi.PolicyMistake }
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatal(err)
	}
	log := r.log.String()
	for _, m := range answer.Mistakes {
		if place := fmt.Sprintf("%s:%d:%d: ", m.File, m.Line, m.Column); !strings.Contains(log, place) {
			t.Errorf("the log lacks the mistake at %s:\n%s", place, log)
		}
	}
	if r.limit() != "1 per 1h, version 1" {
		t.Errorf("in force is %s", r.limit())
	}
	if status, body := r.do(t, "POST", "/v1/check", check); status != 200 || !strings.HasPrefix(body, `{"allowed":false`) {
		t.Errorf("a check is answered with %d %s", status, body)
	}
	if status, body := r.do(t, "GET", "/readyz", ""); status != 200 || !strings.Contains(body, `"detail":"the policy file has mistakes (reload at `) || strings.Contains(body, file) {
		t.Errorf("/readyz is %d %s", status, body)
	}
	r.metrics(t, `headgate_policy_reloads_total{result="failed"} 1`, `headgate_policy_info{hash="`+hash+`",version="1"} 1`, "headgate_policy_last_reload_failed 1")

	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if status, body := r.reload(t, adminToken); status != http.StatusUnprocessableEntity || !strings.Contains(body, "no such file") {
		t.Errorf("without a file, the admin is answered with %d %s", status, body)
	}
	write(t, file, rulesOf("2 per 1h"))
	if status, body := r.reload(t, adminToken); status != 200 || body != `{"result":"changed","version":2,"hash":"`+r.Policy().Hash+`","rules":1}` {
		t.Errorf("with a good file, the admin is answered with %d %s", status, body)
	}
	if status, body := r.reload(t, adminToken); status != 200 || !strings.HasPrefix(body, `{"result":"unchanged","version":2`) {
		t.Errorf("with the same file, the admin is answered with %d %s", status, body)
	}
	if _, body := r.do(t, "GET", "/readyz", ""); body != "{\"status\":\"ready\"}\n" {
		t.Errorf("/readyz is %s", body)
	}
	r.metrics(t, `headgate_policy_reloads_total{result="failed"} 2`, `headgate_policy_reloads_total{result="changed"} 1`, `headgate_policy_reloads_total{result="unchanged"} 1`,
		`headgate_policy_info{hash="`+r.Policy().Hash+`",version="2"} 1`, "headgate_policy_last_reload_failed 0", "headgate_policy_last_reload_success_timestamp_seconds 1.")
}

// metrics waits for lines of the metrics: a caller may have its answer before it is
// counted.
func (r *running) metrics(t *testing.T, want ...string) {
	t.Helper()
	for deadline := time.Now().Add(within); ; time.Sleep(time.Millisecond) {
		_, metrics := r.do(t, "GET", "/metrics", "")
		lacking := slices.DeleteFunc(slices.Clone(want), func(line string) bool { return strings.Contains(metrics, "\n"+line) })
		if len(lacking) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the metrics lack %q", lacking)
		}
	}
}

// TestUsedStaysUsed: counters outlive the rules that they were charged under.
func TestUsedStaysUsed(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []string{"token_bucket", "leaky_bucket", "fixed_window", "sliding_window", "sliding_counter"} {
		t.Run(algorithm, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "headgate.yaml")
			limit := func(count int) string {
				burst := ""
				if strings.HasSuffix(algorithm, "bucket") {
					burst = fmt.Sprintf(", burst: %d", count)
				}
				// A year: nothing is refilled while the test runs.
				return rulesOf(fmt.Sprintf("{count: %d, period: 365d, algorithm: %s%s}", count, algorithm, burst))
			}
			write(t, file, limit(5))
			r := start(t, Settings{PolicyFile: file, AdminToken: adminToken, lookEvery: time.Hour})
			left := func() (remaining int64) {
				t.Helper()
				_, body := r.do(t, "POST", "/v1/peek", `{"descriptor":{"user":"anna"}}`)
				var v struct{ Decisions []struct{ Remaining int64 } }
				if err := json.Unmarshal([]byte(body), &v); err != nil || len(v.Decisions) != 1 {
					t.Fatalf("%s, %v", body, err)
				}
				return v.Decisions[0].Remaining
			}
			r.do(t, "POST", "/v1/check", `{"descriptor":{"user":"anna"},"cost":3}`)
			before := left()
			write(t, file, limit(9))
			if status, body := r.reload(t, adminToken); status != 200 {
				t.Fatalf("%d %s", status, body)
			}
			if after := left(); after != before+4 {
				t.Errorf("a peek leaves %d of 5, and %d of 9 after the reload; 3 were used before", before, after)
			}
			write(t, file, limit(3))
			if status, body := r.reload(t, adminToken); status != 200 {
				t.Fatalf("%d %s", status, body)
			}
			if _, body := r.do(t, "POST", "/v1/check", `{"descriptor":{"user":"anna"}}`); !strings.HasPrefix(body, `{"allowed":false`) {
				t.Errorf("all 3 were used before the reload, and yet: %s", body)
			}
		})
	}
}

// TestManyWarnings: a policy of thousands of rules does not fill the log.
func TestManyWarnings(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "headgate.yaml")
	equal := func(n int, limit string) string {
		var b strings.Builder
		b.WriteString("rules:\n")
		for i := range n {
			fmt.Fprintf(&b, "- {name: r%d, match: {route: /%[1]d}, per: [user], limits: [%s]}\n", i, limit)
		}
		return b.String()
	}
	write(t, file, equal(maxWarnings, "20 per 60s"))
	r := start(t, Settings{PolicyFile: file, AdminToken: adminToken})
	const one, more = "the policy has a warning", "the policy has more warnings than these"
	if log := r.log.String(); strings.Count(log, one) != maxWarnings || strings.Contains(log, more) {
		t.Errorf("%d warnings, want %d, and no more than these:\n%s", strings.Count(log, one), maxWarnings, log)
	}
	replace(t, file, equal(maxWarnings+5, "10 per 60s"))
	r.reload(t, adminToken) // If another one is under way, it waits for that.
	log := r.log.String()
	if want := fmt.Sprintf("%s\" more=5 all=\"headgate lint %s\"", more, file); strings.Count(log, one) != 2*maxWarnings || !strings.Contains(log, want) {
		t.Errorf("%d warnings, want %d and %s:\n%s", strings.Count(log, one), 2*maxWarnings, want, log)
	}
}

func TestWhoMayReload(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "headgate.yaml")
	write(t, file, rulesOf("1 per 1h"))
	nobody := start(t, Settings{PolicyFile: file})
	for _, token := range []string{"", adminToken} {
		if status, body := nobody.reload(t, token); status != http.StatusForbidden {
			t.Errorf("without a token on the server: %d %s", status, body)
		}
	}
	somebody := start(t, Settings{PolicyFile: file, AdminToken: adminToken})
	for token, want := range map[string]int{"": 401, adminToken + "r": 401, adminToken[1:]: 401, adminToken: 200} {
		if status, body := somebody.reload(t, token); status != want {
			t.Errorf("with the token %q: %d %s, want %d", token, status, body, want)
		}
	}
	if strings.Contains(somebody.log.String(), adminToken) {
		t.Error("the log has the token")
	}
	if n := somebody.source.counts[unchanged].Load(); n != 1 {
		t.Errorf("there were %d reloads, want 1", n)
	}
}

func TestNothingToReload(t *testing.T) {
	t.Parallel()
	r := start(t, Settings{AdminToken: adminToken})
	if status, body := r.reload(t, adminToken); status != http.StatusConflict || !strings.Contains(body, "--config FILE") {
		t.Errorf("%d %s", status, body)
	}
	if err := r.Reload("a test"); !errors.Is(err, ErrNotReloadable) {
		t.Errorf("%v", err)
	}
	if _, body := r.do(t, "GET", "/readyz", ""); body != "{\"status\":\"ready\"}\n" {
		t.Errorf("/readyz is %s", body)
	}
	if hash := r.Policy().Hash; len(hash) != 64 {
		t.Errorf("the sample's hash is %q", hash)
	}
}

// TestInFlight: a request ends under the rules that it began with.
func TestInFlight(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "headgate.yaml")
	write(t, file, rulesOf("1 per 1h"))
	settings, err := Settings{PolicyFile: file}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSource(&settings)
	if err != nil {
		t.Fatal(err)
	}
	within, goOn := make(chan struct{}), make(chan struct{})
	h := httpapi.New(&decide.Over{Rules: func() decide.Policy { return *s.active.Load() }, Store: takes(func(checks []headgate.Check) []headgate.Decision {
		within <- struct{}{}
		<-goOn
		return []headgate.Decision{{Rule: checks[0].Rule, Limit: &checks[0].Rule.Limits()[0], Allowed: true}}
	})}, httpapi.Options{})
	answer := make(chan string)
	ask := func() {
		r := httptest.NewRequest(http.MethodPost, "/v1/check", strings.NewReader(`{"descriptor":{"user":"anna"}}`))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		answer <- w.Body.String()
	}
	go ask()
	<-within
	write(t, file, rulesOf("2 per 1h"))
	if _, result, err := s.reload("a test"); result != changed || err != nil {
		t.Fatalf("%v, %v", results[result], err)
	}
	goOn <- struct{}{}
	if body := <-answer; !strings.Contains(body, `"limit":"1 per 1h"`) {
		t.Errorf("the request in flight is answered with %s", body)
	}
	go ask()
	<-within
	goOn <- struct{}{}
	if body := <-answer; !strings.Contains(body, `"limit":"2 per 1h"`) {
		t.Errorf("the request after the reload is answered with %s", body)
	}
}

// takes is a store that is one function.
type takes func(checks []headgate.Check) []headgate.Decision

func (f takes) Take(_ context.Context, _ headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	return append(dst, f(checks)...), nil
}

// TestReloadsAtOnce has everything happen together: each version is counted
// once, and no request sees anything but a whole policy.
func TestReloadsAtOnce(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "headgate.yaml")
	write(t, file, rulesOf("1000 per 1h"))
	r := start(t, Settings{PolicyFile: file, AdminToken: adminToken, lookEvery: time.Millisecond})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 50 {
				if status, body := r.do(t, "POST", "/v1/check", `{"descriptor":{"user":"anna"}}`); status != 200 || !strings.Contains(body, ` per 1h"`) {
					t.Errorf("%d %s", status, body)
				}
			}
		})
		all.Go(func() {
			for range 10 {
				// What changes again and again is left to whoever writes it.
				if err := r.Reload("a test"); err != nil && !errors.Is(err, errChanging) {
					t.Error(err)
				}
			}
		})
	}
	for i := range 10 {
		replace(t, file, rulesOf(fmt.Sprintf("%d per 1h", 1001+i)))
	}
	all.Wait()
	if err := r.Reload("a test"); err != nil {
		t.Fatal(err)
	}
	now := r.Policy()
	if got := now.Rules()[0].Limits.Limits()[0].String(); got != "1010 per 1h" {
		t.Errorf("in force is %s", got)
	}
	if n := r.source.counts[changed].Load(); n != now.Version-1 {
		t.Errorf("version %d after %d changes", now.Version, n)
	}
}

// TestLook: a file is read again if it may have changed, and only then.
func TestLook(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "file")
	write(t, name, "a")
	recent := look([]string{name, name}, nil)
	if len(recent) != 1 || recent[0].wrong != "" {
		t.Fatalf("%+v", recent)
	}
	write(t, name, "b")
	if look([]string{name}, recent).same(recent) {
		t.Error("a change just after a look goes unseen")
	}
	// From here on the file is old, and its times are the same throughout.
	old := time.Now().Add(-time.Hour)
	age := func() {
		t.Helper()
		if err := os.Chtimes(name, old, old); err != nil {
			t.Fatal(err)
		}
	}
	age()
	settled := look([]string{name}, nil)
	write(t, name, "c")
	age()
	if !look([]string{name}, settled).same(settled) {
		t.Error("a file that is old and looks the same was read again")
	}
	replace(t, name, "d")
	age()
	if look([]string{name}, settled).same(settled) {
		t.Error("another file of the same size and age goes unseen")
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if gone := look([]string{name}, settled); gone.same(settled) || gone[0].wrong == "" {
		t.Errorf("%+v", gone)
	}
}

// TestFilesThatChangeWhileTheyAreRead: what was read of files that somebody was writing
// does not take effect.
func TestFilesThatChangeWhileTheyAreRead(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "headgate.yaml")
	write(t, file, rulesOf("1 per 1m"))
	r := start(t, Settings{PolicyFile: file, AdminToken: adminToken, lookEvery: time.Hour})
	var during []string // what the file becomes, each time before what was read takes effect
	r.source.check = func(*policy.Set) error {
		if len(during) > 0 {
			write(t, file, during[0])
			during = during[1:]
		}
		return nil
	}
	write(t, file, rulesOf("2 per 1m"))
	during = []string{rulesOf("3 per 1m")}
	if status, body := r.reload(t, adminToken); status != 200 || r.limit() != "3 per 1m, version 2" {
		t.Errorf("in force is %s: %d %s", r.limit(), status, body)
	}
	during = []string{rulesOf("4 per 1m"), rulesOf("5 per 1m"), rulesOf("6 per 1m")}
	if status, body := r.reload(t, adminToken); status != 422 || !strings.Contains(body, "change while they are read") || r.limit() != "3 per 1m, version 2" {
		t.Errorf("in force is %s: %d %s", r.limit(), status, body)
	}
	if status, body := r.reload(t, adminToken); status != 200 || r.limit() != "6 per 1m, version 3" {
		t.Errorf("in force is %s: %d %s", r.limit(), status, body)
	}
	// What was written in between, and refused, is taken when it is there to stay.
	during = []string{rulesOf("7 per 1m"), rulesOf("8 per 1m"), rulesOf("9 per 1m")}
	if status, body := r.reload(t, adminToken); status != 422 {
		t.Errorf("%d %s", status, body)
	}
	write(t, file, rulesOf("8 per 1m"))
	r.source.lookOnce(r.source.lookOnce(nil))
	if r.limit() != "8 per 1m, version 4" {
		t.Errorf("in force is %s", r.limit())
	}
}
