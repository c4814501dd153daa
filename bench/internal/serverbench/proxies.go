package serverbench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
)

const (
	nginxName = "nginx, limit_req"
	caddyName = "Caddy, no limits"
	envoyName = "Envoy, no limits"
)

// nginxConfig is a proxy with a limit for each API key, which is never reached. One process is what
// can be measured as one, and connections may be used for as many requests as the others take.
const nginxConfig = `daemon off;
master_process off;
pid nginx.pid;
error_log stderr warn;
events { worker_connections 40000; }
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    keepalive_timeout 5m;
    keepalive_requests 1000000000;
    limit_req_zone $http_x_api_key zone=keys:16m rate=1000r/s;
    limit_req_status 429;
    upstream app { server UPSTREAM; keepalive 128; keepalive_requests 1000000000; }
    server {
        listen ADDR;
        location / {
            limit_req zone=keys burst=10000 nodelay;
            proxy_pass http://app;
            proxy_http_version 1.1;
            proxy_set_header Connection      "";
            proxy_set_header Host            $host;
            proxy_set_header X-Forwarded-For $remote_addr;
        }
    }
}
`

const caddyConfig = `{
	admin off
	auto_https off
}
http://:PORT {
	bind 127.0.0.1
	reverse_proxy UPSTREAM {
		transport http {
			keepalive_idle_conns_per_host 128
		}
	}
}
`

// envoyConfig is a proxy with as many threads as there are cores, as it comes.
const envoyConfig = `static_resources:
  listeners:
  - address: { socket_address: { address: 127.0.0.1, port_value: PORT } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: proxy
          route_config: { virtual_hosts: [{ name: all, domains: ["*"], routes: [{ match: { prefix: / }, route: { cluster: app } }] }] }
          http_filters:
          - name: envoy.filters.http.router
            typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
  clusters:
  - name: app
    type: STATIC
    load_assignment: { cluster_name: app, endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: BEHIND } } } }] }] }
`

// idlePlan is how often the memory of idle connections is measured, and how many there are.
func idlePlan(w *measure.Work) (rounds, connections int) {
	if w.Short {
		return 1, 200
	}
	return 3, 10_000
}

