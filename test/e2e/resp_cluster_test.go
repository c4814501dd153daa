package e2e

import (
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"
)

// What the programs of testdata/clients print for each client.
const clusterAnswers = " 0001 1 0"

// TestClusterClients: clients in cluster mode take the server for a cluster of one node, in the
// newest releases and in older ones. (TestRueidis is in cluster mode, too.)
func TestClusterClients(t *testing.T) {
	t.Parallel()
	_, port := serveRESP(t, "--resp-token-file", tokenFile(t))
	dir := filepath.Join("testdata", "clients")
	for _, c := range []struct {
		program []string
		newest  bool // with the redis-py of bin/tools
		want    []string
	}{
		{[]string{"node", "cluster.mjs"}, false, []string{
			"ioredis5" + clusterAnswers, "ioredis5 000", "ioredis" + clusterAnswers, "ioredis 000",
			"redis5-2" + clusterAnswers, "redis5-3" + clusterAnswers, "redis-2" + clusterAnswers, "redis-3" + clusterAnswers,
		}},
		{[]string{python(t), "cluster.py"}, false, nil}, // Debian's, of whichever version
		{[]string{python(t), "cluster.py"}, true, []string{"redis-py-8-2" + clusterAnswers, "redis-py-8-3" + clusterAnswers}},
		{
			[]string{"java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", tool(t, "redis-clients-1") + "/*", "Cluster.java"},
			false,
			[]string{"jedis" + clusterAnswers, "lettuce" + clusterAnswers},
		},
	} {
		t.Run(filepath.Base(c.program[0]), func(t *testing.T) {
			t.Parallel()
			cmd := command(t, c.program[0], append(c.program[1:], port, respToken)...)
			cmd.Dir = dir
			if c.newest {
				cmd.Env = append(cmd.Environ(), "PYTHONPATH="+tool(t, newestRedisPy))
			}
			var complaints strings.Builder
			cmd.Stderr = &complaints
			out, err := cmd.Output()
			got := strings.Split(strings.TrimSpace(string(out)), "\n")
			fits := slices.Equal(got, c.want)
			if c.want == nil {
				fits = !slices.ContainsFunc(got, func(line string) bool { return !strings.HasSuffix(line, clusterAnswers) })
			}
			if err != nil || !fits {
				t.Errorf("%v: it prints %q, want %q (scripts/install-test-programs installs what it needs)\n%s", err, got, c.want, complaints.String())
			}
		})
	}
	for _, protocol := range []int{2, 3} {
		c := goredis.NewClusterClient(&goredis.ClusterOptions{
			Addrs: []string{net.JoinHostPort("127.0.0.1", port)}, Protocol: protocol, Password: respToken, MaxRedirects: -1,
			DialTimeout: within, ReadTimeout: within, WriteTimeout: within, PoolTimeout: within,
		})
		pipe := c.Pipeline()
		for _, key := range []string{"a", "b", "c", "a", "a"} {
			pipe.Do(t.Context(), "CL.THROTTLE", key, 1, 1, 86400)
		}
		answers, err := pipe.Exec(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		limited := []int64{}
		for _, a := range answers {
			five, err := a.(*goredis.Cmd).Int64Slice()
			if err != nil || len(five) != 5 {
				t.Fatalf("CL.THROTTLE is answered with %v, %v", five, err)
			}
			limited = append(limited, five[0])
		}
		slices.Sort(limited) // Which of the same key is last is not said.
		if n, err := c.Del(t.Context(), "a", "b", "c").Result(); !slices.Equal(limited, []int64{0, 0, 0, 0, 1}) || err != nil || n != 3 {
			t.Errorf("RESP%d: limited are %v; DEL forgets %d, %v", protocol, limited, n, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestAnnounce: clients in cluster mode are told the address that the server was given.
func TestAnnounce(t *testing.T) {
	t.Parallel()
	_, port := serveRESP(t, "--resp-announce", "limits.internal:6390")
	if got := redisCLI(t, port, "", "CLUSTER", "SLOTS"); !strings.Contains(got, `1) "limits.internal"`) || !strings.Contains(got, "2) (integer) 6390") {
		t.Errorf("redis-cli says\n%s", got)
	}
}
