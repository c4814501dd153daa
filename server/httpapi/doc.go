// Package httpapi serves decisions as JSON over HTTP.
//
// # Basics
//
// A [Handler] asks a [decide.Decider] and needs nothing else:
//
//	handler := httpapi.New(decider, httpapi.Options{Ready: probe, Metrics: promhttp.Handler()})
//	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
//
// POST /v1/check takes units from all limits or from none. /v1/peek takes nothing and says what
// /v1/check would say, /v1/refund gives units back, and /v1/reset forgets what was used. A denial
// is an answer with status 200, unless the caller asks for 429 with ?status=true. GET /openapi.json
// describes all paths, and docs/http-api.md explains them.
//
// Bodies are parsed strictly. An unknown field, a field that is given twice or a number in quotes
// is a mistake. The answer lists all mistakes, and nothing is charged.
//
// # Caveats
//
// The handler limits what it reads to [MaxBody], but the server has to limit the time: without
// ReadTimeout, a slow caller occupies a goroutine.
//
// Only the paths for operators ask for the token in [Admin]: POST /v1/reload, POST
// /v1/clock, POST /v1/permits/revoke, GET /v1/permits/holders, the paths of [Insight], and GET /v1/candidate for
// the keys of clients. Otherwise there is no authentication: whoever can reach the handler can
// spend and reset anybody's units. It belongs on a loopback address, in a private network, or
// behind a proxy that authenticates callers.
package httpapi
