package document

import (
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
)

// knownHeaders are the headers that clients may get, as they are written, and their meaning.
var knownHeaders = []Header{
	{Name: "Retry-After", Meaning: "Only with 429: the seconds after which the request fits, if nothing else comes. Earlier it does not."},
	{Name: "X-RateLimit-Limit", Meaning: "The most that the limit which decided grants at once."},
	{Name: "X-RateLimit-Remaining", Meaning: "What is left of it."},
	{Name: "X-RateLimit-Reset", Meaning: "The seconds until all of it is free again."},
	{Name: "RateLimit-Limit", Meaning: "The most that the limit which decided grants at once."},
	{Name: "RateLimit-Remaining", Meaning: "What is left of it."},
	{Name: "RateLimit-Reset", Meaning: "The seconds until more is free."},
	{Name: "RateLimit-Policy", Meaning: "The limits: q is the quota, and w the window in seconds."},
	{Name: "RateLimit", Meaning: "What is left of each limit (r), and the seconds until more is free (t)."},
}

// headers are those that a denial has in the dialect.
func headers(dialect httplimit.Dialect, v *headgate.Verdict) (all []Header) {
	h := make(http.Header)
	httplimit.WriteHeaders(h, dialect, v)
	for _, header := range knownHeaders {
		for name, values := range h {
			if strings.EqualFold(name, header.Name) {
				header.Example = values[0]
				all = append(all, header)
			}
		}
	}
	return all
}

// retrying says how to behave. It is the same whatever the limits are.
var retrying = []string{
	"Wait for as long as Retry-After says, plus a random time of up to a second, so that clients that were denied together do not come back together.",
	"If there is no Retry-After, a 429 will not go away by itself: the request costs more than the limit grants. Send a smaller one.",
	"After 503, or without an answer, wait 1, 2, 4, … seconds, up to 60, each multiplied by a random number between 0.5 and 1. Give up after five attempts.",
	"Keep to the headers rather than to the numbers on this page: slow down when little remains.",
}

// Markdown returns the document as a section of a Markdown page.
func (d *Document) Markdown() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# %s\n", markdown(d.Title))
	line("A request that exceeds a limit is answered with status 429 and costs nothing. If several limits\napply to a request, it must fit all of them.\n")
	line("| requests | counted for each | tariff | limit |\n|---|---|---|---|")
	for _, l := range d.Limits {
		for _, tier := range l.Tiers {
			line("| %s | %s | %s | %s |", markdown(strings.Join(l.Operations, "; ")), markdown(l.Counted), markdown(tier.Name), markdown(tier.Limits))
		}
	}
	for _, l := range d.Limits {
		for _, note := range l.Notes {
			line("\n%s: %s", markdown(strings.Join(l.Operations, "; ")), markdown(note))
		}
	}
	if len(d.Headers) > 0 {
		line("\n## Headers\n\n| header | meaning | example |\n|---|---|---|")
		for _, h := range d.Headers {
			line("| `%s` | %s | `%s` |", h.Name, h.Meaning, h.Example)
		}
	}
	line("\n## When a limit is exceeded\n\nThe answer has the type `application/problem+json`:\n\n```json\n%s\n```\n", d.body())
	line("`retry_after_ms` is the time until the request fits, in milliseconds, and -1 if it never will.\n\n## How to retry\n")
	for _, text := range retrying {
		line("- %s", text)
	}
	return b.String()
}

// markdown keeps what is in the policy from being markup.
func markdown(text string) string {
	return strings.NewReplacer(`\`, `\\`, "|", `\|`, "<", "&lt;", "*", `\*`, "_", `\_`, "`", "\\`", "[", `\[`, "\n", " ").Replace(text)
}

// body is an example of the body of a denial.
func (d *Document) body() string {
	text, err := json.MarshalIndent(&d.Problem, "", "  ")
	if err != nil {
		panic(err) // a Problem has texts and numbers only
	}
	return string(text)
}

var page = template.Must(template.New("page").Funcs(template.FuncMap{"join": strings.Join}).Parse(`<section class="rate-limits">
<h1>{{.D.Title}}</h1>
<p>A request that exceeds a limit is answered with status 429 and costs nothing. If several limits apply to a request, it must fit all of them.</p>
<table>
<tr><th>requests</th><th>counted for each</th><th>tariff</th><th>limit</th></tr>
{{range .D.Limits}}{{$l := .}}{{range .Tiers}}<tr><td>{{join $l.Operations "; "}}</td><td>{{$l.Counted}}</td><td>{{.Name}}</td><td>{{.Limits}}</td></tr>
{{end}}{{end}}</table>
{{range .D.Limits}}{{$l := .}}{{range .Notes}}<p>{{join $l.Operations "; "}}: {{.}}</p>
{{end}}{{end}}{{if .D.Headers}}<h2>Headers</h2>
<table>
<tr><th>header</th><th>meaning</th><th>example</th></tr>
{{range .D.Headers}}<tr><td><code>{{.Name}}</code></td><td>{{.Meaning}}</td><td><code>{{.Example}}</code></td></tr>
{{end}}</table>
{{end}}<h2>When a limit is exceeded</h2>
<p>The answer has the type <code>application/problem+json</code>:</p>
<pre>{{.Body}}</pre>
<p><code>retry_after_ms</code> is the time until the request fits, in milliseconds, and -1 if it never will.</p>
<h2>How to retry</h2>
<ul>
{{range .Retrying}}<li>{{.}}</li>
{{end}}</ul>
</section>
`))

// HTML returns the document as a section of an HTML page.
func (d *Document) HTML() (string, error) {
	var b strings.Builder
	err := page.Execute(&b, map[string]any{"D": d, "Body": d.body(), "Retrying": retrying})
	return b.String(), err
}

// OpenAPI returns, as JSON, a fragment of an OpenAPI document: the response
// TooManyRequests with its headers and its body, for the operations to refer to. The limits
// themselves are in its description.
func (d *Document) OpenAPI() (string, error) {
	fields := make(map[string]any)
	for _, h := range d.Headers {
		fields[h.Name] = map[string]any{"description": h.Meaning, "schema": map[string]any{"type": "string"}, "example": h.Example}
	}
	text := map[string]any{"type": "string"}
	schema := map[string]any{
		"type": "object", "required": []string{"title", "status"},
		"properties": map[string]any{
			"type": text, "title": text, "detail": text, "status": map[string]any{"type": "integer"},
			"violated-policies": map[string]any{"type": "array", "items": text},
			"retry_after_ms":    map[string]any{"type": "integer", "description": "The time until the request fits, in milliseconds; -1 if it never will."},
		},
	}
	var about []string
	for _, l := range d.Limits {
		for _, tier := range l.Tiers {
			words := fmt.Sprintf("%s, for each %s", strings.Join(l.Operations, "; "), l.Counted)
			if tier.Name != "" {
				words += ", tariff " + tier.Name
			}
			about = append(about, words+": "+tier.Limits+".")
		}
		about = append(about, l.Notes...)
	}
	fragment := map[string]any{"components": map[string]any{"responses": map[string]any{"TooManyRequests": map[string]any{
		"description": strings.TrimSpace("A limit is exceeded. " + strings.Join(about, " ")), "headers": fields,
		"content": map[string]any{"application/problem+json": map[string]any{"schema": schema, "example": &d.Problem}},
	}}}}
	out, err := json.MarshalIndent(fragment, "", "  ")
	return string(out) + "\n", err
}
