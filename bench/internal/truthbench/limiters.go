package truthbench

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/servers"
)

// limiter is one that is audited.
type limiter struct {
	name string
	// ours says that it is Headgate's, of which nothing may be wrong.
	ours bool
	// programs is how many processes share the address; zero means 1.
	programs int
	// redis says that it needs a Redis of its own. restarts says that this is killed during the
	// audit, and is there again after two seconds, with its data.
	redis, restarts bool
	// door is the flag of a server of Headgate that the processes ask; empty if they ask none.
	door string
	// command starts a process, with the counters in the Redis at a URL, or in the server at an address.
	command func(counters string) []string
	// flags are those of the audit, and url has ADDR for the address.
	flags []string
	url   string
	// missing is why it cannot be started, and found what the audit has found.
	missing error
	found   *audit
}

// The limits that are promised: 10 in 5 seconds, or what an algorithm has in their place.
const (
	policy = `rules:
  - { name: all, per: all, algorithm: sliding_window, limits: [10 per 5s], on_store_error: %s }
`
	// envoyproxy/ratelimit knows only the units of the clock.
	units = `domain: bench
descriptors:
  - key: user
    rate_limit: { unit: minute, requests_per_unit: 10 }
  - key: server
    rate_limit: { unit: second, requests_per_unit: 10 }
`
	asJSON   = "--header=Content-Type: application/json"
	data     = `{"descriptor": {"user": "anna"}}`
	entries  = `{"entries": {"user": "anna"}}`
	question = `{"domain": "bench", "descriptors": [{"entries": [{"key": "user", "value": "anna"}]}]}`
	costly   = `{"domain": "bench", "hitsAddend": 3, "descriptors": [{"entries": [{"key": "user", "value": "anna"}]}]}`
	seconds  = `{"domain": "bench", "descriptors": [{"entries": [{"key": "server", "value": "one"}]}]}`
	askRLS   = "http://ADDR/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
	status   = "http://ADDR/v1/check?status=true"
	askCheck = "http://ADDR/headgate.v1.Headgate/Check"
)

// field is what the limiters are made of.
type field struct {
	w                                         *measure.Work
	rules                                     map[string]string // policies, by what they do when Redis is gone
	ours, nginx, envoy                        string
	rateLimit                                 func(redis string) []string
	envoyProgram, crab, cell, py, npm, module string
	clients                                   string // where our packages for other languages are
	// upstream is where the gateway passes requests on to.
	upstream string
}

// prepare builds what is built, and finds the rest.
func prepare(ctx context.Context, w *measure.Work) (*field, error) {
	f := &field{w: w, rules: make(map[string]string)}
	var err error
	if f.ours, err = w.Server(ctx); err != nil {
		return nil, err
	}
	for _, does := range []string{"deny", "local", "allow"} {
		if f.rules[does], err = w.Write(does+".yml", fmt.Sprintf(policy, does)); err != nil {
			return nil, err
		}
	}
	w.Say("building envoyproxy/ratelimit")
	if f.rateLimit, err = servers.RateLimit(ctx, w.Dir, units); err != nil {
		return nil, err
	}
	if f.module, err = filepath.Abs("internal/truthbench/testdata"); err != nil {
		return nil, err
	}
	if f.clients, err = filepath.Abs("../client"); err != nil {
		return nil, err
	}
	f.nginx, f.envoy = filepath.Join(f.module, "nginx.conf"), filepath.Join(f.module, "envoy.yaml")
	f.envoyProgram, f.crab = servers.Find("envoy"), servers.Find("throttlecrab-server")
	f.cell, f.py, f.npm = servers.Find("libredis_cell.so"), servers.Find("python-peers"), servers.Find("node-peers")
	return f, nil
}

// lacks is the error for a program that is not there.
func lacks(path, name string) error {
	if path != "" {
		return nil
	}
	return fmt.Errorf("%w: %s, which scripts/install-test-programs --bench installs", exec.ErrNotFound, name)
}

// startEnvoy starts the first of the arguments of configured.
const startEnvoy = `"$3" -c config.yaml --disable-hot-restart --concurrency 2 --log-level error`

// configured is the command of a program whose configuration has ADDR and PORT, and ASKED for the port of
// the second argument.
func configured(file, script string, args ...string) []string {
	return append([]string{"sh", "-c", `sed "s/ADDR/$1/; s/PORT/${1##*:}/; s/ASKED/${4##*:}/" "$2" >config.yaml && exec ` + script, "sh", "ADDR", file}, args...)
}

