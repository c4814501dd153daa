package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/identity"
	"github.com/headgate/headgate/internal/llm"
	"github.com/headgate/headgate/internal/spelling"
	"github.com/headgate/headgate/policy"
)

// ReadGateway reads the gateway file at path. If it is wrong, the error is an
// [*Error] with every mistake; if it cannot be read, it wraps that of package os.
// Names of files in it stay as they are written.
func ReadGateway(path string) (*gatewayfile.Settings, error) {
	data, err := readFile(path, MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("headgate: %w", err)
	}
	return ParseGateway(path, data)
}

// ParseGateway reads a gateway file from memory. The name stands for the file in
// mistakes.
func ParseGateway(name string, data []byte) (*gatewayfile.Settings, error) {
	m := &mistakes{file: name}
	root := parse(m, data, maxDepth)
	if root == nil {
		return nil, m.err()
	}
	if root.kind == empty {
		root = &node{kind: mapping, at: place{1, 1}}
	}
	g, _ := gatewayFile().read(&reader{m}, "the file", root)
	checkGateway(m, root, &g)
	if err := m.err(); err != nil {
		return nil, err
	}
	return &g, nil
}

// checkGateway finds what is wrong between fields. What is wrong with one field was found when
// the field was read.
func checkGateway(m *mistakes, root *node, g *gatewayfile.Settings) {
	wrong := make(map[place]bool)
	for _, one := range m.list {
		wrong[place{one.Line, one.Column}] = true
	}
	_, problems := g.WithDefaults()
	for _, p := range problems {
		n, list, found := root.find(p.Field)
		switch {
		case p.Field == "upstreams" && len(g.Upstreams) == 0: // the command may name them
		case n.kind == mapping && (found || !wrong[n.at]):
			m.add(n.at, "%s", p.Text)
		case n.kind != mapping && !list.anyOf(wrong):
			m.add(n.at, "%s", p.Text)
		}
	}
}

// find returns the node of a field such as "upstreams[0].tls", or if it is not there, the last
// node on the way to it. The list is the one that the node is an entry of, or else the node.
func (n *node) find(field string) (last, list *node, found bool) {
	last, list = n, n
	for _, step := range strings.FieldsFunc(field, func(c rune) bool { return strings.ContainsRune(".[]", c) }) {
		if i, err := strconv.Atoi(step); err == nil && i < len(last.items) {
			last = last.items[i]
			continue
		}
		next, ok := last.field(step)
		if !ok {
			return last, list, false
		}
		last, list = next, next
	}
	return last, list, true
}

// anyOf reports whether the node or one within it is at one of the places.
func (n *node) anyOf(places map[place]bool) bool {
	in := func(n *node) bool { return n.anyOf(places) }
	return places[n.at] || slices.ContainsFunc(n.items, in) || slices.ContainsFunc(n.fields, func(p pair) bool { return in(p.value) })
}

// IsGateway reports whether a text is a gateway file and no policy: whether one of its fields is
// one that only gateway files have.
func IsGateway(data []byte) bool {
	root := parse(new(mistakes), data, maxDepth)
	if root == nil || root.kind != mapping {
		return false
	}
	gateway, policy := gatewayFile().schema["properties"].(schema), policyFile().schema["properties"].(schema)
	return slices.ContainsFunc(root.fields, func(p pair) bool { return gateway[p.name] != nil && policy[p.name] == nil })
}

// The bounds of what only a gateway file has.
const (
	maxNames = 64 // of headers, protocols and algorithms in one list
	minSize  = 1 << 10
)

