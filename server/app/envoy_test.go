package app

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/config"
)

// envoyDir is a directory with files, which are pairs of a name and a text.
func envoyDir(t *testing.T, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		if err := os.WriteFile(filepath.Join(dir, files[i]), []byte(files[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const envoyEdge = "domain: edge\ndescriptors:\n  - {key: user, rate_limit: {unit: day, requests_per_unit: 2}}\n"

// shouldLimit asks as Envoy does.
func (r *running) shouldLimit(t *testing.T, domain, key, value string) *pb.RateLimitResponse {
	t.Helper()
	answer, err := pb.NewRateLimitServiceClient(r.dial(t)).ShouldRateLimit(t.Context(), &pb.RateLimitRequest{
		Domain: domain,
		Descriptors: []*ratelimit.RateLimitDescriptor{{
			Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: key, Value: value}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func TestEnvoyConfig(t *testing.T) {
	settings := Settings{GRPCListen: "127.0.0.1:0", EnvoyConfig: envoyDir(t, "edge.yaml", envoyEdge), Dialect: "ratelimit-triple"}
	settings.lookEvery = 5 * time.Millisecond
	r := start(t, settings)
	for i, want := range []pb.RateLimitResponse_Code{pb.RateLimitResponse_OK, pb.RateLimitResponse_OK, pb.RateLimitResponse_OVER_LIMIT} {
		answer := r.shouldLimit(t, "edge", "user", "anna")
		if answer.GetOverallCode() != want {
			t.Errorf("request %d: %v", i+1, answer)
		}
		if headers := answer.String(); !strings.Contains(headers, `"Ratelimit-Remaining"`) {
			t.Errorf("the answer has no headers: %s", headers)
		}
	}
	// Each limit is a rule, which other doors know by its name.
	if status, body := r.do(t, "POST", "/v1/peek", `{"checks":[{"rule":"edge.user","key":"anna"}]}`); status != 200 || !strings.HasPrefix(body, `{"allowed":false`) {
		t.Errorf("a peek over HTTP: %d %s", status, body)
	}
	if status, body := r.do(t, "POST", "/v1/reset", `{"checks":[{"rule":"edge.user","key":"anna"}]}`); status != 200 {
		t.Errorf("a reset over HTTP: %d %s", status, body)
	}
	if answer := r.shouldLimit(t, "edge", "user", "anna"); answer.GetOverallCode() != pb.RateLimitResponse_OK {
		t.Errorf("after the reset: %v", answer)
	}
	r.metrics(t, `headgate_requests_total{door="envoy",outcome="denied"} 1`, `headgate_requests_waiting{door="envoy"} 0`)
	if _, metrics := r.do(t, "GET", "/metrics", ""); !strings.Contains(metrics, `headgate_decisions_total{limit="2 per 1d",outcome="denied",rule="edge.user"} 1`) || strings.Contains(metrics, "anna") {
		t.Errorf("the metrics: %s", metrics)
	}

	// A file that is new, one that is wrong, and one that is gone.
	extra := filepath.Join(settings.EnvoyConfig, "more.yaml")
	write := func(text string) {
		if err := os.WriteFile(extra, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(strings.ReplaceAll(envoyEdge, "edge", "more"))
	r.await(t, "version=2")
	if status := r.shouldLimit(t, "more", "user", "anna").GetStatuses()[0]; status.GetLimitRemaining() != 1 {
		t.Errorf("a new domain: %v", status)
	}
	write("domain: more\ndescriptors: 7\n")
	r.await(t, "more.yaml:2:14: descriptors is 7")
	if status := r.shouldLimit(t, "more", "user", "anna").GetStatuses()[0]; status.GetLimitRemaining() != 0 {
		t.Errorf("what was in force stays: %v", status)
	}
	if err := os.Remove(extra); err != nil {
		t.Fatal(err)
	}
	r.await(t, "version=3")
	if status := r.shouldLimit(t, "more", "user", "anna").GetStatuses()[0]; status.GetCurrentLimit() != nil {
		t.Errorf("a domain that is gone: %v", status)
	}
	if got, err := health(t, r.dial(t), "ratelimit"); err != nil || got != serving {
		t.Errorf("health under the name that envoyproxy/ratelimit has: %v, %v", got, err)
	}
}

func TestEnvoyIndependent(t *testing.T) {
	r := start(t, Settings{GRPCListen: "127.0.0.1:0", EnvoyConfig: envoyDir(t, "edge.yaml", envoyEdge), EnvoyIndependent: true})
	request := &pb.RateLimitRequest{Domain: "edge", HitsAddend: 5}
	request.Descriptors = append(request.Descriptors, &ratelimit.RateLimitDescriptor{
		Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "user", Value: "anna"}},
	})
	answer, err := pb.NewRateLimitServiceClient(r.dial(t)).ShouldRateLimit(t.Context(), request)
	if err != nil || answer.GetOverallCode() != pb.RateLimitResponse_OVER_LIMIT {
		t.Fatalf("%v, %v", answer, err)
	}
	if answer := r.shouldLimit(t, "edge", "user", "anna"); answer.GetOverallCode() != pb.RateLimitResponse_OVER_LIMIT {
		t.Errorf("what did not fit did not fill the limit up: %v", answer)
	}
}

func TestEnvoyConfigIsChecked(t *testing.T) {
	dir := envoyDir(t, "edge.yaml", "domain: edge\ndescriptors:\n  - {key: user, rate_limit: {unit: day}, color: red}\n")
	_, err := New(t.Context(), Settings{EnvoyConfig: dir})
	var file *config.Error
	if !errors.As(err, &file) || !strings.Contains(err.Error(), `edge.yaml:3:42: a descriptor has no field "color"`) {
		t.Errorf("error is %v", err)
	}
	_, err = New(t.Context(), Settings{EnvoyConfig: dir, PolicyFile: "headgate.yaml"})
	var wrong *SettingsError
	if !errors.As(err, &wrong) || !strings.Contains(err.Error(), "there is a policy file as well") {
		t.Errorf("error is %v", err)
	}
	if _, err = New(t.Context(), Settings{EnvoyConfig: filepath.Join(dir, "edge.yaml")}); err == nil {
		t.Error("a file in place of the directory is no error")
	}
}

// TestEnvoyExplained: over HTTP and gRPC, as it is decided.
func TestEnvoyExplained(t *testing.T) {
	settings := Settings{GRPCListen: "127.0.0.1:0", EnvoyConfig: envoyDir(t, "edge.yaml", strings.Replace(envoyEdge, "2}}", "2}, descriptors: [{key: path, value: /x*, rate_limit: {unit: day, requests_per_unit: 0}}]}", 1))}
	r := start(t, settings)
	r.shouldLimit(t, "edge", "user", "anna")
	for body, wants := range map[string][]string{
		`{"descriptor":{"domain":"edge","user":"anna"}}`: {
			`"steps":[{"entry":"user","node":"edge.user","by":"key","pos":{`, `"binds":true,"key":"anna"`, `"state":{"allowed":true,"remaining":1`,
			`"why":"the descriptor ends 1 entry before it"`, `"verdict":{"allowed":true,"rule":"edge.user"`,
		},
		`{"descriptor":{"user":"anna","path":"/xy","domain":"edge"}}`: {
			`"by":"star"`, `"denied":{"name":"edge.user.path_/x*"`, `"admits":"nothing"`, `"verdict":{"allowed":false`,
		},
		// The order counts.
		`{"descriptor":{"path":"/xy","user":"anna","domain":"edge"}}`: {`"steps":[{"entry":"path"}]`, `"verdict":{"allowed":true`},
		`{"descriptor":{"user":"anna"}}`:                              {`"error":"request: it has no entry \"domain\"`},
	} {
		status, got := r.do(t, "POST", "/v1/explain", body)
		for _, want := range wants {
			if status != 200 || !strings.Contains(got, want) {
				t.Errorf("%s: %d %s, want %s", body, status, got, want)
			}
		}
	}
	api := headgatev1.NewHeadgateClient(r.dial(t))
	e, err := api.Explain(t.Context(), &headgatev1.ExplainRequest{Entries: map[string]string{"domain": "edge", "user": "anna"}})
	if err != nil || len(e.GetSteps()) != 1 || e.GetSteps()[0].GetNode() != "edge.user" || !e.GetRules()[0].GetBinds() || e.GetRules()[1].GetDepth() != 2 {
		t.Errorf("over gRPC: %v, %v", e, err)
	}
	if _, err := api.Explain(t.Context(), &headgatev1.ExplainRequest{Entries: map[string]string{"domain": "edge", "user": "anna", "path": "/xy"}}); err == nil || !strings.Contains(err.Error(), "has no order here") {
		t.Errorf("entries without an order: %v", err)
	}
}
