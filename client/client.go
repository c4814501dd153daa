package client

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/headgate/headgate"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
)

// Client asks a server. It is safe for concurrent use; make one with [New], and
// close it when it is no longer needed.
type Client struct {
	conn      *grpc.ClientConn
	api       headgatev1.HeadgateClient
	permits   headgatev1.PermitsClient
	store     *Store
	deadlines deadlines
	flight    flight
	checks    *mux[*headgatev1.CheckRequest, *headgatev1.Verdict]
}

// What keeps a connection.
const (
	// A connection that is silent for so long is asked whether it is still there,
	// and given up if it does not answer within the second time. Servers of this
	// project allow it every 10 s.
	pingAfter, pingWithin = 20 * time.Second, 5 * time.Second
	// Between attempts to connect; the last is also the longest that one may take.
	leastPause, mostPause = 100 * time.Millisecond, 2 * time.Second
)

// New returns a client of the server at target: host:port, or any other name that
// grpc-go resolves. It connects when it is first needed, and again whenever the
// connection is lost; see [Client.Ping]. TLS or Plaintext must be given. The
// error is an [*headgate.InvalidError].
func New(target string, options ...Option) (*Client, error) {
	set := settings{timeout: DefaultTimeout, maxInFlight: DefaultMaxInFlight, streamFrom: DefaultStreamFrom}
	for _, o := range options {
		o(&set)
	}
	if err := set.check(target); err != nil {
		return nil, err
	}
	own := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingWithin, PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: leastPause, Multiplier: 1.6, Jitter: 0.2, MaxDelay: mostPause},
			MinConnectTimeout: mostPause,
		}),
		// Nobody but the caller may repeat a call, and nothing that was resolved
		// may say otherwise.
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		// A limiter is not idle because nobody was limited for a while.
		grpc.WithIdleTimeout(0),
	}
	if set.secured {
		own[0] = grpc.WithTransportCredentials(credentials.NewTLS(set.tls))
	}
	if set.token != "" {
		own = append(own, grpc.WithPerRPCCredentials(bearer{set.token, set.secured}))
	}
	conn, err := grpc.NewClient(target, slices.Concat(set.dial, own)...)
	if err != nil {
		return nil, headgate.Invalid("client", "target", "the target %q: %v", target, err)
	}
	c := &Client{conn: conn, api: headgatev1.NewHeadgateClient(conn), permits: headgatev1.NewPermitsClient(conn), deadlines: deadlines{timeout: set.timeout}}
	c.flight.most = int64(set.maxInFlight)
	c.checks = newMux(c, set.streamFrom, checkStreams{c.api})
	c.store = newStore(c, set.streamFrom)
	return c, nil
}

// Store is the server as a [headgate.Ledger] for rules of the caller's own. It has
// the client's connection, and ends with the client.
func (c *Client) Store() *Store { return c.store }

// Close ends the connection. Calls that are under way end with an error.
func (c *Client) Close() error {
	c.deadlines.close()
	c.checks.close()
	c.store.takes.close()
	return c.conn.Close()
}

// Ping asks whether the server answers, by a question that charges nothing.
func (c *Client) Ping(ctx context.Context) error {
	_, err := c.Peek(ctx, new(headgatev1.PeekRequest))
	return err
}

// flight counts the calls that have no answer yet.
type flight struct {
	most int64
	n    atomic.Int64
}

// begin admits a call or refuses it. An admitted one must end. It returns how many
// are under way.
func (f *flight) begin() (int64, error) {
	n := f.n.Add(1)
	if n > f.most {
		f.n.Add(-1)
		return 0, fmt.Errorf("%w: %d calls to the server have no answer yet, at most %d may wait: it hangs or is too slow", headgate.ErrUnavailable, n-1, f.most)
	}
	return n, nil
}

func (f *flight) end() { f.n.Add(-1) }

// bearer shows the token.
type bearer struct {
	token  string
	secure bool
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials: who asked for
// TLS does not want the token to be seen.
func (b bearer) RequireTransportSecurity() bool { return b.secure }
