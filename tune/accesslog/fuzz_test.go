package accesslog

import (
	"bytes"
	"testing"
	"time"
)

// FuzzFormats: no line, in any format, makes a parser fail, or find what is not there.
func FuzzFormats(f *testing.F) {
	seeds := []string{
		`192.0.2.7 - anna [17/May/2015:12:05:03 +0200] "GET /a?b=c HTTP/1.1" 200 12 "-" "a \"b\" \x22"`,
		`[2015-05-17T10:05:03.250Z] "GET / HTTP/1.1" 200 - 0 15 12 11 "-" "curl" "id" "example.com" "10.0.0.1:80"`,
		`{"ts":1431857103.5,"request":{"remote_ip":"192.0.2.7","headers":{"User-Agent":["a"]}},"status":200,"x":"\ud83d\ude00"}`,
		"time,ip,path\n2015-05-17T10:05:03Z,192.0.2.7,\"/a,\"\"b\"\n",
		"https 2015-05-17T10:05:04.000000Z app/lb 192.0.2.7:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 \"GET https://a/ HTTP/1.1\" \"c\" E T a \"R\" \"w\" \"a\" 1 2015-05-17T10:05:03.250000Z\n",
	}
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	o := &Options{Maps: []Map{{"api_key", "query:key"}, {"tenant", "request.headers.X-Tenant"}, {"tier", "plan"}}}
	var formats []*Format
	for _, c := range candidates {
		first := []byte(nil)
		if c.name == "csv" {
			first = []byte("time,ip,plan,path")
		}
		format, err := o.finish(c.make(o, first))
		if err != nil {
			f.Fatal(err)
		}
		formats = append(formats, format)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, format := range formats {
			b := &Batch{format: format, extras: len(o.entries()), buf: bytes.Clone(data)}
			b.parse()
			if len(b.extra) != len(b.records)*b.extras {
				t.Fatalf("%s: %d extras of %d records", format.name, len(b.extra), len(b.records))
			}
			if n := len(b.records) + b.badAll; n > b.lines {
				t.Fatalf("%s: %d lines, %d of them told", format.name, b.lines, n)
			}
			for i := range b.records {
				r := &b.records[i]
				for _, f := range append([]Field{r.IP, r.User, r.Method, r.Target, r.Host, r.Agent}, b.extra[i*b.extras:(i+1)*b.extras]...) {
					if int(f.off)+int(f.size) > len(b.buf) {
						t.Fatalf("%s: a field lies outside of the batch: %+v", format.name, f)
					}
				}
				if r.Duration < -1 {
					t.Fatalf("%s: the duration is %d", format.name, r.Duration)
				}
			}
		}
		// What is found out of the first line, whatever it is, must hold for the others.
		if format, err := new(Options).newFormat(bytes.Split(data, []byte{'\n'})); err == nil {
			b := &Batch{format: format, buf: bytes.Clone(data)}
			b.parse()
		}
	})
}

// FuzzStamp holds the times against package time.
func FuzzStamp(f *testing.F) {
	for _, s := range []string{"17/May/2015:10:05:03 +0200", "2015-05-17T10:05:03.25Z", "2015-05-17 10:05:03", "1431857103.25", "1431857103250"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var s stamps
		got, _, ok := s.read([]byte(text))
		again, _, okAgain := s.read([]byte(text))
		if ok != okAgain || got != again {
			t.Fatalf("%q is %d, %v and then %d, %v", text, got, ok, again, okAgain)
		}
		for _, layout := range []string{"02/Jan/2006:15:04:05 -0700", time.RFC3339Nano} {
			want, err := time.Parse(layout, text)
			if err != nil || want.Year() < 1970 || want.Format(layout) != text {
				continue // Package time also takes what no log has, such as one digit for an hour.
			}
			if _, zone := want.Zone(); zone%60 != 0 || zone > 24*3600 || zone < -24*3600 {
				continue
			}
			if !ok || got != want.UnixMicro() {
				t.Fatalf("%q is %d, %v; want %d", text, got, ok, want.UnixMicro())
			}
		}
	})
}
