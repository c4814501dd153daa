package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/forwardauth"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

const documentURL = "mem://openapi.json"

// document is the OpenAPI document, with the schemas in it compiled on demand.
type document struct {
	t        *testing.T
	root     any
	compiler *jsonschema.Compiler
}

func newDocument(t *testing.T) *document {
	t.Helper()
	root, err := jsonschema.UnmarshalJSON(bytes.NewReader(openAPI))
	if err != nil {
		t.Fatal(err)
	}
	d := &document{t: t, root: root, compiler: jsonschema.NewCompiler()}
	d.compiler.AssertFormat()
	if err := d.compiler.AddResource(documentURL, root); err != nil {
		t.Fatal(err)
	}
	return d
}

// at returns what stands at the path, which leads through references, and the
// JSON pointer that it really stands at; nil if nothing does.
func (d *document) at(path ...string) (value any, pointer string) {
	value = d.root
	for _, name := range path {
		object, _ := value.(map[string]any)
		value = object[name]
		pointer += "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
		if object, ok := value.(map[string]any); ok && len(object) == 1 {
			if ref, ok := object["$ref"].(string); ok {
				pointer = strings.TrimPrefix(ref, "#")
				value, _ = d.at(strings.Split(strings.TrimPrefix(pointer, "/"), "/")...)
			}
		}
		if value == nil {
			return nil, ""
		}
	}
	return value, pointer
}

