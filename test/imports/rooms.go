package imports

import "strings"

// Root is the import path of the core, and the prefix of all others.
const Root = "github.com/headgate/headgate"

// Anything stands for every room in a room's list.
const Anything = "*"

// Room is a part of the project that is free to arrange itself within, and may
// import what its list allows.
type Room struct {
	// Path is the directory, "." for the root package. It stands for all
	// directories below it; "store/*" stands for store/redis and store/memory,
	// each of which is a room of its own.
	Path string
	// May lists the Paths of the rooms that may be imported, all of them by
	// themselves: what a room may import is not handed on.
	May []string
}

// Rooms is the table of the project's rooms, from the lowest layer to the
// highest. Where two rooms match a package, the first one is its room.
func Rooms() []Room {
	adapter := []string{".", "policy", "policy/inprogress", "flow", "internal/admission", "internal/identity", "internal/notice"}
	return []Room{
		{".", nil},

		// The one way of a request through middleware and interceptors.
		{"internal/admission", []string{".", "policy", "policy/inprogress", "flow"}},
		// What requests say of who has sent them, and what clients are told, over HTTP
		// and gRPC alike.
		{"internal/identity", []string{"."}},
		{"internal/notice", []string{".", "internal/muldiv", "policy", "policy/inprogress", "flow"}},
		// The one reading of a request's path.
		{"internal/spelling", []string{"internal/closest"}},
		// The route of a request, by the patterns of a policy and that reading.
		{"internal/routes", []string{".", "policy", "internal/identity", "internal/spelling"}},
		// The word that was meant by a misspelt one.
		{"internal/closest", nil},
		// What calls to language models may use, and have used.
		{"internal/llm", []string{".", "policy", "policy/models", "internal/admission", "internal/notice"}},
		// The texts of errors for people.
		{"internal/errtext", nil},
		// What the consumers of message brokers share: the way of a message.
		{"internal/consume", []string{".", "flow"}},
		// How many calls there were, by what became of them, and how long they took.
		{"internal/tally", nil},
		// The pauses between tries.
		{"internal/sleep", nil},
		// Memory that is needed soon.
		{"internal/prefetch", nil},
		// Connections that are read and written with less help of the scheduler.
		{"internal/socket", nil},
		// Products of two numbers, divided.
		{"internal/muldiv", nil},
		// The Lab, which the dashboard has compiled to WebAssembly: only its tests import it.
		{"internal/lab", []string{".", "store/*"}},
		// What the tests of several modules share; only they import it.
		{"internal", nil},

		{"algorithm", []string{".", "internal/muldiv"}},
		// What looks at a policy from outside. Matching and deciding know nothing of it.
		{"policy/lint", []string{".", "internal/closest", "internal/muldiv", "internal/spelling", "policy", "policy/models"}},
		{"policy/explain", []string{".", "internal/closest", "internal/errtext", "policy", "policy/models"}},
		{"policy/footprint", []string{".", "policy"}},
		{"policy/nested", []string{".", "internal/errtext", "policy", "policy/explain"}},
		// What keeps the bounds of a policy.
		{"policy/inprogress", []string{".", "policy", "flow", "store"}},
		// What is known of language models, without which rules for them cannot count.
		{"policy/models", []string{"."}},
		{"policy", []string{".", "internal/closest", "internal/muldiv", "internal/spelling", "policy/models"}},
		// Gates know neither rules nor doors, and each kind of gate only the vocabulary.
		{"flow", []string{".", "store"}},

		// A store knows no rules, and none of the other stores: those that wrap
		// a Store are handed it. Databases that compare and set are behind one seam.
		{"store/cas", []string{".", "algorithm", "internal/sleep", "store"}},
		{"store/postgres", []string{".", "store", "store/cas"}},
		{"store/memcached", []string{".", "store/cas"}},
		// One limit divided among holders that decide for themselves. It knows no store.
		{"store/share", []string{".", "internal/muldiv"}},
		// The layers around a store do not know each other. Their tests share a store that fails.
		{"store/layered/internal/layertest", []string{".", "store/memory", "store/layered/*"}},
		{"store/layered/internal", []string{"."}},
		{"store/layered/*", []string{".", "algorithm", "internal/errtext", "internal/muldiv", "internal/sleep", "store", "store/layered/internal", "store/share"}},
		{"store/*", []string{".", "algorithm", "internal/prefetch", "internal/sleep", "internal/socket", "store"}},
		// What authors of stores and layers need, and callers do not.
		{"store", []string{"."}},

		// The suite for adapters is the only part that needs a store.
		{"httplimit/httplimittest", []string{".", "policy", "policy/inprogress", "flow", "httplimit", "store/memory"}},
		// Processes that call a partner tell each other of its limit in a document.
		{"httplimit/outbound", append([]string{"store"}, adapter...)},
		{"httplimit", append([]string{"internal/spelling"}, adapter...)},
		{"grpclimit", adapter},
		{"joblimit", []string{".", "policy", "policy/inprogress", "flow", "internal/admission", "internal/notice"}},
		{"contrib/*", append([]string{"httplimit", "internal/consume", "internal/sleep"}, adapter...)},
		{"telemetry/*", []string{".", "internal/errtext", "internal/tally", "policy", "policy/models", "policy/inprogress", "flow"}},

		// The types of a gateway file, which the gateway's options are made of.
		{"config/gatewayfile", []string{".", "policy", "flow", "httplimit", "internal/identity", "internal/llm", "internal/spelling", "internal/routes"}},
		{"config", []string{".", "internal/closest", "internal/errtext", "internal/llm", "policy", "policy/models", "flow", "policy/lint", "policy/nested", "httplimit", "config/gatewayfile", "internal/identity", "internal/spelling"}},

		// What answers questions about limits from logs and from measurement.
		{"tune/accesslog", []string{"internal/prefetch"}},
		{"tune/clients", nil},
		// A replay decides as a server does, by a policy and the arithmetic of all stores, without a store.
		{"tune/replay", []string{".", "algorithm", "policy", "policy/models", "policy/footprint", "internal/identity", "internal/routes", "internal/spelling", "tune/accesslog", "tune/clients"}},
		{"tune/load", []string{"httplimit/outbound", "internal/sleep", "tune/accesslog"}},
		{"tune/report", []string{"tune/load", "tune/replay"}},
		{"tune/advise", []string{".", "policy", "policy/models", "internal/routes", "internal/spelling", "tune/accesslog", "tune/clients", "tune/replay"}},

		// What is said over gRPC, and the library's side of it: a Store like those
		// of store/*, but for what stands behind the wire.
		{"api", []string{"."}},
		{"client", []string{".", "flow", "store", "api"}},

		// The application alone puts stores and transports together.
		{"server/app", []string{
			".", "flow", "algorithm", "internal/errtext", "internal/sleep", "internal/tally", "policy", "policy/models", "policy/inprogress", "policy/lint", "policy/nested", "store", "store/*", "store/layered/*", "store/postgres", "store/memcached",
			"httplimit", "grpclimit", "telemetry/*", "config", "config/gatewayfile", "internal/spelling", "server/gateway", "server/decide", "server/candidate", "server/insightapi", "server/history", "server/dashboard", "server/envoyxds", "server/wire", "internal/routes", "server/keepalive", "server/extproc", "server/*",
		}},
		{"server/cli", []string{".", "api", "flow", "internal/errtext", "store", "policy", "policy/models", "policy/inprogress", "policy/lint", "policy/explain", "policy/footprint", "config", "server/app", "server/decide", "server/candidate", "server/document", "server/insightapi", "telemetry/*", "tune/accesslog", "tune/replay", "tune/report", "tune/advise", "tune/load"}},
		{"server/cmd", []string{"server/cli", "server/app"}},
		{"server/decide", []string{".", "internal/errtext", "flow", "store", "policy", "policy/models", "policy/explain", "policy/inprogress", "policy/nested"}},
		{"server/candidate", []string{".", "internal/errtext", "policy", "policy/models", "policy/nested", "server/decide"}},
		{"server/wire", nil},
		{"server/envoyxds", []string{".", "internal/errtext", "internal/sleep", "policy", "policy/nested", "server/wire"}},
		{"server/dashboard", []string{".", "server/decide", "server/insightapi", "telemetry/*"}},
		{"server/document", []string{".", "policy", "httplimit"}},
		{"server/history", []string{"telemetry/*"}},
		{"server/insightapi", []string{".", "algorithm", "internal/errtext", "internal/muldiv", "store", "policy", "policy/models", "config", "server/candidate", "server/decide", "server/history", "telemetry/*"}},
		// What is left of server/ is transports. They write their headers with
		// httplimit, so that a service and a middleware never differ.
		{"server/gateway", []string{".", "policy", "policy/models", "policy/inprogress", "flow", "internal/admission", "internal/identity", "internal/llm", "internal/notice", "httplimit", "httplimit/outbound", "telemetry/*", "config/gatewayfile", "internal/spelling", "server/decide", "internal/routes"}},
		{"server/extproc", []string{".", "policy", "policy/models", "internal/admission", "internal/llm", "internal/notice", "httplimit", "server/decide"}},
		// Connections that wait, for the doors that need not wait for a store.
		{"server/standby", nil},
		{"server/keepalive", []string{"server/standby"}},
		{"server/*", []string{".", "policy", "policy/models", "policy/inprogress", "policy/explain", "policy/nested", "flow", "internal/admission", "internal/errtext", "internal/identity", "internal/notice", "internal/socket", "httplimit", "api", "internal/spelling", "store", "store/share", "server/decide", "internal/routes", "server/wire", "server/standby"}},

		// Nothing that users import may import these.
		{"bench", []string{Anything}},
		{"test", []string{Anything}},
		{"examples", []string{Anything}},
		{"release", nil},
	}
}

// name returns the room's own name if it holds the package at path, which is
// relative to the root: "store/redis" for store/* and store/redis/script.
func (r Room) name(path string) (string, bool) {
	if path == r.Path {
		return path, true
	}
	if parent, many := strings.CutSuffix(r.Path, "/*"); many {
		rest, ok := strings.CutPrefix(path, parent+"/")
		first, _, _ := strings.Cut(rest, "/")
		return parent + "/" + first, ok
	}
	return r.Path, strings.HasPrefix(path, r.Path+"/")
}
