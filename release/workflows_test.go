package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// workflow is what the tests look at in a workflow.
type workflow struct {
	Jobs map[string]struct {
		TimeoutMinutes int `json:"timeout-minutes"`
		Steps          []struct {
			Run string `json:"run"`
		} `json:"steps"`
	} `json:"jobs"`
}

// TestWorkflows: every workflow can be read, its jobs end, and make has the targets that they
// name.
func TestWorkflows(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../.github/workflows/*.yml")
	if err != nil || len(files) < 2 {
		t.Fatalf("the workflows are %v, %v", files, err)
	}
	targets := regexp.MustCompile(`\bmake ([a-z-]+)`)
	named := 0
	for _, file := range files {
		var w workflow
		readYAML(t, file, &w)
		if len(w.Jobs) == 0 {
			t.Errorf("%s has no jobs", file)
		}
		for name, job := range w.Jobs {
			if job.TimeoutMinutes == 0 {
				t.Errorf("%s: the job %s has no timeout", file, name)
			}
			for _, step := range job.Steps {
				for _, found := range targets.FindAllStringSubmatch(step.Run, -1) {
					named++
					if !strings.Contains(string(makefile), "\n"+found[1]+":") {
						t.Errorf("%s: make has no target %s", file, found[1])
					}
				}
			}
		}
	}
	if named < 4 {
		t.Errorf("the workflows name %d targets of make", named)
	}
}

// TestDependabot: every module and every package is looked at, and no other directory is.
func TestDependabot(t *testing.T) {
	t.Parallel()
	var config struct {
		Updates []struct {
			Ecosystem   string   `json:"package-ecosystem"`
			Directories []string `json:"directories"`
		} `json:"updates"`
	}
	readYAML(t, "../.github/dependabot.yml", &config)
	want := map[string][]string{"gomod": directoriesWith(t, "go.mod"), "npm": directoriesWith(t, "package.json")}
	for _, update := range config.Updates {
		if directories, ok := want[update.Ecosystem]; ok {
			delete(want, update.Ecosystem)
			if got := slices.Sorted(slices.Values(update.Directories)); !slices.Equal(got, directories) {
				t.Errorf("%s: the directories are\n%q, want\n%q", update.Ecosystem, got, directories)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("nobody looks at %v", want)
	}
}

func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// directoriesWith returns the directories with a file of that name, as Dependabot writes them.
func directoriesWith(t *testing.T, name string) []string {
	t.Helper()
	var found []string
	err := fs.WalkDir(os.DirFS(".."), ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == "bin" || entry.Name() == ".git"):
			return fs.SkipDir
		case entry.Name() == name:
			found = append(found, "/"+strings.TrimPrefix(strings.TrimSuffix(path, name), "./"))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, directory := range found {
		if directory != "/" {
			found[i] = strings.TrimSuffix(directory, "/")
		}
	}
	slices.Sort(found)
	return found
}
