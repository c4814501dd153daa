package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
)

func TestDecode(t *testing.T) {
	many := func(n int, one string) string { return strings.TrimSuffix(strings.Repeat(one+",", n), ",") }
	entries := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"e%d":"v"`, i)
		}
		return `{"descriptor":{` + strings.TrimPrefix(b.String(), ",") + `}}`
	}
	long := strings.Repeat("x", 100)
	tests := []struct {
		name string
		op   headgate.Op
		body string
		want string // status, then field: detail of every mistake; "" for none
	}{
		{"descriptor", 0, `{"descriptor":{"api_key":"k1","ip":"203.0.113.10"},"cost":1}`, ""},
		{"empty descriptor", 0, `{"descriptor":{}}`, ""},
		{"checks", 0, `{"checks":[{"rule":"r","key":"k","cost":1},{"rule":"r","key":""}]}`, ""},
		{"white space", 0, " \t\r\n{ \"checks\" : [ { \"rule\" : \"r\" , \"key\" : \"k\" } ] } \n", ""},
		{"largest cost", 0, `{"descriptor":{},"cost":1000000000}`, ""},
		{"NUL in a key", 0, `{"checks":[{"rule":"r","key":"a\u0000b"}]}`, ""},
		{"surrogate pair", 0, `{"checks":[{"rule":"r","key":"\ud83d\ude00\\\/\"\b\f\n\r\t"}]}`, ""},
		{"at", headgate.OpRefund, `{"descriptor":{},"at":1763712000000000}`, ""},

		{"empty", 0, ``, `400 body: the body is empty; send an object with "descriptor" or "checks"`},
		{"white space only", 0, " \n", "400 body: the body is not JSON: expected a value, found the end of the body, at byte 2"},
		{"cut off", 0, `{"checks":[{"rule":"r`, "400 body: the body is not JSON: a string does not end, at byte 21"},
		{"cut off after a colon", 0, `{"cost":`, "400 body: the body is not JSON: expected a value, found the end of the body, at byte 8"},
		{"something after", 0, `{"descriptor":{}} {}`, "400 body: the body is not JSON: expected nothing after the object, found '{', at byte 18"},
		{"NUL after", 0, "{\"descriptor\":{}}\x00", `400 body: the body is not JSON: expected nothing after the object, found '\x00', at byte 17`},
		{"NUL within", 0, "{\x00}", `400 body: the body is not JSON: expected a name in quotes, found '\x00', at byte 1`},
		{"comma at the end", 0, `{"cost":1,}`, `400 body: the body is not JSON: expected something after the comma, found '}', at byte 10`},
		{"no comma", 0, `{"cost":1 "at":2}`, `400 body: the body is not JSON: expected ',' or '}', found '"', at byte 10`},
		{"control character", 0, "{\"descriptor\":{\"a\":\"x\ny\"}}", `400 body: the body is not JSON: a string holds the control character '\n' unescaped, at byte 21`},
		{"bad escape", 0, `{"descriptor":{"a":"\x"}}`, `400 body: the body is not JSON: \x is not an escape, at byte 20`},
		{"bad hex", 0, `{"descriptor":{"a":"\u00g0"}}`, `400 body: the body is not JSON: \u needs four hexadecimal digits, at byte 20`},
		{"half a pair", 0, `{"descriptor":{"a":"\ud83dx"}}`, `400 body: the body is not JSON: \ud83d is half of a surrogate pair and stands for no character, at byte 20`},
		{"low half first", 0, `{"descriptor":{"a":"\ude00\ud83d"}}`, `400 body: the body is not JSON: \ude00 is half of a surrogate pair and stands for no character, at byte 20`},
		{"not UTF-8", 0, "{\"descriptor\":{\"a\":\"\xff\"}}", "400 body: the body is not UTF-8; keys of other bytes must be encoded by the caller, as base64 for instance"},
		{"array", 0, `[1]`, "400 body: the body must be an object, not an array"},
		{"null", 0, `null`, "400 body: the body must be an object, not null"},
		{"deep", 0, `{"x":` + strings.Repeat("[", 40_000), "400 body: the body is not JSON: values nest deeper than 32, at byte 36\n400 x: is not a field here; the fields are descriptor, checks, cost, usage, id and lifetime_ms"},
		{"leading zero", 0, `{"cost":01}`, "400 body: the body is not JSON: a number begins with a zero, at byte 8"},
		{"plus", 0, `{"cost":+1}`, "400 body: the body is not JSON: expected a value, found '+', at byte 8"},
		{"no digits", 0, `{"cost":-}`, "400 body: the body is not JSON: expected a digit, found '}', at byte 9"},

		{"exponent", 0, `{"descriptor":{},"cost":1e3}`, "400 cost: must be a whole number, written without a fraction or an exponent"},
		{"fraction", 0, `{"descriptor":{},"cost":1.0}`, "400 cost: must be a whole number, written without a fraction or an exponent"},
		{"number in quotes", 0, `{"descriptor":{},"cost":"1"}`, "400 cost: must be a whole number, not a string"},
		{"null cost", 0, `{"descriptor":{},"cost":null}`, "400 cost: must be a whole number, not null"},
		{"wrong types", 0, `{"descriptor":[],"cost":{"a":[true,false,null,-1.5e+3,"x"]},"checks":{}}`, "400 descriptor: must be an object of strings, not an array\n" +
			"400 cost: must be a whole number, not an object\n400 checks: must be an array of objects, not an object"},
		{"wrong types within", 0, `{"descriptor":{"ip":1},"checks":[1,{"rule":null,"key":true,"cost":"x"}]}`, "400 descriptor.ip: must be a string, not a number\n" +
			"400 checks[0]: must be an object, not a number\n400 checks[1].rule: must be a string, not null\n" +
			"400 checks[1].key: must be a string, not a boolean\n400 checks[1].cost: must be a whole number, not a string"},
		{"unknown fields", 0, `{"descriptor":{},"Cost":1,"at":1,"checks":[{"rule":"r","key":"k","weight":2}]}`, "400 Cost: is not a field here; the fields are descriptor, checks, cost, usage, id and lifetime_ms\n" +
			"400 at: is not a field here; the fields are descriptor, checks, cost, usage, id and lifetime_ms\n400 checks[0].weight: is not a field here; the fields are rule, key and cost"},
		{"unknown field of a refund", headgate.OpRefund, `{"descriptor":{},"x":1}`, "400 x: is not a field here; the fields are descriptor, checks, cost, usage and at"},
		{"long name", 0, `{"` + long + `":1}`, "400 " + long[:64] + "…: is not a field here; the fields are descriptor, checks, cost, usage, id and lifetime_ms"},
		{"twice", 0, `{"descriptor":{"a":"1","a":"1","b":"","b":""},"cost":1,"cost":1}`, "400 descriptor.a: is given twice\n400 descriptor.b: is given twice\n400 cost: is given twice"},
		{"twice in a check", 0, `{"checks":[{"rule":"r","rule":"r","key":"k"}]}`, "400 checks[0].rule: is given twice"},

		{"neither", 0, `{}`, "422 descriptor: is missing; send a descriptor or checks"},
		{"both", 0, `{"descriptor":{},"checks":[{"rule":"r","key":"k"}]}`, "422 checks: cannot be with a descriptor; send one of them"},
		{"zero", 0, `{"descriptor":{},"cost":0}`, "422 cost: is 0, must be 1 to 9007199254740991"},
		{"minus zero", 0, `{"descriptor":{},"cost":-0}`, "422 cost: is 0, must be 1 to 9007199254740991"},
		{"too large", 0, `{"descriptor":{},"cost":9007199254740992}`, "422 cost: is 9007199254740992, must be 1 to 9007199254740991"},
		{"beyond 64 bits", 0, `{"descriptor":{},"cost":99999999999999999999}`, "422 cost: is too large, must be 1 to 9007199254740991"},
		{"below 64 bits", 0, `{"descriptor":{},"cost":-99999999999999999999}`, "422 cost: is too small, must be 1 to 9007199254740991"},
		{"cost beside checks", 0, `{"checks":[{"rule":"r","key":"k"}],"cost":2}`, "422 cost: goes with a descriptor; here each of the checks has its own"},
		{"missing", 0, `{"checks":[{},{"rule":"r"},{"key":"k","cost":-1}]}`, "422 checks[0].rule: is missing\n" +
			"422 checks[0].key: is missing; a rule with one counter for all has the key \"\"\n422 checks[1].key: is missing; a rule with one counter for all has the key \"\"\n" +
			"422 checks[2].rule: is missing\n422 checks[2].cost: is -1, must be 1 to 9007199254740991"},
		{"no checks", 0, `{"checks":[]}`, "422 checks: has 0 checks, must have 1 to 64"},
		{"too many checks", 0, `{"checks":[` + many(65, `{"rule":"r","key":"k"}`) + `]}`, "422 checks: has 65 checks, must have 1 to 64"},
		{"too many entries", 0, entries(33), "422 descriptor: has 33 entries, may have 32"},
		{"entry names", 0, `{"descriptor":{"":"v","` + long + `":"v"}}`, "422 descriptor: the name has 0 bytes, must have 1 to 64\n422 descriptor." + long[:64] + "…: the name has 100 bytes, must have 1 to 64"},
		{"long value", 0, `{"descriptor":{"ip":"` + strings.Repeat("x", 8193) + `"}}`, "422 descriptor.ip: has 8193 bytes, may have 8192"},
		{"at out of range", headgate.OpRefund, `{"descriptor":{},"at":0}`, "422 at: is 0, must be 1 to 9007199254740992: microseconds since 1970, as the answer to the check gave them"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var lines []string
			for _, f := range read(tt.body, formOf(tt.op)).Faults {
				to := faultyFieldOf(&f)
				lines = append(lines, fmt.Sprintf("%d %s: %s", faultStatuses[f.Kind], to.Field, to.Detail))
			}
			got := strings.Join(lines, "\n")
			// The order of syntax and other mistakes is that of discovery.
			if !sameLines(got, tt.want) {
				t.Errorf("mistakes:\n%s\nwant:\n%s", got, tt.want)
			}
		})
	}
}

// read decodes a body and checks what it says, as far as it could be read.
func read(body string, f form) *message {
	m := new(message)
	decode(body, f, m)
	if len(m.Faults) == 0 {
		m.Check()
	}
	return m
}

func sameLines(a, b string) bool {
	seen := make(map[string]int)
	for line := range strings.SplitSeq(a, "\n") {
		seen[line]++
	}
	for line := range strings.SplitSeq(b, "\n") {
		seen[line]--
	}
	for _, n := range seen {
		if n != 0 {
			return false
		}
	}
	return true
}

func TestDecodeValues(t *testing.T) {
	req := read(`{"descriptor":{"b":"\u0000\u00e9","a":"\ud83d\ude00\/x"},"cost":7,"at":12}`, formRefund)
	want := policy.Descriptor{{Name: "b", Value: "\x00é"}, {Name: "a", Value: "😀/x"}}
	if req.Faults != nil || req.Cost != 7 || req.At != 12 || !slices.Equal(req.Descriptor, want) {
		t.Errorf("read %+v, want %v", req, want)
	}
	req = read(`{"checks":[{"key":"k","rule":"r"},{"rule":"s","key":"","cost":3}]}`, formTake)
	for i, want := range []decide.Named{{Rule: "r", Key: "k", Cost: 1}, {Rule: "s", Key: "", Cost: 3}} {
		if req.Faults != nil || len(req.Descriptor) != 0 || len(req.Named) != 2 ||
			req.Named[i].Rule != want.Rule || req.Named[i].Key != want.Key || req.Named[i].Cost != want.Cost {
			t.Errorf("read %+v, want %+v", req, want)
		}
	}
}

func TestFaultsAreBounded(t *testing.T) {
	list := read(`{`+strings.Repeat(`"x":1,`, 1000)+`"x":1}`, formTake).Faults
	if len(list) != decide.MaxFaults || list.Kind() != decide.Malformed {
		t.Errorf("%d mistakes of kind %d, want %d that are malformed", len(list), list.Kind(), decide.MaxFaults)
	}
}

// body is what encoding/json reads of a request.
type body struct {
	Descriptor *map[string]string `json:"descriptor"`
	Checks     *[]struct {
		Rule *string `json:"rule"`
		Key  *string `json:"key"`
		Cost *int64  `json:"cost"`
	} `json:"checks"`
	Cost *int64 `json:"cost"`
	At   *int64 `json:"at"`
}

// FuzzDecode holds the decoder against encoding/json: what it accepts, the other
// accepts with the same values, and what it calls no JSON is none.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"descriptor":{"api_key":"k1","ip":"203.0.113.10","route":"POST /v1/token"},"cost":1}`,
		`{"checks":[{"rule":"auth.createToken","key":"user42","cost":1},{"rule":"r","key":"\u0000\ud83d\ude00\n"}],"at":1}`,
		`{"cost":1e3,"x":[{},[],-0.5E-7,true,false,null,"\\"]}`, `{"cost":99999999999999999999}`, "{\"a\":\"\xff\"}", `[[[[`, `{"a":"\ud800"}`, ` {} `, `-`, `"`, `{"a" 1}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		req := read(text, formRefund)
		if len(req.Faults) == 0 {
			sameAsStandard(t, text, req)
			return
		}
		for _, fault := range req.Faults {
			to := faultyFieldOf(&fault)
			said := to.Detail
			if said == "" || !utf8.ValidString(to.Field) || !utf8.ValidString(said) {
				t.Errorf("%q: mistake %+v is no text", text, fault)
			}
			stricter := strings.Contains(said, "nest deeper") || strings.Contains(said, "surrogate")
			if strings.Contains(said, "is not JSON") && !stricter && json.Valid([]byte(text)) {
				t.Errorf("%q is JSON, but: %s", text, said)
			}
		}
	})
}

func sameAsStandard(t *testing.T, text string, req *message) {
	t.Helper()
	var want body
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&want); err != nil {
		t.Fatalf("%q was accepted, but encoding/json says: %v", text, err)
	}
	number := func(p *int64, otherwise int64) int64 {
		if p == nil {
			return otherwise
		}
		return *p
	}
	if req.Cost != number(want.Cost, 1) || req.At != number(want.At, 0) {
		t.Errorf("%q: cost %d, at %d; encoding/json reads %+v", text, req.Cost, req.At, want)
	}
	if want.Descriptor != nil {
		if len(*want.Descriptor) != len(req.Descriptor) {
			t.Errorf("%q: %d entries, encoding/json reads %d", text, len(req.Descriptor), len(*want.Descriptor))
		}
		for _, e := range req.Descriptor {
			if (*want.Descriptor)[e.Name] != e.Value {
				t.Errorf("%q: entry %+v, encoding/json reads %q", text, e, (*want.Descriptor)[e.Name])
			}
		}
	}
	if want.Checks != nil {
		if len(*want.Checks) != len(req.Named) {
			t.Fatalf("%q: %d checks, encoding/json reads %d", text, len(req.Named), len(*want.Checks))
		}
		for i, c := range *want.Checks {
			if got := req.Named[i]; *c.Rule != got.Rule || *c.Key != got.Key || number(c.Cost, 1) != got.Cost {
				t.Errorf("%q: check %+v, encoding/json reads %v", text, got, c)
			}
		}
	}
}

// FuzzAppendString holds the writer of strings against encoding/json's reader.
func FuzzAppendString(f *testing.F) {
	for _, seed := range []string{"", "auth.createToken", "a\"b\\c\n\x00\x1f\x7f", "é😀\u2028", "\xff\xed\xa0\x80x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text := appendString(nil, s)
		var got string
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%q became %s: %v", s, text, err)
		}
		if want := string(bytes.ToValidUTF8([]byte(s), []byte("\ufffd"))); utf8.ValidString(s) && got != want {
			t.Errorf("%q became %s, which reads as %q", s, text, got)
		}
	})
}
