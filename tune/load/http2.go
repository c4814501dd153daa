package load

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

// http2 sends requests over connections that it shares with others of its kind.
type http2 struct{ transport *http.Transport }

// newTransport returns a transport that speaks HTTP/2 only.
func newTransport(d *dialer) *http.Transport {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := d.dial(ctx)
		if secure, ok := conn.(*tls.Conn); ok && secure.ConnectionState().NegotiatedProtocol != "h2" {
			return nil, errors.Join(errMalformed, secure.Close())
		}
		return conn, err
	}
	t := &http.Transport{
		Protocols: new(http.Protocols), DialContext: dial, DialTLSContext: dial, DisableCompression: true,
		MaxResponseHeaderBytes: maxHead,
	}
	t.Protocols.SetHTTP2(true)
	t.Protocols.SetUnencryptedHTTP2(true)
	return t
}

func (h *http2) send(ctx context.Context, t *Target, deadline time.Time) answer {
	within, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	request := t.request.WithContext(within)
	if len(t.body) > 0 {
		request.Body = io.NopCloser(bytes.NewReader(t.body))
	}
	res, err := h.transport.RoundTrip(request)
	if err == nil {
		_, err = io.Copy(io.Discard, res.Body)
		err = errors.Join(err, res.Body.Close())
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return answer{kind: abandoned, code: noLeisure, class: noLeisure}
	case err != nil && within.Err() != nil:
		return answer{kind: timedOut, code: noTime, class: noTime}
	case err != nil:
		return unanswered(err)
	case t.grpc:
		return answeredGRPC(res)
	}
	return answered(res.StatusCode, res.Header)
}

// close does nothing: the client closes the connections, which others use as well.
func (h *http2) close() {}
