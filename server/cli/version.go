package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is the command that says which build this is.
type version struct {
	JSON bool `help:"Print JSON." name:"json"`
}

// build describes the running program.
type build struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitempty"`
}

// Run prints the build.
func (v *version) Run(c *call) error {
	b := buildOf(c.version)
	if v.JSON {
		return printJSON(c.stdout, b)
	}
	fmt.Fprintf(c.stdout, "headgate %s (%s, %s", b.Version, b.Go, b.Platform)
	if b.Commit != "" {
		fmt.Fprintf(c.stdout, ", commit %s", b.Commit)
	}
	if b.Modified {
		fmt.Fprint(c.stdout, ", modified")
	}
	fmt.Fprintln(c.stdout, ")")
	return nil
}

// buildOf combines the version from the linker with what the compiler has recorded.
func buildOf(linked string) build {
	b := build{Version: linked, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if ok {
		if b.Version == "" {
			b.Version = info.Main.Version
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Commit = s.Value
			case "vcs.time":
				b.Time = s.Value
			case "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
	}
	if b.Version == "" || b.Version == "(devel)" {
		b.Version = "devel"
	}
	return b
}
