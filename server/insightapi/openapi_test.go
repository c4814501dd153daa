package insightapi

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/telemetry/insight"
)

var update = flag.Bool("update", false, "write openapi.json")

type object = map[string]any

// described is what a path answers, and what can be asked of it.
var described = map[string]struct {
	summary    string
	answer     any
	parameters []string
}{
	"now":     {"The rules to look at first, and all requests of the last two hours", Now{}, []string{"range", "until", "limit", "instances"}},
	"rule":    {"One rule: who uses it, who is denied, and by which of its limits", RuleReport{}, []string{"rule", "range", "until", "instances"}},
	"clients": {"The busiest keys of a rule, minute by minute", Clients{}, []string{"rule", "range", "until", "limit", "instances"}},
	"key":     {"What one key has used of each limit, its last denials, and why it is limited", KeyReport{}, []string{"rule", "key", "tier", "instances"}},
	"marks":   {"What has happened: changes of the policy, outages of the store, starts of instances", Marks{}, []string{"instances"}},
	"find":    {"The keys of one client under all rules, or the clients that are limited most", Found{}, []string{"range", "until", "limit", "instances"}},
	"denials": {"Recent denials, with the reason of each", Denials{}, []string{"after", "limit", "rule", "key", "instances"}},
	"store":   {"How the store does, seen from each instance", Stores{}, []string{"range", "until", "instances"}},
	"policy":  {"The policy in force, its last changes, and the candidate", PolicyReport{}, []string{"limit"}},
	"spent":   {"What calls to language models have spent, by rule, key and model, and what is left of budgets.", SpendingReport{}, []string{"limit", "instances"}},
	"flow":    {"What is in progress: gates, permits and who holds them, consumers of queues", FlowReport{}, []string{"limit", "instances"}},
	"audit":   {"What people did", AuditReport{}, []string{"instances"}},
	"reset":   {"Forget what a key has used under a rule", nil, nil},
	"revoke":  {"Forbid that a permit is renewed, and take its holder out of the line", nil, nil},
}

// done are the paths that are told something in a body, and what they answer.
var done = map[string]struct{ told, answer object }{
	"find":  {object{"q": object{"type": "string", "description": "An address, a key, a secret, a part of a key, or what the table of subjects has of a client; \"\" for the clients that are limited most."}}, schema(reflect.TypeFor[Found]())["properties"].(object)},
	"reset": {object{"rule": ruleName, "key": keyID, "confirm": again}, object{"reset": object{"type": "array", "items": object{"type": "string"}}}},
	"revoke": {
		object{"rule": ruleName, "key": keyID, "holder": object{"type": "string", "description": "The id of the holder."}, "confirm": again},
		object{"revoked": object{"type": "boolean", "description": "Whether the holder had a permit or a place in line."}},
	},
}

var (
	ruleName = object{"type": "string"}
	keyID    = object{"type": "string", "description": "The id of the key."}
	again    = object{"type": "string", "description": "The name of the rule, again."}
)

var parameters = map[string]string{
	"range":     "How far to look back: 1m to 168h, such as 10m, which is the default. Without a history, nothing is older than two hours.",
	"until":     "The end of the range, in seconds since 1970; now if it is left out.",
	"limit":     "How many entries to answer at most: 1 to 500. The default is 50.",
	"instances": "\"this\" asks this instance alone; the answer then is {\"instance\": …, \"part\": …}.",
	"rule":      "The name of a rule.",
	"key":       "The id of a key, as answers have it.",
	"tier":      "The tier that the key has, if it is known.",
	"after":     "What the answer before had as next; without it the last denials are answered.",
}

