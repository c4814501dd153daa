package cli

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	// This makes its messages known, so that they can be written as JSON too.
	_ "google.golang.org/grpc/health/grpc_health_v1"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/internal/errtext"
	"github.com/headgate/headgate/tune/load"
)

// targets returns the requests to send, and with --arrivals their times.
func (k *loadRequest) targets(c *call, header http.Header, body []byte) (all []*load.Target, arrivals []load.Arrival, err error) {
	base := load.Request{URL: k.URL, Method: k.Method, Header: header, Body: body, GRPC: k.GRPC}
	switch {
	case strings.HasSuffix(k.URL, pb.RateLimitService_ShouldRateLimit_FullMethodName):
		base.Read = rateLimitHint
	case strings.HasSuffix(k.URL, headgatev1.Headgate_Check_FullMethodName):
		base.Read = verdictHint
	}
	if base.Method == "" && len(body) > 0 {
		base.Method = http.MethodPost
	}
	if files := append(k.Mix, k.Arrivals...); len(files) > 0 {
		if all, arrivals, err = k.fromLog(c, base, files); err != nil {
			return nil, nil, err
		}
	}
	for _, text := range k.Route {
		t, err := route(base, text)
		if err != nil {
			return nil, nil, usage(errtext.Text(err), "--route is such as 'GET /report=3'")
		}
		all = append(all, t)
	}
	if all == nil {
		t, err := load.NewTarget(base)
		if err != nil {
			return nil, nil, usage(errtext.Text(err), "")
		}
		all = append(all, t)
	}
	return all, arrivals, nil
}

// rateLimitHint returns what an answer of Envoy's rate limit service says: the limits of its statuses,
// and Retry-After among the headers that Envoy is to add. The reset is not taken for a wait: a limit may
// have room for a request long before it is fully free.
func rateLimitHint(message []byte) (h load.Hint, err error) {
	var m pb.RateLimitResponse
	if err := proto.Unmarshal(message, &m); err != nil {
		return h, err
	}
	if m.GetOverallCode() == pb.RateLimitResponse_OVER_LIMIT {
		h.Limited = true
		for _, field := range m.GetResponseHeadersToAdd() {
			if seconds, err := strconv.Atoi(field.GetValue()); err == nil && strings.EqualFold(field.GetKey(), "Retry-After") {
				h.Wait = time.Duration(seconds) * time.Second
			}
		}
	}
	for _, s := range m.GetStatuses() {
		if limit := s.GetCurrentLimit(); limit != nil {
			h.Windows = append(h.Windows, load.Window{
				Limit: int64(limit.GetRequestsPerUnit()), Remaining: int64(s.GetLimitRemaining()), Reset: s.GetDurationUntilReset().AsDuration(),
			})
		}
	}
	return h, nil
}

// verdictHint returns what an answer of Headgate's own service says.
func verdictHint(message []byte) (h load.Hint, err error) {
	var m headgatev1.Verdict
	if err := proto.Unmarshal(message, &m); err != nil {
		return h, err
	}
	h.Limited = !m.GetAllowed()
	h.Wait = time.Duration(max(m.GetRetryAfterMs(), 0)) * time.Millisecond
	for _, d := range m.GetDecisions() {
		if !d.GetShadow() {
			h.Windows = append(h.Windows, load.Window{Limit: d.GetCapacity(), Remaining: d.GetRemaining(), Reset: time.Duration(d.GetResetAfterMs()) * time.Millisecond})
		}
	}
	return h, nil
}

// fromLog returns the requests of access logs.
func (k *loadRequest) fromLog(c *call, base load.Request, files []string) ([]*load.Target, []load.Arrival, error) {
	most := time.Duration(0)
	if len(k.Arrivals) > 0 {
		most = k.Duration
	}
	base.Body = nil
	recording, err := load.NewRecording(base, most, k.Speed, k.Forward)
	if err != nil {
		return nil, nil, usage(errtext.Text(err), "")
	}
	read := logs{Files: files, Format: k.Format, Map: k.Map, Slack: time.Minute, Quiet: k.Quiet}
	log, err := read.open(c.ctx, c)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = log.Close() }() // everything was read, or there is an error already
	if err := read.each(log, recording.Add); err != nil {
		return nil, nil, err
	}
	if recording.Taken == 0 {
		return nil, nil, usage("the logs have no GET or HEAD request of a path", "others are not sent, since a log does not have their bodies")
	}
	if !k.Quiet {
		fmt.Fprintf(c.stderr, "headgate: %d requests of the logs are taken, and %d left out: of other methods, or beyond what is kept\n", recording.Taken, recording.Left)
	}
	all, err := recording.Targets()
	if err != nil {
		return nil, nil, usage(errtext.Text(err), "")
	}
	return all, recording.Arrivals, nil
}

// route parses 'METHOD /PATH=WEIGHT'.
func route(base load.Request, text string) (*load.Target, error) {
	wrong := fmt.Errorf("headgate: --route %q is not such as 'GET /report=3'", text)
	r := base
	method, path, ok := strings.Cut(text, " ")
	if !ok || !strings.HasPrefix(path, "/") {
		return nil, wrong
	}
	if i := strings.LastIndexByte(path, '='); i >= 0 && !strings.Contains(path[i:], "/") {
		if weight, err := strconv.ParseFloat(path[i+1:], 64); err == nil {
			if weight <= 0 {
				return nil, wrong
			}
			r.Weight, path = weight, path[:i]
		}
	}
	u, err := url.Parse(base.URL)
	if err != nil {
		return nil, wrong
	}
	if r.Method = method; method == http.MethodGet || method == http.MethodHead {
		r.Body = nil
	}
	r.URL = u.Scheme + "://" + u.Host + path
	return load.NewTarget(r)
}

// message returns the message for a gRPC method, converted from JSON.
func (k *loadRequest) message() ([]byte, error) {
	if k.Data == "" {
		return nil, nil // the empty message of any type
	}
	files, err := k.files()
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(k.URL)
	if err != nil {
		return nil, fmt.Errorf("the target is %q, which is no URL", k.URL)
	}
	service, method, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	found, err := files.FindDescriptorByName(protoreflect.FullName(service))
	described, ok := found.(protoreflect.ServiceDescriptor)
	if err != nil || !ok {
		return nil, fmt.Errorf("the service %q is not known, so that --data cannot be read; --descriptors gives its description, and --data @FILE the message as protobuf", service)
	}
	m := described.Methods().ByName(protoreflect.Name(method))
	if m == nil {
		return nil, fmt.Errorf("the service %s has no method %q", service, method)
	}
	if m.IsStreamingClient() || m.IsStreamingServer() {
		return nil, fmt.Errorf("%s is a stream; only unary methods can be called", u.Path)
	}
	message := dynamicpb.NewMessage(m.Input())
	if err := protojson.Unmarshal([]byte(k.Data), message); err != nil {
		return nil, fmt.Errorf("--data is not a %s as JSON: %w", m.Input().FullName(), err)
	}
	return proto.Marshal(message)
}

// files returns the descriptions of services.
func (k *loadRequest) files() (*protoregistry.Files, error) {
	if k.Descriptors == "" {
		return protoregistry.GlobalFiles, nil
	}
	data, err := os.ReadFile(k.Descriptors)
	if err != nil {
		return nil, fmt.Errorf("--descriptors: %w", err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(data, &set); err != nil {
		return nil, fmt.Errorf("--descriptors: %s is no set of descriptors: %w", k.Descriptors, err)
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		return nil, fmt.Errorf("--descriptors: %s: %w", k.Descriptors, err)
	}
	return files, nil
}
