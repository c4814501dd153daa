package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// maxAnswer is more than any answer to one check has.
const maxAnswer = 1 << 20

// askServer sends the check to a server.
func (k *check) askServer(ctx context.Context) (*answer, error) {
	u, err := serverURL(k.Server)
	if err != nil {
		return nil, err
	}
	op := "check"
	if k.Peek {
		op = "peek"
	}
	body := fmt.Sprintf(`{"checks":[{"rule":%s,"key":%s,"cost":%d}]}`, quoteJSON(k.Rule), quoteJSON(k.Key), k.Cost)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, u.JoinPath("v1", op).String(), strings.NewReader(body))
	if err != nil {
		return nil, notURL()
	}
	request.Header.Set("Content-Type", "application/json")
	status, text, err := send(u, request)
	if err != nil {
		return nil, err
	}
	return readAnswer(u, status, text)
}

func notURL() *failure {
	return usage("--server is not the URL of a server", "write it as "+defaultServer)
}

// serverURL reads the flag --server.
func serverURL(base string) (*url.URL, error) {
	if base == "" {
		base = defaultServer
	}
	// The error of Parse repeats the URL, which may have a password.
	u, err := url.Parse(base)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, notURL()
	}
	return u, nil
}

// send sends a request to a server, and returns what it answers.
func send(u *url.URL, request *http.Request) (status int, text []byte, err error) {
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		// A url.Error repeats the URL; what went wrong is within.
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		var certificate *tls.CertificateVerificationError
		if errors.As(err, &certificate) {
			return 0, nil, &failure{code: CodeUnavailable, text: fmt.Sprintf("the server at %s cannot be believed: %v", u.Host, err), hint: "SSL_CERT_FILE names the file of the authority that has signed its certificate; the name in --server must stand in that"}
		}
		return 0, nil, gone(u, err.Error())
	}
	defer response.Body.Close()
	text, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return 0, nil, gone(u, err.Error())
	}
	return response.StatusCode, text, nil
}

func gone(u *url.URL, why string) error {
	return &failure{code: CodeUnavailable, text: fmt.Sprintf("the server at %s does not answer: %s", u.Host, why), hint: "start one with: headgate serve"}
}

func notHeadgate(u *url.URL, status int) error {
	return &failure{code: CodeUnavailable, text: fmt.Sprintf("what answers at %s with status %d is no Headgate server", u.Host, status), hint: "see what --server points to"}
}

// readAnswer reads what a server said.
func readAnswer(u *url.URL, status int, text []byte) (*answer, error) {
	notHeadgate := notHeadgate(u, status)
	strict := json.NewDecoder(bytes.NewReader(text))
	if status == http.StatusOK {
		// A verdict without decisions is not what one check gets.
		var a answer
		if err := strict.Decode(&a); err != nil || len(a.Decisions) == 0 {
			return nil, notHeadgate
		}
		return &a, nil
	}
	var problem struct {
		Title  string `json:"title"`
		Detail string `json:"detail"`
		Errors []struct {
			Field  string `json:"field"`
			Detail string `json:"detail"`
		} `json:"errors"`
	}
	if err := strict.Decode(&problem); err != nil || problem.Title == "" {
		return nil, notHeadgate
	}
	lines := make([]string, 0, 1)
	for _, e := range problem.Errors {
		// The command made the field names; the user knows one check only.
		lines = append(lines, strings.TrimPrefix(e.Field, "checks[0].")+": "+e.Detail)
	}
	if len(lines) == 0 {
		lines = append(lines, problem.Detail)
	}
	switch status {
	case http.StatusNotFound:
		return nil, usage(joinLines(lines), "the server's rules are at "+u.JoinPath("v1", "rules").Redacted())
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return nil, usage(joinLines(lines), checkHint)
	}
	return nil, &failure{code: CodeUnavailable, text: fmt.Sprintf("the server at %s cannot decide: %s", u.Host, joinLines(lines)), hint: "its log and /readyz say more"}
}
