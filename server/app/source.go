package app

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/internal/errtext"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/lint"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/httpapi"
	"github.com/headgate/headgate/server/insightapi"
)

// source reads a policy, and knows which version of it is in force. Everything that can fail is
// done before a version takes effect. A version takes effect for requests that begin afterwards.
type source struct {
	file    string // "" for the sample
	envoy   bool   // the file is a directory with a configuration of envoyproxy/ratelimit
	options []policy.Option
	logger  *slog.Logger
	// check returns what a transport cannot enforce of a policy, before that takes effect. It is
	// nil if no transport asks for it, and is set before anything is reloaded.
	check func(*policy.Set) error
	// fixed says why the policy cannot be reloaded; "" if it can.
	fixed string
	// onError is what rules without on_store_error do.
	onError headgate.OnError
	// asked says that callers ask before the work, so that no door sees how it ends.
	asked bool

	active atomic.Pointer[decide.Policy]
	// before is the policy that was in force until the last change; nil if there was none.
	before atomic.Pointer[decide.Policy]
	reloads
	changes changes
}

// reloads is what can be read again from files, and what became of that.
type reloads struct {
	// failed says why the last reload changed nothing; nil if it succeeded.
	failed    atomic.Pointer[failedReload]
	succeeded atomic.Int64 // when a load last succeeded, in milliseconds since 1970
	counts    [len(results)]atomic.Int64

	mu     sync.Mutex // Guards what follows, and has reloads follow each other.
	origin origin
}

// failedReload describes a reload that has failed.
type failedReload struct {
	at  time.Time
	err error
}

// result is how a reload ended.
type result int

const (
	changed result = iota
	unchanged
	failed
)

// results are the results' names, as a label of a metric and in answers.
var results = [...]string{changed: "changed", unchanged: "unchanged", failed: "failed"}

// ErrNotReloadable says that the policy does not come from a file that can be
// read again.
var ErrNotReloadable = errors.New("headgate: the policy cannot be reloaded")

// newSource loads the policy in force for the first time.
func newSource(s *Settings) (*source, error) {
	src := &source{
		file: s.PolicyFile, options: s.policyOptions(), logger: s.Logger, asked: s.Gateway == nil && s.PolicyFile != "",
		reloads: reloads{origin: origin{files: []string{s.PolicyFile}}},
	}
	if s.Store != memoryStore {
		src.onError, _ = parseOnError(s.OnStoreError) // Checked before.
	}
	if s.EnvoyConfig != "" {
		src.file, src.envoy = s.EnvoyConfig, true
	}
	if s.XDS != nil {
		src.file, src.fixed = s.XDS.Server, errFromXDS.Error()
		return src, nil // It has a policy when the first has come.
	}
	return src, src.begin()
}

// begin loads the policy for the first time.
func (s *source) begin() error {
	if s.file == "" {
		s.fixed = "the sample policy is part of the program; start the server with --config FILE to have something to reload"
		set, err := config.Parse(sampleName, config.Sample(), s.options...)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(config.Sample())
		s.put(decide.Policy{Set: set, Version: 1, Hash: hex.EncodeToString(sum[:])})
		return nil
	}
	if !s.envoy && !isRegular(s.file) {
		s.fixed = s.file + " is not a regular file, and could be read only once; start the server with a file"
		loaded, err := config.Read(s.file, s.options...)
		if err != nil {
			return err
		}
		s.put(decide.Policy{Set: loaded.Set, Version: 1, Hash: loaded.Hash})
		return nil
	}
	return s.load()
}

// now is the policy in force; its Set is nil if there never was one.
func (s *source) now() decide.Policy {
	if p := s.active.Load(); p != nil {
		return *p
	}
	return decide.Policy{}
}

// collect adds the metrics of the policy; see [reloads.collect].
func (s *source) collect(m scrape, prefix, name, active string) {
	now := s.now()
	s.reloads.collect(m, prefix, name, active, now.Version, now.Hash)
}