// gatewayFile has the fields of a gateway file.
func gatewayFile() value[gatewayfile.Settings] {
	type t = gatewayfile.Settings
	return object("a gateway file", []field[t]{
		to("upstreams", "pools of servers. The first one gets requests that no route sends elsewhere", listOf(upstreamMapping(), 1, gatewayfile.MaxUpstreams),
			func(into *t, _ *node, v []entry[gatewayfile.Upstream]) { into.Upstreams = good(v) }),
		to("routes", "the routes. Other requests are answered with 404. Without routes, every request goes to the first upstream", listOf(routeMapping(), 1, gatewayfile.MaxRoutes),
			func(into *t, _ *node, v []entry[gatewayfile.Route]) { into.Routes = good(v) }),
		to("paths", "forms of paths to accept, because all upstream servers read them in this way: encoded_slashes (as part of a segment), double_encoding (they decode once), leading_slashes (never as a host), cut_parameters or kept_parameters (what stands behind a semicolon), other_bytes (that are not UTF-8, kept), cut_path_info and front_controller or kept_path_info (.php in a path), ignore_case or exact_case, ignore_slash or exact_slash (at the end), cut_extensions. Other paths that servers read in different ways are answered with 400, and so are methods that are overridden unless ignored_overrides (in headers and queries) is there. This takes precedence over behind in the policy", pathForms(),
			func(into *t, _ *node, v httplimit.PathForm) { into.Paths = v }),
		to("identity", "where a request's descriptor entries come from", identityMapping(),
			func(into *t, _ *node, v gatewayfile.Identity) { into.Identity = v }),
		to("concurrency", "concurrency limits: how many requests may be in progress", listOf(concurrencyMapping(), 1, gatewayfile.MaxBounds),
			func(into *t, _ *node, v []entry[gatewayfile.Concurrency]) { into.Concurrency = good(v) }),
		to("pressure", "signals of the gateway's own overload. When one is high, upstreams with load shed requests early: scheduler (goroutines wait for a CPU), cpu (the cgroup quota throttles the process), memory (memory pressure)",
			listOf(oneOf(gatewayfile.Scheduler, gatewayfile.CPU, gatewayfile.Memory), 1, 3),
			func(into *t, _ *node, v []entry[gatewayfile.Pressure]) { into.Pressure = good(v) }),
		to("settle", "rules that charge an estimate first, and the real cost when the request has ended", listOf(settleMapping(), 1, gatewayfile.MaxSettle),
			func(into *t, _ *node, v []entry[gatewayfile.Settle]) { into.Settle = good(v) }),
		to("request_headers", "changes to request headers before they are sent to the upstream", headersMapping(),
			func(into *t, _ *node, v gatewayfile.Headers) { into.Request = v }),
		to("response_headers", "changes to response headers before they are sent to the client", headersMapping(),
			func(into *t, _ *node, v gatewayfile.Headers) { into.Response = v }),
		to("max_body", "largest request body, such as 10MiB. Default: unlimited", sizeText(1, math.MaxInt64, 0),
			func(into *t, _ *node, v int64) { into.MaxBody = v }),
		to("max_header", "largest request header, such as 32KiB", sizeText(minSize, 1<<20, noWord),
			func(into *t, _ *node, v int64) { into.MaxHeader = int(v) }),
		to("max_delay", "longest time a request is delayed by a leaky bucket", waitText(),
			func(into *t, _ *node, v time.Duration) { into.MaxDelay = v }),
		to("upgrades", "protocols that a connection may be upgraded to. Default: [websocket]", listOf(filledText(), 0, maxNames),
			func(into *t, _ *node, v []entry[string]) { into.Upgrades = append([]string{}, good(v)...) }),
		to("clients", "timeouts for clients", clientsMapping(),
			func(into *t, _ *node, v gatewayfile.Clients) { into.Clients = v }),
		to("connections", "limits on client connections", connectionsMapping(),
			func(into *t, _ *node, v gatewayfile.Connections) { into.Connections = v }),
	})
}