// schema describes a type as encoding/json writes it.
func schema(t reflect.Type) object {
	switch {
	case t == reflect.TypeFor[insight.Name]():
		return object{"type": "object", "description": "A key: its id, from which its bytes can be had, and a text for people.", "properties": object{
			"id": object{"type": "string"}, "text": object{"type": "string"}, "cut": object{"type": "boolean"},
		}, "required": []string{"id", "text"}}
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t.Kind() == reflect.Pointer:
		return object{"oneOf": []any{schema(t.Elem()), object{"type": "null"}}}
	}
	switch t.Kind() { //nolint:exhaustive // The others do not occur, and fail.
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return object{"type": "integer"}
	case reflect.Slice:
		return object{"type": "array", "items": schema(t.Elem())}
	case reflect.Interface:
		return object{}
	case reflect.Struct:
		properties, required := object{}, []string{}
		for _, f := range reflect.VisibleFields(t) {
			name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous || !f.IsExported() || len(f.Index) > 1 && shadowed(t, f) {
				continue
			}
			properties[name] = schema(f.Type)
			if !strings.Contains(rest, "omitempty") {
				required = append(required, name)
			}
		}
		return object{"type": "object", "properties": properties, "required": required}
	}
	panic("no schema for " + t.String())
}

// shadowed says that encoding/json writes another field of the same name.
func shadowed(t reflect.Type, f reflect.StructField) bool {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	for _, o := range reflect.VisibleFields(t) {
		if other, _, _ := strings.Cut(o.Tag.Get("json"), ","); other == name && len(o.Index) < len(f.Index) {
			return true
		}
	}
	return false
}

func document() object {
	paths := object{}
	for path, d := range described {
		list := []any{}
		for _, name := range d.parameters {
			list = append(list, object{"name": name, "in": "query", "description": parameters[name], "schema": object{"type": "string"}, "required": (name == "rule" && path != "denials") || (name == "key" && path == "key")})
		}
		does, changes := done[path]
		answer := object{"type": "object", "properties": does.answer, "required": slices.Sorted(maps.Keys(does.answer))}
		if !changes {
			answer = schema(reflect.TypeOf(d.answer))
		}
		problem := object{"$ref": "#/components/responses/Problem"}
		operation := object{
			"operationId": path, "summary": d.summary, "parameters": list, "security": []any{object{"admin": []string{}}},
			"responses": object{
				"200": object{"description": "The answer.", "content": object{"application/json": object{"schema": answer}}},
				"400": problem, "401": problem, "403": problem, "404": problem,
			},
		}
		method := "get"
		if changes {
			method = "post"
			operation["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": object{
				"type": "object", "required": slices.Sorted(maps.Keys(does.told)), "additionalProperties": false, "properties": does.told,
			}}}}
			operation["responses"].(object)["422"], operation["responses"].(object)["503"] = problem, problem
		}
		paths[Prefix+path] = object{method: operation}
	}
	return object{
		"openapi": "3.1.0",
		"info":    object{"title": "Headgate: insight", "version": "1", "summary": "Who uses what, who is denied, and why.", "license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"}},
		"paths":   paths,
		"components": object{
			"securitySchemes": object{"admin": object{"type": "http", "scheme": "bearer"}},
			"responses": object{"Problem": object{"description": "Why there is no answer (RFC 9457).", "content": object{"application/problem+json": object{"schema": object{
				"type": "object", "required": []string{"title", "status", "detail"},
				"properties": object{"title": object{"type": "string"}, "status": object{"type": "integer"}, "detail": object{"type": "string"}},
			}}}}},
		},
	}
}

func TestDocument(t *testing.T) {
	want, err := json.MarshalIndent(document(), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile("openapi.json", want, 0o644); err != nil { //nolint:gosec // It is for everybody.
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(openAPI, want) {
		t.Error("openapi.json does not describe what is answered; run this test with -update")
	}
	for path, method := range New(Options{}).Paths() {
		d, known := described[strings.TrimPrefix(path, Prefix)]
		_, changes := done[strings.TrimPrefix(path, Prefix)]
		if path != Prefix+"openapi.json" && (!known || d.summary == "" || changes != (method == http.MethodPost)) {
			t.Errorf("%s is not described", path)
		}
	}
}
