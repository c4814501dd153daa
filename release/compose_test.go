package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
)

// compose.yaml is what Compose's own reader takes, what it mounts is there, and nothing of it is
// open to other machines.
func TestCompose(t *testing.T) {
	t.Parallel()
	options, err := cli.NewProjectOptions([]string{"../compose.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"headgate", "valkey", "prometheus", "grafana"} {
		service, ok := project.Services[name]
		if !ok {
			t.Fatalf("no service %s", name)
		}
		for _, v := range service.Volumes {
			if _, err := os.Stat(v.Source); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, p := range service.Ports {
			if p.HostIP != "127.0.0.1" {
				t.Errorf("%s: port %s is open to other machines at %q", name, p.Published, p.HostIP)
			}
		}
		for from := range service.DependsOn {
			if project.Services[from].HealthCheck == nil {
				t.Errorf("%s waits for %s, which has no health check", name, from)
			}
		}
	}
	limits := project.Services["headgate"]
	config := limits.Environment["HEADGATE_CONFIG"]
	if config == nil || !strings.HasPrefix(*config, limits.Volumes[0].Target+"/") {
		t.Fatalf("HEADGATE_CONFIG is %v, not below %s", config, limits.Volumes[0].Target)
	}
	if _, err := os.Stat(filepath.Join(limits.Volumes[0].Source, filepath.Base(*config))); err != nil {
		t.Error(err)
	}
}
