package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Of draws the charts of a page of benchmarks, and returns them by the names of their files.
func Of(page string) (map[string][]byte, error) {
	files := make(map[string][]byte)
	for name, of := range map[string]func(page string) (drawing, error){
		"memory.svg": inMemory, "redis.svg": inRedis, "service.svg": asService,
	} {
		d, err := of(page)
		if err != nil {
			return nil, err
		}
		files[name] = d.svg()
	}
	grown, err := bySize(page)
	files["sizes.svg"] = grown
	return files, err
}

// bySize is how what a decision costs grows with the work.
func bySize(page string) ([]byte, error) {
	sizes, err := tables(page, "sizes")
	if err != nil {
		return nil, err
	}
	combined, err := tables(page, "combined")
	if err != nil {
		return nil, err
	}
	if len(sizes) != 4 || len(combined) < 3 {
		return nil, fmt.Errorf("chart: the sections sizes and combined have %d and %d tables, want 4, and 3 or more", len(sizes), len(combined))
	}
	var all []panel
	for _, each := range []struct {
		t     table
		title string
		peers bool
	}{
		{sizes[0], "Live keys in memory: ns", true},
		{sizes[1], "Limits in a request, in memory: ns", false},
		{sizes[2], "Limits in a request, in Redis: µs of its CPU", false},
		{combined[2], "Callers of one process: µs of Redis's CPU", true},
		{sizes[3], "Instances before one Redis: µs of its CPU", true},
	} {
		p, err := each.t.panel(each.title, each.peers)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return panels("What a decision costs as the work grows. Lower is better.", all), nil
}

// inMemory is what a decision of a store in memory takes.
func inMemory(page string) (drawing, error) {
	all, err := tables(page, "memory")
	if err != nil {
		return drawing{}, err
	}
	d := drawing{title: "In memory: nanoseconds a decision on two cores. Shorter is better.", format: whole}
	for _, c := range [][2]string{{"uniform keys", "a million keys, drawn evenly"}, {"hot key, admitted", "one hot key"}} {
		bars, err := all[0].bars(c[0], second)
		if err != nil {
			return drawing{}, err
		}
		d.groups = append(d.groups, group{c[1], bars})
	}
	return d, nil
}

// inRedis is how many decisions Redis and its client make.
func inRedis(page string) (drawing, error) {
	all, err := tables(page, "redis")
	if err != nil {
		return drawing{}, err
	}
	d := drawing{title: "In Redis: decisions a second, client and server on two cores. Longer is better.", format: whole}
	for i, callers := range []string{"one caller", "64 callers", "256 callers"} {
		bars, err := all[i].bars("decisions/s", number)
		if err != nil {
			return drawing{}, err
		}
		d.groups = append(d.groups, group{callers, bars})
	}
	return d, nil
}

// asService is what a check costs a server, beside a server that does nothing.
func asService(page string) (drawing, error) {
	d := drawing{title: "As a service: CPU time of a check, divided by that of a bare echo. Shorter is better.", format: ratio}
	for _, s := range []struct{ section, column, title string }{
		{"service", "÷ JSON echo", "HTTP, beside net/http with JSON"},
		{"grpc", "÷ echo", "gRPC, beside grpc-go"},
		{"rls", "÷ echo", "for Envoy, beside grpc-go"},
	} {
		all, err := tables(page, s.section)
		if err != nil {
			return drawing{}, err
		}
		bars, err := all[0].bars(s.column, number)
		if err != nil {
			return drawing{}, err
		}
		bars = slices.DeleteFunc(bars, func(b bar) bool { return strings.Contains(b.name, "echo") && b.value != 1 })
		d.groups = append(d.groups, group{s.title, bars})
	}
	return d, nil
}

// whole writes a figure as the tables do, and ratio one that is a ratio.
func whole(v float64) string {
	text := fmt.Sprintf("%.0f", v)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// WriteBeside draws the charts of a page into the directory of its name beside it:
// docs/benchmarks for docs/benchmarks.md.
func WriteBeside(page string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	files, err := Of(string(text))
	if err != nil {
		return err
	}
	for name, content := range files {
		path := filepath.Join(strings.TrimSuffix(page, ".md"), name)
		if err := os.WriteFile(path, content, 0o644); err != nil { //nolint:gosec // Everybody may read it.
			return fmt.Errorf("chart: %w", err)
		}
	}
	return nil
}

func ratio(v float64) string { return fmt.Sprintf("%.2f ×", v) }
