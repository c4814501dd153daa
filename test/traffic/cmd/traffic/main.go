// Command traffic writes a large access log, made of a small real one, to the standard
// output. See package traffic.
package main

import (
	"compress/gzip"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/headgate/headgate/test/traffic"
)

func main() {
	from := flag.String("log", "tune/testdata/access.log.gz", "the real log, in the combined format and compressed with gzip")
	lines := flag.Int("lines", 10_000_000, "how many lines")
	clients := flag.Int("clients", 1_000_000, "about how many clients")
	flag.Parse()
	if err := run(*from, *lines, *clients); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(from string, lines, clients int) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	log, err := io.ReadAll(z)
	if err != nil {
		return err
	}
	return traffic.Write(os.Stdout, log, lines, clients)
}