// validate holds the JSON text against the schema at the pointer.
func (d *document) validate(pointer string, text []byte) error {
	schema, err := d.compiler.Compile(documentURL + "#" + pointer)
	if err != nil {
		return err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

// response says what is wrong with a response by the document, or "".
func (d *document) response(method, path string, w *httptest.ResponseRecorder) string {
	kind, _, _ := strings.Cut(w.Header().Get("Content-Type"), ";")
	where := []string{"paths", path, strings.ToLower(method), "responses", strconv.Itoa(w.Code)}
	if value, _ := d.at(where...); value == nil {
		return fmt.Sprintf("%s %s: status %d is not in the document", method, path, w.Code)
	}
	if content, _ := d.at(append(where, "content")...); content == nil && w.Body.Len() == 0 {
		return ""
	}
	_, pointer := d.at(append(where, "content", kind, "schema")...)
	if pointer == "" {
		return fmt.Sprintf("%s %s: status %d has no %q in the document", method, path, w.Code, kind)
	}
	if kind == "text/plain" {
		return ""
	}
	if err := d.validate(pointer, w.Body.Bytes()); err != nil {
		return fmt.Sprintf("%s %s: %d %s: %v", method, path, w.Code, w.Body, err)
	}
	return ""
}

func keys(value any) []string {
	object, _ := value.(map[string]any)
	names := make([]string, 0, len(object))
	for name := range object {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// TestDocumentRoutes holds the paths and methods of the document against those
// of the handler, both ways.
func TestDocumentRoutes(t *testing.T) {
	d := newDocument(t)
	h := New(over(newFake(t)), Options{Metrics: http.NotFoundHandler(), Auth: http.NotFoundHandler()})
	var served []string
	for path, route := range h.routes {
		served = append(served, strings.Replace(route.method, anyMethod, "GET", 1)+" "+path)
	}
	slices.Sort(served)
	var described []string
	paths, _ := d.at("paths")
	for _, path := range keys(paths) {
		methods, _ := d.at("paths", path)
		for _, method := range keys(methods) {
			described = append(described, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(described)
	if !slices.Equal(served, described) {
		t.Errorf("served:    %v\ndescribed: %v", served, described)
	}
}

// TestDocumentExamples holds each example against its schema, sends those of
// requests to the handler, and sees that every reference leads somewhere.
func TestDocumentExamples(t *testing.T) {
	d := newDocument(t)
	examples := 0
	var walk func(value any, pointer string)
	walk = func(value any, pointer string) {
		switch value := value.(type) {
		case []any:
			for i, v := range value {
				walk(v, pointer+"/"+strconv.Itoa(i))
			}
		case map[string]any:
			if ref, ok := value["$ref"].(string); ok {
				if found, _ := d.at(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...); found == nil {
					t.Errorf("%s: %s leads nowhere", pointer, ref)
				}
			}
			given, _ := value["examples"].(map[string]any)
			for name, example := range given {
				examples++
				text, err := json.Marshal(example.(map[string]any)["value"])
				if err != nil {
					t.Fatal(err)
				}
				if err := d.validate(pointer+"/schema", text); err != nil {
					t.Errorf("%s: example %s: %v", pointer, name, err)
				}
			}
			for name, v := range value {
				if name != "examples" {
					walk(v, pointer+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
				}
			}
		}
	}
	walk(d.root, "")
	if examples < 20 {
		t.Errorf("found %d examples, there should be more", examples)
	}

	f := newFake(t)
	f.set = withRule(t, f.set, "service.actionName")
	h := New(over(f), Options{})
	for _, path := range []string{"/v1/check", "/v1/peek", "/v1/refund", "/v1/reset", "/v1/explain"} {
		given, _ := d.at("paths", path, "post", "requestBody", "content", "application/json", "examples")
		for _, name := range keys(given) {
			text, _ := json.Marshal(given.(map[string]any)[name].(map[string]any)["value"])
			if w := post(h, path, string(text)); w.Code != http.StatusOK {
				t.Errorf("%s: example %s is answered with %d %s", path, name, w.Code, w.Body)
			}
		}
	}
}

// call provokes an answer.
type call struct {
	method, query, kind, body string
	reader                    io.Reader
	err                       error
	panics                    bool
	token                     string
	kept                      *ReloadError
	ready                     func(context.Context) error
	header                    http.Header
	noPermits, noClock, late  bool
}

// provoke sends the call to the path of a new handler. The first full amount
// has been spent there, so that what asks for more is denied.
func (c call) provoke(t *testing.T, method, path string) *httptest.ResponseRecorder {
	t.Helper()
	f := newFake(t)
	permits, kept := heldPermits(t)
	if kept.err = c.err; c.noPermits {
		permits = nil
	}
	h := New(over(f), Options{Permits: permits, Ready: c.ready, Auth: forwardauth.New(over(f), forwardauth.Options{}), Detail: func() string { return "a detail" }, Admin: c.admin(f), Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	})})
	post(h, "/v1/check", fmt.Sprintf(forUser, 5))
	f.err = c.err
	if c.panics {
		h.routes[path].serve = func(*Handler, http.ResponseWriter, *http.Request) { panic("boom") }
	}
	if c.reader == nil {
		c.reader = strings.NewReader(strings.ReplaceAll(c.body, "%d", strconv.FormatInt(epochOf(t, kept), 10)))
	}
	r := httptest.NewRequest(cmp.Or(c.method, method), path+c.query, c.reader)
	r.Header.Set("Content-Type", cmp.Or(c.kind, "application/json"))
	r.Header.Set("Authorization", "Bearer "+c.token)
	maps.Copy(r.Header, c.header)
	return serve(h, r)
}

// epochOf is that of the permit of tenant k.
func epochOf(t *testing.T, p store.Permits) int64 {
	t.Helper()
	held, err := p.(*failing).Permits.Holders(t.Context(), "report k")
	if err != nil || len(held.Leases) != 1 {
		t.Fatal(held, err)
	}
	return held.Leases[0].Epoch
}

// admin is what the handler's admin may ask for: what c says, unless it says
// that there is none.
func (c call) admin(f *fake) Admin {
	if c.token == "" {
		return Admin{}
	}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if c.late {
		start = time.Date(2199, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	turn := memory.NewManualClock(start).Advance
	if c.noClock {
		turn = nil
	}
	return Admin{Token: "open sesame", Clock: turn, Candidate: func(keys bool) any {
		return json.RawMessage(candidateAnswer(keys))
	}, Reload: func(string) (decide.Policy, bool, error) {
		if c.kept != nil {
			return f.Policy(), false, c.kept
		}
		return f.Policy(), true, nil
	}}
}

// about are the headers of a proxy that asks about a request of the API key k.
func about(method, uri string) http.Header {
	return http.Header{"X-Forwarded-Method": {method}, "X-Forwarded-Uri": {uri}, "X-Api-Key": {"k"}}
}

// TestDocumentStatuses provokes every status that the document names for every
// path, and holds each answer against its schema.
func TestDocumentStatuses(t *testing.T) {
	d := newDocument(t)
	good := fmt.Sprintf(forUser, 1)
	calls := map[string][]call{
		"GET 200": {{}},
		"GET 405": {{method: "DELETE"}},
		"GET 500": {{panics: true}},
		"GET 503": {{ready: notReady}},
		"POST 200": {
			{body: good}, // denied
			{body: `{"checks":[{"rule":"auth.createToken","key":"k","cost":9}]}`}, // never fits
			{body: `{"descriptor":{"route":"POST /v1/token","api_key":"k"}}`},
			{body: `{"descriptor":{}}`},
			{body: `{"descriptor":{"route":"GET /wp-login.php"}}`},
		},
		"POST 400": {{body: `{"x":1}`}, {body: good, query: "?x=1"}},
		"POST 403": {{query: "?status=true", body: `{"descriptor":{"route":"GET /wp-login.php"}}`}},
		"POST 404": {{body: `{"checks":[{"rule":"x","key":""}]}`}},
		"POST 405": {{method: "PUT"}},
		"POST 408": {{reader: broken{timeoutError{}}}},
		"POST 413": {{body: strings.Repeat(" ", MaxBody+1)}},
		"POST 415": {{kind: "text/plain", body: good}},
		"POST 422": {{body: `{}`}},
		"POST 429": {{query: "?status=true", body: good}},
		"POST 500": {{body: good, panics: true}},
		"POST 503": {{body: good, err: headgate.ErrUnavailable}},

		"/v1/explain 200": {
			{body: `{"descriptor":{"route":"POST /v1/token","api_key":"k"}}`},
			{body: `{"descriptor":{"route":"POST /v1/token","api_key":"k"},"cost":21}`},
			{body: `{"descriptor":{}}`},
		},
		"/v1/explain 503": {{body: `{"descriptor":{"route":"POST /v1/token","api_key":"k"}}`, err: headgate.ErrUnavailable}},
		"/v1/explain 422": {{body: good}},

		"/v1/check 409": {{body: `{"descriptor":{"route":"POST /v1/token","api_key":"k"},"id":"R2"}`}},
		"/v1/reserve 200": {
			{body: good}, // denied
			{body: `{"descriptor":{"route":"POST /v1/token","api_key":"k"},"cost":2,"lifetime_ms":1000}`},
			{body: `{"descriptor":{}}`},
		},
		"/v1/reserve 409": {{body: `{"descriptor":{"route":"POST /v1/token","api_key":"k"},"id":"R2"}`}},
		"/v1/settle 200":  {{body: `{"reservation":"R1","cost":0}`}, {body: `{"reservation":"R1","status":304}`}},
		"/v1/settle 400":  {{body: `{"descriptor":{}}`}, {body: `{"reservation":"R1","cost":1}`, query: "?at=true"}},
		"/v1/settle 404":  {{body: `{"reservation":"R3","cost":1}`}},
		"/v1/settle 409":  {{body: `{"reservation":"R2","cost":1}`}},
		"/v1/settle 422":  {{body: `{"reservation":"R1"}`}, {body: `{"cost":1}`}, {body: `{"reservation":"R1","status":99}`}, {body: `{"reservation":"","cost":-1}`}},
		"/v1/settle 500":  {{body: `{"reservation":"R1","cost":1}`, panics: true}},
		"/v1/settle 503":  {{body: `{"reservation":"R1","cost":1}`, err: headgate.ErrUnavailable}},
		"/v1/cancel 200":  {{body: `{"reservation":"R1"}`}},
		"/v1/cancel 400":  {{body: `{"reservation":"R1","cost":1}`}},
		"/v1/cancel 404":  {{body: `{"reservation":"R3"}`}},
		"/v1/cancel 409":  {{body: `{"reservation":"R2"}`}},
		"/v1/cancel 500":  {{body: `{"reservation":"R1"}`, panics: true}},
		"/v1/cancel 503":  {{body: `{"reservation":"R1"}`, err: headgate.ErrUnavailable}},

		"/v1/permits/acquire 200": {
			{body: ask("report", "x", "a", "")},
			{body: ask("report", "k", "a", "")},
			{body: ask("report", "k", "a", `,"keep_ms":1000`)},
			{body: ask("shadow", "k", "a", "")},
			{body: ask("open", "", "a", ""), err: headgate.ErrUnavailable},
		},
		"/v1/permits/acquire 404": {{body: ask("x", "", "a", "")}},
		"/v1/permits/acquire 409": {{body: ask("report", "k", "holder", ""), err: store.ErrOtherCost}},
		"/v1/permits/acquire 410": {{body: ask("report", "r", "holder", "")}, {body: ask("report", "r", "holder", ""), err: store.ErrNotHeld}},
		"/v1/permits/acquire 429": {{query: "?status=true", body: ask("report", "k", "a", "")}, {query: "?status=true", body: ask("report", "k", "a", `,"keep_ms":1000`)}},
		"/v1/permits/acquire 501": {{body: ask("report", "k", "a", ""), noPermits: true}},
		"/v1/permits/acquire 503": {{query: "?status=true", body: ask("all", "", "a", "")}, {body: ask("report", "k", "a", ""), err: headgate.ErrUnavailable}},
		"/v1/permits/renew 200":   {{body: ask("report", "k", "holder", `,"epoch":%d`)}},
		"/v1/permits/renew 404":   {{body: ask("x", "", "a", `,"epoch":1`)}},
		"/v1/permits/renew 410":   {{body: ask("report", "k", "a", `,"epoch":1`)}, {body: ask("report", "k", "a", `,"epoch":1`), err: store.ErrRevoked}},
		"/v1/permits/renew 501":   {{body: ask("report", "k", "a", `,"epoch":1`), noPermits: true}},
		"/v1/permits/renew 503":   {{body: ask("report", "k", "a", `,"epoch":1`), err: headgate.ErrUnavailable}},
		"/v1/permits/release 200": {{body: ask("report", "k", "a", "")}},
		"/v1/permits/release 404": {{body: ask("x", "", "a", "")}},
		"/v1/permits/release 501": {{body: ask("report", "k", "a", ""), noPermits: true}},
		"/v1/permits/release 503": {{body: ask("report", "k", "a", ""), err: headgate.ErrUnavailable}},
		"/v1/permits/revoke 200":  {{token: "open sesame", body: ask("report", "k", "a", "")}},
		"/v1/permits/revoke 400":  {{token: "open sesame", body: `{"x":1}`}},
		"/v1/permits/revoke 401":  {{token: "geheim"}},
		"/v1/permits/revoke 403":  {{}},
		"/v1/permits/revoke 404":  {{token: "open sesame", body: ask("x", "", "a", "")}},
		"/v1/permits/revoke 408":  {{token: "open sesame", reader: broken{timeoutError{}}}},
		"/v1/permits/revoke 413":  {{token: "open sesame", body: strings.Repeat(" ", MaxBody+1)}},
		"/v1/permits/revoke 415":  {{token: "open sesame", kind: "text/plain"}},
		"/v1/permits/revoke 422":  {{token: "open sesame", body: `{}`}},
		"/v1/permits/revoke 501":  {{token: "open sesame", body: ask("report", "k", "a", ""), noPermits: true}},
		"/v1/permits/revoke 503":  {{token: "open sesame", body: ask("report", "k", "a", ""), err: headgate.ErrUnavailable}},
		"/v1/permits/holders 200": {{token: "open sesame", query: "?rule=report&key=k"}, {token: "open sesame", query: "?rule=report&key=r"}},
		"/v1/permits/holders 400": {{token: "open sesame", query: "?x=1"}},
		"/v1/permits/holders 401": {{token: "geheim"}},
		"/v1/permits/holders 403": {{}},
		"/v1/permits/holders 404": {{token: "open sesame", query: "?rule=x&key="}},
		"/v1/permits/holders 422": {{token: "open sesame", query: "?rule=report"}},
		"/v1/permits/holders 501": {{token: "open sesame", query: "?rule=report&key=k", noPermits: true}},
		"/v1/permits/holders 503": {{token: "open sesame", query: "?rule=report&key=k", err: headgate.ErrUnavailable}},

		"/v1/auth 200": {{header: about("POST", "/v1/token")}},
		"/v1/auth 400": {{header: about("GET", "v1")}},
		"/v1/auth 401": {{query: "/denied=401&cost=6", header: about("POST", "/v1/token")}},
		"/v1/auth 403": {{header: about("GET", "/wp-login.php")}, {query: "/denied=403&cost=6", header: about("POST", "/v1/token")}},
		"/v1/auth 429": {{query: "/cost=30", header: about("POST", "/v1/token")}, {query: "/cost=6", header: about("POST", "/v1/token")}},
		"/v1/auth 431": {{query: "/key=X-Key", header: http.Header{"X-Forwarded-Method": {"GET"}, "X-Forwarded-Uri": {"/"}, "X-Key": {strings.Repeat("k", policy.MaxValue+1)}}}},
		"/v1/auth 500": {{}, {query: "/what=1"}, {header: about("GET", "/"), panics: true}},
		"/v1/auth 503": {{header: about("POST", "/v1/token"), err: headgate.ErrUnavailable}},

		"/v1/candidate 200": {{token: "open sesame"}},
		"/v1/candidate 400": {{token: "open sesame", query: "?status=true"}},
		"/v1/candidate 401": {{token: "geheim"}},
		"/v1/candidate 404": {{}},

		"/v1/clock 200":  {{token: "open sesame", body: `{"advance":"15m"}`}, {token: "open sesame", body: `{"advance":"0s"}`}},
		"/v1/clock 400":  {{token: "open sesame", query: "?status=true", body: `{"advance":"1m"}`}, {token: "open sesame"}, {token: "open sesame", body: `{"advance":15}`}, {token: "open sesame", body: `{"advanced":"1m"}`}},
		"/v1/clock 401":  {{token: "geheim"}},
		"/v1/clock 403":  {{}},
		"/v1/clock 405":  {{method: "PUT"}},
		"/v1/clock 409":  {{token: "open sesame", body: `{"advance":"1m"}`, noClock: true}},
		"/v1/clock 422":  {{token: "open sesame", body: `{"advance":"15"}`}, {token: "open sesame", body: `{"advance":"-1m"}`}, {token: "open sesame", body: `{"advance":"99999h"}`}, {token: "open sesame", body: `{"advance":"87600h"}`, late: true}},
		"/v1/reload 200": {{token: "open sesame"}},
		"/v1/reload 400": {{token: "open sesame", query: "?status=true"}},
		"/v1/reload 401": {{token: "geheim"}},
		"/v1/reload 403": {{}},
		"/v1/reload 405": {{method: "PUT"}},
		"/v1/reload 409": {{token: "open sesame", kept: &ReloadError{Fixed: true, Detail: "no file"}}},
		"/v1/reload 422": {
			{token: "open sesame", kept: &ReloadError{Detail: "no such file"}},
			{token: "open sesame", kept: &ReloadError{Detail: "2 mistakes", Mistakes: []PolicyMistake{{"a.yaml", 3, 4, "wrong"}, {File: "a.yaml", Detail: "wrong"}}}},
		},
	}
	paths, _ := d.at("paths")
	for _, path := range keys(paths) {
		methods, _ := d.at("paths", path)
		for _, lower := range keys(methods) {
			method := strings.ToUpper(lower)
			statuses, _ := d.at("paths", path, lower, "responses")
			for _, status := range keys(statuses) {
				list, special := calls[path+" "+status]
				if !special {
					list = calls[method+" "+status]
				}
				if len(list) == 0 {
					t.Errorf("%s %s: this test knows no call for status %s", method, path, status)
				}
				for _, c := range list {
					w := c.provoke(t, method, path)
					if strconv.Itoa(w.Code) != status {
						t.Errorf("%s %s: the call for %s is answered with %d %s", method, path, status, w.Code, w.Body)
					} else if wrong := d.response(method, path, w); wrong != "" {
						t.Error(wrong)
					}
				}
			}
		}
	}
}

// TestDocumentIsStrict makes sure that the schemas refuse what is not theirs:
// else the tests above would prove nothing.
func TestDocumentIsStrict(t *testing.T) {
	d := newDocument(t)
	for schema, text := range map[string]string{
		"Verdict":  `{"allowed":false,"retry_after_ms":0,"delay_ms":0,"decisions":[]}`,
		"Decision": `{"rule":"r"}`,
		"Problem":  `{"title":"t","status":400,"detail":"d","else":1}`,
		"Denial":   `{"title":"t","status":429,"detail":"d"}`,
		"Listed":   `{"title":"t","status":403,"detail":"d","allowed":false,"denied_by":{"list":"l","rule":"r"},"retry_after_ms":-1,"delay_ms":0,"decisions":[]}`,
		"Request":  `{"descriptor":{},"checks":[]}`,
		"Refund":   `{"descriptor":{},"at":0}`,
		"Rules":    `{"version":1,"hash":"5ec2e7","rules":[{"name":"x"}]}`,
		"Reset":    `{"reset":[1]}`,
		"State":    `{"status":"well"}`,
		"Acquire":  `{"rule":"r","key":"","holder":"h","epoch":1}`,
		"Acquired": `{"allowed":true,"in_use":1,"limit":1,"line":0,"retry_after_ms":0,"denied_by":{}}`,
	} {
		if err := d.validate("/components/schemas/"+schema, []byte(text)); err == nil {
			t.Errorf("schema %s takes %s", schema, text)
		}
	}
}
