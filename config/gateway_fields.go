package config

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/policy"
)

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
		to("paths", "the forms of paths that the upstream servers read as these say: encoded_slashes (as part of a segment), double_encoding (they decode once), leading_slashes (never as a host), cut_parameters or kept_parameters (what stands behind a semicolon), other_bytes (that are not UTF-8, kept), cut_path_info and front_controller or kept_path_info (.php in a path), ignore_case or exact_case, ignore_slash or exact_slash (at the end), cut_extensions. Other paths that servers read in different ways are answered with 400, and so are methods that are overridden unless ignored_overrides (in headers and queries) is there. This takes precedence over behind in the policy", pathForms(),
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
		to("timeouts", "timeouts for its servers", timeoutsMapping(), func(into *t, _ *node, v gatewayfile.Timeouts) { into.Timeouts = v }),
		to("tls", "TLS to https targets", tlsMapping(), func(into *t, _ *node, v gatewayfile.TLSFiles) { into.Files = v }),
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
		to("algorithms", "accepted algorithms. Default: [RS256, ES256, EdDSA]", listOf(algorithmText(), 1, maxNames), func(into *t, _ *node, v []entry[string]) { into.Algorithms = good(v) }),
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
