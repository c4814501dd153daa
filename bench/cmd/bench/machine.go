package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// machine says when and on what the figures were measured.
func machine() string {
	return fmt.Sprintf("%s, %s, %d cores, %s.",
		time.Now().UTC().Format(time.DateOnly), processor(), runtime.NumCPU(), runtime.Version())
}

// processor is the name of the processor, or of its kind where the system does not tell it.
func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOOS + "/" + runtime.GOARCH
	}
	return model(string(text))
}

func model(cpuinfo string) string {
	for line := range strings.Lines(cpuinfo) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOOS + "/" + runtime.GOARCH
}
