package app

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/headgate/headgate/policy/nested"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/envoyxds"
)

// XDSSettings say which management server sends the configuration of envoyproxy/ratelimit, which is
// the policy then.
type XDSSettings struct {
	Server     string            `help:"Address of an xDS management server, such as Envoy Gateway's, that sends an envoyproxy/ratelimit configuration to use as the policy." placeholder:"HOST:PORT" env:"HEADGATE_XDS_SERVER"`
	Node       string            `help:"Id of this node, by which the management server selects the configuration. Default: ${default}" default:"default" env:"HEADGATE_XDS_NODE"`
	Metadata   map[string]string `help:"Metadata of this node, as name=value; several are separated by commas." placeholder:"NAME=VALUE" mapsep:"," env:"HEADGATE_XDS_METADATA"`
	TLS        bool              `name:"tls" help:"Use TLS to the management server." env:"HEADGATE_XDS_TLS"`
	CA         string            `name:"ca" help:"PEM file with the certificate authorities for the management server's certificate. Default: the system's." placeholder:"FILE" env:"HEADGATE_XDS_CA"`
	ServerName string            `help:"Name that the management server's certificate must contain. Default: the host of its address." placeholder:"NAME" env:"HEADGATE_XDS_SERVER_NAME"`
	Cert       string            `help:"PEM file with the client certificate for the management server." placeholder:"FILE" env:"HEADGATE_XDS_CERT"`
	Key        string            `help:"PEM file with that certificate's private key." placeholder:"FILE" env:"HEADGATE_XDS_KEY"`
	StartEmpty bool              `help:"Start before the management server has sent a policy. Until then, nothing is limited." env:"HEADGATE_XDS_START_EMPTY"`
	// Headers are sent to the server: a token, for instance.
	Headers map[string]string `kong:"-"`
}

// config is how the connection is secured; nil means that it is not.
func (s *XDSSettings) config() (*tls.Config, error) {
	if !s.TLS {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.ServerName}
	if s.CA != "" {
		var err error
		if c.RootCAs, err = LoadAuthorities(s.CA); err != nil {
			return nil, fmt.Errorf("the management server's authorities: %w", err)
		}
	}
	if s.Cert != "" || s.Key != "" {
		pair, err := tls.LoadX509KeyPair(s.Cert, s.Key)
		if err != nil {
			return nil, fmt.Errorf("the certificate for the management server: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// mistakes are those that do not need the files.
func (s *XDSSettings) mistakes(all *Settings) []string {
	var problems []string
	if p := checkListen(s.Server); p != "" {
		problems = append(problems, "xds server: "+p)
	}
	if !s.TLS && (s.CA != "" || s.ServerName != "" || s.Cert != "" || s.Key != "") {
		problems = append(problems, "xds server: there are files or a name for TLS, but TLS is off; turn it on")
	}
	if all.EnvoyConfig != "" || all.PolicyFile != "" || all.Candidate != "" {
		problems = append(problems, "xds server: there is a policy file, a directory or a candidate as well; a management server sends the whole policy")
	}
	return problems
}

// xds receives the policy from a management server.
type xds struct {
	end     context.CancelFunc
	running sync.WaitGroup
}

// startXDS begins to receive, and returns when there is a policy. If the service starts without
// one, there is an empty one at once.
func (a *App) startXDS(ctx context.Context) (*xds, error) {
	set := a.settings.XDS
	secured, err := set.config()
	if err != nil {
		return nil, &SettingsError{[]string{"xds server: " + err.Error()}}
	}
	if set.StartEmpty {
		tree, empty, err := nested.New(nil, a.source.options...)
		if err != nil {
			return nil, err
		}
		a.source.put(decide.Policy{Set: empty, Nested: tree, Version: 1})
	}
	first := make(chan struct{})
	begun := sync.OnceFunc(func() { close(first) })
	client, err := envoyxds.New(envoyxds.Options{
		Address: set.Server, Node: cmp.Or(set.Node, "default"), Metadata: set.Metadata, Headers: set.Headers, TLS: secured, Logger: a.settings.Logger,
		Apply: func(version, hash string, domains []nested.Domain) error {
			if err := a.source.receive(version, hash, domains); err != nil {
				return err
			}
			begun()
			return nil
		},
	})
	if err != nil {
		return nil, &SettingsError{[]string{"xds server: " + err.Error()}}
	}
	x := new(xds)
	ctxRun, end := context.WithCancel(context.WithoutCancel(ctx))
	x.end = end
	x.running.Go(func() { client.Run(ctxRun) })
	if set.StartEmpty {
		a.settings.Logger.InfoContext(ctx, "nothing is limited before the management server sends a policy", slog.String("server", set.Server))
		return x, nil
	}
	a.settings.Logger.InfoContext(ctx, "waiting for the policy", slog.String("server", set.Server))
	select {
	case <-first:
		return x, nil
	case <-ctx.Done():
		x.close()
		return nil, &unavailable{"the management server at " + set.Server + " has sent no policy", context.Cause(ctx)}
	}
}

func (x *xds) close() {
	x.end()
	x.running.Wait()
}

// receive puts in force what a management server has sent, unless it is in force already. An error
// says what is wrong with it; what was in force stays in force then.
func (s *source) receive(version, hash string, domains []nested.Domain) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	because := "the management server sent version " + version
	before := s.now()
	if before.Set != nil && before.Hash == hash {
		s.counts[unchanged].Add(1)
		s.failed.Store(nil)
		return nil
	}
	tree, set, err := nested.New(domains, s.options...)
	if err != nil {
		if before.Set == nil {
			s.logger.Error("there is no policy yet: the management server sent one with mistakes", slog.String("error", err.Error()))
			return err
		}
		s.fail(because, err)
		return err
	}
	s.put(decide.Policy{Set: set, Nested: tree, Version: before.Version + 1, Hash: hash})
	s.failed.Store(nil)
	if before.Set == nil {
		return nil
	}
	s.logChange(before, because)
	return nil
}

// errFromXDS is why a policy that a management server sends cannot be read again.
var errFromXDS = errors.New("the policy comes from a management server, which sends it when it changes")
