package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/headgate/headgate/internal/leakwait"
)

var update = flag.Bool("update", false, "write what the commands print into testdata")

func TestMain(m *testing.M) { goleak.VerifyTestMain(leakwait.After(m, goleak.Find)) }

const (
	allowedAnswer = `{"allowed":true,"retry_after_ms":0,"delay_ms":0,"decisions":[` +
		`{"rule":"login","limit":"20 per 1m","algorithm":"sliding_window","allowed":true,"capacity":20,"period_ms":60000,"remaining":19,"retry_after_ms":0,"reset_after_ms":60000},` +
		`{"rule":"login","limit":"5 per 3s","algorithm":"sliding_window","allowed":true,"capacity":5,"period_ms":3000,"remaining":5,"retry_after_ms":0,"reset_after_ms":0}]}`
	deniedAnswer = `{"allowed":false,"denied_by":{"rule":"login","limit":"5 per 3s"},"retry_after_ms":1840,"delay_ms":0,"decisions":[` +
		`{"rule":"login","limit":"20 per 1m","algorithm":"sliding_window","allowed":true,"capacity":20,"period_ms":60000,"remaining":15,"retry_after_ms":0,"reset_after_ms":59100},` +
		`{"rule":"login","limit":"5 per 3s","algorithm":"sliding_window","allowed":false,"capacity":5,"period_ms":3000,"remaining":0,"retry_after_ms":1840,"reset_after_ms":2400}]}`
	neverAnswer = `{"allowed":false,"denied_by":{"rule":"login","limit":"5 per 3s"},"retry_after_ms":-1,"delay_ms":0,"decisions":[` +
		`{"rule":"login","limit":"5 per 3s","algorithm":"sliding_window","allowed":false,"capacity":5,"period_ms":3000,"remaining":5,"retry_after_ms":-1,"reset_after_ms":0}]}`
	delayedAnswer = `{"allowed":true,"retry_after_ms":0,"delay_ms":100,"decisions":[` +
		`{"rule":"login","limit":"10 per 1s","algorithm":"leaky_bucket","allowed":true,"capacity":10,"period_ms":1000,"remaining":9,"retry_after_ms":0,"reset_after_ms":100}]}`
	unknownRule = `{"title":"Not Found","status":404,"detail":"the request has a mistake","errors":[{"field":"checks[0].rule","detail":"there is no rule \"x\""}]}`
	noStore     = `{"title":"Capacity is reduced for the moment","status":503,"detail":"the store did not answer in time; whether the request was charged is not known"}`
)

const (
	candidateAnswer = `{"live":{"version":1,"hash":"9f86d081884c7d65","rules":2},"candidate":{"version":2,"hash":"60303ae22b998861","rules":1},"since":"2026-11-21T09:30:00Z","counting_since":"2026-11-21T09:00:00.5Z",` +
		`"counters":"redis://127.0.0.1:6379/0 under hg-candidate:","crowded":3,"compared":3000,"both_admitted":1000,"both_denied":200,"newly_denied":1700,"newly_admitted":90,"undecidable":10,"why_undecidable":"there is no rule \"old\"",` +
		`"not_compared":{"dropped":4,"undecided":5,"unanswered":6},"rules":[{"rule":"api","newly_denied":1700,"newly_admitted":0,"tiers":[{"tier":"free","newly_denied":1690,"newly_admitted":0},{"tier":"*","newly_denied":10,"newly_admitted":0}]},` +
		`{"list":"scanners","newly_denied":0,"newly_admitted":90},{"rule":"old","newly_denied":0,"newly_admitted":0,"undecidable":10}],"other_rules":2,` +
		`"top_newly_denied":[{"rule":"api","key":"anna","count":900},{"rule":"api","key":"\u001b[31mred\n","count":40,"over":7}],"top_newly_admitted":[{"list":"scanners","key":"","count":90}]}`
	candidateHidden = `{"live":{"version":1,"hash":"9f86d081884c7d65","rules":1},"candidate":{"version":1,"hash":"60303ae22b998861","rules":1},"since":"2026-11-21T09:30:00Z","counting_since":"2026-11-21T09:30:00Z",` +
		`"counters":"memory (at most 128 MiB)","crowded":0,"compared":2,"both_admitted":1,"both_denied":0,"newly_denied":1,"newly_admitted":0,"undecidable":0,"not_compared":{"dropped":0,"undecided":0,"unanswered":0},` +
		`"rules":[{"rule":"api","newly_denied":1,"newly_admitted":0}],"keys_hidden":true}`
	candidateFailed = `{"live":{"version":1,"hash":"9f86d081884c7d65","rules":1},"candidate":null,"failed":{"at":"2026-11-21T09:30:00Z","detail":"the policy file has a mistake","mistakes":["new.yaml:3:4: limit \"many\""]},"since":"2026-11-21T09:30:00Z","counting_since":"2026-11-21T09:30:00Z",` +
		`"counters":"memory (at most 128 MiB)","crowded":0,"compared":0,"both_admitted":0,"both_denied":0,"newly_denied":0,"newly_admitted":0,"undecidable":0,"not_compared":{"dropped":0,"undecided":0,"unanswered":0},"rules":[]}`
)

