package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// packaging makes what people without Go install.
type packaging struct {
	r *Release
	// nfpm makes packages of Linux. snapshot allows a tree that has no tag, or changes.
	nfpm     string
	snapshot bool
	// flit is a directory with flit_core, which builds packages of Python. Empty means that it is
	// fetched. maven has further arguments for Maven.
	flit, maven string

	dir     string    // of what is made
	version string    // without its v
	changed time.Time // what is made has the commit's time
}

// platforms are those of a release.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

// make makes the packages of the given platforms, all if there are none.
func (p *packaging) make(ctx context.Context, only []string, out io.Writer) error {
	if len(only) == 0 {
		only = platforms
	}
	p.version = strings.TrimPrefix(p.r.Version, "v")
	if err := errors.Join(os.RemoveAll(p.dir), os.MkdirAll(p.dir, 0o755)); err != nil {
		return err
	}
	if p.snapshot {
		p.version += "-snapshot"
	} else if state, err := p.run(ctx, nil, "git", "describe", "--tags", "--exact-match", "--dirty", "--match", p.r.Version); err != nil || state != p.r.Version {
		return fmt.Errorf("the tree is not that of the tag %s, without changes (%q, %w)", p.r.Version, state, err)
	}
	seconds, err := p.run(ctx, nil, "git", "log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return err
	}
	p.changed = time.Unix(at, 0).UTC()
	for _, platform := range only {
		goos, goarch, _ := strings.Cut(platform, "/")
		if err := p.platform(ctx, goos, goarch); err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
		fmt.Fprintln(out, "ok", platform)
	}
	for _, of := range []struct {
		language string
		make     func(context.Context) error
	}{{"python", p.python}, {"node", p.node}, {"java", p.jars}} {
		if err := of.make(ctx); err != nil {
			return fmt.Errorf("%s: %w", of.language, err)
		}
		fmt.Fprintln(out, "ok", of.language)
	}
	return p.sums()
}

// run runs a command at the top of the repository, and returns what it prints.
func (p *packaging) run(ctx context.Context, env []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = p.r.Top, append(os.Environ(), env...)
	text, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(args, " "), exitText(err))
	}
	return strings.TrimSpace(string(text)), nil
}

// build returns the program for a platform. It is built as make build does, but is not put where that
// puts it.
func (p *packaging) build(ctx context.Context, goos, goarch string) (string, error) {
	name := filepath.Join(p.r.Top, "bin", "programs", goos+"_"+goarch, "headgate")
	if goos == "windows" {
		name += ".exe"
	}
	_, err := p.run(ctx, []string{"CGO_ENABLED=0", "GOOS=" + goos, "GOARCH=" + goarch}, "go", "build", "-trimpath",
		"-ldflags", "-s -w -X main.version=v"+p.version, "-o", name, "./server/cmd/headgate")
	return name, errors.Join(err, os.Chtimes(name, p.changed, p.changed))
}

func (p *packaging) platform(ctx context.Context, goos, goarch string) error {
	program, err := p.build(ctx, goos, goarch)
	if err != nil {
		return err
	}
	name := filepath.Join(p.dir, "headgate_"+p.version+"_"+goos+"_"+goarch)
	if err := errors.Join(writeSBOM(program, name+".sbom.json", "v"+p.version), p.archive(name, program)); err != nil || goos != "linux" {
		return err
	}
	for _, kind := range []string{"deb", "rpm"} {
		// What nfpm.yaml leaves open.
		env := []string{"VERSION=" + p.version, "ARCH=" + goarch, "PROGRAM=" + program, "SOURCE_DATE_EPOCH=" + strconv.FormatInt(p.changed.Unix(), 10)}
		if _, err := p.run(ctx, env, p.nfpm, "package", "--config", "deploy/package/nfpm.yaml", "--packager", kind, "--target", name+"."+kind); err != nil {
			return err
		}
	}
	return nil
}

// staged copies a directory of the repository to a place of its own, with the licence, which every
// package has. What git ignores is left out. Who calls it removes the place.
func (p *packaging) staged(ctx context.Context, dir string) (place string, err error) {
	if place, err = os.MkdirTemp("", "headgate-stage-"); err != nil {
		return "", err
	}
	names, err := p.run(ctx, nil, "git", "ls-files", "--cached", "--others", "--exclude-standard", dir)
	for name := range strings.Lines(names + "\nLICENSE\nNOTICE\n") {
		name = strings.TrimSpace(name)
		to := filepath.Join(place, filepath.FromSlash(strings.TrimPrefix(name, dir+"/")))
		text, failed := os.ReadFile(filepath.Join(p.r.Top, filepath.FromSlash(name)))
		if errors.Is(failed, fs.ErrNotExist) {
			continue // It was removed, and git has not been told.
		}
		err = errors.Join(err, failed, os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, text, 0o644))
	}
	return place, err
}

