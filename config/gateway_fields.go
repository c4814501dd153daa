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
		to("upstreams", "the pools of servers that requests go to; the first one takes what no route sends elsewhere", listOf(upstreamMapping(), 1, gatewayfile.MaxUpstreams),
			func(into *t, _ *node, v []entry[gatewayfile.Upstream]) { into.Upstreams = good(v) }),
		to("routes", "which requests there are; all others are answered with 404. Without any, every request goes to the first upstream", listOf(routeMapping(), 1, gatewayfile.MaxRoutes),
			func(into *t, _ *node, v []entry[gatewayfile.Route]) { into.Routes = good(v) }),
		to("paths", "the forms of paths that the upstream servers read as these say: encoded_slashes (as part of a segment), double_encoding (they decode once), leading_slashes (never as a host), cut_parameters or kept_parameters (what stands behind a semicolon). Other paths that servers read in different ways are answered with 400", pathForms(),
			func(into *t, _ *node, v httplimit.PathForm) { into.Paths = v }),
		to("identity", "how the entries of a request are found", identityMapping(),
			func(into *t, _ *node, v gatewayfile.Identity) { into.Identity = v }),
		to("concurrency", "how many requests may be in progress", listOf(concurrencyMapping(), 1, gatewayfile.MaxBounds),
			func(into *t, _ *node, v []entry[gatewayfile.Concurrency]) { into.Concurrency = good(v) }),
		to("pressure", "what of the gateway's own has upstreams with a load shed requests before their queues fill: scheduler (goroutines wait for a processor), cpu (the cgroup's quota stops the process), memory (processes wait for it)",
			listOf(oneOf(gatewayfile.Scheduler, gatewayfile.CPU, gatewayfile.Memory), 1, 3),
			func(into *t, _ *node, v []entry[gatewayfile.Pressure]) { into.Pressure = good(v) }),
		to("settle", "the rules under which requests are charged an estimate, and their real cost when they have ended", listOf(settleMapping(), 1, gatewayfile.MaxSettle),
			func(into *t, _ *node, v []entry[gatewayfile.Settle]) { into.Settle = good(v) }),
		to("request_headers", "what is changed in requests on their way to the upstream", headersMapping(),
			func(into *t, _ *node, v gatewayfile.Headers) { into.Request = v }),
		to("response_headers", "what is changed in answers on their way to the client", headersMapping(),
			func(into *t, _ *node, v gatewayfile.Headers) { into.Response = v }),
		to("max_body", "the largest body of a request, such as 10MiB, or unlimited, which is the default", sizeText(1, math.MaxInt64, 0),
			func(into *t, _ *node, v int64) { into.MaxBody = v }),
		to("max_header", "the largest headers of a request, such as 32KiB", sizeText(minSize, 1<<20, noWord),
			func(into *t, _ *node, v int64) { into.MaxHeader = int(v) }),
		to("max_delay", "how long at most a request is held for a leaky bucket", waitText(),
			func(into *t, _ *node, v time.Duration) { into.MaxDelay = v }),
		to("upgrades", "the protocols that connections may be upgraded to; [websocket] if left out", listOf(filledText(), 0, maxNames),
			func(into *t, _ *node, v []entry[string]) { into.Upgrades = append([]string{}, good(v)...) }),
		to("clients", "how long clients may take", clientsMapping(),
			func(into *t, _ *node, v gatewayfile.Clients) { into.Clients = v }),
		to("connections", "how many connections there may be to clients", connectionsMapping(),
			func(into *t, _ *node, v gatewayfile.Connections) { into.Connections = v }),
	})
}

func upstreamMapping() value[gatewayfile.Upstream] {
	type t = gatewayfile.Upstream
	return object("an upstream", []field[t]{
		required(to("name", "what routes, logs and metrics call it", filledText(), func(into *t, _ *node, v string) { into.Name = v })),
		required(to("targets", "its servers: http://host:port, https://host:port, or h2c://host:port for HTTP/2 without TLS", listOf(targetText(), 1, gatewayfile.MaxTargets),
			func(into *t, _ *node, v []entry[string]) { into.Targets = good(v) })),
		to("balance", "how a target is chosen: round_robin or least_connections", oneOf(gatewayfile.RoundRobin, gatewayfile.LeastConnections),
			func(into *t, _ *node, v gatewayfile.Balance) { into.Balance = v }),
		to("host", "which host is sent to the target: client, the one that the client has asked for, or target, its own", oneOf("client", "target"),
			func(into *t, _ *node, v string) { into.TargetHost = v == "target" }),
		to("health", "how targets are looked after", healthMapping(), func(into *t, _ *node, v gatewayfile.Health) { into.Health = &v }),
		to("eject", "when a target that does not answer is passed over", ejectMapping(), func(into *t, _ *node, v gatewayfile.Eject) { into.Eject = v }),
		to("load", "how many requests may be with it at the same time, which is found out; {} is good for most. Without it nothing bounds them", loadMapping(), func(into *t, _ *node, v gatewayfile.Load) { into.Load = &v }),
		to("timeouts", "how long its servers may take", timeoutsMapping(), func(into *t, _ *node, v gatewayfile.Timeouts) { into.Timeouts = v }),
		to("tls", "how https targets are spoken to", tlsMapping(), func(into *t, _ *node, v gatewayfile.TLSFiles) { into.Files = v }),
	})
}

