package cli

import "github.com/headgate/headgate/server/app"

// xdsFlags name the management server that sends the policy.
type xdsFlags struct {
	Server     string            `help:"Address of a management server, such as Envoy Gateway's, that sends a configuration of envoyproxy/ratelimit over xDS, which is then the policy." placeholder:"HOST:PORT" env:"HEADGATE_XDS_SERVER"`
	Node       string            `help:"Id of this node, by which the management server chooses what to send. Default: ${default}" default:"default" env:"HEADGATE_XDS_NODE"`
	Metadata   map[string]string `help:"Properties of this node, as name=value; several are separated by commas." placeholder:"NAME=VALUE" mapsep:"," env:"HEADGATE_XDS_METADATA"`
	TLS        bool              `name:"tls" help:"Secure the connection to the management server by TLS." env:"HEADGATE_XDS_TLS"`
	CA         string            `name:"ca" help:"File with the authorities, in PEM form, that the management server's certificate is checked with. Without one, those of the host." placeholder:"FILE" env:"HEADGATE_XDS_CA"`
	ServerName string            `help:"Name that the management server's certificate must be for. Without one, the host of its address." placeholder:"NAME" env:"HEADGATE_XDS_SERVER_NAME"`
	Cert       string            `help:"File with the certificate, in PEM form, to show to the management server." placeholder:"FILE" env:"HEADGATE_XDS_CERT"`
	Key        string            `help:"File with that certificate's key." placeholder:"FILE" env:"HEADGATE_XDS_KEY"`
	StartEmpty bool              `help:"Start before the management server has sent a policy; nothing is limited until then." env:"HEADGATE_XDS_START_EMPTY"`
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