// python builds the wheel and the source distribution of client/python. Their build backend is one
// small package, which is fetched for it unless it is there.
func (p *packaging) python(ctx context.Context) (err error) {
	from, err := p.staged(ctx, "client/python")
	defer func() { err = errors.Join(err, os.RemoveAll(from)) }()
	if err != nil {
		return err
	}
	backend := p.flit
	if backend == "" {
		backend = filepath.Join(from, "backend")
		if _, err := p.run(ctx, nil, "python3", "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--target", backend,
			"-r", "client/python/build-requirements.txt"); err != nil {
			return err
		}
	}
	// The backend looks at the directory that it runs in.
	const build = "import os; from flit_core import buildapi; os.chdir(os.environ['FROM']); buildapi.build_sdist(os.environ['INTO']); buildapi.build_wheel(os.environ['INTO'])"
	_, err = p.run(ctx, []string{"PYTHONPATH=" + backend, "FROM=" + from, "INTO=" + p.dir, "SOURCE_DATE_EPOCH=" + strconv.FormatInt(p.changed.Unix(), 10)}, "python3", "-c", build)
	return err
}

// node packs client/node as the registry of npm takes it.
func (p *packaging) node(ctx context.Context) (err error) {
	from, err := p.staged(ctx, "client/node")
	defer func() { err = errors.Join(err, os.RemoveAll(from)) }()
	if err != nil {
		return err
	}
	_, err = p.run(ctx, nil, "npm", "pack", "--silent", "--pack-destination", p.dir, from)
	return err
}

// jars builds client/java with Maven, and keeps what a repository has of it: of each module the jar, its
// sources, its documentation and its pom, and the pom that they have in common.
func (p *packaging) jars(ctx context.Context) (err error) {
	from, err := p.staged(ctx, "client/java")
	defer func() { err = errors.Join(err, os.RemoveAll(from)) }()
	if err != nil {
		return err
	}
	repository := filepath.Join(from, "repository")
	build := []string{"mvn", "-q", "-B", "-f", from, "-pl", "!tests", "-Dproject.build.outputTimestamp=" + p.changed.Format(time.RFC3339), "-DaltDeploymentRepository=made::file://" + repository}
	if _, err := p.run(ctx, nil, append(append(build, strings.Fields(p.maven)...), "deploy")...); err != nil {
		return err
	}
	return filepath.WalkDir(repository, func(path string, entry fs.DirEntry, err error) error {
		if extension := filepath.Ext(path); err != nil || extension != ".jar" && extension != ".pom" {
			return err
		}
		return os.Rename(path, filepath.Join(p.dir, entry.Name()))
	})
}

// archive writes the program and what belongs to it into a .zip for Windows, or a .tar.gz.
func (p *packaging) archive(name, program string) (err error) {
	windows := strings.HasSuffix(program, ".exe")
	extension := ".tar.gz"
	if windows {
		extension = ".zip"
	}
	file, err := os.Create(name + extension)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	add, end := tarred(file)
	if windows {
		add, end = zipped(file)
	}
	for _, of := range []string{"LICENSE", "NOTICE", "README.md", "CHANGELOG.md"} {
		text, err := os.ReadFile(filepath.Join(p.r.Top, of))
		if err = errors.Join(err, add(of, 0o644, p.changed, text)); err != nil {
			return err
		}
	}
	text, err := os.ReadFile(program)
	return errors.Join(err, add(filepath.Base(program), 0o755, p.changed, text), end())
}

// adding adds a file to an archive.
type adding func(name string, mode int64, changed time.Time, text []byte) error

func tarred(to io.Writer) (adding, func() error) {
	packed := gzip.NewWriter(to)
	all := tar.NewWriter(packed)
	return func(name string, mode int64, changed time.Time, text []byte) error {
		err := all.WriteHeader(&tar.Header{Name: name, Mode: mode, ModTime: changed, Size: int64(len(text))})
		if err == nil {
			_, err = all.Write(text)
		}
		return err
	}, func() error { return errors.Join(all.Close(), packed.Close()) }
}

func zipped(to io.Writer) (adding, func() error) {
	all := zip.NewWriter(to)
	return func(name string, _ int64, changed time.Time, text []byte) error {
		w, err := all.CreateHeader(&zip.FileHeader{Name: name, Modified: changed, Method: zip.Deflate})
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	}, all.Close
}

// sums writes SHA256SUMS of all that was made.
func (p *packaging) sums() error {
	files, err := os.ReadDir(p.dir)
	if err != nil {
		return err
	}
	var all strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(p.dir, f.Name()))
		if err != nil {
			return err
		}
		sum := sha256.Sum256(text)
		fmt.Fprintf(&all, "%s  %s\n", hex.EncodeToString(sum[:]), f.Name())
	}
	return os.WriteFile(filepath.Join(p.dir, "SHA256SUMS"), []byte(all.String()), 0o644)
}