func healthMapping() value[gatewayfile.Health] {
	type t = gatewayfile.Health
	return object("health", []field[t]{
		required(to("path", "what is asked for, such as /healthz; an answer of 200 to 399 is well", filledText(), func(into *t, _ *node, v string) { into.Path = v })),
		to("every", "how often each target is asked; 5s if left out", waitText(), func(into *t, _ *node, v time.Duration) { into.Every = v }),
		to("timeout", "how long an answer may take; 1s if left out", waitText(), func(into *t, _ *node, v time.Duration) { into.Timeout = v }),
		to("up_after", "how many good answers in a row bring a target back", count(1, 1000), func(into *t, _ *node, v int) { into.UpAfter = v }),
		to("down_after", "how many bad answers in a row take a target out", count(1, 1000), func(into *t, _ *node, v int) { into.DownAfter = v }),
	})
}

func ejectMapping() value[gatewayfile.Eject] {
	type t = gatewayfile.Eject
	return object("eject", []field[t]{
		to("after", "after how many failures in a row; 5 if left out", count(1, 1_000_000), func(into *t, _ *node, v int) { into.After = v }),
		to("for", "how long the target is passed over the first time; twice as long each further time in a row; 10s if left out", waitText(), func(into *t, _ *node, v time.Duration) { into.For = v }),
	})
}

func loadMapping() value[gatewayfile.Load] {
	type t = gatewayfile.Load
	limit := wholeNumber(1, gatewayfile.MaxConcurrency)
	return object("load", []field[t]{
		to("initial", "the limit before anything is known; 20 if left out", limit, func(into *t, _ *node, v int64) { into.Initial = v }),
		to("min", "the least limit; 1 if left out", limit, func(into *t, _ *node, v int64) { into.Min = v }),
		to("max", "the largest limit; 1000 if left out", limit, func(into *t, _ *node, v int64) { into.Max = v }),
		to("ceiling", "how long an answer may take; one that takes longer counts as overload", waitText(), func(into *t, _ *node, v time.Duration) { into.Ceiling = v }),
		to("queue", "how many requests may wait; 1000 if left out", count(1, 1_000_000), func(into *t, _ *node, v int) { into.Queue = v }),
		to("wait", "how long a sheddable request may wait; 100ms if left out. A critical one may wait two and a half times as long", waitText(), func(into *t, _ *node, v time.Duration) { into.Wait = v }),
		to("class", "the entry with the class of a request: critical_plus, critical, sheddable_plus or sheddable. Not one of identity.headers", filledText(), func(into *t, _ *node, v string) { into.Class = v }),
		to("tenant", "the entry with whom a request is for: tenants that wait are served in turn. Not one of identity.headers", filledText(), func(into *t, _ *node, v string) { into.Tenant = v }),
		to("mode", "enforce, or shadow: measure, and let everything pass", oneOf("enforce", "shadow"), func(into *t, _ *node, v string) { into.Shadow = v == "shadow" }),
	})
}

func routeLoadMapping() value[gatewayfile.RouteLoad] {
	type t = gatewayfile.RouteLoad
	return object("load", []field[t]{
		to("class", "how much its requests matter: critical_plus, critical, sheddable_plus or sheddable", oneOf(flow.CriticalPlus, flow.Critical, flow.SheddablePlus, flow.Sheddable), func(into *t, _ *node, v flow.Class) { into.Class = &v }),
		to("exempt", "whether its requests pass without being asked about, as health checks and long polls should", trueOrFalse(), func(into *t, _ *node, v bool) { into.Exempt = v }),
	})
}