func upstreamMapping() value[gatewayfile.Upstream] {
	type t = gatewayfile.Upstream
	return object("an upstream", []field[t]{
		required(to("name", "its name in routes, logs and metrics", filledText(), func(into *t, _ *node, v string) { into.Name = v })),
		required(to("targets", "its servers: http://host:port, https://host:port, or h2c://host:port for HTTP/2 without TLS", listOf(targetText(), 1, gatewayfile.MaxTargets),
			func(into *t, _ *node, v []entry[string]) { into.Targets = good(v) })),
		to("balance", "load balancing: round_robin or least_connections", oneOf(gatewayfile.RoundRobin, gatewayfile.LeastConnections),
			func(into *t, _ *node, v gatewayfile.Balance) { into.Balance = v }),
		to("host", "host header sent to the target: client (the one the client sent) or target (the target's own)", oneOf("client", "target"),
			func(into *t, _ *node, v string) { into.TargetHost = v == "target" }),
		to("health", "active health checks", healthMapping(), func(into *t, _ *node, v gatewayfile.Health) { into.Health = &v }),
		to("eject", "when to eject a target that does not answer", ejectMapping(), func(into *t, _ *node, v gatewayfile.Eject) { into.Eject = v }),
		to("load", "adaptive concurrency limit for this upstream; {} suits most. Without it, concurrency is not limited", loadMapping(), func(into *t, _ *node, v gatewayfile.Load) { into.Load = &v }),
		to("llm", "makes it a provider of language models, whose calls are counted by their tokens and prices", llmMapping(), func(into *t, _ *node, v gatewayfile.LLM) { into.LLM = &v }),
		to("timeouts", "timeouts for its servers", timeoutsMapping(), func(into *t, _ *node, v gatewayfile.Timeouts) { into.Timeouts = v }),
		to("tls", "TLS to https targets", tlsMapping(), func(into *t, _ *node, v gatewayfile.TLSFiles) { into.Files = v }),
	})
}

func llmMapping() value[gatewayfile.LLM] {
	type t = gatewayfile.LLM
	return object("llm", []field[t]{
		required(to("api", "the API of its servers: openai, anthropic, or compatible for servers with an API like OpenAI's, such as vLLM and Ollama", oneOf(llm.OpenAI, llm.Anthropic, llm.Compatible), func(into *t, _ *node, v llm.API) { into.API = v })),
		to("key_file", "file with the provider's key, which replaces the clients' keys. Default: no key", filledText(), func(into *t, _ *node, v string) { into.KeyFile = v }),
		to("over_max_output", "what to do with calls that ask for more output than the max_output of their model: reduce (default) what they ask for, or refuse them", oneOf("reduce", "refuse"), func(into *t, _ *node, v string) { into.RefuseOutput = v == "refuse" }),
		to("provider_limits", "what to do when the provider answers with 429: pass the answer on to the client (default), or heed it: hold back all calls until the time that it names", oneOf("pass", "heed"), func(into *t, _ *node, v string) { into.Heed = v == "heed" }),
		to("drain", "how long the gateway goes on reading an answer after its client has left, such as 30s, to charge what the call has used. Default: not at all", waitText(), func(into *t, _ *node, v time.Duration) { into.Drain = v }),
		to("unfinished", "what to charge for a call whose answer ends without usage: reserved (default), all that was reserved; seen, the parts of the stream that arrived", oneOf("reserved", "seen"), func(into *t, _ *node, v string) { into.SettleSeen = v == "seen" }),
		to("other_paths", "what to do with requests that do not call a model: refuse (default) all but the list of models, or pass them uncounted", oneOf("refuse", "pass"), func(into *t, _ *node, v string) { into.PassOthers = v == "pass" }),
	})
}

func healthMapping() value[gatewayfile.Health] {
	type t = gatewayfile.Health
	return object("health", []field[t]{
		required(to("path", "path to request, such as /healthz. A status of 200 to 399 is healthy", filledText(), func(into *t, _ *node, v string) { into.Path = v })),
		to("every", "interval between checks. Default: 5s", waitText(), func(into *t, _ *node, v time.Duration) { into.Every = v }),
		to("timeout", "timeout of a check. Default: 1s", waitText(), func(into *t, _ *node, v time.Duration) { into.Timeout = v }),
		to("up_after", "consecutive good checks after which a target is up again", count(1, 1000), func(into *t, _ *node, v int) { into.UpAfter = v }),
		to("down_after", "consecutive failed checks after which a target is down", count(1, 1000), func(into *t, _ *node, v int) { into.DownAfter = v }),
	})
}

