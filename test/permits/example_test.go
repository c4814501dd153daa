package permits

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// TestExample: however many servers make reports, the database makes three at a time, and
// goes on when one of the servers is killed.
func TestExample(t *testing.T) {
	s := servers.StartPostgres(t)
	program := filepath.Join(t.TempDir(), "reports")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	build.Dir = "../../examples/reports"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	var all []*exec.Cmd
	var addresses []string
	for range 2 {
		cmd := exec.CommandContext(t.Context(), program, s.URL(), "127.0.0.1:0")
		servers.Bind(cmd)
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(stdout).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, cmd)
		addresses = append(addresses, strings.TrimSpace(strings.TrimPrefix(line, "listening on ")))
	}
	var done, refused atomic.Int64
	ask := func(server, account int) {
		answer, err := http.Get(fmt.Sprintf("http://%s/report?account=%d", addresses[server], account))
		if err != nil {
			return // it was killed
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		switch {
		case err != nil: // it was killed
		case answer.StatusCode == http.StatusOK && string(body) == fmt.Sprintf("%d: 1000\n", account):
			done.Add(1)
		case answer.StatusCode == http.StatusServiceUnavailable && answer.Header.Get("Retry-After") != "":
			refused.Add(1)
		default:
			t.Errorf("%s: %s", answer.Status, body)
		}
	}
	var asking sync.WaitGroup
	for i := range 12 {
		asking.Go(func() { ask(i%2, i) })
	}
	conn, err := pgx.Connect(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	most := int64(0)
	look := func() bool {
		var n int64
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT /* report */%'").Scan(&n); err != nil {
			t.Error(err)
			return true
		}
		most = max(most, n)
		return done.Load() >= 4
	}
	stores.Until(t, "some reports are made", look)
	if err := all[0].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	over := stores.Waited(&asking)
	stores.Until(t, "the other server has made its reports", func() bool {
		look()
		select {
		case <-over:
			return true
		case <-time.After(10 * time.Millisecond):
			return false
		}
	})
	if done.Load()+refused.Load() < 6 {
		t.Errorf("%d were made and %d refused, of 6 that the second server was asked for", done.Load(), refused.Load())
	}
	if most < 2 || most > 3 {
		t.Errorf("%d reports were made at a time, want up to 3", most)
	}
}