func timeoutsMapping() value[gatewayfile.Timeouts] {
	type t = gatewayfile.Timeouts
	return object("timeouts", []field[t]{
		to("dial", "how long connecting may take, with the TLS handshake; 2s if left out", waitText(), func(into *t, _ *node, v time.Duration) { into.Dial = v }),
		to("response_header", "how long the answer may take to begin; 30s if left out", waitText(), func(into *t, _ *node, v time.Duration) { into.ResponseHeader = v }),
		to("idle", "how long the answer may pause, and the server take nothing of the request; 5m if left out", waitText(), func(into *t, _ *node, v time.Duration) { into.Idle = v }),
		to("keep_alive", "how long a connection that nobody uses is kept; 90s if left out", waitText(), func(into *t, _ *node, v time.Duration) { into.KeepAlive = v }),
	})
}

func tlsMapping() value[gatewayfile.TLSFiles] {
	type t = gatewayfile.TLSFiles
	return object("tls", []field[t]{
		to("ca", "a file with the authorities that the targets' certificates are from", filledText(), func(into *t, _ *node, v string) { into.CA = v }),
		to("cert", "a file with the certificate that the gateway shows", filledText(), func(into *t, _ *node, v string) { into.Cert = v }),
		to("key", "a file with its key", filledText(), func(into *t, _ *node, v string) { into.Key = v }),
		to("server_name", "the name in the targets' certificates, if it is not that of the target", filledText(), func(into *t, _ *node, v string) { into.ServerName = v }),
	})
}

func routeMapping() value[gatewayfile.Route] {
	type t = gatewayfile.Route
	return object("a route", []field[t]{
		required(to("match", "which requests: [METHOD ][HOST]/[PATH], such as GET /items/{id} or /static/", filledText(), func(into *t, _ *node, v string) { into.Pattern = v })),
		to("name", "the entry route of its requests; the pattern if left out", filledText(), func(into *t, _ *node, v string) { into.Name = v }),
		to("upstream", "the name of the upstream; the first one if left out", filledText(), func(into *t, _ *node, v string) { into.Upstream = v }),
		to("max_body", "the largest body, such as 1MiB, or unlimited", sizeText(1, math.MaxInt64, -1), func(into *t, _ *node, v int64) { into.MaxBody = v }),
		to("load", "what an upstream with a load is told of its requests", routeLoadMapping(), func(into *t, _ *node, v gatewayfile.RouteLoad) { into.Load = v }),
		to("request_headers", "what is changed in requests, after what is changed in all", headersMapping(), func(into *t, _ *node, v gatewayfile.Headers) { into.Request = v }),
		to("response_headers", "what is changed in answers, after what is changed in all", headersMapping(), func(into *t, _ *node, v gatewayfile.Headers) { into.Response = v }),
	})
}