// limiters are all of them, in the order of the tables.
func (f *field) limiters() []limiter {
	always := func(command ...string) func(string) []string { return func(string) []string { return command } }
	ten := []string{"--limit", "10/5s"}
	with := func(flags ...string) []string { return append(append([]string{}, ten...), flags...) }
	nginx := always(configured(f.nginx, "nginx -p . -e stderr -c config.yaml")...)
	_, noNginx := exec.LookPath("nginx")
	all := []limiter{
		{name: "nginx, limit_req with nodelay", command: nginx, flags: []string{"--limit", "2/1s/10"}, url: "http://ADDR/at-once", missing: noNginx},
		{name: "nginx, limit_req with delays", command: nginx, flags: []string{"--limit", "10/1s/6"}, url: "http://ADDR/queue", missing: noNginx},
		{
			name: "Envoy, local rate limit", flags: ten, url: "http://ADDR/", missing: lacks(f.envoyProgram, "Envoy"),
			command: always(configured(f.envoy, startEnvoy, f.envoyProgram)...),
		},
		{
			name: "envoyproxy/ratelimit, Redis, three processes", programs: 3, redis: true, command: f.rateLimit,
			flags: []string{"--limit", "10/1m", "--watch", "150s", "--fresh", "--grpc", "--data", question}, url: askRLS,
		},
		f.redisCell("redis-cell", "--data", "CL.THROTTLE k 9 10 5"),
		f.throttlecrab("throttlecrab", "--data", "THROTTLE k 10 10 5"),
		f.express("express-rate-limit, Redis, three processes"),
		f.slowapi("slowapi, in memory as by default, four workers", "memory://"),
		f.slowapi("slowapi, Redis, four workers", ""),
	}
	return append(all, f.headgates(ten, with)...)
}

// costs are those that take a cost, with requests of three units.
func (f *field) costs() []limiter {
	cost := func(flags ...string) []string { return append([]string{"--limit", "10/5s", "--cost", "3"}, flags...) }
	return []limiter{
		{
			name: "envoyproxy/ratelimit, Redis", redis: true, command: f.rateLimit,
			flags: []string{"--limit", "10/1m", "--cost", "3", "--watch", "150s", "--grpc", "--data", costly}, url: askRLS,
		},
		f.redisCell("redis-cell", "--cost", "3", "--data", "CL.THROTTLE k 9 10 5 3"),
		f.throttlecrab("throttlecrab", "--cost", "3", "--data", "THROTTLE k 10 10 5 3"),
		{name: "Headgate, HTTP", ours: true, command: f.serve("--listen"), flags: cost(asJSON, "--data", `{"descriptor": {"user": "anna"}, "cost": 3}`), url: status},
		{name: "Headgate, Envoy's rate limit service", ours: true, command: f.serve("--grpc-listen"), flags: cost("--grpc", "--data", costly), url: askRLS},
		{name: "Headgate, RESP, HG.CHECK", ours: true, command: f.serve("--resp-listen"), flags: cost("--data", "HG.CHECK DESC user anna COST 3"), url: "redis://ADDR"},
		{name: "Headgate, RESP, CL.THROTTLE", ours: true, command: f.serve("--resp-listen"), flags: cost("--data", "CL.THROTTLE k 9 10 5 3"), url: "redis://ADDR"},
	}
}

// restarted are those whose Redis is killed and started again during the audit.
func (f *field) restarted() []limiter {
	const watch = "1m"
	headgate := func(does string) limiter {
		return limiter{
			name: "Headgate, HTTP, three processes, on_store_error: " + does, ours: does == "deny", programs: 3, redis: true,
			command: f.serving("--listen", does), flags: []string{"--limit", "10/5s", "--watch", watch, "--fresh", asJSON, "--data", data}, url: status,
		}
	}
	all := []limiter{
		{
			name: "envoyproxy/ratelimit, three processes", programs: 3, redis: true, command: f.rateLimit,
			flags: []string{"--limit", "10/1s", "--watch", watch, "--fresh", "--grpc", "--data", seconds}, url: askRLS,
		},
		f.express("express-rate-limit, three processes", "--watch", watch),
		f.slowapi("slowapi, four workers", "", "--watch", watch),
	}
	for _, does := range []string{"deny", "local", "allow"} {
		all = append(all, headgate(does))
	}
	for i := range all {
		all[i].restarts = true
	}
	return all
}

func (f *field) redisCell(name string, flags ...string) limiter {
	l := limiter{name: name, flags: append([]string{"--limit", "10/5s"}, flags...), url: "redis://ADDR", missing: lacks(f.cell, "redis-cell")}
	l.command = func(string) []string {
		return []string{"redis-server", "--bind", "127.0.0.1", "--port", "PORT", "--save", "", "--loadmodule", f.cell}
	}
	return l
}

func (f *field) throttlecrab(name string, flags ...string) limiter {
	l := limiter{name: name, flags: append([]string{"--limit", "10/5s"}, flags...), url: "redis://ADDR", missing: lacks(f.crab, "throttlecrab-server")}
	l.command = func(string) []string {
		return []string{f.crab, "--redis", "--redis-host", "127.0.0.1", "--redis-port", "PORT", "--log-level", "error"}
	}
	return l
}

func (f *field) express(name string, flags ...string) limiter {
	l := limiter{name: name, programs: 3, redis: true, flags: append([]string{"--limit", "10/5s", "--fresh"}, flags...), url: "http://ADDR/", missing: lacks(f.npm, "express-rate-limit")}
	l.command = func(redis string) []string { return append(f.node("express.js"), redis) }
	return l
}