// Proxies measures what a request costs the gateway beside the proxies that people have already:
// nginx with a limit of its own, and Caddy and Envoy without one; how long each holds requests up, and
// what an idle connection takes of its memory.
func Proxies(ctx context.Context, w *measure.Work) (*report.Text, error) {
	upstream, stop, err := serveDocument(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()
	plan := serverPlan(w)
	asked := items(plan.Keys)
	saturating := loop{plan.Callers, asked, 1, readDocument}
	contenders, err := proxyField(ctx, w, saturating.run, upstream)
	if err != nil {
		return nil, err
	}
	rows, err := saturate(ctx, w, plan, contenders)
	if err != nil {
		return nil, err
	}
	perSecond := rows.Named(gatewayName).Median(0, measure.Sample.PerSecond) / 2
	times, err := paced(ctx, w, plan, append([]contender{{name: directName, addr: upstream}}, contenders...), asked, perSecond)
	if err != nil {
		return nil, err
	}
	rounds, connections := idlePlan(w)
	idling := slices.Clone(times[1:])
	for i := range idling {
		idling[i].Samples = nil
	}
	for range rounds {
		if err := idle(ctx, w, contenders, idling, asked, connections); err != nil {
			return nil, err
		}
	}
	t := new(report.Text)
	t.Say("GET with an answer of %d bytes, from an upstream server on the same machine. Closed loop over %d keep-alive connections, saturated; %s keys, every request admitted; median of %d rounds of %v. nginx has one process, which one core serves.\n\n%s",
		len(documentBody), plan.Callers, report.Number(float64(plan.Keys)), plan.Rounds, plan.Slice, rows.Table(
			measure.Median("proxy's CPU a request, µs", 0, measure.Sample.ServerCPU),
			measure.Ratio("÷ nginx", rows.Floor(), 0, measure.Sample.ServerCPU),
			measure.Median("requests/s", 0, measure.Sample.PerSecond)))
	rows.Notes(t)
	t.Say("\nOpen loop at %s requests a second, half of what the gateway passes on when it is saturated:\n\n%s",
		report.Number(perSecond), times.Table(measure.Median("median, ms", 0, medianMS), measure.Median("99 %, ms", 0, p99MS)))
	direct := times.Named(directName).Median(0, p99MS)
	t.AtMost(1, (times.Named(gatewayName).Median(0, p99MS)-direct)/(times.Named(nginxName).Median(0, p99MS)-direct), "%s: added to the 99th percentile at half load ÷ what nginx adds", gatewayName)
	t.Say("\nWhat a connection takes of the process's memory, when %s of them are idle that have had one request each; median of %d new processes:\n\n%s",
		report.Number(float64(connections)), rounds, idling.Table(measure.Median("bytes a connection", 0, measure.Sample.BytesEach)))
	return t, nil
}

// readDocument reads the upstream server's answer. A proxy that answers by itself measures nothing.
func readDocument(r *bufio.Reader) error {
	status, length, err := readHead(r)
	if err != nil {
		return err
	}
	if status != http.StatusOK || length != len(documentBody) {
		return fmt.Errorf("the answer is %d with %d bytes, must be 200 with %d", status, length, len(documentBody))
	}
	return skipBody(r, length)
}

func proxyField(ctx context.Context, w *measure.Work, load load, upstream string) ([]contender, error) {
	caddy, err := buildCaddy(ctx, w)
	if err != nil {
		return nil, err
	}
	headgate, err := w.Server(ctx)
	if err != nil {
		return nil, err
	}
	nginxFile, err1 := w.Write("nginx.conf", nginxConfig)
	caddyFile, err2 := w.Write("Caddyfile", caddyConfig)
	envoyFile, err3 := w.Write("envoy.yaml", envoyConfig)
	one, err4 := w.Write("one.yaml", policy)
	envoy, err5 := filepath.Abs(filepath.Join(w.Source, "..", "bin", "tools", "envoy-1.40.0"))
	// The addresses are known when the server is started. Its limit of open files is raised as Go
	// programs raise theirs.
	shell := func(file, script string, args ...string) []string {
		return append([]string{"sh", "-c", `ulimit -n "$(ulimit -H -n)" && sed "s/ADDR/$1/; s/PORT/${1##*:}/; s/UPSTREAM/$2/; s/BEHIND/${2##*:}/" "$3" >config && ` + script, "sh", "ADDR", upstream, file}, args...)
	}
	return []contender{
		{name: nginxName, role: measure.Floor, command: shell(nginxFile, `exec nginx -p . -e stderr -c config`), load: load, note: "what it sets aside at its start, for 40 000 connections, is not counted below"},
		{name: caddyName, role: measure.Other, command: shell(caddyFile, `exec "$4" run --adapter caddyfile --config config`, caddy), load: load},
		{name: envoyName, role: measure.Other, command: shell(envoyFile, `mv config config.yaml && exec "$4" -c config.yaml --use-dynamic-base-id -l error`, envoy), load: load},
		{
			name: gatewayName, role: measure.Other, load: load,
			command: []string{headgate, "gateway", "--listen", "ADDR", "--admin-listen", "127.0.0.1:0", "--upstream", "http://" + upstream, "--config", one},
		},
	}, errors.Join(err1, err2, err3, err4, err5)
}

// buildCaddy builds the Caddy that the tests of forward auth have.
func buildCaddy(ctx context.Context, w *measure.Work) (string, error) {
	if _, err := exec.LookPath("nginx"); err != nil {
		return "", fmt.Errorf("serverbench: %w", err)
	}
	w.Say("building caddy, which takes minutes the first time")
	binary := filepath.Join(w.Dir, "caddy")
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", binary, ".")
	build.Dir = filepath.Join(w.Source, "..", "test", "proxies", "testdata", "caddy")
	build.Env = append(os.Environ(), "GOWORK=off")
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("serverbench: building caddy: %w: %s", err, text)
	}
	return binary, nil
}

// idle starts all contenders, opens connections to one after the other, sends a request over each,
// and adds to the rows what the process has grown by while they are open.
func idle(ctx context.Context, w *measure.Work, contenders []contender, rows measure.Rows, requests [][]byte, connections int) (err error) {
	_, processes, stop, err := start(ctx, contenders)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	for i, p := range processes {
		w.Say("idle connections: %s", contenders[i].name)
		// What the process needs anyway, it needs before.
		if _, err := contenders[i].load(ctx, p.Addr, 100*time.Millisecond); err != nil {
			return err
		}
		before, err := p.Memory()
		if err != nil {
			return err
		}
		open, err := keepOpen(ctx, p.Addr, requests, connections)
		if err == nil {
			var after int64
			after, err = p.Memory()
			rows[i].Add(0, measure.Sample{Done: connections, Bytes: float64(after - before)})
		}
		for _, c := range open {
			err = errors.Join(err, c.Close())
		}
		if err != nil {
			return fmt.Errorf("%s: %w", contenders[i].name, err)
		}
	}
	return nil
}

// keepOpen opens so many connections, each after one request that was answered. It returns those
// that are open even if there is an error.
func keepOpen(ctx context.Context, addr string, requests [][]byte, connections int) (open []net.Conn, err error) {
	var d net.Dialer
	for i := range connections {
		c, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return open, err
		}
		open = append(open, c)
		// Closed by a reset, so that no port waits for late packets.
		if err := c.(*net.TCPConn).SetLinger(0); err != nil {
			return open, err
		}
		if _, err := c.Write(requests[i%len(requests)]); err != nil {
			return open, err
		}
		if err := skipHTTP(bufio.NewReader(c)); err != nil {
			return open, err
		}
	}
	return open, nil
}
