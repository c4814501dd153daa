package outbound

import (
	"errors"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit/outbound"
	"github.com/headgate/headgate/store/memcached"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/test/servers"
)

// pausing answers each request with 429 and the pause that its path names.
type pausing struct{}

func (pausing) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {r.URL.Path[1:]}}, Body: http.NoBody}, nil
}

// Of the pauses that processes are asked for at a time, the latest end holds, in every store.
func TestPausesDoNotAddUp(t *testing.T) {
	const patience = 30 * time.Second
	for name, open := range map[string]func() (headgate.Store, func(), error){
		"redis": func() (headgate.Store, func(), error) {
			s, err := redis.Open(servers.Bounded(t), servers.Start(t, servers.Redis).URL(), redis.Timeout(patience))
			return s, s.Close, err
		},
		"postgres": func() (headgate.Store, func(), error) {
			s, err := postgres.Open(servers.Bounded(t), servers.StartPostgres(t).URL(), postgres.Timeout(patience))
			return s, s.Close, err
		},
		"memcached": func() (headgate.Store, func(), error) {
			s, err := memcached.Open(servers.Bounded(t), servers.StartMemcached(t, 64).URL(), memcached.Timeout(patience))
			return s, s.Close, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			store, shut, err := open()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(shut)
			call := func(pause int) error {
				transport, err := outbound.New(store, pausing{}, outbound.Config{MaxPause: outbound.LongestWait, MaxWait: -1, FailClosed: true, Hooks: outbound.Hooks{
					Failed: func(_ *http.Request, err error) { t.Error(err) },
				}})
				if err != nil {
					return err
				}
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://partner/"+strconv.Itoa(pause), http.NoBody)
				if err != nil {
					return err
				}
				res, err := transport.RoundTrip(r)
				if err == nil {
					err = res.Body.Close()
				}
				return err
			}
			const shortest, longest = 301, 320
			var all sync.WaitGroup
			for pause := shortest; pause <= longest; pause++ {
				all.Go(func() {
					// Some find that another was asked already.
					if err := call(pause); err != nil && !errors.Is(err, headgate.ErrDenied) {
						t.Error(err)
					}
				})
			}
			all.Wait()
			denied, ok := errors.AsType[*headgate.DeniedError](call(1))
			if !ok || denied.Decision.RetryAfter < shortest/2*time.Second || denied.Decision.RetryAfter > longest*time.Second*21/20 {
				t.Errorf("after pauses of %d to %d s at a time, another process is told %v", shortest, longest, denied)
			}
		})
	}
}
