package app

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/server/insightapi"
)

// TestRevokeIsAudited: who revokes a permit is in the audit, through either door.
func TestRevokeIsAudited(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "live.yaml")
	write(t, file, "rules:\n  - name: report\n    match: { tenant: present }\n    per: [tenant]\n    in_progress: { limit: 2, shared: true, ttl: 30s }\n"+
		"  - name: secret\n    per: [api_key]\n    in_progress: { limit: 2, shared: true }\n")
	r := start(t, Settings{PolicyFile: file, AdminToken: adminToken, GRPCListen: "127.0.0.1:0"})
	r.do(t, "POST", "/v1/permits/acquire", `{"rule":"report","key":"acme","holder":"one"}`)
	for rule, want := range map[string]int{"report": http.StatusOK, "nothing": http.StatusNotFound} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.base+"/v1/permits/revoke", strings.NewReader(`{"rule":"`+rule+`","key":"acme","holder":"one"}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+adminToken)
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if _ = response.Body.Close(); response.StatusCode != want {
			t.Errorf("the rule %s: status %d", rule, response.StatusCode)
		}
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+adminToken)
	if _, err := headgatev1.NewPermitsClient(r.dial(t)).Revoke(ctx, &headgatev1.RevokeRequest{Rule: "report", Key: "acme", Holder: "two\x1b"}); err != nil {
		t.Fatal(err)
	}
	if _, err := headgatev1.NewPermitsClient(r.dial(t)).Revoke(ctx, &headgatev1.RevokeRequest{Rule: "secret", Key: "sesame", Holder: "one"}); err != nil {
		t.Fatal(err)
	}
	var audit insightapi.AuditReport
	r.insight(t, "audit", &audit)
	if len(audit.Entries) == 3 && !strings.Contains(audit.Entries[0].Detail, "sesame") && strings.HasPrefix(audit.Entries[0].Detail, "rule secret, key ") {
		audit.Entries = audit.Entries[1:]
	}
	if len(audit.Entries) != 2 {
		t.Fatalf("the audit: %+v", audit.Entries)
	}
	for i, detail := range []string{`rule report, key acme, holder two\x1b`, "rule report, key acme, holder one"} {
		if e := audit.Entries[i]; e.What != "revoke" || e.Detail != detail || e.Who == "" || !e.OK {
			t.Errorf("the audit: %+v", e)
		}
	}
}
