package accesslog

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

// realLog is the traffic of a web site; see testdata/README.md.
func realLog(t testing.TB) []byte {
	t.Helper()
	f, err := os.Open("../testdata/access.log.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// write writes a file into a directory of the test's and returns its name.
func write(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// line is what the tests look at of a request.
type line struct {
	time, spread                          int64
	ip, user, method, target, host, agent string
	status                                int32
	duration                              int64
	fine                                  bool
	entries                               string
}

// readAll reads logs to their end.
func readAll(t testing.TB, o Options, names ...string) (all []line, stats Stats) {
	t.Helper()
	l, err := Open(t.Context(), names, o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	for {
		s, err := l.Next()
		if errors.Is(err, io.EOF) {
			return all, l.Stats()
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range s.Requests {
			r := &s.Requests[i]
			entries := make([]string, len(l.Entries()))
			for j := range entries {
				entries[j] = strings.Clone(r.Entry(j))
			}
			all = append(all, line{
				r.Time, r.Spread, strings.Clone(r.Text(r.IP)), strings.Clone(r.Text(r.User)), strings.Clone(r.Text(r.Method)),
				strings.Clone(r.Text(r.Target)), strings.Clone(r.Text(r.Host)), strings.Clone(r.Text(r.Agent)), r.Status, r.Duration, r.Fine, strings.Join(entries, "|"),
			})
		}
		s.Release()
	}
}

func at(t testing.TB, text string) int64 {
	t.Helper()
	when, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		t.Fatal(err)
	}
	return when.UnixMicro()
}

func TestFormats(t *testing.T) {
	second := at(t, "2015-05-17T10:05:03Z")
	fine := at(t, "2015-05-17T10:05:03.25Z")
	tests := []struct {
		name, format, text string
		maps               []string
		want               line
	}{
		{
			"common", "auto", `192.0.2.7 - anna [17/May/2015:12:05:03 +0200] "GET /a?b=c HTTP/1.1" 200 12`, nil,
			line{time: second, spread: second, ip: "192.0.2.7", user: "anna", method: "GET", target: "/a?b=c", status: 200, duration: -1},
		},
		{
			"combined", "auto", `2001:db8::1 - - [17/May/2015:10:05:03 +0000] "POST /a HTTP/1.1" 429 12 "-" "curl/8 \"x\""`, nil,
			line{time: second, spread: second, ip: "2001:db8::1", method: "POST", target: "/a", status: 429, agent: `curl/8 "x"`, duration: -1},
		},
		{
			"combined with more behind it", "combined", `192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 12 "-" "a" "further" 1`, nil,
			line{time: second, spread: second, ip: "192.0.2.7", method: "GET", target: "/", status: 200, agent: "a", duration: -1},
		},
		{
			"log_format of nginx", `$msec ${request_time}s $host "$http_x_api_key" $remote_addr "$request"`, `1431857103.500 0.250s example.com "k 1" 192.0.2.7 "GET / HTTP/2.0"`,
			[]string{"api_key=http_x_api_key"},
			line{time: fine, spread: fine, ip: "192.0.2.7", method: "GET", target: "/", host: "example.com", duration: 250_000, fine: true, entries: "k 1"},
		},
		{
			"LogFormat of Apache", `%v %a %l %u %t "%r" %>s %O "%{X-Tenant}i" %D`, `www.example.com 192.0.2.7 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 404 1 "blue" 1500`,
			[]string{"tenant={X-Tenant}i"},
			line{time: second, spread: second, ip: "192.0.2.7", method: "GET", target: "/", host: "www.example.com", status: 404, duration: 1500, entries: "blue"},
		},
		{
			"LogFormat of Apache with a time of its own", `%a %{msec}t "%r" %>s`, `192.0.2.7 1431857103250 "GET / HTTP/1.1" 200`, nil,
			line{time: fine, spread: fine, ip: "192.0.2.7", method: "GET", target: "/", status: 200, duration: -1, fine: true},
		},
		{
			"Envoy", "auto", `[2015-05-17T10:05:03.250Z] "GET /api/v1?x=1 HTTP/1.1" 200 - 0 15 12 11 "198.51.100.9, 192.0.2.7" "curl" "id" "example.com" "10.0.0.1:80"`, nil,
			line{time: fine, spread: fine, ip: "192.0.2.7", method: "GET", target: "/api/v1?x=1", host: "example.com", agent: "curl", status: 200, duration: 12_000, fine: true},
		},
		{
			"Envoy in JSON", "auto", `{"start_time":"2015-05-17T10:05:03.250Z","method":"GET","path":"/a","response_code":200,"duration":12,"downstream_remote_address":"192.0.2.7:4711","authority":"example.com","user_agent":null}`, nil,
			line{time: fine, spread: fine, ip: "192.0.2.7", method: "GET", target: "/a", host: "example.com", status: 200, duration: 12_000, fine: true},
		},
		{
			"Caddy", "auto", `{"level":"info","ts":1431857103.5,"logger":"http","request":{"remote_ip":"10.0.0.1","client_ip":"192.0.2.7","method":"GET","host":"example.com","uri":"/a?x=1","headers":{"User-Agent":["curl"],"Accept":["*/*"]}},"user_id":"anna","duration":0.25,"status":200}`, nil,
			line{time: fine, spread: fine, ip: "192.0.2.7", user: "anna", method: "GET", target: "/a?x=1", host: "example.com", agent: "curl", status: 200, duration: 250_000, fine: true},
		},
		{
			"Traefik", "auto", `192.0.2.7 - anna [17/May/2015:10:05:04 +0000] "GET /a HTTP/1.1" 200 5 "-" "-" 17 "router@file" "http://10.0.0.1" 1000ms`, nil,
			line{time: second, spread: second, ip: "192.0.2.7", user: "anna", method: "GET", target: "/a", status: 200, duration: 1_000_000},
		},
		{
			"Traefik in JSON", "traefik", `{"ClientHost":"192.0.2.7","RequestMethod":"GET","RequestPath":"/a","RequestHost":"example.com","StartUTC":"2015-05-17T10:05:03.25Z","DownstreamStatus":200,"Duration":1500000}`, nil,
			line{time: fine, spread: fine, ip: "192.0.2.7", method: "GET", target: "/a", host: "example.com", status: 200, duration: 1500, fine: true},
		},
		{
			"ALB", "auto", `https 2015-05-17T10:05:04.000000Z app/lb/50dc6c495c0c9188 192.0.2.7:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 "GET https://www.example.com:443/a?x=1 HTTP/1.1" "curl/7" ECDHE TLSv1.2 arn:aws:x "Root=1-58337281" "www.example.com" "arn:aws:acm:y" 1 2015-05-17T10:05:03.250000Z "authenticate,forward" "-" "-" "-" "-" "-" "-"`, nil,
			line{time: fine, spread: fine, ip: "192.0.2.7", method: "GET", target: "https://www.example.com:443/a?x=1", host: "www.example.com", agent: "curl/7", status: 200, duration: -1, fine: true},
		},
		{
			"JSON with mapped fields", "json", `{"when":1431857103250,"who":{"addr":"192.0.2.7"},"line":"GET /a\u002fb?key=k9&x HTTP\/1.1","took":2,"x.y":"dotted"}`,
			[]string{"time=when", "ip=who.addr", "request=line", "duration=took:ms", "tenant=x.y", "api_key=query:key"},
			line{time: fine - 2000, spread: fine - 2000, ip: "192.0.2.7", method: "GET", target: "/a/b?key=k9&x", duration: 2000, fine: true, entries: "dotted|k9"},
		},
		{
			"CSV", "auto", "time,client_ip,method,path,status,plan\n" + `2015-05-17T10:05:03.25Z,192.0.2.7,GET,"/a,""b""",200,pro`,
			[]string{"tier=plan"},
			line{time: fine, spread: fine, ip: "192.0.2.7", method: "GET", target: `/a,"b"`, status: 200, duration: -1, fine: true, entries: "pro"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := Options{Format: tt.format}
			for _, text := range tt.maps {
				m, err := ParseMap(text)
				if err != nil {
					t.Fatal(err)
				}
				o.Maps = append(o.Maps, m)
			}
			got, stats := readAll(t, o, write(t, "log", []byte(tt.text+"\r\n")))
			if len(got) != 1 || stats.Unreadable != 0 {
				t.Fatalf("read %d requests, %d lines are unreadable: %+v", len(got), stats.Unreadable, stats.Samples)
			}
			if got[0] != tt.want {
				t.Errorf("got  %+v\nwant %+v", got[0], tt.want)
			}
		})
	}
}

// TestTrust: the client is the last address that no trusted proxy has.
func TestTrust(t *testing.T) {
	trust := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}
	for list, want := range map[string]string{
		"192.0.2.7": "192.0.2.7", "10.0.0.1": "10.0.0.1", "192.0.2.7, 10.0.0.1": "192.0.2.7",
		"203.0.113.1, 192.0.2.7,10.0.0.1,  10.2.3.4:443": "192.0.2.7", "10.0.0.2, 10.0.0.1": "10.0.0.2",
		"10.9.9.9, what, 10.0.0.1": "what", "192.0.2.7, [2001:db8::1]:80": "192.0.2.7", "192.0.2.7, ::ffff:10.0.0.1": "192.0.2.7",
		"a, ,10.0.0.1": "", ",10.0.0.1": "", "192.0.2.7,": "",
	} {
		o := Options{Format: `"$http_x_forwarded_for" [$time_local] "$request" $status`, Trust: trust, Maps: []Map{{Name: "ip", Field: "http_x_forwarded_for"}}}
		got, _ := readAll(t, o, write(t, "log", []byte(`"`+list+`" [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200`+"\n")))
		if len(got) != 1 || got[0].ip != want {
			t.Errorf("%q: got %+v, want %q", list, got, want)
		}
		o.Trust = nil
		got, _ = readAll(t, o, write(t, "log", []byte(`"203.0.113.1, `+list+`" [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200`+"\n")))
		if last := list[strings.LastIndexByte(list, ',')+1:]; len(got) != 1 || !strings.Contains(last, got[0].ip) {
			t.Errorf("%q, without trust: got %+v, want the last one", list, got)
		}
	}
}

func TestFormatErrors(t *testing.T) {
	for _, tt := range []struct{ format, text, want string }{
		{"nginx", "x", "is neither one of auto, common"},
		{"auto", "what is this", "no format that is known"},
		{"json", "no JSON", "does not read the first lines"},
		{"$a$b", "x", "nothing stands between a and b"},
		{"$", "x", "no variable follows"},
		{"%{X", "x", "is not closed"},
	} {
		t.Run(tt.format, func(t *testing.T) {
			name := write(t, "log", []byte(tt.text+"\n"))
			l, err := Open(t.Context(), []string{name}, Options{Format: tt.format})
			var wrong *FormatError
			if !errors.As(err, &wrong) || wrong.File != name || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, %v; want a FormatError with %q", l, err, tt.want)
			}
		})
	}
}

func TestOpenTellsEveryFileThatIsMissing(t *testing.T) {
	_, err := Open(t.Context(), []string{"no-such-log-1", "no-such-log-2"}, Options{})
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "no-such-log-1") || !strings.Contains(err.Error(), "no-such-log-2") {
		t.Errorf("got %v, want both names", err)
	}
}

func combined(when time.Time, client, target string) string {
	return fmt.Sprintf("%s - - [%s] \"GET %s HTTP/1.1\" 200 1 \"-\" \"a\"\n", client, when.UTC().Format("02/Jan/2006:15:04:05 -0700"), target)
}

// TestUnreadableLines: broken lines cost a count and a sample, with the number of the line.
func TestUnreadableLines(t *testing.T) {
	when := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	good := combined(when, "192.0.2.1", "/a")
	text := good + "\n" + "broken\n" + good + strings.Repeat("x", 3*blockBytes) + "\n" + good +
		`192.0.2.1 - - [02/Jan/2026:03:04:05 +0000] "\x16\x03\x01" 400 1 "-" "-"` + "\n" +
		`192.0.2.1 - - [41/Jan/2026:03:04:05 +0000] "GET / HTTP/1.1" 400 1 "-" "-"` + "\n" + strings.TrimSuffix(good, "\n")
	got, stats := readAll(t, Options{}, write(t, "log", []byte(text)))
	if len(got) != 4 || stats.Unreadable != 4 || stats.Lines != 9 {
		t.Fatalf("%d requests, %d unreadable of %d lines: %+v; want 4, 4, 9", len(got), stats.Unreadable, stats.Lines, stats.Samples)
	}
	if s := stats.Samples[0]; s.Line != 3 || s.Text != "broken" || s.Reason == "" {
		t.Errorf("the first unreadable line is %+v, want line 3", s)
	}
}

// TestFilesAreMerged: files that overlap in time, compressed or not, are one log in the
// order of time, and so are lines that are out of order within the slack.
func TestFilesAreMerged(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var texts [3]bytes.Buffer
	want := 0
	for s := range 40_000 {
		for range rng.IntN(3) {
			i := rng.IntN(3)
			if s < 10_000 {
				i = 0 // as a file that was rotated
			}
			jitter := time.Duration(rng.IntN(5)) * time.Second
			texts[i].WriteString(combined(begin.Add(time.Duration(s)*time.Second-jitter), "192.0.2.1", fmt.Sprintf("/%d", want)))
			want++
		}
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write(texts[1].Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{write(t, "log.2", encoder.EncodeAll(texts[2].Bytes(), nil)), write(t, "log.1", zipped.Bytes()), "-"}
	got, stats := readAll(t, Options{Stdin: &texts[0]}, names...)
	if len(got) != want || stats.Late != 0 || stats.Unreadable != 0 {
		t.Fatalf("%d requests, %d late, %d unreadable; want %d", len(got), stats.Late, stats.Unreadable, want)
	}
	if !slices.IsSortedFunc(got, func(a, b line) int { return cmp.Compare(a.time, b.time) }) {
		t.Error("the requests are not in the order of time")
	}
	if !slices.IsSortedFunc(got, func(a, b line) int { return cmp.Compare(a.spread, b.spread) }) {
		t.Error("the requests are not in the order of their places")
	}
	seen := make(map[string]bool)
	perSecond := make(map[int64]int64)
	for _, r := range got {
		seen[r.target] = true
		perSecond[r.time]++
	}
	if len(seen) != want {
		t.Errorf("%d of %d requests are there", len(seen), want)
	}
	for i := range got {
		if i == 0 || got[i].time != got[i-1].time {
			n := perSecond[got[i].time]
			for j := range n {
				if r := got[int64(i)+j]; r.spread != r.time+j*second/n {
					t.Fatalf("request %d of the %d at %d is placed at %d", j, n, r.time, r.spread-r.time)
				}
			}
		}
	}
}

// TestMarks: the mark at the beginning of a file is no part of its first line, and a file that is
// not UTF-8 is named.
func TestMarks(t *testing.T) {
	when := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	marked := "\xef\xbb\xbf" + combined(when, "192.0.2.1", "/a")
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write([]byte(marked)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{write(t, "plain", []byte(marked)), write(t, "zipped", zipped.Bytes())} {
		if got, _ := readAll(t, Options{}, name); len(got) != 1 || got[0].ip != "192.0.2.1" {
			t.Errorf("got %+v, want a request of 192.0.2.1", got)
		}
	}
	for _, text := range []string{"\xff\xfe1\x00", "\xfe\xff\x001", "1\x009\x00", "\x001\x009"} {
		_, err := Open(t.Context(), []string{write(t, "wide", []byte(text))}, Options{})
		var wrong *FormatError
		if !errors.As(err, &wrong) || !strings.Contains(wrong.Text, "UTF-16") {
			t.Errorf("%q: got %v, want that it is UTF-16", text, err)
		}
	}
}

// TestCutOff: what can be read of a compressed file that was cut off counts, up to its last whole
// line, and the rest is named.
func TestCutOff(t *testing.T) {
	data := realLog(t)
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, packed := range [][]byte{zipped.Bytes(), encoder.EncodeAll(data, nil)} {
		for _, part := range []int{2, 10, 100_000} {
			name := write(t, "log", packed[:len(packed)-len(packed)/part-1])
			got, stats := readAll(t, Options{Format: "combined"}, name)
			if part < 100_000 && len(got) < 10_000-10_000/part*2 || len(got) > 10_000 || stats.Unreadable != 0 {
				t.Errorf("%d requests, %d unreadable", len(got), stats.Unreadable)
			}
			if len(stats.Broken) != 1 || !strings.Contains(stats.Broken[0], name) {
				t.Errorf("broken: %q, want %s", stats.Broken, name)
			}
		}
	}
}

// TestUnmapped: a field that was mapped and that no line has a value for is named.
func TestUnmapped(t *testing.T) {
	text := `{"time":1,"who":"-","path":"/a?k=","status":200}` + "\n" + `{"time":2,"who":"","path":"/b?x=1","status":200}` + "\n"
	o := Options{Maps: []Map{{"ip", "clientip"}, {"user", "who"}, {"api_key", "query:k"}, {"tenant", "query:x"}, {"duration", "status:ms"}}}
	_, stats := readAll(t, o, write(t, "log", []byte(text)))
	if got := strings.Join(stats.Unmapped, " "); got != "ip=clientip user=who api_key=query:k" || stats.Addresses {
		t.Errorf("unmapped: %q, addresses: %v", got, stats.Addresses)
	}
}

func TestLateLinesAreCounted(t *testing.T) {
	when := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	text := combined(when, "a", "/1") + combined(when.Add(time.Hour), "a", "/2") + strings.Repeat(combined(when.Add(time.Hour), "a", "/3"), 10_000) + combined(when.Add(time.Minute), "a", "/4")
	got, stats := readAll(t, Options{}, write(t, "log", []byte(text)))
	if len(got) != 10_003 || stats.Late != 0 {
		// All of the hour is pending until the end, so that nothing is late.
		t.Errorf("%d requests, %d late; want 10003 and none", len(got), stats.Late)
	}
	text += strings.Repeat(combined(when.Add(2*time.Hour), "a", "/5"), 10_000) + combined(when.Add(time.Minute), "a", "/6")
	got, stats = readAll(t, Options{}, write(t, "log", []byte(text)))
	if len(got) != 20_004 || stats.Late != 1 || got[len(got)-1].time != when.Add(2*time.Hour).UnixMicro() {
		t.Errorf("%d requests, %d late; want 20004 and one", len(got), stats.Late)
	}
}

func TestClosedEarly(t *testing.T) {
	l, err := Open(t.Context(), []string{write(t, "log", realLog(t))}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Next(); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := l.Next(); err == nil {
		t.Error("a closed log goes on")
	}
}

func TestRealLog(t *testing.T) {
	data := realLog(t)
	got, stats := readAll(t, Options{}, write(t, "log", data))
	if len(got) != 10_000 || stats.Unreadable != 0 || stats.Coarse != 10_000 {
		t.Fatalf("%d requests, %+v; want 10000", len(got), stats)
	}
	clients := make(map[string]bool)
	for _, r := range got {
		clients[r.ip] = true
	}
	if len(clients) != 1753 {
		t.Errorf("%d clients, want 1753", len(clients))
	}
}