func headersMapping() value[gatewayfile.Headers] {
	type t = gatewayfile.Headers
	return object("headers", []field[t]{
		to("set", `headers to set, such as { X-Tier: pro, X-User: "{user}" }; what stands in braces is an entry`, mapOf("a header", gatewayfile.MaxChanges, filledText()), func(into *t, _ *node, v map[string]string) {
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
		to("address", "which proxies are believed about the client's address", addressMapping(), func(into *t, _ *node, v gatewayfile.Address) { into.Address = v }),
		to("api_key", "the headers that the entry api_key is taken from", listOf(headerText(), 1, maxNames), func(into *t, _ *node, v []entry[string]) { into.APIKey = good(v) }),
		to("headers", "entries and the header that each is taken from, whoever sent it", mapOf("an entry", policy.MaxEntries, headerText()), func(into *t, _ *node, v map[string]string) { into.Headers = v }),
		to("trusted_headers", "entries and the header that each is taken from, if a trusted proxy sent it", mapOf("an entry", policy.MaxEntries, headerText()), func(into *t, _ *node, v map[string]string) { into.Trusted = v }),
		to("certificate", "entries and the part of the client's certificate that each is taken from: common_name, dns_name, uri, email, fingerprint", mapOf("an entry", policy.MaxEntries, parts), func(into *t, _ *node, v map[string]gatewayfile.CertificateField) { into.Certificate = v }),
		to("jwt", "how tokens are verified, and which entries are taken from them", jwtMapping(), func(into *t, _ *node, v gatewayfile.JWT) { into.JWT = &v }),
	})
}

func addressMapping() value[gatewayfile.Address] {
	type t = gatewayfile.Address
	return object("address", []field[t]{
		to("header", "the header in which trusted proxies hand on the client's address: X-Forwarded-For if left out, Forwarded, or one with a single address", headerText(), func(into *t, _ *node, v string) { into.Header = v }),
		required(to("trust", "those proxies: prefixes such as 10.0.0.0/8, addresses, or unix", listOf(filledText(), 1, gatewayfile.MaxTargets), func(into *t, _ *node, v []entry[string]) { into.Trust = good(v) })),
	})
}

func jwtMapping() value[gatewayfile.JWT] {
	type t = gatewayfile.JWT
	return object("jwt", []field[t]{
		required(to("keys", "a JSON Web Key Set: an https:// URL, or a file", filledText(), func(into *t, _ *node, v string) { into.Keys = v })),
		to("algorithms", "those that are accepted; [RS256, ES256, EdDSA] if left out", listOf(algorithmText(), 1, maxNames), func(into *t, _ *node, v []entry[string]) { into.Algorithms = good(v) }),
		to("issuer", "what iss must be", filledText(), func(into *t, _ *node, v string) { into.Issuer = v }),
		to("audience", "what aud must have", filledText(), func(into *t, _ *node, v string) { into.Audience = v }),
		to("header", "where the token is; Authorization if left out", headerText(), func(into *t, _ *node, v string) { into.Header = v }),
		to("leeway", "by how much clocks may differ", waitText(), func(into *t, _ *node, v time.Duration) { into.Leeway = v }),
		to("refresh", "how often the keys of a URL are fetched", waitText(), func(into *t, _ *node, v time.Duration) { into.Refresh = v }),
		to("claims", "entries and the claim that each is taken from, such as { user: sub }", mapOf("an entry", policy.MaxEntries, filledText()), func(into *t, _ *node, v map[string]string) { into.Claims = v }),
		to("required", "whether requests without a token are answered with 401", trueOrFalse(), func(into *t, _ *node, v bool) { into.Required = v }),
	})
}

func concurrencyMapping() value[gatewayfile.Concurrency] {
	type t = gatewayfile.Concurrency
	return object("a bound", []field[t]{
		required(to("name", "what answers and logs call it", nameText(), func(into *t, _ *node, v string) { into.Name = v })),
		to("match", "which requests it is for, as in a rule; all if left out", matchMapping("leave it out for all requests"), func(into *t, _ *node, v []entry[policy.Condition]) {
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
		to("header", "the header, or the trailer, of the answer that says the cost; the bytes that the client is sent count if left out", headerText(), func(into *t, _ *node, v string) { into.Header = v }),
		to("keep", "whether the header stays in the answer for the client", trueOrFalse(), func(into *t, _ *node, v bool) { into.Keep = v }),
		to("per", "how many bytes, or how much of what the header says, cost one unit; 1 if left out", wholeNumber(1, headgate.MaxCount), func(into *t, _ *node, v int64) { into.Per = v }),
		to("estimate", "how many units are reserved until the request has ended; 1 if left out", wholeNumber(1, headgate.MaxCount), func(into *t, _ *node, v int64) { into.Estimate = v }),
	})
}

func clientsMapping() value[gatewayfile.Clients] {
	type t = gatewayfile.Clients
	return object("clients", []field[t]{
		to("header", "how long the headers of a request may take; 10s if left out", waitText(), func(into *t, _ *node, v time.Duration) { into.Header = v }),
		to("body", "how long the body of a request may pause; 30s if left out", waitText(), func(into *t, _ *node, v time.Duration) { into.Body = v }),
		to("min_rate", "how many bytes a second a body of known length must bring on average, such as 1KiB, or unlimited for no bound; 128B if left out", sizeText(1, 1<<30, -1), func(into *t, _ *node, v int64) { into.MinRate = v }),
		to("response", "how long a client may take nothing of the answer; 30s if left out", waitText(), func(into *t, _ *node, v time.Duration) { into.Response = v }),
		to("idle", "how long a connection may be silent between requests; 2m if left out", waitText(), func(into *t, _ *node, v time.Duration) { into.Idle = v }),
		to("upgraded", "how long an upgraded connection may be silent; 10m if left out", waitText(), func(into *t, _ *node, v time.Duration) { into.Upgraded = v }),
	})
}

func connectionsMapping() value[gatewayfile.Connections] {
	type t = gatewayfile.Connections
	return object("connections", []field[t]{
		to("total", "how many connections all clients together may have; 10000 if left out", count(1, 1_000_000), func(into *t, _ *node, v int) { into.Total = v }),
		to("per_address", "how many connections each address may have, an IPv6 client by its /64; no bound if left out", count(1, 1_000_000), func(into *t, _ *node, v int) { into.PerAddress = v }),
	})
}