// isRegular reports whether a file can be read more than once. It is true for a file that does not
// exist, and false for a pipe, for instance.
func isRegular(file string) bool {
	info, err := os.Stat(file)
	return err != nil || info.Mode().IsRegular()
}

// put makes p the policy in force.
func (s *source) put(p decide.Policy) {
	p.OnError = s.onError
	s.before.Store(s.active.Swap(&p))
	s.succeeded.Store(time.Now().UnixMilli())
	if p.Version == 1 {
		s.changes.add(insightapi.Change{Version: p.Version, Hash: p.Hash, Because: "the start"})
	}
}

// maxWarnings is how many warnings are logged one by one. A policy may have two for each of ten
// thousand rules.
const maxWarnings = 100

// warn logs the warnings about the policy in force.
func (s *source) warn() {
	if s.asked {
		s.warnOfOutcomes()
	}
	warnings := lint.Warnings(s.active.Load().Set)
	if more := len(warnings) - maxWarnings; more > 0 {
		warnings = warnings[:maxWarnings]
		all := "headgate lint " + s.file
		if s.envoy {
			all = "headgate convert envoy " + s.file + ", and headgate lint of what it writes"
		}
		defer s.logger.Warn("the policy has more warnings than these", slog.Int("more", more), slog.String("all", all))
	}
	for _, w := range warnings {
		s.logger.Warn("the policy has a warning", slog.String("code", w.Code), slog.String("rule", w.Rule), slog.String("place", w.Pos.String()), slog.String("why", w.Text))
	}
}

// warnOfOutcomes logs which rules charge by outcomes that the doors do not see. The first request
// that such a rule charges is warned of, too; see [warned].
func (s *source) warnOfOutcomes() {
	var rules []string
	for _, r := range s.active.Load().Set.Rules() {
		if len(r.GiveBackOn)+len(r.ChargeOn) > 0 {
			rules = append(rules, r.Name)
		}
	}
	const most = 10
	if n := len(rules); n > 0 {
		s.logger.Warn("rules charge by the outcome, which this server does not see: plain checks, forward auth and Envoy charge every request; reserve before the work, and settle with its status",
			slog.Int("count", n), slog.String("rules", strings.Join(rules[:min(n, most)], ",")))
	}
}

// load reads the files and puts in force what they hold, unless it is in force
// already.
func (s *source) load() error {
	if !s.envoy && !isRegular(s.file) {
		s.origin.seen = look(s.origin.files, s.origin.seen)
		return fmt.Errorf("%s is no longer a regular file", s.file)
	}
	var loaded config.Loaded
	err := s.origin.read(s.watched, func() (_ []string, err error) {
		loaded, err = s.read()
		if err == nil && s.check != nil {
			err = s.check(loaded.Set)
		}
		return loaded.Files, err
	})
	if err != nil {
		return err
	}
	version := int64(1)
	if now := s.active.Load(); now != nil {
		if now.Hash == loaded.Hash {
			s.succeeded.Store(time.Now().UnixMilli())
			return nil
		}
		version = now.Version + 1
	}
	s.put(decide.Policy{Set: loaded.Set, Nested: loaded.Nested, Version: version, Hash: loaded.Hash})
	return nil
}

// read reads the files.
func (s *source) read() (config.Loaded, error) {
	if s.envoy {
		return config.ReadEnvoy(s.file, s.options...)
	}
	return config.Read(s.file, s.options...)
}

// watched are the files to watch. Those of a directory may differ from time to time.
func (s *source) watched() []string {
	if s.envoy {
		if files, err := config.EnvoyFiles(s.file); err == nil {
			return files
		}
	}
	return s.origin.files
}

// reload reads the policy again, for the reason given, and returns the policy that is then in
// force. The error is that of the files, or wraps ErrNotReloadable; the policy in force then stays
// in force.
func (s *source) reload(reason string) (decide.Policy, result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reloadLocked(reason)
}

