package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/headgate/headgate/test/servers"
)

// respPolicy has limits that hardly refill within a test.
const respPolicy = `
rules:
  - name: everybody
    match: { route: GET /shared }
    per: all
    limits: [100 per 300d]
limits:
  - name: mail
    config: [{ limit: 5, period: 25920000 }]
`

const respToken = "0123456789abcdef-token"

// serveRESP starts a server that speaks Redis's protocol, and returns the port.
func serveRESP(t *testing.T, args ...string) (*server, string) {
	t.Helper()
	s := serve(t, append([]string{"--config", policyFile(t, respPolicy), "--resp-listen", "127.0.0.1:0"}, args...)...)
	return s, respPort(t, s)
}

// respPort waits until a server says where it speaks Redis's protocol.
func respPort(t *testing.T, s *server) string {
	t.Helper()
	said := regexp.MustCompile(`msg="serving RESP" address=127\.0\.0\.1:(\d+)`)
	var m []string
	until(t, "the server says where it speaks RESP", func() bool {
		m = said.FindStringSubmatch(s.logged())
		return m != nil
	})
	return m[1]
}

// tokenFile writes the token to a file.
func tokenFile(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(name, []byte(respToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// redisCLI runs redis-cli, with commands on its input if there are no words.
func redisCLI(t *testing.T, port, input string, args ...string) string {
	t.Helper()
	cmd := command(t, "redis-cli", append([]string{"-p", port, "--no-raw"}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("redis-cli %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestRedisCLI(t *testing.T) {
	t.Parallel()
	_, port := serveRESP(t)
	denied := regexp.MustCompile(`(?s)^ 1\) "allowed"\n 2\) \(integer\) 0\n 3\) "denied_by"\n 4\) 1\) "rule"\n    2\) "mail"\n    3\) "limit"\n    4\) "5 per 300d"\n 5\) "retry_after_ms"\n 6\) \(integer\) 2591\d{7}\n`)
	for _, c := range []struct {
		args string
		want *regexp.Regexp
	}{
		{"PING", regexp.MustCompile("^PONG\n$")},
		{"HG.CHECK mail user42 COST 5", regexp.MustCompile(`(?s)^ 1\) "allowed"\n 2\) \(integer\) 1\n 3\) "denied_by"\n 4\) \(nil\)\n`)},
		{"HG.CHECK mail user42", denied},
		{"-3 HG.CHECK mail user42", regexp.MustCompile(`(?s)^1# "allowed" => \(false\)\n2# "denied_by" => \n   1# "rule" => "mail"\n`)},
		{"HG.RESET mail user42", regexp.MustCompile(`^1\) "mail"\n$`)},
		{"HG.CHECK mail user42 COST 9 ID x", regexp.MustCompile(`(?s)\n 6\) \(integer\) -1\n`)},
		{"CL.THROTTLE user42 15 30 60", regexp.MustCompile(`^1\) \(integer\) 0\n2\) \(integer\) 16\n3\) \(integer\) 15\n4\) \(integer\) -1\n5\) \(integer\) 2\n$`)},
		{"HG.CHECK nobody user42", regexp.MustCompile(`^\(error\) NORULE there is no rule "nobody"; there are everybody, mail; HG.RULES lists them\n`)},
		{"HG.RULES", regexp.MustCompile(`(?s)"name"\n.*"everybody"\n.*"mail"\n`)},
	} {
		if got := redisCLI(t, port, "", strings.Fields(c.args)...); !c.want.MatchString(got) {
			t.Errorf("redis-cli %s says\n%s\nwant %s", c.args, got, c.want)
		}
	}
	// Its input goes into one connection, and it asks for the commands' documents first.
	if got := redisCLI(t, port, "HG.CHECK mail user43\nHELLO 3\nHG.CHECK mail user43\nQUIT\n"); !strings.Contains(got, `1# "allowed" => (true)`) {
		t.Errorf("redis-cli with input says\n%s", got)
	}
	if got := redisCLI(t, port, "*3\r\n$8\r\nHG.CHECK\r\n$4\r\nmail\r\n$1\r\na\r\n", "--pipe"); !strings.Contains(got, "errors: 0, replies: 1") {
		t.Errorf("redis-cli --pipe says\n%s", got)
	}
}

func TestRedisCLIWithToken(t *testing.T) {
	t.Parallel()
	s, port := serveRESP(t, "--resp-token-file", tokenFile(t))
	for args, want := range map[string]string{
		"HG.CHECK mail a": "(error) NOAUTH Authentication required",
		"-a " + respToken + " --no-auth-warning HG.RESET mail a":                "1) \"mail\"\n",
		"-a " + respToken + " --user default --no-auth-warning HG.RESET mail a": "1) \"mail\"\n",
		"-a wrong --no-auth-warning HG.RESET mail a":                            "AUTH failed: WRONGPASS",
	} {
		if got := redisCLI(t, port, "", strings.Fields(args)...); !strings.HasPrefix(got, want) {
			t.Errorf("redis-cli %s says\n%s\nwant %s", args, got, want)
		}
	}
	if strings.Contains(s.logged(), respToken) {
		t.Error("the log has the token")
	}
}

// goRedis makes a client of go-redis.
func goRedis(t *testing.T, port string, protocol int) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{
		Addr: net.JoinHostPort("127.0.0.1", port), Protocol: protocol, Password: respToken, ClientName: "test", MaxRetries: -1,
		DialTimeout: within, ReadTimeout: within, WriteTimeout: within, PoolTimeout: within,
	})
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestGoRedis(t *testing.T) {
	t.Parallel()
	_, port := serveRESP(t, "--resp-token-file", tokenFile(t))
	old, c := goRedis(t, port, 2), goRedis(t, port, 3)
	ctx := t.Context()

	verdict, err := c.Do(ctx, "HG.CHECK", "mail", "user42", "COST", 5).Result()
	if m, ok := verdict.(map[any]any); err != nil || !ok || m["allowed"] != true {
		t.Errorf("RESP3: %v, %v", verdict, err)
	}
	verdict, err = old.Do(ctx, "HG.CHECK", "mail", "user42").Result()
	if list, ok := verdict.([]any); err != nil || !ok || len(list) != 12 || list[0] != "allowed" || list[1] != int64(0) {
		t.Errorf("RESP2: %v, %v", verdict, err)
	}
	if _, err := c.Do(ctx, "HG.CHECK", "nobody", "user42").Result(); !goredis.HasErrorPrefix(err, "NORULE") {
		t.Errorf("a rule that there is not: %v", err)
	}

	// Many callers, each with pipelines, get exactly what the limits allow.
	var callers sync.WaitGroup
	var checked, throttled atomic.Int64
	for i := range 20 {
		client := []*goredis.Client{old, c}[i%2]
		callers.Go(func() {
			pipe := client.Pipeline()
			for range 10 {
				pipe.Do(ctx, "HG.CHECK", "DESC", "route", "GET /shared")
				pipe.Do(ctx, "CL.THROTTLE", "shared", 49, 1, 31_000_000)
			}
			answers, err := pipe.Exec(ctx)
			if err != nil || len(answers) != 20 {
				t.Errorf("%d answers, %v", len(answers), err)
				return
			}
			for n := 0; n < len(answers); n += 2 {
				switch answer := answers[n].(*goredis.Cmd).Val().(type) {
				case map[any]any:
					if answer["allowed"] == true {
						checked.Add(1)
					}
				case []any:
					checked.Add(answer[1].(int64))
				}
				limited, err := answers[n+1].(*goredis.Cmd).Int64Slice()
				if err != nil || len(limited) != 5 {
					t.Errorf("CL.THROTTLE is answered with %v, %v", limited, err)
					return
				}
				throttled.Add(1 - limited[0])
			}
		})
	}
	callers.Wait()
	if checked.Load() != 100 || throttled.Load() != 50 {
		t.Errorf("%d of 100 checks and %d of 50 throttles were allowed", checked.Load(), throttled.Load())
	}
}

// rueidisClient makes a client of rueidis as it is made by default, but for its patience.
func rueidisClient(t *testing.T, port string) rueidis.Client {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{net.JoinHostPort("127.0.0.1", port)}, Password: respToken, ClientName: "test",
		Dialer: net.Dialer{Timeout: within}, ConnWriteTimeout: within,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestRueidis(t *testing.T) {
	t.Parallel()
	_, port := serveRESP(t, "--resp-token-file", tokenFile(t))
	c := rueidisClient(t, port)
	ctx := t.Context()
	var callers sync.WaitGroup
	var allowed atomic.Int64
	for range 200 {
		callers.Go(func() {
			m, err := c.Do(ctx, c.B().Arbitrary("HG.CHECK", "DESC", "route", "GET /shared").Build()).AsMap()
			if err != nil {
				t.Error(err)
				return
			}
			v := m["allowed"]
			if yes, err := v.ToBool(); err != nil {
				t.Error(err)
			} else if yes {
				allowed.Add(1)
			}
		})
	}
	callers.Wait()
	if allowed.Load() != 100 {
		t.Errorf("%d of 100 were allowed", allowed.Load())
	}
	answer, err := c.Do(ctx, c.B().Arbitrary("CL.THROTTLE", "k", "15", "30", "60").Build()).AsIntSlice()
	if err != nil || fmt.Sprint(answer) != "[0 16 15 -1 2]" {
		t.Errorf("CL.THROTTLE: %v, %v", answer, err)
	}
	err = c.Do(ctx, c.B().Arbitrary("HG.CHECK", "nobody", "k").Build()).Error()
	if failed, ok := errors.AsType[*rueidis.RedisError](err); !ok || !strings.HasPrefix(failed.Error(), "NORULE ") {
		t.Errorf("a rule that there is not: %v", err)
	}
}

func TestIoredis(t *testing.T) {
	t.Parallel()
	for _, module := range []string{"ioredis", "ioredis5"} {
		t.Run(module, func(t *testing.T) {
			t.Parallel()
			ioredis(t, module)
		})
	}
}

func ioredis(t *testing.T, module string) {
	t.Helper()
	_, port := serveRESP(t, "--resp-token-file", tokenFile(t))
	cmd := command(t, "node", "ask.mjs", port, respToken, module)
	cmd.Dir = filepath.Join("testdata", "clients")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("node: %v (scripts/install-test-programs installs what it needs)\n%s", err, out)
	}
	var got, want any
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	const expected = `{"status":"ready","allowed":[1,1,1,1,1,0,0,0],"deniedBy":{"rule":"mail","limit":"5 per 300d"},"remaining":0,
		"throttled":[[0,3,2,-1,3600],[0,3,1,-1,7200],[0,3,0,-1,10800],[1,3,0,3600,10800]],
		"failure":"ReplyError: NORULE there is no rule \"nobody\"; there are everybody, mail; HG.RULES lists them","name":"asks"}`
	if err := json.Unmarshal([]byte(expected), &want); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the program prints\n%s\nwant\n%s", out, expected)
	}
}

// Two servers on one store, asked by HTTP and by RESP: together they admit what the
// limits allow. Without the store, there is an answer that says so.
func TestRESPSharesLimits(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, store *servers.Server) {
		args := []string{"--store", patiently(store.URL()), "--resp-token-file", tokenFile(t), "--store-timeout", "30s"}
		one, port1 := serveRESP(t, args...)
		_, port2 := serveRESP(t, args...)
		clients := []rueidis.Client{rueidisClient(t, port1), rueidisClient(t, port2)}
		var callers sync.WaitGroup
		var allowed atomic.Int64
		for i := range 300 {
			callers.Go(func() {
				if i%3 == 0 {
					a, err := one.ask(http.DefaultClient, "/v1/check", `{"descriptor":{"route":"GET /shared"}}`)
					if err != nil {
						t.Error(err)
					} else if strings.HasPrefix(a.text, `{"allowed":true`) {
						allowed.Add(1)
					}
					return
				}
				c := clients[i%2]
				m, err := c.Do(context.Background(), c.B().Arbitrary("HG.CHECK", "DESC", "route", "GET /shared").Build()).AsMap()
				if err != nil {
					t.Error(err)
					return
				}
				v := m["allowed"]
				if yes, _ := v.ToBool(); yes {
					allowed.Add(1)
				}
			})
		}
		callers.Wait()
		if allowed.Load() != 100 {
			t.Errorf("%d of 100 were allowed", allowed.Load())
		}
		store.Kill()
		if got := redisCLI(t, port1, "", "-a", respToken, "--no-auth-warning", "HG.CHECK", "mail", "a"); !strings.HasPrefix(got, "(error) UNAVAILABLE ") {
			t.Errorf("without a store, redis-cli says\n%s", got)
		}
	})
}