// canned answers every request alike, and remembers the last.
type canned struct {
	*httptest.Server
	status int
	body   string
	asked  string
}

func newCanned(t *testing.T) *canned {
	c := &canned{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var sent bytes.Buffer
		_, _ = sent.ReadFrom(r.Body)
		c.asked = r.Method + " " + r.URL.Path + " " + r.Header.Get("Content-Type") + " " + sent.String()
		w.WriteHeader(c.status)
		fmt.Fprint(w, c.body)
	}))
	t.Cleanup(c.Close)
	return c
}

// TestCommands holds what commands print, and their exit codes, against the
// files in testdata.
func TestCommands(t *testing.T) {
	server := newCanned(t)
	closed := closedAddress(t)
	const check = "POST /v1/check application/json "
	one := func(cost int) string {
		return fmt.Sprintf(`{"checks":[{"rule":"login","key":"k\"1","cost":%d}]}`, cost)
	}
	tests := []struct {
		name   string
		args   []string
		env    map[string]string
		status int
		body   string
		asked  string // what the server must have been asked; "" for nothing
		code   int
		golden string // the file, if it is not named as the test
	}{
		{name: "help", args: []string{"--help"}},
		{name: "help-word", args: []string{"help"}, golden: "help"},
		{name: "help-serve", args: []string{"serve", "--help"}},
		{name: "help-serve-words", args: []string{"help", "serve"}, golden: "help-serve"},
		{name: "help-gateway", args: []string{"gateway", "--help"}},
		{name: "gateway-no-upstream", args: []string{"gateway"}, code: CodeUsage},
		{name: "gateway-mistakes", args: []string{"gateway", "--gateway", "testdata/gateway-bad.yml"}, code: CodeUsage},
		{name: "gateway-no-file", args: []string{"gateway", "--gateway", "testdata/none.yml"}, code: CodeUsage},
		{name: "gateway-no-keys", args: []string{"gateway", "--gateway", "testdata/gateway-keys.yml"}, code: CodeUnavailable},
		{name: "gateway-routes", args: []string{"gateway", "--upstream", "http://127.0.0.1:1", "--config", "testdata/gateway-routes.yml"}, code: CodeUsage},
		{name: "help-check", args: []string{"check", "--help"}},
		{name: "help-load", args: []string{"load", "--help"}},
		{name: "help-lint", args: []string{"lint", "--help"}},
		{name: "help-document", args: []string{"document", "--help"}},
		{name: "document", args: []string{"document", "--title", "Limits", "testdata/explain.yaml"}},
		{name: "document-openapi", args: []string{"document", "--format", "openapi", "--headers", "draft-11", "testdata/explain.yaml"}},
		{name: "document-mistakes", args: []string{"document", "testdata/mistakes.yaml"}, code: CodeUsage},
		{name: "document-format", args: []string{"document", "--format", "pdf", "testdata/explain.yaml"}, code: CodeUsage},
		{name: "help-hides-secrets", args: []string{"serve", "--help"}, env: map[string]string{"HEADGATE_STORE": "redis://u:geheim@h", "HEADGATE_HASH_KEY": "geheim"}, golden: "help-serve"},
		{name: "no-command", code: CodeUsage},
		{name: "help-permit", args: []string{"permit", "--help"}},
		{name: "help-permit-run", args: []string{"permit", "run", "--help"}},
		{name: "permit-memory", args: []string{"permit", "holders", "--store", "memory", "--rule", "report", "--key", "k"}, code: CodeUsage},
		{name: "permit-no-store", args: []string{"permit", "holders", "--store=", "--rule", "report", "--key", "k"}, code: CodeUsage},
		{name: "permit-no-rule", args: []string{"permit", "holders", "--store", "redis://" + closed}, code: CodeUsage},
		{name: "permit-not-shared", args: []string{"permit", "run", "--store", "redis://" + closed, "--config", "testdata/permit.yaml", "--rule", "local", "--", "true"}, code: CodeUsage},
		{name: "permit-no-bound", args: []string{"permit", "revoke", "--store", "redis://" + closed, "--rule", "everyone", "host/1"}, code: CodeUsage},
		{name: "permit-mistakes", args: []string{"permit", "run", "--store", "redis://" + closed, "--rule", "report", "--cost", "0", "--grace=-1s", "--", "true"}, code: CodeUsage},
		{name: "permit-no-command", args: []string{"permit", "run", "--store", "redis://" + closed, "--rule", "report"}, code: CodeUsage},
		{name: "permit-no-redis", args: []string{"permit", "run", "--store", "redis://u:geheim@" + closed, "--config", "testdata/permit.yaml", "--rule", "report", "--key", "k", "--", "true"}, code: CodeUnavailable},
		{name: "unknown-command", args: []string{"chekc"}, code: CodeUsage},
		{name: "unknown-flag", args: []string{"lint", "--fix", "x"}, code: CodeUsage},
		{name: "convert-envoy", args: []string{"convert", "envoy", "testdata/envoy-exact"}},
		{name: "convert-envoy-lost", args: []string{"convert", "envoy", "testdata/envoy"}, code: CodeNo},
		{name: "convert-envoy-mistakes", args: []string{"convert", "envoy", "testdata/envoy-bad"}, code: CodeUsage},
		{name: "convert-envoy-none", args: []string{"convert", "envoy", "testdata/none"}, code: CodeUsage},
		{name: "serve-envoy-mistakes", args: []string{"serve", "--envoy-config", "testdata/envoy-bad"}, code: CodeUsage, golden: "convert-envoy-mistakes"},
		{name: "explain-envoy", args: []string{"explain", "--envoy-config", "testdata/envoy", "domain=edge", "remote_address=192.0.2.1", "--expect", "allow", "--expect", "rule=edge.remote_address"}},
		{name: "explain-envoy-twice", args: []string{"explain", "--envoy-config", "testdata/envoy", "x-a=1", "domain=edge", "x-a=1", "--expect", "rule=edge.x-*"}, code: CodeNo},
		{name: "explain-envoy-no-domain", args: []string{"explain", "--envoy-config", "testdata/envoy", "remote_address=192.0.2.1", "--expect", "allow", "--expect", "rule=edge.remote_address"}, code: CodeNo},
		{name: "explain-envoy-mistakes", args: []string{"explain", "--envoy-config", "testdata/envoy-bad"}, code: CodeUsage, golden: "convert-envoy-mistakes"},
		{name: "explain-two-policies", args: []string{"explain", "--envoy-config", "testdata/envoy", "--config", "x.yaml"}, code: CodeUsage},
		{name: "convert-what", args: []string{"convert", "testdata/envoy"}, code: CodeUsage},
		{name: "help-convert", args: []string{"convert", "envoy", "--help"}},
		{name: "serve-two-policies", args: []string{"serve", "--config", "x.yaml", "--envoy-config", "testdata/envoy"}, code: CodeUsage},
		{name: "version", args: []string{"version"}},
		{name: "version-flag", args: []string{"--version"}, golden: "version"},
		{name: "version-json", args: []string{"version", "--json"}},

		{name: "check-allowed", args: []string{"check", "login", `k"1`}, status: 200, body: allowedAnswer, asked: check + one(1)},
		{name: "check-denied", args: []string{"check", "login", `k"1`, "--cost", "3"}, status: 200, body: deniedAnswer, asked: check + one(3), code: CodeNo},
		{name: "check-never", args: []string{"check", "login", `k"1`, "--cost=9"}, status: 200, body: neverAnswer, asked: check + one(9), code: CodeNo},
		{name: "check-delayed", args: []string{"check", "login", `k"1`}, status: 200, body: delayedAnswer, asked: check + one(1)},
		{name: "check-json", args: []string{"check", "login", `k"1`, "--json"}, status: 200, body: deniedAnswer, asked: check + one(1), code: CodeNo},
		{name: "peek-allowed", args: []string{"check", "login", `k"1`, "--peek"}, status: 200, body: allowedAnswer, asked: "POST /v1/peek application/json " + one(1)},
		{name: "peek-denied", args: []string{"check", "login", `k"1`, "--peek"}, status: 200, body: deniedAnswer, asked: "POST /v1/peek application/json " + one(1), code: CodeNo},
		{name: "check-unknown-rule", args: []string{"check", "login", `k"1`}, status: 404, body: unknownRule, asked: check + one(1), code: CodeUsage},
		{name: "check-no-store", args: []string{"check", "login", `k"1`}, status: 503, body: noStore, asked: check + one(1), code: CodeUnavailable},
		{name: "check-not-headgate", args: []string{"check", "login", `k"1`}, status: 200, body: "<html>", asked: check + one(1), code: CodeUnavailable},
		{name: "check-no-path", args: []string{"check", "login", `k"1`}, status: 404, body: "404 page not found", asked: check + one(1), code: CodeUnavailable},
		{name: "check-no-server", args: []string{"check", "login", "k", "--server", "http://user:geheim@" + closed}, code: CodeUnavailable},
		{name: "check-not-a-server", args: []string{"check", "login", "k", "--server", "geheim@host:80"}, code: CodeUsage},
		{name: "check-cost", args: []string{"check", "login", "k", "--cost", "0"}, code: CodeUsage},
		{name: "check-no-key-json", args: []string{"check", "login", "--json"}, code: CodeUsage},
		{name: "check-unknown-rule-json", args: []string{"check", "login", `k"1`, "--json"}, status: 404, body: unknownRule, asked: check + one(1), code: CodeUsage},
		{name: "help-refund", args: []string{"refund", "--help"}},
		{name: "refund", args: []string{"refund", "login", `k"1`, "--cost", "2"}, status: 200, body: allowedAnswer, asked: "POST /v1/refund application/json " + one(2)},
		{name: "refund-at", args: []string{"refund", "login", `k"1`, "--at", "1763712000000000", "--json"}, status: 200, body: allowedAnswer, asked: "POST /v1/refund application/json " + strings.TrimSuffix(one(1), "}") + `,"at":1763712000000000}`},
		{name: "refund-mistakes", args: []string{"refund", "login", "k", "--at", "-1", "--cost", "0"}, code: CodeUsage},
		{name: "help-reset", args: []string{"reset", "--help"}},
		{name: "reset", args: []string{"reset", "login", `k"1`}, status: 200, body: `{"reset":["login"]}`, asked: "POST /v1/reset application/json " + one(1)},
		{name: "reset-json", args: []string{"reset", "login", `k"1`, "--json"}, status: 200, body: `{"reset":["login"]}`, asked: "POST /v1/reset application/json " + one(1)},
		{name: "reset-not-headgate", args: []string{"reset", "login", `k"1`}, status: 200, body: "{}", asked: "POST /v1/reset application/json " + one(1), code: CodeUnavailable},
		{name: "reset-no-store", args: []string{"reset", "login", `k"1`}, status: 503, body: noStore, asked: "POST /v1/reset application/json " + one(1), code: CodeUnavailable},
		{name: "check-no-key", args: []string{"check", "login"}, code: CodeUsage},
		{name: "check-both", args: []string{"check", "login", "k", "--server", "http://h", "--store", "redis://h"}, code: CodeUsage},
		{name: "check-config-of-server", args: []string{"check", "login", "k", "--config", "x.yaml"}, code: CodeUsage},
		{name: "check-memory", args: []string{"check", "login", "k", "--store", "memory"}, code: CodeUsage},
		{name: "check-store-unknown-rule", args: []string{"check", "x", "k", "--store", "redis://u:geheim@" + closed}, code: CodeUsage},
		{name: "check-store-bad-key", args: []string{"check", "everyone", "k", "--store", "redis://u:geheim@" + closed}, code: CodeUsage},
		{name: "check-no-redis", args: []string{"check", "everyone", "", "--store", "redis://u:geheim@" + closed}, code: CodeUnavailable},
		{name: "check-bad-hash-key", args: []string{"check", "login", "k", "--store", "redis://" + closed}, env: map[string]string{"HEADGATE_HASH_KEY": "geheim"}, code: CodeUsage},
		{name: "check-server-over-environment", args: []string{"check", "login", `k"1`, "--server", "SERVER"}, env: map[string]string{"HEADGATE_STORE": "redis://" + closed}, status: 200, body: allowedAnswer, asked: check + one(1)},
		{name: "check-environment-store", args: []string{"check", "everyone", ""}, env: map[string]string{"HEADGATE_STORE": "redis://" + closed}, code: CodeUnavailable},

		{name: "help-explain", args: []string{"explain", "--help"}},
		{name: "explain", args: []string{"explain", "--config", "testdata/explain.yaml", "api_key=geheim", "ip=203.0.113.10", "route=POST /login", "tier=free"}},
		{name: "explain-json", args: []string{"explain", "--config", "testdata/explain.yaml", "route=POST /login", "ip=2001:db8::1", "--json"}},
		{name: "explain-unused", args: []string{"explain", "--config", "testdata/explain.yaml", "apikey=geheim", "rout=POST /login", "zone=z"}},
		{name: "explain-nothing", args: []string{"explain", "--config", "testdata/explain.yaml", "--expect", "allow"}},
		{name: "explain-denied", args: []string{"explain", "--config", "testdata/explain.yaml", "ip=198.51.100.7", "--expect", "deny"}},
		{name: "explain-expected", args: []string{"explain", "--config", "testdata/explain.yaml", "ip=203.0.113.10", "route=POST /login", "--cost", "6", "--expect", "deny", "--expect=rule=login"}},
		{name: "explain-unexpected", args: []string{"explain", "--config", "testdata/explain.yaml", "api_key=geheim", "--expect", "deny", "--expect=rule=login", "--expect=rule=api"}, code: CodeNo},
		{name: "explain-mistakes", args: []string{"explain", "--config", "testdata/explain.yaml", "geheim", "=x", "a b=1", "ip=1", "ip=2", "/x"}, code: CodeUsage},
		{name: "explain-expectations", args: []string{"explain", "--config", "testdata/explain.yaml", "--expect", "rule=no", "--expect", "yes"}, code: CodeUsage},
		{name: "explain-cost", args: []string{"explain", "--cost", "0"}, code: CodeUsage},
		{name: "explain-bad-policy", args: []string{"explain", "--config", "testdata/mistakes.yaml"}, code: CodeUsage},
		{name: "explain-no-redis", args: []string{"explain", "--store", "redis://u:geheim@" + closed, "route=x"}, code: CodeUnavailable},

		{name: "lint-clean", args: []string{"lint", "testdata/clean.yaml"}},
		{name: "lint-warnings", args: []string{"lint", "testdata/warnings.yaml"}},
		{name: "lint-warnings-strict", args: []string{"lint", "testdata/clean.yaml", "testdata/warnings.yaml", "--strict"}, code: CodeNo},
		{name: "lint-mistakes", args: []string{"lint", "testdata/mistakes.yaml", "testdata/none.yaml"}, code: CodeUsage},
		{name: "lint-no-name", args: []string{"lint", "testdata/clean.yaml", ""}, code: CodeUsage},
		{name: "lint-json", args: []string{"lint", "--json", "testdata/mistakes.yaml", "testdata/warnings.yaml", "testdata/none.yaml"}, code: CodeUsage},
		{name: "lint-format-json", args: []string{"lint", "--format", "json", "testdata/mistakes.yaml", "testdata/warnings.yaml", "testdata/none.yaml"}, code: CodeUsage, golden: "lint-json"},
		{name: "lint-sarif", args: []string{"lint", "--format", "sarif", "testdata/mistakes.yaml", "testdata/silenced.yaml", "testdata/none.yaml"}, code: CodeUsage},
		{name: "lint-gateway", args: []string{"lint", "testdata/gateway-items.yml", "testdata/gateway-bad.yml", "testdata/clean.yaml"}, code: CodeUsage},
		{name: "lint-two-formats", args: []string{"lint", "--format", "sarif", "--json", "testdata/clean.yaml"}, code: CodeUsage},
		{name: "lint-silenced", args: []string{"lint", "--strict", "--memory", "testdata/silenced.yaml"}},
		{name: "lint-beside", args: []string{"lint", "testdata/beside.yaml"}, code: CodeUsage},
		{name: "lint-hash-key", args: []string{"lint", "testdata/warnings.yaml"}, env: map[string]string{"HEADGATE_HASH_KEY": "0123456789abcdef"}},

		{name: "lint-bad-hash-key", args: []string{"lint", "testdata/clean.yaml", "testdata/none.yaml"}, env: map[string]string{"HEADGATE_HASH_KEY": "geheim"}, code: CodeUsage},

		{name: "help-candidate", args: []string{"candidate", "--help"}},
		{name: "candidate", args: []string{"candidate"}, status: 200, body: candidateAnswer, asked: "GET /v1/candidate  "},
		{name: "candidate-json", args: []string{"candidate", "--json"}, status: 200, body: candidateAnswer, asked: "GET /v1/candidate  "},
		{name: "candidate-hidden", args: []string{"candidate"}, status: 200, body: candidateHidden, asked: "GET /v1/candidate  "},
		{name: "candidate-failed", args: []string{"candidate"}, status: 200, body: candidateFailed, asked: "GET /v1/candidate  "},
		{name: "candidate-none", args: []string{"candidate"}, status: 404, body: `{"title":"Not Found","status":404,"detail":"no candidate is tried here; start the server with --candidate FILE"}`, asked: "GET /v1/candidate  ", code: CodeNo},
		{name: "candidate-token", args: []string{"candidate"}, env: map[string]string{"HEADGATE_ADMIN_TOKEN": "geheim-geheim-geheim"}, status: 401, body: `{"title":"Unauthorized","status":401,"detail":"this needs the admin token of the server, as Authorization: Bearer TOKEN"}`, asked: "GET /v1/candidate  ", code: CodeUsage},
		{name: "candidate-defect", args: []string{"candidate"}, status: 500, body: `{"title":"Internal Server Error","status":500,"detail":"the server has a defect, which is in its log"}`, asked: "GET /v1/candidate  ", code: CodeUnavailable},
		{name: "candidate-not-headgate", args: []string{"candidate"}, status: 200, body: "{}", asked: "GET /v1/candidate  ", code: CodeUnavailable},
		{name: "candidate-no-path", args: []string{"candidate"}, status: 404, body: "404 page not found", asked: "GET /v1/candidate  ", code: CodeUnavailable},
		{name: "candidate-no-server", args: []string{"candidate", "--server", "http://user:geheim@" + closed}, code: CodeUnavailable},

		{name: "explain-old-hash-key", args: []string{"explain", "--config", "testdata/explain.yaml", "api_key=geheim", "--hash-key-file", "testdata/hash.key"}, env: map[string]string{"HEADGATE_OLD_HASH_KEY": "none"}},
		{name: "explain-hash-key-file", args: []string{"explain", "--config", "testdata/explain.yaml", "api_key=geheim"}, env: map[string]string{"HEADGATE_HASH_KEY_FILE": "testdata/hash.key"}},
		{name: "lint-hash-key-file", args: []string{"lint", "testdata/warnings.yaml", "--hash-key-file", "testdata/hash.key"}, golden: "lint-hash-key"},
		{name: "serve-hash-key-file", args: []string{"serve", "--hash-key-file", "testdata/none.key"}, code: CodeUsage},
		{name: "serve-two-hash-keys", args: []string{"serve", "--hash-key-file", "testdata/hash.key"}, env: map[string]string{"HEADGATE_HASH_KEY": "geheim-geheim-geheim"}, code: CodeUsage},
		{name: "serve-old-hash-key", args: []string{"serve", "--hash-key-file", "testdata/hash.key", "--old-hash-key-file", "testdata/hash.key"}, code: CodeUsage},

		{name: "serve-no-token", args: []string{"serve", "--admin-token-file", "testdata/none.token"}, code: CodeUsage},
		{name: "serve-two-tokens", args: []string{"serve", "--admin-token-file", "testdata/clean.yaml"}, env: map[string]string{"HEADGATE_ADMIN_TOKEN": "geheim-geheim-geheim"}, code: CodeUsage},
		{name: "serve-bad-resp", args: []string{"serve", "--resp-listen", "6380"}, env: map[string]string{"HEADGATE_RESP_TOKEN": "geheim"}, code: CodeUsage},
		{name: "serve-bad-token", args: []string{"serve"}, env: map[string]string{"HEADGATE_ADMIN_TOKEN": "geheim"}, code: CodeUsage},
		{name: "serve-mistakes", args: []string{"serve", "--listen", "x", "--store", "u:geheim@h", "--headers", "x"}, code: CodeUsage},
		{name: "serve-environment", args: []string{"serve"}, env: map[string]string{"HEADGATE_LISTEN": "x", "HEADGATE_STORE": "geheim", "HEADGATE_HEADERS": "y", "HEADGATE_HASH_KEY": "geheim", "HEADGATE_MEMORY": "-1"}, code: CodeUsage},
		{name: "serve-bad-duration", args: []string{"serve", "--drain-delay", "5"}, code: CodeUsage},
		{name: "serve-all-mistakes", args: []string{"serve", "--drain-delay", "5", "--log-format", "xml", "--deny-cache=maybe", "--memory", "1e3", "--listen", "x", "--admin-token-file", "testdata/none.token", "--tls-key", "x"}, env: map[string]string{"HEADGATE_LEARN": "soon", "HEADGATE_RESP_TOKEN": "geheim"}, code: CodeUsage},
		{name: "gateway-all-mistakes", args: []string{"gateway", "--shutdown-timeout", "0.5", "--listen", "x"}, env: map[string]string{"HEADGATE_LOG_FORMAT": ""}, code: CodeUsage},
		{name: "serve-mistakes-before", args: []string{"serve", "--drain-delay", "5", "--reload"}, code: CodeUsage},
		{name: "check-all-mistakes", args: []string{"check", "login", "k", "--cost", "two", "--timeout", "soon"}, code: CodeUsage},
		{name: "explain-all-mistakes", args: []string{"explain", "--cost", "0", "--timeout=-1s"}, code: CodeUsage},
		{name: "serve-flag-before-environment", args: []string{"serve", "--learn", "5s", "--memory", "soon", "--memory", "64", "--log-format", "json", "--listen", "x"}, env: map[string]string{"HEADGATE_LEARN": "soon", "HEADGATE_LOG_FORMAT": "xml"}, code: CodeUsage},
		{name: "check-too-much", args: []string{"check", "login", "k", "--cost", "99999999999999999999"}, code: CodeUsage},
		{name: "candidate-timeout", args: []string{"candidate", "--timeout", "5"}, code: CodeUsage},
		{name: "doctor-timeout", args: []string{"doctor", "--timeout", "0s", "--store", "redis://" + closed}, code: CodeUsage},
		{name: "lint-what-format", args: []string{"lint", "--format", "xml", "testdata/clean.yaml"}, code: CodeUsage},
		{name: "environment-of-others", args: []string{"version"}, env: map[string]string{"HEADGATE_LEARN": "soon", "HEADGATE_LOG_FORMAT": "xml"}, golden: "version"},
		{name: "serve-bad-policy", args: []string{"serve", "--config", "testdata/mistakes.yaml"}, code: CodeUsage},
		{name: "serve-no-policy", args: []string{"serve", "--config", "testdata/none.yaml"}, code: CodeUsage},
		{name: "serve-taken", args: []string{"serve", "--listen", "ADDRESS"}, code: CodeUnavailable},
		{name: "serve-taken-resp", args: []string{"serve", "--listen", "127.0.0.1:0", "--resp-listen", "ADDRESS"}, code: CodeUnavailable},
		{name: "gateway-taken-admin", args: []string{"gateway", "--upstream", "http://" + closed, "--listen", "127.0.0.1:0", "--admin-listen", "ADDRESS"}, code: CodeUnavailable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server.status, server.body, server.asked = tt.status, tt.body, ""
			plainEnvironment(t)
			t.Setenv("HEADGATE_SERVER", server.URL)
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			args := append([]string(nil), tt.args...)
			for i := range args {
				args[i] = strings.NewReplacer("SERVER", server.URL, "ADDRESS", server.Listener.Addr().String()).Replace(args[i])
			}
			var stdout, stderr bytes.Buffer
			code := Run(t.Context(), args, &stdout, &stderr, "v1.2.3")
			if code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			if server.asked != tt.asked {
				t.Errorf("the server was asked %q, want %q", server.asked, tt.asked)
			}
			got := fmt.Sprintf("exit code %d\n--- stdout\n%s--- stderr\n%s", code, &stdout, &stderr)
			if strings.Contains(got, "geheim") {
				t.Error("a secret was printed")
			}
			got = strings.NewReplacer(closed, "CLOSED", server.Listener.Addr().String(), "SERVER", runtime.Version(), "GO", runtime.GOOS+"/"+runtime.GOARCH, "PLATFORM").Replace(got)
			golden(t, filepath.Join("testdata", cmp.Or(tt.golden, tt.name)+".golden"), got)
		})
	}
}

