package accesslog

import (
	"bytes"
	"testing"
)

// BenchmarkParse parses a block of a real log.
func BenchmarkParse(b *testing.B) {
	data := realLog(b)
	data = data[:bytes.LastIndexByte(data[:blockBytes], '\n')+1]
	var o Options
	f, err := o.newFormat([][]byte{data[:bytes.IndexByte(data, '\n')]})
	if err != nil {
		b.Fatal(err)
	}
	batch := &Batch{format: f}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		batch.reset()
		batch.buf = append(batch.buf, data...)
		batch.parse()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(batch.records)), "ns/line")
}
