package permits

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// reportServers starts the example twice over a database, and returns the processes and where
// they listen.
func reportServers(t *testing.T, s *servers.Postgres) (all []*exec.Cmd, addresses []string) {
	t.Helper()
	program, err := servers.Build("example-reports", "examples", "./reports")
	if err != nil {
		t.Fatal(err)
	}
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
	return all, addresses
}

// made is how many reports the database makes at the moment.
func made(t *testing.T, conn *pgx.Conn) (n int64) {
	t.Helper()
	if err := conn.QueryRow(servers.Bounded(t), "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'SELECT /* report */%'").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// client waits for a while, and not for ever.
var client = &http.Client{Timeout: servers.Patience}

// TestExample: however many servers make reports, the database makes three at a time, and
// goes on when one of the servers is killed.
func TestExample(t *testing.T) {
	s := servers.StartPostgres(t)
	all, addresses := reportServers(t, s)
	var done, refused atomic.Int64
	ask := func(server, account int) {
		answer, err := client.Get(fmt.Sprintf("http://%s/report?account=%d", addresses[server], account))
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
	conn, err := pgx.Connect(servers.Bounded(t), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	most := int64(0)
	look := func() bool {
		time.Sleep(20 * time.Millisecond) // A report takes many times as long.
		most = max(most, made(t, conn))
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

// TestExampleOfJobs: a report that was ordered is answered with 202 and a place to ask, at
// whichever server; all are made, three at a time, though one of the servers is killed.
func TestExampleOfJobs(t *testing.T) {
	s := servers.StartPostgres(t)
	all, addresses := reportServers(t, s)
	conn, err := pgx.Connect(servers.Bounded(t), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	type job struct{ account, path, state string }
	jobs := make([]job, 10)
	for i := range jobs {
		account := fmt.Sprint(i)
		answer, err := client.Post(fmt.Sprintf("http://%s/reports?account=%s", addresses[i%2], account), "", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		at := answer.Header.Get("Location")
		if answer.StatusCode != http.StatusAccepted || !strings.HasPrefix(at, "/reports/") || answer.Header.Get("Retry-After") == "" {
			t.Fatalf("%s: %v", answer.Status, answer.Header)
		}
		jobs[i] = job{account: account, path: at}
	}
	// status asks the second server, which is not killed.
	status := func(j *job) {
		answer, err := client.Get("http://" + addresses[1] + j.path)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		var page struct{ State, Report string }
		if err := json.NewDecoder(answer.Body).Decode(&page); err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %v", answer.Status, err)
		}
		if j.state = page.State; j.state == "done" && page.Report != j.account+": 1000" {
			t.Errorf("account %s has the report %q", j.account, page.Report)
		}
	}
	seen := make(map[string]int)
	most, killed := int64(0), false
	stores.Until(t, "all reports are made", func() bool {
		time.Sleep(20 * time.Millisecond) // A report takes many times as long.
		most = max(most, made(t, conn))
		done := 0
		for i := range jobs {
			if jobs[i].state != "done" {
				status(&jobs[i])
				seen[jobs[i].state]++
			}
			if jobs[i].state == "done" {
				done++
			}
		}
		if done >= 2 && !killed {
			killed = true
			if err := all[0].Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		return done == len(jobs)
	})
	if most > 3 {
		t.Errorf("%d reports were made at a time", most)
	}
	if seen["waiting"] == 0 || seen["being made"] == 0 || seen["done"] != len(jobs) || len(seen) != 3 {
		t.Errorf("the status pages said %v", seen)
	}
	answer, err := client.Get("http://" + addresses[1] + "/reports/none")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusNotFound {
		t.Errorf("a report that nobody has ordered: %s", answer.Status)
	}
}
