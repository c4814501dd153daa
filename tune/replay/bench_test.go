package replay_test

import (
	"errors"
	"io"
	"os"
	"testing"

	"github.com/headgate/headgate/tune/accesslog"
	"github.com/headgate/headgate/tune/replay"
)

// BenchmarkReplay replays the log that HEADGATE_LOG names, or the real one, from the first
// byte to the result.
func BenchmarkReplay(b *testing.B) { benchmark(b, 0) }

// BenchmarkCurve is BenchmarkReplay with the curve, as the command has it.
func BenchmarkCurve(b *testing.B) { benchmark(b, replay.DefaultCurve) }

func benchmark(b *testing.B, curve int64) {
	b.Helper()
	name := os.Getenv("HEADGATE_LOG")
	if name == "" {
		name = write(b, realLog(b))
	}
	requests := int64(0)
	for b.Loop() {
		clock := new(replay.Clock)
		set := parse(b, clock, "rules:\n  - name: client\n    per: [ip]\n    limits: [30 per 1m burst 40]\n  - name: everyone\n    per: all\n    limits: [1000 per 1s]\n")
		log, err := accesslog.Open(b.Context(), []string{name}, accesslog.Options{})
		if err != nil {
			b.Fatal(err)
		}
		r := replay.New(replay.Options{Policy: set, Clock: clock, Curve: curve})
		for {
			s, err := log.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				b.Fatal(err)
			}
			r.Add(s)
			s.Release()
		}
		requests += r.Result(log.Stats()).Requests
		if err := log.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(requests)/b.Elapsed().Seconds(), "requests/s")
}
