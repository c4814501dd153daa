package policy

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

func TestDescriptorGet(t *testing.T) {
	d := Descriptor{{"user", "ada"}, {"api_key", ""}, {"user", "bob"}}
	for _, c := range []struct {
		name, value string
		ok          bool
	}{{"user", "ada", true}, {"api_key", "", false}, {"ip", "", false}} {
		if value, ok := d.Get(c.name); value != c.value || ok != c.ok {
			t.Errorf("Get(%q) = %q, %v; want %q, %v", c.name, value, ok, c.value, c.ok)
		}
	}
}

func TestFromMap(t *testing.T) {
	d, err := FromMap(map[string]string{"user": "ada", "ip": "192.0.2.1", "empty": ""})
	want := Descriptor{{"empty", ""}, {"ip", "192.0.2.1"}, {"user", "ada"}}
	if err != nil || !reflect.DeepEqual(d, want) {
		t.Errorf("got %v, %v; want %v", d, err, want)
	}
}

func TestFromMapMistakes(t *testing.T) {
	many := make(map[string]string)
	for i := range MaxEntries + 1 {
		many[fmt.Sprint("e", i)] = "x"
	}
	for _, c := range []struct {
		name string
		m    map[string]string
		want []string
	}{
		{"too many", many, []string{"it has 33 entries, must have at most 32"}},
		{"all at once", map[string]string{
			"":                      "x",
			"a b":                   "x",
			"ip/64":                 "x",
			strings.Repeat("n", 65): "x",
			"long":                  strings.Repeat("v", MaxValue+1),
		}, []string{
			`entry "": the name has 0 bytes, must have 1 to 64`,
			`entry "a b": the name has ' ' at byte 1; it may have letters, digits and _ - . : only`,
			`entry "ip/64": the name has '/' at byte 2; it may have letters, digits and _ - . : only`,
			`entry "long": the value has 8193 bytes, must have at most 8192`,
			`entry "` + strings.Repeat("n", 64) + `"...: the name has 65 bytes, must have 1 to 64`,
		}},
	} {
		d, err := FromMap(c.m)
		var invalid *headgate.InvalidError
		if !errors.As(err, &invalid) || !reflect.DeepEqual(invalid.Problems.Texts(), c.want) || d != nil {
			t.Errorf("%s: got %v, %v; want %q", c.name, d, err, c.want)
		}
	}
}
