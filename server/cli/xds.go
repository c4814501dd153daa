package cli

import "github.com/headgate/headgate/server/app"

// xdsFlags name the management server that sends the policy.
type xdsFlags struct {
	Server     string            `help:"Address of an xDS management server, such as Envoy Gateway's, that sends an envoyproxy/ratelimit configuration to use as the policy." placeholder:"HOST:PORT" env:"HEADGATE_XDS_SERVER"`
	Node       string            `help:"Id of this node, by which the management server selects the configuration. Default: ${default}" default:"default" env:"HEADGATE_XDS_NODE"`
	Metadata   map[string]string `help:"Metadata of this node, as name=value; several are separated by commas." placeholder:"NAME=VALUE" mapsep:"," env:"HEADGATE_XDS_METADATA"`
	TLS        bool              `name:"tls" help:"Use TLS to the management server." env:"HEADGATE_XDS_TLS"`
	CA         string            `name:"ca" help:"PEM file with the certificate authorities for the management server's certificate. Default: the system's." placeholder:"FILE" env:"HEADGATE_XDS_CA"`
	ServerName string            `help:"Name that the management server's certificate must contain. Default: the host of its address." placeholder:"NAME" env:"HEADGATE_XDS_SERVER_NAME"`
	Cert       string            `help:"PEM file with the client certificate for the management server." placeholder:"FILE" env:"HEADGATE_XDS_CERT"`
	Key        string            `help:"PEM file with that certificate's private key." placeholder:"FILE" env:"HEADGATE_XDS_KEY"`
	StartEmpty bool              `help:"Start before the management server has sent a policy. Until then, nothing is limited." env:"HEADGATE_XDS_START_EMPTY"`
}

// settings returns the settings that the flags give, or nil without a management server.
func (x *xdsFlags) settings() *app.XDSSettings {
	if x.Server == "" {
		return nil
	}
	return &app.XDSSettings{
		Server: x.Server, Node: x.Node, Metadata: x.Metadata, TLS: x.TLS, CA: x.CA, ServerName: x.ServerName, Cert: x.Cert, Key: x.Key, StartEmpty: x.StartEmpty,
	}
}