// slowapi counts in a storage, or in Redis if that is empty.
func (f *field) slowapi(name, storage string, flags ...string) limiter {
	l := limiter{name: name, redis: storage == "", flags: append([]string{"--limit", "10/5s", "--fresh"}, flags...), url: "http://ADDR/", missing: lacks(f.py, "slowapi")}
	l.command = func(redis string) []string {
		return append([]string{"env", "STORAGE=" + cmp.Or(storage, redis)}, f.uvicorn("slow:app")...)
	}
	return l
}

// serve is Headgate's server with a flag for the door that is asked.
func (f *field) serve(door string) func(redis string) []string { return f.serving(door, "deny") }

// serving is that with what it does when Redis is gone.
func (f *field) serving(door, does string) func(redis string) []string {
	return func(redis string) []string {
		command := []string{f.ours, "serve", "--config", f.rules[does], "--store", cmp.Or(redis, "memory"), door, "ADDR"}
		if door != "--listen" {
			command = append(command, "--listen", "127.0.0.1:0")
		}
		return command
	}
}

// headgates is Headgate by every door.
func (f *field) headgates(ten []string, with func(...string) []string) []limiter {
	forward := with("--header", "X-Forwarded-Method: GET", "--header", "X-Forwarded-Uri: /")
	three := func(l limiter) limiter {
		l.name, l.programs, l.redis = l.name+", Redis, three processes", 3, true
		l.flags = append(append([]string{}, l.flags...), "--fresh")
		return l
	}
	doors := []limiter{
		{name: "Headgate, HTTP", command: f.serve("--listen"), flags: with(asJSON, "--data", data), url: status},
		{name: "Headgate, gRPC", command: f.serve("--grpc-listen"), flags: with("--grpc", "--data", entries), url: askCheck},
		{name: "Headgate, Envoy's rate limit service", command: f.serve("--grpc-listen"), flags: with("--grpc", "--data", question), url: askRLS},
		{name: "Headgate, RESP, HG.CHECK", command: f.serve("--resp-listen"), flags: with("--data", "HG.CHECK DESC user anna"), url: "redis://ADDR"},
		{name: "Headgate, RESP, CL.THROTTLE", command: f.serve("--resp-listen"), flags: with("--data", "CL.THROTTLE k 9 10 5"), url: "redis://ADDR"},
		{name: "Headgate, forward auth", command: f.serve("--listen"), flags: forward, url: "http://ADDR/v1/auth"},
		{name: "Headgate, gateway", flags: ten, url: "http://ADDR/", command: f.gateway},
		{name: "Headgate, middleware", flags: ten, url: "http://ADDR/", command: f.middleware},
	}
	doors = append(doors, three(doors[0]), three(doors[2]), three(doors[4]), three(doors[7]))
	doors = append(doors, f.asking(ten)...)
	for i := range doors {
		doors[i].ours = true
	}
	return doors
}

// asking is what asks a server of Headgate for each request, as more than one process where that is
// usual.
func (f *field) asking(ten []string) []limiter {
	fresh := append(append([]string{}, ten...), "--fresh")
	return []limiter{
		{
			name: "Headgate, Envoy's filter ext_authz", door: "--grpc-listen", flags: ten, url: "http://ADDR/", missing: lacks(f.envoyProgram, "Envoy"),
			command: func(server string) []string {
				return configured(filepath.Join(f.module, "authz.yaml"), startEnvoy, f.envoyProgram, server)
			},
		},
		{
			name: "Headgate, middleware for Python, four workers", door: "--listen", flags: fresh, url: "http://ADDR/", missing: lacks(f.py, "FastAPI"),
			command: func(server string) []string {
				return append([]string{"env", "SERVICE=" + server}, f.uvicorn("limited:app")...)
			},
		},
		{
			name: "Headgate, middleware for Express, three processes", programs: 3, door: "--listen", flags: fresh, url: "http://ADDR/", missing: lacks(f.npm, "Express"),
			command: func(server string) []string {
				return append(f.node("limited.js"), server, filepath.Join(f.clients, "node"))
			},
		},
	}
}

// node runs a script of testdata, with the port as its first argument.
func (f *field) node(script string) []string {
	return []string{"env", "NODE_PATH=" + filepath.Join(f.npm, "node_modules"), "node", filepath.Join(f.module, script), "PORT"}
}

// uvicorn serves an application of testdata with four workers.
func (f *field) uvicorn(app string) []string {
	return []string{
		"env", "PYTHONPATH=" + f.py + string(filepath.ListSeparator) + filepath.Join(f.clients, "python", "src"), "PYTHONDONTWRITEBYTECODE=1",
		"python3", "-m", "uvicorn", "--app-dir", f.module, "--workers", "4", "--no-access-log", "--log-level", "critical", "--host", "127.0.0.1", "--port", "PORT", app,
	}
}

func (f *field) gateway(string) []string {
	return []string{f.ours, "gateway", "--listen", "ADDR", "--admin-listen", "127.0.0.1:0", "--upstream", "http://" + f.upstream, "--config", f.rules["deny"]}
}

func (f *field) middleware(redis string) []string {
	return []string{f.w.Program, "echo", "-listen", "ADDR", "-handler", "scarce", "-upstream", cmp.Or(redis, "memory")}
}