func ejectMapping() value[gatewayfile.Eject] {
	type t = gatewayfile.Eject
	return object("eject", []field[t]{
		to("after", "eject after this many consecutive failures. Default: 5", count(1, 1_000_000), func(into *t, _ *node, v int) { into.After = v }),
		to("for", "how long the target is ejected the first time; doubled each further time in a row. Default: 10s", waitText(), func(into *t, _ *node, v time.Duration) { into.For = v }),
	})
}

func loadMapping() value[gatewayfile.Load] {
	type t = gatewayfile.Load
	limit := wholeNumber(1, gatewayfile.MaxConcurrency)
	return object("load", []field[t]{
		to("initial", "the limit at the start. Default: 20", limit, func(into *t, _ *node, v int64) { into.Initial = v }),
		to("min", "lower bound on the limit. Default: 1", limit, func(into *t, _ *node, v int64) { into.Min = v }),
		to("max", "upper bound on the limit. Default: 1000", limit, func(into *t, _ *node, v int64) { into.Max = v }),
		to("ceiling", "longest good response time. A slower response counts as overload", waitText(), func(into *t, _ *node, v time.Duration) { into.Ceiling = v }),
		to("queue", "most requests waiting. Default: 1000", count(1, 1_000_000), func(into *t, _ *node, v int) { into.Queue = v }),
		to("wait", "how long a sheddable request may wait. Default: 100ms. A critical request may wait 2.5 times as long", waitText(), func(into *t, _ *node, v time.Duration) { into.Wait = v }),
		to("class", "entry with the importance of a request: critical_plus, critical, sheddable_plus or sheddable. Not one of identity.headers", filledText(), func(into *t, _ *node, v string) { into.Class = v }),
		to("tenant", "entry with the tenant of a request. Waiting tenants are served in turn. Not one of identity.headers", filledText(), func(into *t, _ *node, v string) { into.Tenant = v }),
		to("mode", "enforce (default), or shadow: measure, but admit everything", oneOf("enforce", "shadow"), func(into *t, _ *node, v string) { into.Shadow = v == "shadow" }),
	})
}

func routeLoadMapping() value[gatewayfile.RouteLoad] {
	type t = gatewayfile.RouteLoad
	return object("load", []field[t]{
		to("class", "importance of its requests: critical_plus, critical, sheddable_plus or sheddable", oneOf(flow.CriticalPlus, flow.Critical, flow.SheddablePlus, flow.Sheddable), func(into *t, _ *node, v flow.Class) { into.Class = &v }),
		to("exempt", "whether its requests bypass the load limit, as health checks and long polls should", trueOrFalse(), func(into *t, _ *node, v bool) { into.Exempt = v }),
	})
}

func timeoutsMapping() value[gatewayfile.Timeouts] {
	type t = gatewayfile.Timeouts
	return object("timeouts", []field[t]{
		to("dial", "timeout for connecting, including the TLS handshake. Default: 2s", waitText(), func(into *t, _ *node, v time.Duration) { into.Dial = v }),
		to("response_header", "how long the server may take to begin its response. Default: 30s", waitText(), func(into *t, _ *node, v time.Duration) { into.ResponseHeader = v }),
		to("idle", "how long the response may pause, or the server may read nothing of the request. Default: 5m", waitText(), func(into *t, _ *node, v time.Duration) { into.Idle = v }),
		to("keep_alive", "how long an idle connection is kept. Default: 90s", waitText(), func(into *t, _ *node, v time.Duration) { into.KeepAlive = v }),
	})
}

func tlsMapping() value[gatewayfile.TLSFiles] {
	type t = gatewayfile.TLSFiles
	return object("tls", []field[t]{
		to("ca", "PEM file with the certificate authorities for the targets' certificates", filledText(), func(into *t, _ *node, v string) { into.CA = v }),
		to("cert", "PEM file with the gateway's client certificate", filledText(), func(into *t, _ *node, v string) { into.Cert = v }),
		to("key", "PEM file with its private key", filledText(), func(into *t, _ *node, v string) { into.Key = v }),
		to("server_name", "name in the targets' certificates, if it differs from the target's host", filledText(), func(into *t, _ *node, v string) { into.ServerName = v }),
	})
}

