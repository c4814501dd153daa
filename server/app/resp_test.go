package app

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

const respSecret = "0123456789abcdef"

// respDial connects to the RESP door, over TLS if there is a configuration.
func (r *running) respDial(t *testing.T, config *tls.Config) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", r.Addr("resp").String())
	if err != nil {
		t.Fatal(err)
	}
	if config != nil {
		config = config.Clone()
		config.ServerName = "127.0.0.1"
		conn = tls.Client(conn, config)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// respAsk sends lines, each a command, and returns all that is answered.
func respAsk(conn net.Conn, lines ...string) (string, error) {
	if _, err := io.WriteString(conn, strings.Join(lines, "\r\n")+"\r\nQUIT\r\n"); err != nil {
		return "", err
	}
	text, err := io.ReadAll(conn)
	return string(text), err
}

func TestRESPIsServedOnlyIfAskedFor(t *testing.T) {
	if addr := start(t, Settings{}).Addr("resp"); addr != nil {
		t.Errorf("it is served at %v", addr)
	}
}

func TestRESP(t *testing.T) {
	r := start(t, Settings{RESPListen: "127.0.0.1:0", RESPToken: respSecret, Version: "v1.2.3", AccessLog: true})
	if got, err := respAsk(r.respDial(t, nil), "PING"); err != nil || !strings.HasPrefix(got, "-NOAUTH ") {
		t.Errorf("without the token: %s, %v", got, err)
	}
	if got, err := respAsk(r.respDial(t, nil), "AUTH "+respSecret, "HG.CHECK auth.createToken user42"); err != nil || !strings.HasPrefix(got, "+OK\r\n*12\r\n$7\r\nallowed\r\n:1\r\n") {
		t.Errorf("with the token: %s, %v", got, err)
	}
	for i, want := range []string{":0", ":0", ":1"} {
		if got, err := respAsk(r.respDial(t, nil), "AUTH "+respSecret, "CL.THROTTLE user42 1 1 3600"); err != nil || !strings.HasPrefix(got, "+OK\r\n*5\r\n"+want) {
			t.Errorf("throttle %d: %s, %v", i+1, got, err)
		}
	}
	open := r.respDial(t, nil)
	if _, err := open.Write([]byte("AUTH " + respSecret + "\r\n")); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(open).ReadString('\n'); err != nil || line != "+OK\r\n" {
		t.Fatalf("%q, %v", line, err)
	}
	// The other connections end a little after their answers.
	for deadline := time.Now().Add(within); ; time.Sleep(time.Millisecond) {
		_, metrics := r.do(t, "GET", "/metrics", "")
		if strings.Contains(metrics, "headgate_resp_connections 1\n") {
			for _, want := range []string{
				"headgate_resp_connections_refused_total 0\n",
				`headgate_resp_throttle_decisions_total{outcome="allowed"} 2`,
				`headgate_resp_throttle_decisions_total{outcome="denied"} 1`,
				`headgate_decisions_total{limit="5 per 3s",outcome="allowed",rule="auth.createToken"} 1`,
			} {
				if !strings.Contains(metrics, want) {
					t.Errorf("the metrics lack %s", want)
				}
			}
			// The callers' limits would be any number of labels.
			if strings.Contains(metrics, "cl.throttle") {
				t.Errorf("the metrics have a series for a limit that a caller brought along:\n%s", metrics)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the metrics do not have one connection:\n%s", metrics)
		}
	}
	r.stop()
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
	if log := r.log.String(); strings.Contains(log, "user42") || strings.Contains(log, respSecret) || !strings.Contains(log, "command=HG.CHECK failed=false") {
		t.Errorf("the access log: %s", log)
	}
}

func TestRESPOverTLS(t *testing.T) {
	a, b := newAuthority(t, "ours"), newAuthority(t, "theirs")
	a.server(t, "server")
	r := start(t, Settings{RESPListen: "127.0.0.1:0", TLSCert: a.file("server.pem"), TLSKey: a.file("server.key"), TLSClientCA: a.file("ca.pem")})
	if got, err := respAsk(r.respDial(t, a.trusting(a.client(t))), "PING"); err != nil || got != "+PONG\r\n+OK\r\n" {
		t.Errorf("one of ours: %s, %v", got, err)
	}
	for name, config := range map[string]*tls.Config{"one of theirs": a.trusting(b.client(t)), "no certificate": a.trusting(), "no TLS": nil} {
		if got, err := respAsk(r.respDial(t, config), "PING"); err == nil && got != "" {
			t.Errorf("%s is answered with %s", name, got)
		}
	}
}

func TestRESPSettingsAreChecked(t *testing.T) {
	for want, settings := range map[string]Settings{
		`--resp-listen: "6380" is not host:port`:              {RESPListen: "6380"},
		"resp token: has 5 bytes, must have 16 to 1024":       {RESPToken: "short"},
		"resp token: byte 5 is not a visible ASCII character": {RESPToken: "with a blank in it"},
	} {
		_, err := New(t.Context(), settings)
		var wrong *SettingsError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) || settings.RESPToken != "" && strings.Contains(err.Error(), settings.RESPToken) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
}
