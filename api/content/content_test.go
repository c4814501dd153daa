package content_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/api/content"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
)

// TestThereAndBack: a rule comes back as it was, with the same counters.
func TestThereAndBack(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, limits := range [][]headgate.Limit{
		{headgate.PerSecond(5).WithBurst(50)},
		{{Algorithm: headgate.LeakyBucket, Count: 3, Period: 7 * time.Microsecond, Burst: 9}},
		{{Algorithm: headgate.FixedWindow, Count: 1, Period: time.Hour, Align: headgate.AlignFirst}},
		{{Algorithm: headgate.FixedWindow, Count: 1, Align: headgate.AlignMonth, Location: berlin}, {Algorithm: headgate.FixedWindow, Count: 1, Align: headgate.AlignYear, Location: time.UTC}},
		{headgate.Sliding(20, time.Minute), headgate.Sliding(5, 3*time.Second)},
		{{Algorithm: headgate.SlidingCounter, Count: headgate.MaxCount, Period: headgate.MaxPeriod}, headgate.Blocking(5, time.Minute, time.Second, headgate.MaxBlockTime)},
	} {
		r := headgate.MustRule("r", limits...)
		m, err := content.Message(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		again := new(headgatev1.Rule)
		if err := proto.Unmarshal(text, again); err != nil {
			t.Fatal(err)
		}
		back, err := content.Rule(again)
		if err != nil {
			t.Fatal(err)
		}
		if back.String() != r.String() || back.ID() != r.ID() {
			t.Errorf("%v came back as %v", r, back)
		}
		for i := range r.Limits() {
			a, b := r.Limits()[i], back.Limits()[i]
			if a.Location.String() != b.Location.String() {
				t.Errorf("%v: the time zone %v came back as %v", r, a.Location, b.Location)
			}
			a.Location, b.Location = nil, nil
			if a != b {
				t.Errorf("%+v came back as %+v", a, b)
			}
		}
	}
}

// TestZones: a zone without a name that the other side knows is refused, on both
// sides.
func TestZones(t *testing.T) {
	for _, z := range []*time.Location{time.Local, time.FixedZone("home", 3600)} {
		r := headgate.MustRule("r", headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1, Align: headgate.AlignDay, Location: z})
		if z.String() == "UTC" {
			t.Fatal("this machine's own zone has a name")
		}
		if _, err := content.Message(r); !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("%v: %v", z, err)
		}
		m := &headgatev1.Rule{Name: "r", Limits: []*headgatev1.Limit{{Algorithm: headgatev1.Algorithm_ALGORITHM_FIXED_WINDOW, Count: 1, Align: headgatev1.Alignment_ALIGNMENT_DAY, TimeZone: z.String()}}}
		if _, err := content.Rule(m); !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("%v: %v", z, err)
		}
	}
}

// TestNumbersOfTheLibrary: the messages' numbers are the library's own.
func TestNumbersOfTheLibrary(t *testing.T) {
	for n, name := range headgatev1.Algorithm_name {
		if want := "ALGORITHM_" + upper(headgate.Algorithm(n).String()); name != want {
			t.Errorf("algorithm %d is %s, want %s", n, name, want)
		}
	}
	for n, name := range headgatev1.Alignment_name {
		if want := "ALIGNMENT_" + upper(headgate.Alignment(n).String()); name != want {
			t.Errorf("alignment %d is %s, want %s", n, name, want)
		}
	}
	for n, name := range headgatev1.Op_name {
		if want := "OP_" + upper(headgate.Op(n).String()); name != want {
			t.Errorf("operation %d is %s, want %s", n, name, want)
		}
	}
	for n, name := range headgatev1.Source_name {
		if want := "SOURCE_" + upper(headgate.Source(n).String()); name != want {
			t.Errorf("source %d is %s, want %s", n, name, want)
		}
	}
	for n, name := range headgatev1.OnError_name {
		if want := "ON_ERROR_" + upper(headgate.OnError(n).String()); n > 0 && name != want {
			t.Errorf("on_error %d is %s, want %s", n, name, want)
		}
	}
	algorithms, sources := len(headgatev1.Algorithm_name), len(headgatev1.Source_name)
	if headgate.Algorithm(algorithms).String() != fmt.Sprintf("algorithm(%d)", algorithms) ||
		headgate.Source(sources).String() != fmt.Sprintf("source(%d)", sources) {
		t.Error("the library has an algorithm or a source that the messages have not")
	}
	if content.Duration(content.Micros(headgate.Never)) != headgate.Never || content.Duration(content.Micros(time.Second)) != time.Second {
		t.Error("durations do not come back")
	}
}

func upper(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'a' && c <= 'z' {
			b[i] = c - 'a' + 'A'
		}
	}
	return string(b)
}
