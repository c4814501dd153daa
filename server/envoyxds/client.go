package envoyxds

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/headgate/headgate/internal/errtext"
	"github.com/headgate/headgate/internal/sleep"
	"github.com/headgate/headgate/policy/nested"
)

// ResourceType is the type of the resources that are asked for.
const ResourceType = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

const (
	// maxMessage bounds an answer of the management server, in bytes.
	maxMessage = 64 << 20
	// A connection that breaks is made again after firstPause, and after longer ones, up to
	// maxPause, if it breaks again before anything has come.
	firstPause, maxPause = time.Second, time.Minute
	// A server that says nothing for so long is asked whether it is there, and has the second
	// time to answer.
	pingAfter, pingWithin = time.Minute, 20 * time.Second
)

// Options say where the configuration comes from and where it goes.
type Options struct {
	// Address is that of the management server, host:port. Required.
	Address string
	// Node is the id of this node, by which the server chooses what to send, and Metadata are
	// further properties of it.
	Node     string
	Metadata map[string]string
	// Headers are sent with the stream: a token, for instance.
	Headers map[string]string
	// TLS is how the connection is secured. Nil means that it is not.
	TLS *tls.Config
	// Apply puts a configuration in force, and returns why it cannot. Version is what the
	// server calls it, and hash tells its content from others. Calls follow each other.
	// Required.
	Apply func(version, hash string, domains []nested.Domain) error
	// Logger takes connections that are made and lost. Nil means none.
	Logger *slog.Logger

	// pause stands in for firstPause in tests.
	pause time.Duration
}

// Client receives configurations. Make one with [New].
type Client struct {
	options Options
	conn    *grpc.ClientConn
	node    *core.Node
	version string // that was applied last
}

// New returns a client that is not connected yet. The error says what is wrong with the address.
func New(options Options) (*Client, error) {
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	if options.pause == 0 {
		options.pause = firstPause
	}
	secured := insecure.NewCredentials()
	if options.TLS != nil {
		secured = credentials.NewTLS(options.TLS)
	}
	conn, err := grpc.NewClient(options.Address, grpc.WithTransportCredentials(secured),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingWithin}))
	if err != nil {
		return nil, fmt.Errorf("headgate: the management server %s: %w", options.Address, err)
	}
	fields := make(map[string]*structpb.Value, len(options.Metadata))
	for name, value := range options.Metadata {
		fields[name] = structpb.NewStringValue(value)
	}
	return &Client{
		options: options, conn: conn,
		node: &core.Node{Id: options.Node, Metadata: &structpb.Struct{Fields: fields}, UserAgentName: "headgate"},
	}, nil
}

// Run receives until ctx ends, and closes the connection then. It is called once.
func (c *Client) Run(ctx context.Context) {
	defer c.conn.Close()
	pause := c.options.pause
	for {
		received, err := c.stream(ctx)
		if ctx.Err() != nil {
			return
		}
		if received {
			pause = c.options.pause
		}
		c.options.Logger.WarnContext(ctx, "the management server cannot be reached; the configuration in force stays",
			slog.String("server", c.options.Address), slog.String("error", errtext.Text(err)), slog.Duration("again_in", pause))
		// Not all clients are to come back at once.
		if !sleep.For(ctx, sleep.Jittered(pause)) {
			return
		}
		pause = min(2*pause, maxPause)
	}
}

// stream receives over one stream until it ends, which is always an error, and reports whether
// anything was received.
func (c *Client) stream(ctx context.Context) (received bool, err error) {
	ctx, cancel := context.WithCancel(metadata.NewOutgoingContext(ctx, metadata.New(c.options.Headers)))
	defer cancel()
	s, err := discovery.NewAggregatedDiscoveryServiceClient(c.conn).StreamAggregatedResources(ctx, grpc.WaitForReady(true))
	if err != nil {
		return false, err
	}
	request := &discovery.DiscoveryRequest{Node: c.node, TypeUrl: ResourceType, VersionInfo: c.version}
	for {
		if err := s.Send(request); err != nil {
			// Why the stream has ended only Recv says.
			if _, ended := s.Recv(); ended != nil {
				err = ended
			}
			return received, err
		}
		response, err := s.Recv()
		if err != nil {
			return received, err
		}
		if !received {
			received = true
			c.options.Logger.InfoContext(ctx, "the management server answers", slog.String("server", c.options.Address))
		}
		request = &discovery.DiscoveryRequest{TypeUrl: ResourceType, ResponseNonce: response.GetNonce()}
		if refused := c.take(response); refused != nil {
			request.ErrorDetail = &statuspb.Status{Code: int32(codes.InvalidArgument), Message: errtext.Text(refused)}
		}
		request.VersionInfo = c.version
	}
}

// errType is why an answer is refused that was not asked for.
var errType = errors.New("it is of another type than " + ResourceType)

// take applies an answer.
func (c *Client) take(response *discovery.DiscoveryResponse) error {
	if response.GetTypeUrl() != ResourceType {
		return errType
	}
	domains, hash, err := read(response.GetResources())
	if err == nil {
		err = c.options.Apply(response.GetVersionInfo(), hash, domains)
	}
	if err != nil {
		return err
	}
	c.version = response.GetVersionInfo()
	return nil
}
