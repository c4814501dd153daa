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
	return fmt.Sprintf("%s, %s, %d cores, %s/%s, %s.",
		time.Now().UTC().Format(time.DateOnly), processor(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version())
}

// processor is the processor's name where the system tells it.
func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	return model(string(text))
}

func model(cpuinfo string) string {
	for line := range strings.Lines(cpuinfo) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}