// plainEnvironment hides what the developer's shell has set. The width of the
// terminal is that of the help texts.
func plainEnvironment(t *testing.T) {
	t.Helper()
	for _, setting := range os.Environ() {
		if name, _, _ := strings.Cut(setting, "="); strings.HasPrefix(name, "HEADGATE_") {
			t.Setenv(name, "") // restores it afterwards
			os.Unsetenv(name)
		}
	}
	t.Setenv("COLUMNS", "80")
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("printed\n%s\nwant\n%s", got, want)
	}
}

// closedAddress is an address where nothing answers: that of a connection that is open,
// so that nobody can get it meanwhile.
func closedAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.LocalAddr().String()
}

// TestInterrupted: a command ends with its context.
func TestInterrupted(t *testing.T) {
	plainEnvironment(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	if code := Run(ctx, []string{"check", "login", "k", "--server", "http://" + l.Addr().String()}, &out, &out, ""); code != CodeUnavailable {
		t.Errorf("exit code %d: %s", code, &out)
	}
	if code := Run(t.Context(), []string{"check", "login", "k", "--timeout", "10ms", "--server", "http://" + l.Addr().String()}, &out, &out, ""); code != CodeUnavailable {
		t.Errorf("exit code %d: %s", code, &out)
	}
}

// TestShortTimeout: a timeout below what a store takes is no mistake of the
// store's settings. Whether the address or the time is named first is chance.
func TestShortTimeout(t *testing.T) {
	plainEnvironment(t)
	var out bytes.Buffer
	if code := Run(t.Context(), []string{"check", "everyone", "", "--store", "redis://" + closedAddress(t), "--timeout", "1us"}, &out, &out, ""); code != CodeUnavailable {
		t.Errorf("exit code %d: %s", code, &out)
	}
}

// TestServe serves until its context ends, and answers the check command.
func TestServe(t *testing.T) {
	plainEnvironment(t)
	file := filepath.Join(t.TempDir(), "headgate.yaml")
	// Nothing is free again while the test runs.
	if err := os.WriteFile(file, []byte("rules:\n  - {name: auth.createToken, per: [user], limits: [5 per 1000h]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			log := &watched{lines: make(chan string, 100)}
			ended := make(chan int, 1)
			go func() {
				ended <- Run(ctx, []string{"serve", "--config", file, "--listen", "127.0.0.1:0", "--log-format", format}, log, log, "")
			}()
			server := log.address(t)
			for i := range 6 {
				var out bytes.Buffer
				code := Run(ctx, []string{"check", "auth.createToken", "user42", "--server", server}, &out, &out, "")
				if want := map[bool]int{true: CodeOK, false: CodeNo}[i < 5]; code != want {
					t.Errorf("check %d: exit code %d, want %d: %s", i+1, code, want, &out)
				}
			}
			stop()
			if code := <-ended; code != CodeOK {
				t.Errorf("exit code %d", code)
			}
			close(log.lines)
			for line := range log.lines {
				if format == "json" && !strings.HasPrefix(line, "{") {
					t.Errorf("the log is not JSON: %s", line)
				}
			}
		})
	}
}

