package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/test/scripts"
)

// shellBlocks are the commands of a document, in order.
func shellBlocks(t *testing.T, file string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```").FindAllStringSubmatch(string(text), -1) {
		all = append(all, found[1])
	}
	return all
}

// What docs/tuning.md says is done, in its order, against the example's service. Rates are
// lower and times shorter: the test is whether each step does what it is for, and not how
// fast this machine is.
func TestTuningDocs(t *testing.T) {
	t.Parallel()
	example := filepath.Join("..", "..", "examples", "tuning")
	dir := t.TempDir()
	policy, err := os.ReadFile(filepath.Join(example, "policy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "policy.yaml"), policy, 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := filepath.Abs(filepath.Join("..", "..", "tune", "testdata", "access.log.gz"))
	if err != nil {
		t.Fatal(err)
	}
	build := command(t, "go", "build", "-buildvcs=false", "-o", filepath.Join(dir, "service"), ".")
	build.Dir = example
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	if err := os.Symlink(binary, filepath.Join(dir, "headgate")); err != nil {
		t.Fatal(err)
	}
	ports := freePorts(t, 3)
	const calm = " --max-lag 10m --timeout 2m"
	edit := strings.NewReplacer(
		"127.0.0.1:9000", "127.0.0.1:"+ports[0], "127.0.0.1:8000", "127.0.0.1:"+ports[1], "127.0.0.1:8080", "127.0.0.1:"+ports[2],
		"headgate gateway ", "exec headgate gateway --listen 127.0.0.1:"+ports[1]+" --admin-listen 127.0.0.1:"+ports[2]+" ",
		"headgate candidate", "headgate candidate --server http://127.0.0.1:"+ports[2], "headgate top", "headgate top --server http://127.0.0.1:"+ports[2],
		"../../tune/testdata/access.log.gz", log,
		"--from 50 --expect 'p95<200ms'", "--from 20 --to 40 --duration 1s --expect 'p95<2m'"+calm,
		"--rate 250 --duration 10s", "--rate 250 --duration 3s"+calm, "--rate 100 --duration 20s", "--rate 100 --duration 3s"+calm,
	)
	environment := append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HEADGATE_ADMIN_TOKEN=an-example-of-a-token")
	run := func(block string) string {
		cmd := command(t, "bash", "-euo", "pipefail", "-c", edit.Replace(block))
		cmd.Dir, cmd.Env = dir, environment
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", block, err, out)
		}
		return string(out)
	}
	serve := func(block, ready string) *scripts.Script {
		script := filepath.Join(t.TempDir(), "run")
		if err := os.WriteFile(script, []byte("#!/bin/bash\ncd "+dir+"\n"+strings.Replace(edit.Replace(block), "./service", "exec ./service", 1)), 0o700); err != nil {
			t.Fatal(err)
		}
		s := scripts.Start(t, script, environment)
		if s.Await(ready) == nil {
			t.Fatalf("%s\nwas not ready:\n%s", block, s.Log())
		}
		return s
	}
	changes := 0
	var gateway *scripts.Script
	steps := 0
	for _, block := range shellBlocks(t, filepath.Join("..", "..", "docs", "tuning.md")) {
		switch {
		case strings.HasPrefix(block, "cd "):
			continue // It builds what was built above.
		case strings.HasPrefix(block, "./service"):
			serve(block, "listening on")
			continue
		case strings.HasPrefix(block, "headgate gateway"):
			gateway = serve(block, "passing requests on")
			continue
		}
		out := run(block)
		steps++
		want := ""
		switch {
		case strings.Contains(block, "--search"):
			data, err := os.ReadFile(filepath.Join(dir, "capacity.json"))
			var found struct {
				Sustainable float64 `json:"sustainable_per_second"`
			}
			if err != nil || json.Unmarshal(data, &found) != nil || found.Sustainable != 40 {
				t.Fatalf("found %+v, %v", found, err)
			}
			// The page goes on with what the service really bears.
			if err := os.WriteFile(filepath.Join(dir, "capacity.json"), []byte(`{"sustainable_per_second": 200}`), 0o600); err != nil {
				t.Fatal(err)
			}
		case strings.Contains(block, "advise"):
			want = "limits: [140 per 1s burst 300]"
		case strings.Contains(block, "lint"):
			want = "2 rules, no mistakes, no warnings"
		case strings.Contains(block, "replay"):
			want = "0 newly denied"
		case strings.Contains(block, "headgate candidate"):
			want = "newly denied    0"
		case strings.Contains(block, "policy.new"):
			changes++
			if gateway.Await(`the policy has changed.* version=`+strconv.Itoa(changes+1)+" ") == nil {
				t.Fatalf("the gateway has not taken change %d:\n%s", changes, gateway.Log())
			}
		case strings.Contains(block, "headgate top"):
			want = "per-ip"
		}
		if !strings.Contains(out, want) {
			t.Errorf("%s\nsays\n%s\nand not %q", block, out, want)
		}
	}
	if steps < 8 || changes != 3 {
		t.Errorf("the page has %d steps, and %d changes of the policy", steps, changes)
	}
}
