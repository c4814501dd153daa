//go:build js && wasm

// Command wasm has package lab run in a browser. It sets the function headgateLab, which takes
// an object {requests: [[ms, cost], …], terms: [[ms, count, burst, period ms], …], length, every}
// with times in milliseconds, and returns {error} or {lanes}. See lab.js.
package main

import (
	"syscall/js"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/lab"
)

func main() {
	js.Global().Set("headgateLab", js.FuncOf(func(_ js.Value, args []js.Value) any {
		lanes, err := lab.Run(read(args[0]))
		if err != nil {
			return map[string]any{"error": err.Error()}
		}
		list := make([]any, len(lanes))
		for i, lane := range lanes {
			list[i] = write(lane)
		}
		return map[string]any{"lanes": list}
	}))
	select {}
}

func milliseconds(v js.Value) time.Duration {
	return time.Duration(v.Float() * float64(time.Millisecond))
}

func read(v js.Value) (t lab.Trace) {
	t.Length, t.Every = milliseconds(v.Get("length")), milliseconds(v.Get("every"))
	requests := v.Get("requests")
	for i := range requests.Length() {
		r := requests.Index(i)
		t.Requests = append(t.Requests, lab.Request{At: milliseconds(r.Index(0)), Cost: int64(r.Index(1).Int())})
	}
	terms := v.Get("terms")
	for i := range terms.Length() {
		e := terms.Index(i)
		t.Terms = append(t.Terms, lab.Terms{From: milliseconds(e.Index(0)), Count: int64(e.Index(1).Int()), Burst: int64(e.Index(2).Int()), Period: milliseconds(e.Index(3))})
	}
	return t
}

// write makes arrays of numbers: an answer is [allowed, delay, retry after], and a sample is
// [used, capacity, blocked]. Never is -1.
func write(lane lab.Lane) map[string]any {
	answers, samples, limits := make([]any, len(lane.Answers)), make([]any, len(lane.Samples)), make([]any, len(lane.Limits))
	for i, a := range lane.Answers {
		retry := -1.0
		if a.RetryAfter != headgate.Never {
			retry = a.RetryAfter.Seconds() * 1000
		}
		answers[i] = []any{bit(a.Allowed), a.Delay.Seconds() * 1000, retry}
	}
	for i, s := range lane.Samples {
		samples[i] = []any{s.Used, s.Capacity, bit(s.Blocked)}
	}
	for i, l := range lane.Limits {
		limits[i] = l
	}
	return map[string]any{"name": lane.Name, "limits": limits, "answers": answers, "samples": samples}
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}