// watched hands on what is written, write by write.
type watched struct{ lines chan string }

func (w *watched) Write(p []byte) (int, error) {
	w.lines <- string(p)
	return len(p), nil
}

// address waits for the line that says where the server is.
func (w *watched) address(t *testing.T) string {
	t.Helper()
	for line := range w.lines {
		if !strings.Contains(line, "serving") {
			continue
		}
		url := line[strings.Index(line, "http"):]
		return url[:strings.IndexAny(url, `" `)]
	}
	t.Fatal("the server never said where it is")
	return ""
}

func TestQuoteShell(t *testing.T) {
	for given, want := range map[string]string{`a`: `'a'`, `it's`: `'it'\''s'`, `$(x)`: `'$(x)'`} {
		if got := quoteShell(given); got != want {
			t.Errorf("%s became %s, want %s", given, got, want)
		}
	}
}

func ExampleRun() {
	code := Run(context.Background(), []string{"lint", "testdata/clean.yaml"}, os.Stdout, os.Stderr, "v1.0.0")
	fmt.Println(code)
	// Output:
	// testdata/clean.yaml: 2 rules, no mistakes, no warnings
	// 0
}

// A server whose certificate nobody vouches for is there, and says no to nothing.
func TestUnknownAuthority(t *testing.T) {
	plainEnvironment(t)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	defer server.Close()
	var out strings.Builder
	if code := Run(t.Context(), []string{"check", "login", "k", "--timeout", "1m", "--server", server.URL}, &out, &out, ""); code != CodeUnavailable {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"cannot be believed: ", "unknown authority", "--tls-ca"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it lacks %q:\n%s", want, &out)
		}
	}
}

