// Package httpapi serves decisions as JSON over HTTP.
//
// # Basics
//
// A [Handler] asks a [Decider] and needs nothing else:
//
//	handler := httpapi.New(decider, httpapi.Options{Ready: probe, Metrics: promhttp.Handler()})
//	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
//
// POST /v1/check takes units, all or none; /v1/peek looks; /v1/refund gives
// back; /v1/reset forgets. A denial is an answer with status 200, unless the
// caller asks for 429 with ?status=true. GET /openapi.json has all of it, and
// docs/http-api.md explains it.
//
// Bodies are read strictly: an unknown field, a field given twice or a number
// in quotes is a mistake that is named, together with all others, and nothing is
// charged.
//
// # Caveats
//
// The handler bounds what it reads by [MaxBody], but time is the server's to
// bound: without ReadTimeout a slow caller holds a goroutine.
//
// There is no authentication but for POST /v1/reload and the keys of clients in GET
// /v1/candidate, which ask for the token in
// [Admin]. Whoever can reach the handler can spend and reset
// anybody's units: it belongs behind a loopback address, a private network or a
// proxy that asks who is there.
package httpapi
