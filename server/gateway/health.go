package gateway

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"time"
)

// watch checks the health of a target regularly until ctx ends.
func (p *pool) watch(ctx context.Context, t *target) {
	ticker := time.NewTicker(p.Health.Every)
	defer ticker.Stop()
	inRow, first := 0, !t.looked.Load()
	for {
		err := p.look(ctx, t)
		if ctx.Err() != nil {
			return
		}
		// The number of checks in a row that contradict the present state counts.
		if (err == nil) != t.down.Load() {
			inRow = 0
		} else if inRow++; first || err == nil && inRow >= p.Health.UpAfter || err != nil && inRow >= p.Health.DownAfter {
			inRow = 0
			t.down.Store(err != nil)
			if err != nil {
				p.logger.ErrorContext(ctx, "a target is down", slog.String("upstream", p.Name), slog.String("target", t.name), slog.Any("error", err))
			} else {
				p.logger.InfoContext(ctx, "a target is up", slog.String("upstream", p.Name), slog.String("target", t.name))
			}
		}
		first = false
		t.looked.Store(true)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// maxLook is how much of the answer to a health check is read, so that the connection can be
// reused.
const maxLook = 64 << 10

// look checks a target once.
func (p *pool) look(ctx context.Context, t *target) error {
	ctx, cancel := context.WithTimeout(ctx, p.Health.Timeout)
	defer cancel()
	path, err := url.Parse(p.Health.Path)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url.ResolveReference(path).String(), http.NoBody)
	if err != nil {
		return err
	}
	r.Header.Set("User-Agent", "headgate-health")
	res, err := t.transport.RoundTrip(r)
	if err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("no answer within %v", p.Health.Timeout)
		}
		return err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxLook))
	if res.StatusCode < 200 || res.StatusCode > 399 {
		return fmt.Errorf("%s is answered with %s", p.Health.Path, res.Status)
	}
	return nil
}