// TestMistakeOfAnyKind: an error that is not told as a flag's is not lost, or a server
// would run without its token.
func TestMistakeOfAnyKind(t *testing.T) {
	var c call
	c.mistake(nil)
	c.mistake(usage("no", "yes"))
	c.mistake(errors.New("headgate: odd"))
	if got := joinLines(c.mistakes); got != joinLines([]string{"no; yes", "odd"}) {
		t.Errorf("%q", got)
	}
}

// TestGrammar: the parser is given the command that is asked for, and all of them where the others
// matter: for help, for a word that is none, and for what describes the whole command line.
func TestGrammar(t *testing.T) {
	all := reflect.TypeFor[root]()
	for _, args := range [][]string{nil, {"--help"}, {"chekc"}, {"Check"}, {"--json", "check"}, {"reference"}} {
		if got := reflect.TypeOf(grammar(args)).Elem(); got != all {
			t.Errorf("%q is parsed with %v", args, got)
		}
	}
	for _, name := range []string{"serve", "ratelimit", "permit", "version"} {
		got := reflect.TypeOf(grammar([]string{name, "--json"})).Elem()
		if got.NumField() != 1 || !strings.EqualFold(got.Field(0).Name, name) {
			t.Errorf("%s is parsed with %v", name, got)
		}
	}
}