func routeMapping() value[gatewayfile.Route] {
	type t = gatewayfile.Route
	return object("a route", []field[t]{
		required(to("match", "pattern [METHOD ][HOST]/[PATH], such as GET /items/{id} or /static/", filledText(), func(into *t, _ *node, v string) { into.Pattern = v })),
		to("name", "value of the entry route for its requests. Default: the pattern", filledText(), func(into *t, _ *node, v string) { into.Name = v }),
		to("upstream", "name of the upstream. Default: the first one", filledText(), func(into *t, _ *node, v string) { into.Upstream = v }),
		to("max_body", "largest request body, such as 1MiB, or unlimited", sizeText(1, math.MaxInt64, -1), func(into *t, _ *node, v int64) { into.MaxBody = v }),
		to("load", "how an upstream with load treats the requests", routeLoadMapping(), func(into *t, _ *node, v gatewayfile.RouteLoad) { into.Load = v }),
		to("request_headers", "changes to request headers, applied after those for all routes", headersMapping(), func(into *t, _ *node, v gatewayfile.Headers) { into.Request = v }),
		to("response_headers", "changes to response headers, applied after those for all routes", headersMapping(), func(into *t, _ *node, v gatewayfile.Headers) { into.Response = v }),
	})
}

func headersMapping() value[gatewayfile.Headers] {
	type t = gatewayfile.Headers
	return object("headers", []field[t]{
		to("set", `headers to set, such as { X-Tier: pro, X-User: "{user}" }; {user} is replaced by the entry user`, mapOf("a header", gatewayfile.MaxChanges, filledText()), func(into *t, _ *node, v map[string]string) {
			for _, name := range slices.Sorted(maps.Keys(v)) {
				h := gatewayfile.Header{Name: name, Value: v[name]}
				if inner, ok := strings.CutPrefix(v[name], "{"); ok {
					if inner, ok = strings.CutSuffix(inner, "}"); ok {
						h.Entry, h.Value = inner, ""
					}
				}
				into.Set = append(into.Set, h)
			}
		}),
		to("remove", "headers to remove", listOf(headerText(), 1, gatewayfile.MaxChanges), func(into *t, _ *node, v []entry[string]) { into.Remove = good(v) }),
	})
}

func identityMapping() value[gatewayfile.Identity] {
	type t = gatewayfile.Identity
	parts := oneOf(gatewayfile.CommonName, gatewayfile.DNSName, gatewayfile.URI, gatewayfile.Email, gatewayfile.Fingerprint)
	return object("identity", []field[t]{
		to("address", "which proxies are trusted to report the client's address", addressMapping(), func(into *t, _ *node, v gatewayfile.Address) { into.Address = v }),
		to("api_key", "headers that contain the API key (entry api_key), such as X-API-Key. Authorization:Token names the scheme before the key, and Authorization:* allows any scheme or none; Authorization alone means Authorization:Bearer", listOf(keyText(), 1, maxNames), func(into *t, _ *node, v []entry[string]) { into.APIKey = good(v) }),
		to("headers", "entries taken from headers, each with its header. Any client may set these", mapOf("an entry", policy.MaxEntries, headerText()), func(into *t, _ *node, v map[string]string) { into.Headers = v }),
		to("trusted_headers", "entries taken from headers of trusted proxies, each with its header", mapOf("an entry", policy.MaxEntries, headerText()), func(into *t, _ *node, v map[string]string) { into.Trusted = v }),
		to("certificate", "entries taken from the client's certificate, each with the part it comes from: common_name, dns_name, uri, email, fingerprint", mapOf("an entry", policy.MaxEntries, parts), func(into *t, _ *node, v map[string]gatewayfile.CertificateField) { into.Certificate = v }),
		to("jwt", "how JSON Web Tokens are verified, and which entries are taken from them", jwtMapping(), func(into *t, _ *node, v gatewayfile.JWT) { into.JWT = &v }),
	})
}

