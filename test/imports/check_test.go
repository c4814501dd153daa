package imports

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCheck shows the checker imports that were never made: every kind that the
// rules forbid must be found, and the ones beside it must not.
func TestCheck(t *testing.T) {
	const module = Root + "/anything"
	tests := []struct {
		from, module, to string
		want             string // part of the complaint; "" if the import is fine
	}{
		{".", Root, "time", ""},
		{".", Root, "example.com/clock", "standard library"},
		{".", Root, "algorithm", ". may import the standard library only"},
		{".", module, "algorithm", ". may import the standard library only"},
		{"flow", Root, "policy", "flow may import ., store, and not policy"},
		{"flow/adaptive", Root, "flow", ""},
		{"internal/leakwait", Root, ".", "internal may import the standard library only"},
		{"server/gateway", module, "internal/leakwait", "and not internal"},
		{"grpclimit", module, "internal/admission", ""},
		{"server/gateway", module, "internal/admission", ""},
		{"internal/admission", Root, "httplimit", "and not httplimit"},
		{"internal/identity", Root, "policy", "and not policy"},
		{"grpclimit", module, "httplimit", "and not httplimit"},

		{"algorithm", Root, ".", ""},
		{"algorithm", Root, "policy", "algorithm may import ., internal/muldiv, and not policy"},
		{"policy", Root, ".", ""},
		{"policy", Root, "store/memory", "and not store/memory"},
		{"policy", Root, "config", "and not config"},
		{"policy", Root, "policy/lint", "and not policy/lint"},
		{"policy/lint", Root, "policy", ""},
		{"policy/lint", Root, "policy/explain", "and not policy/explain"},

		{"store/memory", Root, "algorithm", ""},
		{"store/memory", Root, "policy", "and not policy"},
		{"store/layered", Root, "store/memory", "and not store/memory"},
		{"store/layered/lease", Root, "store/layered/internal/layer", ""},
		{"store/layered/lease", Root, "store/layered/async", "and not store/layered/async"},
		{"store/layered/async", Root, "store/memory", "and not store/memory"},
		{"server/app", module, "store/layered/lease", ""},
		{"store/redis", module, "store/redis/script", ""},
		{"store/redis/script", module, "store/redis", ""},
		{"store/redis/script", module, "policy", "store/redis may import ., algorithm, internal/prefetch, internal/sleep, internal/socket, store, and not policy"},
		{"store/redis", module, "github.com/redis/rueidis", ""},
		{"store/memory", Root, "github.com/redis/rueidis", "standard library"},

		{"httplimit", Root, "policy", ""},
		{"httplimit", Root, "store/memory", "and not store/memory"},
		{"contrib/gin", module, "github.com/gin-gonic/gin", ""},
		{"contrib/gin", module, "httplimit", ""},
		{"contrib/gin", module, "contrib/echo", "and not contrib/echo"},
		{"httplimit/httplimittest", Root, "store/memory", ""},
		{"httplimit/httplimittest", Root, "store/redis", "and not store/redis"},
		{"telemetry/prom", module, "store/redis", "and not store/redis"},

		{"config", module, "policy", ""},
		{"config", module, "server/app", "and not server/app"},
		{"config/gatewayfile", module, "config", "and not config"},
		{"server/gateway", module, "config/gatewayfile", ""},
		{"server/gateway", module, "config", "and not config"},

		{"server/httpapi", module, "policy", ""},
		{"server/httpapi", module, "store/memory", "and not store/memory"},
		{"server/httpapi", module, "server/grpcapi", "and not server/grpcapi"},
		{"server/httpapi", module, "server/app", "and not server/app"},
		{"server/app", module, "store/redis", ""},
		{"server/app", module, "server/httpapi", ""},
		{"server/app", module, "server/cli", "and not server/cli"},
		{"server/app", module, "test/servers", "and not test"},
		{"server/cmd/headgate", module, "server/cli", ""},
		{"server/cmd/headgate", module, "store/redis", "and not store/redis"},

		{"bench/memory", module, "store/memory", ""},
		{"store/memory", Root, "bench/memory", "and not bench"},
		{"test/e2e", module, "server/app", ""},

		{"attic", module, "time", "attic: no room"},
		{"contrib", module, "time", "contrib: no room"},
		{"policy", Root, "attic", "imports " + Root + "/attic: no room"},
		{"algorithmic", module, "time", "algorithmic: no room"},

		{"policy/util", Root, "time", `the name "util"`},
		{"server/common/wire", module, "time", `the name "common"`},
	}
	for _, tt := range tests {
		t.Run(tt.from+" imports "+tt.to, func(t *testing.T) {
			got := Check(Rooms(), []Package{{
				Path:    absolute(tt.from),
				Name:    filepath.Base(tt.from),
				Module:  tt.module,
				Imports: []string{absolute(tt.to)},
			}})
			switch {
			case tt.want == "" && len(got) > 0:
				t.Errorf("got %q, want no complaint", got)
			case tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)):
				t.Errorf("got %q, want one complaint with %q", got, tt.want)
			}
		})
	}
}

// absolute turns the short paths of the table into import paths: names of rooms
// belong to the project, the rest is written out.
func absolute(path string) string {
	first, _, _ := strings.Cut(path, "/")
	switch {
	case path == ".":
		return Root
	case path == "time", first != "" && strings.Contains(first, "."):
		return path
	}
	return Root + "/" + path
}

func TestCheckReadsThePackageClause(t *testing.T) {
	got := Check(Rooms(), []Package{{Path: Root + "/policy/match", Name: "helpers", Module: Root}})
	if len(got) != 1 || !strings.Contains(got[0], `the name "helpers"`) {
		t.Errorf("got %q, want one complaint about the name", got)
	}
}

func TestEveryRoomCanBeReached(t *testing.T) {
	rooms := Rooms()
	for _, r := range rooms {
		for _, may := range r.May {
			known := func(o Room) bool { name, ok := o.name(may); return o.Path == may || ok && name == may }
			if may != Anything && !slices.ContainsFunc(rooms, known) {
				t.Errorf("room %s may import %s, which is no room", r.Path, may)
			}
		}
	}
}

func TestRequirementsAndStraysAreFound(t *testing.T) {
	root := t.TempDir()
	inside, outside := filepath.Join(root, "inside"), filepath.Join(root, "a", "outside")
	for dir, text := range map[string]string{
		inside:                          "module example.com/inside\n\ngo 1.26\n\nrequire example.com/other v1.2.3\n",
		outside:                         "module example.com/outside\n",
		filepath.Join(root, "testdata"): "module example.com/testdata\n",
	} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	required, err := Requirements(t.Context(), inside)
	if err != nil || !slices.Equal(required, []string{"example.com/other"}) {
		t.Errorf("requirements are %v, %v; want example.com/other", required, err)
	}
	strays, err := Strays(root, []string{inside})
	if err != nil || !slices.Equal(strays, []string{outside}) {
		t.Errorf("strays are %v, %v; want %s", strays, err, outside)
	}
	if _, err := Requirements(t.Context(), root); err == nil {
		t.Error("a directory without a go.mod is no error")
	}
}
