package target

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis/internal/guard"
	"github.com/headgate/headgate/store/redis/internal/refusal"
)

// maxRedirections is how many times a call may follow MOVED and ASK. Each move of a slot needs one
// redirection. More of them mean that the nodes disagree.
const maxRedirections = 8

// Connect connects to the servers, for calls that end within the timeout. The context bounds the
// time for connecting. prefix is the prefix of the store's keys. The caller closes the client first
// and then its Links.
//
// The error is an [*headgate.InvalidError] if the servers, or the files that the URL names, are not
// what the URL says. Otherwise it wraps [headgate.ErrUnavailable].
func (t *Target) Connect(ctx context.Context, timeout time.Duration, prefix string) (rueidis.Client, *Links, error) {
	o, err := t.options(timeout)
	if err != nil {
		return nil, nil, err
	}
	if end, ok := ctx.Deadline(); ok {
		o.Dialer.Timeout = max(time.Millisecond, min(o.Dialer.Timeout, time.Until(end)))
	}
	links := newLinks(dial)
	o.DisableAutoPipelining = t.Topology == Single // except for calls that say so
	var client rueidis.Client
	if t.Topology == Sentinels {
		client, err = links.follow(ctx, t, o, timeout)
	} else {
		o.DialCtxFn = links.dialer(nil)
		if client, err = rueidis.NewClient(o); err != nil {
			err = t.unreachable(err)
		}
	}
	if err != nil {
		links.Close()
		return nil, nil, err
	}
	if t.Topology == Single {
		links.Dedicated = client
	}
	client = shared{client, &links.calls, t.Topology == Single}
	if err := t.suits(ctx, client, prefix); err != nil {
		client.Close()
		links.Close()
		return nil, nil, err
	}
	return client, links, nil
}

// unreachable wraps the reason why there is no connection, with the addresses.
func (t *Target) unreachable(err error) error {
	where := strings.Join(t.Hosts, ", ")
	if t.Topology == Sentinels {
		where = fmt.Sprintf("the primary %q by the Sentinels at %s", t.Master, where)
	} else {
		where = "redis at " + where
	}
	hint := ""
	if t.tls && errors.Is(err, context.DeadlineExceeded) {
		hint = " (does it speak TLS at that port?)"
	}
	return fmt.Errorf("%w: connecting to %s: %w%s", headgate.ErrUnavailable, where, err, hint)
}

// options returns the options for the client.
func (t *Target) options(timeout time.Duration) (rueidis.ClientOption, error) {
	var problems headgate.Problems
	keep := func(field string, err error) {
		if err != nil {
			problems.Add(field, "%s: %v", field, err)
		}
	}
	password := t.password
	var err error
	if t.passwordFile != "" {
		password, err = secret(t.passwordFile)
		keep("password_file", err)
	}
	if t.sentinelPasswordFile != "" {
		_, err = secret(t.sentinelPasswordFile)
		keep("sentinel_password_file", err)
	}
	var config *tls.Config
	if t.tls {
		config = t.tlsConfig(keep)
	}
	if err := problems.Err(urlSubject); err != nil {
		return rueidis.ClientOption{}, err
	}
	// A connection that goes silent is noticed within twice this time, and its calls end.
	dialer := net.Dialer{Timeout: t.ConnectTimeout, KeepAlive: t.ConnectTimeout}
	o := rueidis.ClientOption{
		InitAddress: t.Hosts,
		Username:    t.user, Password: password, SelectDB: t.database,
		// Some users are not permitted to name their library, and the refusals would fill the
		// server's log.
		ClientName: t.clientName, ClientSetInfo: rueidis.DisableClientSetInfo, TLSConfig: config,
		Dialer: dialer, DialCtxFn: dial, ConnWriteTimeout: max(t.ConnectTimeout, timeout),
		// A call that may have counted is never sent again.
		DisableRetry:       true,
		DisableCache:       true,
		PipelineMultiplex:  bits.Len64(uint64(t.connections)) - 1,
		RingScaleEachConn:  bits.Len64(uint64(t.Queue)) - 1,
		ReadBufferEachConn: int(t.readBuffer), WriteBufferEachConn: int(t.writeBuffer),
	}
	if t.Topology != Cluster && t.connections == 1 {
		o.PipelineMultiplex = -1 // for such clients, 0 means as many as there are processors
	}
	o.ForceSingleClient = t.Topology != Cluster // even behind Sentinels: see Links
	if t.Topology == Cluster {
		o.ClusterOption = rueidis.ClusterOption{ShardsRefreshInterval: t.refresh, MaxMovedRedirections: maxRedirections}
	}
	t.identify(&o)
	return o, nil
}