func addressMapping() value[gatewayfile.Address] {
	type t = gatewayfile.Address
	return object("address", []field[t]{
		to("header", "header with the client's address that trusted proxies set: X-Forwarded-For (default), Forwarded, or one with a single address", headerText(), func(into *t, _ *node, v string) { into.Header = v }),
		required(to("trust", "the trusted proxies: prefixes such as 10.0.0.0/8, addresses, or unix", listOf(filledText(), 1, gatewayfile.MaxTargets), func(into *t, _ *node, v []entry[string]) { into.Trust = good(v) })),
	})
}

func jwtMapping() value[gatewayfile.JWT] {
	type t = gatewayfile.JWT
	return object("jwt", []field[t]{
		required(to("keys", "a JSON Web Key Set: an https:// URL, or a file", filledText(), func(into *t, _ *node, v string) { into.Keys = v })),
		to("algorithms", "accepted algorithms. Default: [RS256, ES256, EdDSA]", listOf(oneOf(gatewayfile.Algorithms()...), 1, maxNames), func(into *t, _ *node, v []entry[string]) { into.Algorithms = good(v) }),
		to("issuer", "required issuer: the claim iss must equal it", filledText(), func(into *t, _ *node, v string) { into.Issuer = v }),
		to("audience", "required audience: the claim aud must contain it", filledText(), func(into *t, _ *node, v string) { into.Audience = v }),
		to("header", "header with the token, with the scheme before it if it has one, such as Authorization:JWT. Default: Authorization, which means Authorization:Bearer", keyText(), func(into *t, _ *node, v string) { into.Header = v }),
		to("leeway", "allowed difference between clocks", waitText(), func(into *t, _ *node, v time.Duration) { into.Leeway = v }),
		to("refresh", "how often the keys of a URL are fetched", waitText(), func(into *t, _ *node, v time.Duration) { into.Refresh = v }),
		to("claims", "entries taken from claims, such as { user: sub }", mapOf("an entry", policy.MaxEntries, filledText()), func(into *t, _ *node, v map[string]string) { into.Claims = v }),
		to("required", "whether requests without a token are answered with 401", trueOrFalse(), func(into *t, _ *node, v bool) { into.Required = v }),
	})
}

func concurrencyMapping() value[gatewayfile.Concurrency] {
	type t = gatewayfile.Concurrency
	return object("a bound", []field[t]{
		required(to("name", "its name in answers and logs", nameText(), func(into *t, _ *node, v string) { into.Name = v })),
		to("match", "which requests it applies to, as in a rule. Default: all", matchMapping("leave it out for all requests"), func(into *t, _ *node, v []entry[policy.Condition]) {
			for _, c := range v {
				into.Match = append(into.Match, c.value)
			}
		}),
		required(to("per", aboutPer, perValue(), func(into *t, _ *node, v []entry[policy.Part]) { into.Per = good(v) })),
		required(to("limit", "how many may be in progress", count(1, gatewayfile.MaxConcurrency), func(into *t, _ *node, v int) { into.Limit = v })),
	})
}

func settleMapping() value[gatewayfile.Settle] {
	type t = gatewayfile.Settle
	return object("a settlement", []field[t]{
		required(to("rule", "the name of the rule", nameText(), func(into *t, _ *node, v string) { into.Rule = v })),
		to("header", "response header or trailer with the cost. Default: the cost is the bytes sent to the client", headerText(), func(into *t, _ *node, v string) { into.Header = v }),
		to("keep", "whether the header is passed on to the client", trueOrFalse(), func(into *t, _ *node, v bool) { into.Keep = v }),
		to("per", "how many bytes, or how much of the header's number, cost one unit. Default: 1", wholeNumber(1, headgate.MaxCount), func(into *t, _ *node, v int64) { into.Per = v }),
		to("estimate", "units to reserve until the request has ended. Default: 1", wholeNumber(1, headgate.MaxCount), func(into *t, _ *node, v int64) { into.Estimate = v }),
	})
}