func (s *source) reloadLocked(reason string) (decide.Policy, result, error) {
	before := s.now()
	var err error
	if s.fixed != "" {
		err = fmt.Errorf("%w: %s", ErrNotReloadable, s.fixed)
	} else {
		err = s.load()
	}
	if err != nil {
		s.fail(reason, err)
		return before, failed, err
	}
	s.failed.Store(nil)
	now := s.now()
	if now.Version == before.Version {
		s.counts[unchanged].Add(1)
		s.logger.Info("the policy file has not changed the policy", slog.String("because", reason), slog.Int64("version", now.Version), slog.String("hash", now.Hash))
		return now, unchanged, nil
	}
	s.logChange(before, reason)
	return now, changed, nil
}

// logChange logs that another policy is in force.
func (s *source) logChange(before decide.Policy, reason string) {
	now := s.now()
	s.counts[changed].Add(1)
	if before.Set != nil {
		s.changes.add(difference(before.Set, now, reason))
	}
	s.logger.Info("the policy has changed", slog.String("because", reason), slog.Int64("version", now.Version), slog.String("hash", now.Hash), slog.Int("rules", len(now.Rules())), slog.String("before", before.Hash))
	s.warn()
}

// fail records and logs that a reload has failed.
func (s *source) fail(reason string, err error) {
	s.counts[failed].Add(1)
	if s.fixed == "" || s.now().Set == nil {
		s.failed.Store(&failedReload{time.Now(), err})
	}
	if now := s.now(); now.Set != nil {
		s.changes.add(insightapi.Change{Version: now.Version, Hash: now.Hash, Because: reason, Failed: reloadError(err).Detail, Mistakes: mistakesOf(err)})
	}
	s.logFailure(reason, err)
}

// mistakesOf returns the mistakes of the files, each with its place.
func mistakesOf(err error) (list []string) {
	if file, ok := errors.AsType[*config.Error](err); ok {
		for _, m := range file.Mistakes[:min(len(file.Mistakes), maxDiffering)] {
			list = append(list, m.String())
		}
	}
	return list
}

// logFailure logs every mistake.
func (s *source) logFailure(reason string, err error) {
	because, kept := slog.String("because", reason), s.now()
	var file *config.Error
	if !errors.As(err, &file) {
		s.logger.Error("the policy was not reloaded; what was in force stays", because, slog.Int64("version", kept.Version), slog.String("error", errtext.Text(err)))
		return
	}
	for _, m := range file.Mistakes {
		s.logger.Error("the policy file has a mistake", slog.String("mistake", m.String()))
	}
	s.logger.Error("the policy was not reloaded; what was in force stays", because, slog.Int64("version", kept.Version), slog.Int("mistakes", len(file.Mistakes)))
}

// detail is the text of /readyz of a service that is ready. It names no file and repeats nothing
// from one, because anybody may ask.
func (s *source) detail() string {
	f := s.failed.Load()
	if f == nil {
		return ""
	}
	what := "the policy could not be read"
	if file, ok := errors.AsType[*config.Error](f.err); ok {
		what = "the policy file has mistakes"
		if len(file.Mistakes) == 1 {
			what = "the policy file has a mistake"
		}
	}
	return fmt.Sprintf("%s (reload at %s); version %d stays in force, and the log says more", what, f.at.UTC().Format(time.RFC3339), s.active.Load().Version)
}

// reloadError is the error of a reload for whoever asked for it.
func reloadError(err error) *httpapi.ReloadError {
	e := &httpapi.ReloadError{Fixed: errors.Is(err, ErrNotReloadable), Detail: errtext.Text(err)}
	if file, ok := errors.AsType[*config.Error](err); ok {
		what := "policy"
		if gateway := (*GatewayFileError)(nil); errors.As(err, &gateway) {
			what = "gateway"
		}
		e.Detail = fmt.Sprintf("the %s file has a mistake", what)
		if n := len(file.Mistakes); n > 1 {
			e.Detail = fmt.Sprintf("the %s file has %d mistakes", what, n)
		}
		for _, m := range file.Mistakes {
			e.Mistakes = append(e.Mistakes, httpapi.PolicyMistake{File: m.File, Line: m.Line, Column: m.Column, Detail: m.Text})
		}
	}
	return e
}
