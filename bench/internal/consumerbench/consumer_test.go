package consumerbench

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/bench/internal/measure"
)

// TestRun has the benchmark run once, on a real broker.
func TestRun(t *testing.T) {
	text, err := Run(t.Context(), &measure.Work{Short: true, Source: "../../../server", Tell: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"handlers take 1 ms: Headgate, by key", "handlers do nothing: sarama, a group"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	for _, bar := range text.Bars {
		if !(bar.Got > 0) {
			t.Errorf("%s: %v", bar.What, bar.Got)
		}
	}
}

func TestRead(t *testing.T) {
	f := make(figures)
	if err := f.read("BenchmarkConsumers/1ms/Headgate,_by_key-2 \t 1\t 124 ns/op\t 6.05 CPU-µs/record\t 32137 records/s\n"); err == nil {
		t.Error("one figure of ten is enough")
	}
	if got := f.of("1ms", "Headgate, by key", perSecond); len(got) != 1 || got[0] != 32137 {
		t.Errorf("read %v", f)
	}
	if err := f.read("BenchmarkConsumers/1ms/x-2 \t 1\t much ns/op\n"); err == nil {
		t.Error("what is no number is read")
	}
}
