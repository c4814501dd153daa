package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/errtext"
	"github.com/headgate/headgate/server/gateway"
)

// reloadWithin bounds a reload of the gateway file, which may have to fetch the keys
// of tokens.
const reloadWithin = 10 * time.Second

// gatewaySource reads a gateway's options, and knows which version of them is in force.
type gatewaySource struct {
	settings *Settings
	gateway  *gateway.Gateway
	policy   *source
	// reserves says that the store keeps reservations, so that costs can be settled.
	reserves bool

	active atomic.Pointer[gatewayVersion]
	reloads
}

// gatewayVersion identifies the options in force.
type gatewayVersion struct {
	version int64
	hash    string // of all files
}

func newGatewaySource(s *Settings, policy *source, store headgate.Store) *gatewaySource {
	_, reserves := store.(headgate.Ledger)
	return &gatewaySource{
		settings: s, policy: policy, reserves: reserves, reloads: reloads{origin: origin{files: gatewayFiles(s.Gateway)}},
	}
}

// gatewayFiles is the file, if there is one.
func gatewayFiles(s *GatewaySettings) []string {
	if s.File == "" {
		return nil
	}
	return []string{s.File}
}

// begin reads the options for the first time.
func (s *gatewaySource) begin() (gateway.Options, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	options, hash, err := s.read()
	if err == nil {
		s.put(1, hash)
	}
	return options, err
}

// put notes what is in force.
func (s *gatewaySource) put(version int64, hash string) {
	s.active.Store(&gatewayVersion{version, hash})
	s.succeeded.Store(time.Now().UnixMilli())
}

// read reads the options, and the hash of the files that they come from.
func (s *gatewaySource) read() (gateway.Options, string, error) {
	var o gateway.Options
	err := s.origin.read(s.named, func() (files []string, err error) {
		o, files, err = gatewayOptions(s.settings.Gateway)
		return files, err
	})
	if err != nil {
		return o, "", err
	}
	calls := slices.ContainsFunc(o.Upstreams, func(u gatewayfile.Upstream) bool { return u.LLM != nil })
	if (calls || len(o.Settle) > 0) && !s.reserves {
		return o, "", &SettingsError{[]string{"gateway: costs are to be settled, which the store " + describeStore(s.settings.Store) + " cannot; it remembers no requests"}}
	}
	o.Logger, o.AccessLog = s.settings.Logger, s.settings.AccessLog
	if o.Dialect, err = httplimit.ParseDialect(s.settings.Dialect); err != nil {
		return o, "", err
	}
	o.OnStoreError = httplimit.FailClosed
	if s.settings.OnStoreError == headgate.OnErrorAllow.String() {
		o.OnStoreError = httplimit.FailOpen
	}
	sum := sha256.New()
	for i := range s.origin.seen {
		sum.Write(s.origin.seen[i].sum[:])
	}
	return o, hex.EncodeToString(sum.Sum(nil)), nil
}

// named returns the files, as far as they are known before they are read.
func (s *gatewaySource) named() []string { return s.origin.files }

// reload reads the file again, for the reason given. If it returns an error, what was in force
// stays in force.
func (s *gatewaySource) reload(reason string) (result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reloadLocked(reason)
}

func (s *gatewaySource) reloadLocked(reason string) (result, error) {
	before := s.active.Load()
	options, hash, err := s.read()
	if err == nil && hash != before.hash {
		err = s.replace(options)
	}
	logger := s.settings.Logger.With(slog.String("because", reason))
	if err != nil {
		s.counts[failed].Add(1)
		s.failed.Store(&failedReload{time.Now(), err})
		why := slog.String("error", errtext.Text(err))
		if file, ok := errors.AsType[*GatewayFileError](err); ok {
			for _, m := range file.Err.Mistakes {
				logger.Error("the gateway file has a mistake", slog.String("mistake", m.String()))
			}
			why = slog.Int("mistakes", len(file.Err.Mistakes))
		}
		logger.Error("the gateway file was not reloaded; what was in force stays", slog.Int64("version", before.version), why)
		return failed, err
	}
	s.failed.Store(nil)
	if hash == before.hash {
		s.succeeded.Store(time.Now().UnixMilli())
		s.counts[unchanged].Add(1)
		logger.Info("the gateway file has not changed the settings", slog.Int64("version", before.version), slog.String("hash", hash))
		return unchanged, nil
	}
	s.put(before.version+1, hash)
	s.counts[changed].Add(1)
	logger.Info("the gateway file has changed", slog.Int64("version", before.version+1), slog.String("hash", hash), slog.String("before", before.hash))
	return changed, nil
}

// replace puts the options in force. Meanwhile no policy can take effect that was not checked with
// them.
func (s *gatewaySource) replace(o gateway.Options) error {
	s.policy.mu.Lock()
	defer s.policy.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), reloadWithin)
	defer cancel()
	if err := s.gateway.Replace(ctx, o); err != nil {
		return gatewayError(err)
	}
	return nil
}

// watch reloads the gateway file when it changes, until ctx ends.
func (s *gatewaySource) watch(ctx context.Context, every time.Duration) {
	s.reloads.watch(ctx, every, s.named, func(reason string) { _, _ = s.reloadLocked(reason) })
}

// detail is the text of /readyz of a service that is ready. It repeats nothing from the file,
// because anybody may ask.
func (s *gatewaySource) detail() string {
	if s == nil {
		return ""
	}
	f := s.failed.Load()
	if f == nil {
		return ""
	}
	return fmt.Sprintf("the gateway file could not be taken (reload at %s); version %d stays in force, and the log says more", f.at.UTC().Format(time.RFC3339), s.active.Load().version)
}

// collect adds the metrics of the gateway file; see [reloads.collect].
func (s *gatewaySource) collect(m scrape) {
	now := s.active.Load()
	s.reloads.collect(m, "headgate_gateway", "gateway file", "gateway file in force", now.version, now.hash)
}