// certificate returns a function that reads the certificate again for each new connection, so that
// it can be renewed. If the files cannot be read or do not match at that moment, the connection
// uses the previous certificate.
func (t *Target) certificate(pair *tls.Certificate) func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	var last atomic.Pointer[tls.Certificate]
	last.Store(pair)
	return func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if now, err := tls.LoadX509KeyPair(t.certFile, t.keyFile); err == nil {
			last.Store(&now)
		}
		return last.Load(), nil
	}
}

func (t *Target) tlsConfig(keep func(string, error)) *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.serverName}
	if t.caFile != "" {
		pem, err := os.ReadFile(t.caFile)
		if err == nil {
			config.RootCAs = x509.NewCertPool()
			if !config.RootCAs.AppendCertsFromPEM(pem) {
				err = fmt.Errorf("%s has no certificate in PEM form", t.caFile)
			}
		}
		keep("ca_file", err)
	}
	if t.certFile != "" {
		pair, err := tls.LoadX509KeyPair(t.certFile, t.keyFile)
		config.GetClientCertificate = t.certificate(&pair)
		keep("cert_file and key_file", err)
	}
	return config
}

// suits returns an error if the servers are not of the kind that the URL names, or do not answer.
func (t *Target) suits(ctx context.Context, client rueidis.Client, prefix string) error {
	if t.Topology == Cluster && client.Mode() != rueidis.ClientModeCluster {
		return invalidURL("the server is not a node of a cluster; write redis:// in the place of redis-cluster://")
	}
	switch t.Topology {
	case Cluster:
		err := client.Do(ctx, client.B().Get().Key(prefix).Build()).Error()
		if err != nil && (errors.Is(err, rueidis.ErrNoSlot) || refusal.Is(err, "CLUSTERDOWN")) {
			return t.unreachable(fmt.Errorf("the nodes do not serve all slots; has the cluster been formed? (%w)", err))
		}
		return nil
	case Sentinels:
		return nil
	}
	// HELLO needs no permission, and its answer says what the server is.
	reply, err := client.Do(ctx, client.B().Arbitrary("HELLO").Build()).AsMap()
	if err != nil {
		var refused *rueidis.RedisError
		if errors.As(err, &refused) {
			return nil // it may be a proxy, which may work all the same
		}
		return t.unreachable(err)
	}
	mode := reply["mode"]
	switch name, _ := mode.ToString(); name {
	case "cluster":
		return invalidURL("the server is a node of a cluster; write redis-cluster:// in the place of redis://")
	case "sentinel":
		return invalidURL("the server is a Sentinel; write " + forms["redis-sentinel"].form)
	}
	return nil
}

// AnswerWithin is how long a server may take for its first answer to a client that [Target.Peer]
// makes.
const AnswerWithin = 3 * time.Second

// Peer connects to one server of the target, or to a Sentinel. The client is closed when the
// context ends.
func (t *Target) Peer(ctx context.Context, address string, sentinel bool) (rueidis.Client, error) {
	o, err := t.peer(sentinel)
	if err != nil {
		return nil, err
	}
	return clientOf(ctx, o, address)
}

// peer returns the options for clients of one server of the target, or of one Sentinel, which have
// few calls at a time.
func (t *Target) peer(sentinel bool) (rueidis.ClientOption, error) {
	one := *t
	one.Topology, one.sentinelPasswordFile = Single, ""
	one.connections, one.Queue, one.readBuffer, one.writeBuffer = 1, 8, 4<<10, 4<<10
	if sentinel {
		one.user, one.password, one.passwordFile, one.database = t.sentinelUser, "", t.sentinelPasswordFile, 0
	}
	o, err := one.options(AnswerWithin)
	o.Dialer.Timeout = min(o.Dialer.Timeout, AnswerWithin)
	o.ConnWriteTimeout = AnswerWithin // this bounds the handshake, too
	return o, err
}

// clientOf connects to one server. The client is closed when the context ends.
func clientOf(ctx context.Context, o rueidis.ClientOption, address string) (rueidis.Client, error) {
	o.InitAddress = []string{address}
	return guard.Bounded(ctx, func() (rueidis.Client, error) {
		client, err := rueidis.NewClient(o)
		if err == nil {
			context.AfterFunc(ctx, client.Close) // Bounded may have returned without it
		}
		return client, err
	})
}
