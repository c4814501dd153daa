package grpclimit

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
)

// service answers calls, and streams message by message, until told otherwise.
type service struct {
	testpb.UnimplementedTestServiceServer
	answer func(ctx context.Context) error
	calls  atomic.Int64
}

func (s *service) UnaryCall(ctx context.Context, r *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	s.calls.Add(1)
	if s.answer != nil {
		if err := s.answer(ctx); err != nil {
			return nil, err
		}
	}
	return &testpb.SimpleResponse{Payload: r.GetPayload()}, nil
}

func (s *service) EmptyCall(context.Context, *testpb.Empty) (*testpb.Empty, error) {
	s.calls.Add(1)
	return new(testpb.Empty), nil
}

func (s *service) FullDuplexCall(stream grpc.BidiStreamingServer[testpb.StreamingOutputCallRequest, testpb.StreamingOutputCallResponse]) error {
	s.calls.Add(1)
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			if s.answer != nil {
				return s.answer(stream.Context())
			}
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(&testpb.StreamingOutputCallResponse{Payload: r.GetPayload()}); err != nil {
			return err
		}
	}
}

// start serves the service with the options of a server, and returns a client of
// it with those of a client.
func start(t testing.TB, s *service, server []grpc.ServerOption, client ...grpc.DialOption) testpb.TestServiceClient {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(append(server, grpc.WaitForHandlers(true))...)
	testpb.RegisterTestServiceServer(g, s)
	var served sync.WaitGroup
	served.Go(func() {
		if err := g.Serve(l); err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, client...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		g.Stop()
		served.Wait()
	})
	return testpb.NewTestServiceClient(conn)
}

// limited is a service behind a server's interceptors.
func limited(t testing.TB, store headgate.Store, s *service, options ...Option) testpb.TestServiceClient {
	t.Helper()
	limit, err := NewServer(store, options...)
	if err != nil {
		t.Fatal(err)
	}
	return start(t, s, limit.Options())
}

// stopped is a memory store whose clock stands.
func stopped() *memory.Store {
	return memory.New(memory.Clock(func() int64 { return 1_763_712_000_000_000 }))
}

// failing is a store that does not answer.
type failing struct{ err error }

func (f failing) Take(_ context.Context, _ headgate.Op, _ []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	return dst, f.err
}

// one admits one unit an hour.
func one(name string) *headgate.Rule { return headgate.MustRule(name, headgate.Per(1, time.Hour)) }

func call(t testing.TB, api testpb.TestServiceClient, options ...grpc.CallOption) error {
	t.Helper()
	_, err := api.UnaryCall(t.Context(), new(testpb.SimpleRequest), options...)
	return err
}

// said is what an error says: its code, the reason, and the delay of its RetryInfo,
// or -1.
func said(err error) (codes.Code, string, time.Duration) {
	reason, delay := "", time.Duration(-1)
	for _, d := range status.Convert(err).Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			reason = d.GetReason()
		case *errdetails.RetryInfo:
			delay = d.GetRetryDelay().AsDuration()
		}
	}
	return status.Code(err), reason, delay
}

// certificates are for a server on the loopback, and for a client that has the
// names; both sides want them.
func certificates(t testing.TB, names *x509.Certificate) (server, client credentials.TransportCredentials) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	sign := func(c *x509.Certificate) tls.Certificate {
		c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(2), root.NotBefore, root.NotAfter
		der, err := x509.CreateCertificate(rand.Reader, c, root, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	}
	own := sign(root)
	parsed, err := x509.ParseCertificate(own.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	forServer := sign(&x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	names.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	forClient := sign(names)
	return credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{forServer}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13}),
		credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{forClient}, RootCAs: pool, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS13})
}

func spiffe(t testing.TB, id string) *x509.Certificate {
	t.Helper()
	u, err := url.Parse(id)
	if err != nil {
		t.Fatal(err)
	}
	return &x509.Certificate{URIs: []*url.URL{u}, Subject: pkix.Name{CommonName: "cn"}}
}
