package e2e

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/test/scripts"
)

// The example of Redis's protocol, started by its one command and asked by
// redis-cli and over HTTP: both count together.
func TestRESPExample(t *testing.T) {
	t.Parallel()
	e := scripts.Start(t, "../../examples/resp/run", []string{"PROGRAM=" + binary, "HTTP=127.0.0.1:0", "RESP=127.0.0.1:0"})
	base, resp := e.Await(`msg=serving address=(\S+)\s`), e.Await(`msg="serving RESP" address=(\S+)\s`)
	if base == nil || resp == nil {
		t.Fatal("the example ended")
	}
	s := server{base: base[1]}
	_, port, err := net.SplitHostPort(resp[1])
	if err != nil {
		t.Fatal(err)
	}
	if got := redisCLI(t, port, "", "HG.CHECK", "mail", "user42", "COST", "4"); !strings.Contains(got, "\n 2) (integer) 1\n") {
		t.Errorf("redis-cli says\n%s", got)
	}
	if v := s.check(t, `{"checks":[{"rule":"mail","key":"user42"}]}`); !v.Allowed {
		t.Errorf("over HTTP: %v", v)
	}
	if got := redisCLI(t, port, "", "HG.CHECK", "mail", "user42"); !strings.Contains(got, "\n 2) (integer) 0\n") {
		t.Errorf("the sixth: redis-cli says\n%s", got)
	}
}

// What a configuration of envoyproxy/ratelimit says binds whichever door a request
// comes by, and never lets one pass that it could not look at.
func TestEnvoyConfigurationAtOtherDoors(t *testing.T) {
	t.Parallel()
	s := serve(t, "--grpc-listen", "127.0.0.1:0", "--resp-listen", "127.0.0.1:0", "--envoy-config", "../../examples/envoy/ratelimit")
	port := respPort(t, s)

	// Five a day for each user, by all doors together.
	if v := s.check(t, `{"descriptor":{"domain":"edge","user":"anna"},"cost":2}`); !v.Allowed {
		t.Errorf("over HTTP: %v", v)
	}
	if got := redisCLI(t, port, "", "HG.CHECK", "DESC", "domain", "edge", "user", "anna", "COST", "2"); !strings.Contains(got, "\n 2) (integer) 1\n") || !strings.Contains(got, `"edge.user"`) {
		t.Errorf("over RESP:\n%s", got)
	}
	conn, err := grpc.NewClient(grpcAddress(t, s), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	api := headgatev1.NewHeadgateClient(conn)
	entries := map[string]string{"domain": "edge", "user": "anna"}
	for i, allowed := range []bool{true, false} {
		v, err := api.Check(t.Context(), &headgatev1.CheckRequest{Entries: entries})
		if err != nil || v.GetAllowed() != allowed {
			t.Errorf("over gRPC, %d: %v, %v", i, v, err)
		}
	}
	// The order matters: below a user there are paths.
	if got := redisCLI(t, port, "", "HG.CHECK", "DESC", "domain", "edge", "user", "anna", "path", "/files/a", "COST", "3"); !strings.Contains(got, `"edge.user.path_/files/*"`) {
		t.Errorf("a nested limit over RESP:\n%s", got)
	}
	if v := s.check(t, `{"descriptor":{"domain":"edge","user":"anna","path":"/files/b"}}`); v.Allowed {
		t.Errorf("a nested limit over HTTP: %v", v)
	}
	if a := s.post(t, "/v1/check", `{"descriptor":{"domain":"edge","user":"anna","path":"/admin"}}`); !strings.Contains(a.text, `"list":"edge.user.path_/admin"`) {
		t.Errorf("a limit of nothing: %s", a.text)
	}

	// Without a domain, or without an order, nothing is let through unseen.
	if a := s.post(t, "/v1/check", `{"descriptor":{"user":"anna"}}`); a.status != http.StatusUnprocessableEntity || !strings.Contains(a.text, `no entry \"domain\"`) {
		t.Errorf("without a domain: %d %s", a.status, a.text)
	}
	entries["path"] = "/files/a"
	if _, err := api.Check(t.Context(), &headgatev1.CheckRequest{Entries: entries}); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "no order") {
		t.Errorf("without an order: %v", err)
	}
}