func clientsMapping() value[gatewayfile.Clients] {
	type t = gatewayfile.Clients
	return object("clients", []field[t]{
		to("header", "how long the request headers may take. Default: 10s", waitText(), func(into *t, _ *node, v time.Duration) { into.Header = v }),
		to("body", "how long the request body may pause. Default: 30s", waitText(), func(into *t, _ *node, v time.Duration) { into.Body = v }),
		to("min_rate", "minimum average bytes a second of a body with a known length, such as 1KiB, or unlimited for no minimum. Default: 128B", sizeText(1, 1<<30, -1), func(into *t, _ *node, v int64) { into.MinRate = v }),
		to("response", "how long a client may read nothing of the response. Default: 30s", waitText(), func(into *t, _ *node, v time.Duration) { into.Response = v }),
		to("idle", "how long a connection may be idle between requests. Default: 2m", waitText(), func(into *t, _ *node, v time.Duration) { into.Idle = v }),
		to("upgraded", "how long an upgraded connection may be idle. Default: 10m", waitText(), func(into *t, _ *node, v time.Duration) { into.Upgraded = v }),
	})
}

func connectionsMapping() value[gatewayfile.Connections] {
	type t = gatewayfile.Connections
	return object("connections", []field[t]{
		to("total", "most connections from all clients together. Default: 10000", count(1, 1_000_000), func(into *t, _ *node, v int) { into.Total = v }),
		to("per_address", "most connections from one address; IPv6 clients are counted by /64. Default: no limit", count(1, 1_000_000), func(into *t, _ *node, v int) { into.PerAddress = v }),
	})
}

// good are the values that could be read.
func good[T any](v []entry[T]) []T {
	var all []T
	for _, e := range v {
		if e.good {
			all = append(all, e.value)
		}
	}
	return all
}

// filledText is a text that is not empty.
func filledText() value[string] {
	return plainText(schema{"minLength": 1}, func(s string) (string, error) {
		if s == "" {
			return "", fmt.Errorf("this is an empty text; write something or leave the field out")
		}
		return s, nil
	})
}

// pathForms are forms of paths that do not exclude each other.
func pathForms() value[httplimit.PathForm] {
	words := listOf(oneOf(spelling.Words()...), 1, len(spelling.Words()))
	return value[httplimit.PathForm]{words.schema, func(r *reader, name string, n *node) (httplimit.PathForm, bool) {
		list, ok := words.read(r, name, n)
		if !ok {
			return 0, false
		}
		forms, problem := spelling.ParseForms(good(list))
		if problem != "" {
			r.add(n.at, "%s: %s", name, problem)
		}
		return httplimit.PathForm(forms), problem == ""
	}}
}

// headerText is the name of a header.
func headerText() value[string] {
	pattern := regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
	return plainText(schema{"pattern": pattern.String()}, func(s string) (string, error) {
		if !pattern.MatchString(s) {
			return "", fmt.Errorf("%q is not the name of a header", s)
		}
		return s, nil
	})
}

// keyText is a header with an API key, perhaps with the scheme that precedes the key.
func keyText() value[string] {
	return plainText(schema{"pattern": "^[A-Za-z0-9!#$%&'*+.^_`|~-]+(: *[A-Za-z0-9!#$%&'*+.^_`|~-]+ *)?$"}, func(s string) (string, error) {
		if problem := new(identity.Keys).Add(s, strings.ToLower); problem != "" {
			return "", errors.New(problem)
		}
		return s, nil
	})
}

// targetText is the address of a server.
func targetText() value[string] {
	return plainText(schema{"pattern": "^(https?|h2c)://[^/?#@]+/?$"}, func(s string) (string, error) {
		u, err := url.Parse(s)
		switch {
		case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "h2c":
			return "", errors.New("this is not a target; write http://host:port, https://host:port or h2c://host:port")
		case u.User != nil:
			return "", fmt.Errorf("the target at %s has a user in it; set the header Authorization instead", u.Host)
		case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
			return "", fmt.Errorf("the target at %s has more than a host; paths are passed on as they come", u.Host)
		}
		return s, nil
	})
}

// mapOf maps names of something to values.
func mapOf[T any](what string, most int, v value[T]) value[map[string]T] {
	s := schema{"type": "object", "additionalProperties": v.schema, "minProperties": 1, "maxProperties": most}
	return value[map[string]T]{s, func(r *reader, name string, n *node) (map[string]T, bool) {
		if n.kind != mapping || len(n.fields) == 0 || len(n.fields) > most {
			r.add(n.at, "%s is %s, must be a mapping with 1 to %d fields, each of them %s", name, describe(n), most, what)
			return nil, false
		}
		all := make(map[string]T, len(n.fields))
		for _, p := range n.fields {
			if _, twice := all[p.name]; twice {
				r.add(p.at, "%s %q is there twice; keep one", what, p.name)
			}
			if x, ok := v.read(r, p.name, p.value); ok {
				all[p.name] = x
			}
		}
		return all, true
	}}
}

func trueOrFalse() value[bool] {
	return value[bool]{schema{"type": "boolean"}, func(r *reader, name string, n *node) (bool, bool) {
		if n.kind != other || n.text != "true" && n.text != "false" {
			r.add(n.at, "%s is %s, must be true or false", name, describe(n))
			return false, false
		}
		return n.text == "true", true
	}}
}

// waitText is a duration of 1ms to gatewayfile.Longest.
func waitText() value[time.Duration] {
	s := schema{"type": "string", "pattern": `^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`}
	return value[time.Duration]{s, func(r *reader, name string, n *node) (time.Duration, bool) {
		d, err := time.ParseDuration(n.text)
		switch {
		case n.kind == whole:
			r.add(n.at, "%s is %s without a unit; write %ss if seconds are meant", name, n.text, n.text)
		case n.kind != text || err != nil:
			r.add(n.at, "%s is %s, must be a time such as 500ms, 30s or 1m30s", name, describe(n))
		case d < time.Millisecond || d > gatewayfile.Longest:
			r.add(n.at, "%s is %s, must be 1ms to 24h", name, n.text)
		default:
			return d, true
		}
		return 0, false
	}}
}

var sizePattern = regexp.MustCompile(`^([0-9]{1,15})(B|KiB|MiB|GiB)$`)

// unlimited is the word for a size without a bound.
const unlimited = "unlimited"

// noWord says that a size has to have a bound.
const noWord = math.MinInt64

// sizeText is a number of bytes, such as 512KiB. The word unlimited stands for
// none, unless that is noWord.
func sizeText(least, most, none int64) value[int64] {
	s := schema{"type": "string", "pattern": `^([0-9]{1,15}(B|KiB|MiB|GiB))$`}
	if none != noWord {
		s["pattern"] = `^([0-9]{1,15}(B|KiB|MiB|GiB)|` + unlimited + `)$`
	}
	units := map[string]int64{"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
	return value[int64]{s, func(r *reader, name string, n *node) (int64, bool) {
		if n.kind == text && n.text == unlimited && none != noWord {
			return none, true
		}
		parts := sizePattern.FindStringSubmatch(n.text)
		if n.kind == whole {
			r.add(n.at, "%s is %s without a unit; write %sB if bytes are meant, or KiB, MiB or GiB", name, n.text, n.text)
			return 0, false
		}
		if n.kind != text || parts == nil {
			r.add(n.at, "%s is %s, must be a size such as 512KiB or 10MiB", name, describe(n))
			return 0, false
		}
		count, err := strconv.ParseInt(parts[1], 10, 64)
		unit := units[parts[2]]
		if err != nil || count > math.MaxInt64/unit || count*unit < least || count*unit > most {
			r.add(n.at, "%s is %s, must be %d to %d bytes", name, n.text, least, most)
			return 0, false
		}
		return count * unit, true
	}}
}
