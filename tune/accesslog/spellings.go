package accesslog

import (
	"regexp"
	"strings"
)

// fields are the names under which a format has each part, the best one first. A name may end in
// the unit of a duration, as that of a [Map] may.
type fields map[part]string

// sinks are those of the field with the name; none if it is not known.
func (f fields) sinks(name string) (all []sink) {
	for p := range parts {
		for rank, known := range strings.Fields(f[p]) {
			if known, unit := cutUnit(known); known == name {
				all = append(all, sink{part: p, rank: uint8(rank), unit: unit})
			}
		}
	}
	return all
}

// names are those of all fields.
func (f fields) names() (all []string) {
	for p := range parts {
		for _, name := range strings.Fields(f[p]) {
			name, _ = cutUnit(name)
			all = append(all, name)
		}
	}
	return all
}

// nginx is the syntax $remote_addr.
var nginx = spelling{
	ended: true,
	next: func(text string) (name string, from, to int, err error) {
		for i := 0; i < len(text); i++ {
			if text[i] != '$' {
				continue
			}
			j, brace := i+1, false
			if j < len(text) && text[j] == '{' {
				brace = true
				j++
			}
			k := j
			for k < len(text) && (text[k] == '_' || text[k] >= '0' && text[k] <= '9' || text[k]|0x20 >= 'a' && text[k]|0x20 <= 'z') {
				k++
			}
			name, to = text[j:k], k
			if brace {
				if k == len(text) || text[k] != '}' {
					return "", 0, 0, formatError("${ is not closed in the format %q", text)
				}
				to++
			}
			if name == "" {
				return "", 0, 0, formatError("no variable follows the $ in the format %q", text[i:])
			}
			return name, i, to, nil
		}
		return "", 0, 0, nil
	},
	known: fields{
		partTime: "msec time_local time_iso8601", partIP: "remote_addr", partUser: "remote_user", partRequest: "request",
		partMethod: "request_method", partTarget: "request_uri uri document_uri", partHost: "host http_host server_name",
		partAgent: "http_user_agent", partStatus: "status", partDuration: "request_time:s",
	},
}

// apache is the syntax %h, %>s and %{User-Agent}i. Its times are the beginnings of requests.
var apache = spelling{
	next: func(text string) (name string, from, to int, err error) {
		i := strings.IndexByte(text, '%')
		if i < 0 {
			return "", 0, 0, nil
		}
		j := i + 1
		for j < len(text) && strings.IndexByte("<>!,0123456789", text[j]) >= 0 {
			j++
		}
		start := j
		if j < len(text) && text[j] == '{' {
			end := strings.IndexByte(text[j:], '}')
			if end < 0 {
				return "", 0, 0, formatError("%%{ is not closed in the format %q", text)
			}
			j += end + 1
		}
		if strings.HasPrefix(text[min(j, len(text)):], "^t") {
			j += 2
		}
		if j >= len(text) {
			return "", 0, 0, formatError("no letter follows the %% in the format %q", text[i:])
		}
		return text[start : j+1], i, j + 1, nil
	},
	known: fields{
		partTime: "{msec}t {usec}t {sec}t t", partIP: "a h {c}a", partUser: "u", partRequest: "r", partMethod: "m", partTarget: "U",
		partHost: "{Host}i V v", partAgent: "{User-Agent}i {User-agent}i", partStatus: "s",
		partDuration: "D:us {us}T:us {ms}T:ms T:s {s}T:s",
	},
}

// envoyOperator matches %REQ(:METHOD)%, %START_TIME% and %REQ(X?Y):10%.
var envoyOperator = regexp.MustCompile(`%([A-Z0-9_]+(?:\([^)]*\))?)(?::\d+)?%`)

// envoy is the syntax %START_TIME%.
var envoy = spelling{
	next: func(text string) (name string, from, to int, err error) {
		m := envoyOperator.FindStringSubmatchIndex(text)
		if m == nil {
			return "", 0, 0, nil
		}
		return text[m[2]:m[3]], m[0], m[1], nil
	},
	known: fields{
		partTime: "START_TIME", partStatus: "RESPONSE_CODE", partDuration: "DURATION:ms",
		partIP: "DOWNSTREAM_REMOTE_ADDRESS DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT DOWNSTREAM_DIRECT_REMOTE_ADDRESS DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT REQ(X-FORWARDED-FOR)",
		partMethod: "REQ(:METHOD)", partTarget: "REQ(X-ENVOY-ORIGINAL-PATH?:PATH) REQ(:PATH)", partHost: "REQ(:AUTHORITY)", partAgent: "REQ(USER-AGENT)",
	},
	// The names of headers are written in any case, and START_TIME may have a format.
	name: func(name string) string {
		name = strings.ToUpper(name)
		if head, _, ok := strings.Cut(name, "("); ok && head != "REQ" {
			return head
		}
		return name
	},
}

// The log_formats that have names.
const (
	commonFormat   = `$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent`
	combinedFormat = commonFormat + ` "$http_referer" "$http_user_agent"`
	traefikFormat  = combinedFormat + ` $request_count "$router" "$service_url" ${duration_ms}ms`
	envoyFormat    = `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% %BYTES_RECEIVED% %BYTES_SENT% %DURATION% %UPSTREAM_SERVICE_TIME% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" "%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%"`
	albFormat      = `$type $time $elb $client_port $target_port $request_processing_time $target_processing_time $response_processing_time $elb_status_code $target_status_code $received_bytes $sent_bytes "$request" "$user_agent" $ssl_cipher $ssl_protocol $target_group_arn "$trace_id" "$domain_name" "$chosen_cert_arn" $matched_rule_priority $request_creation_time`
)

// clf is for the log_formats common and combined. Their times are the beginnings (Apache) or the
// ends (nginx) of requests. Only a duration could distinguish these.
var clf = spelling{next: nginx.next, known: nginx.known}

// traefik has the time of the end of a request, and its duration in milliseconds.
var traefik = spelling{next: nginx.next, ended: true, known: fields{
	partTime: "time_local", partIP: "remote_addr", partUser: "remote_user", partRequest: "request", partAgent: "http_user_agent",
	partStatus: "status", partDuration: "duration_ms:ms",
}}

// alb is the log of AWS's load balancer, which has the time at which a request arrived.
var alb = spelling{next: nginx.next, known: fields{
	partTime: "request_creation_time time", partIP: "client_port", partRequest: "request", partHost: "domain_name", partAgent: "user_agent",
	partStatus: "elb_status_code",
}}

// columns are fields of JSON and CSV with only one possible meaning.
var columns = fields{
	partTime:     "time timestamp @timestamp ts time_iso8601 time_local start_time date",
	partIP:       "ip client_ip clientip remote_ip remote_addr client",
	partUser:     "user remote_user user_id",
	partRequest:  "request",
	partMethod:   "method request_method verb",
	partTarget:   "request_uri uri path url",
	partHost:     "host http_host server_name",
	partAgent:    "user_agent http_user_agent agent",
	partStatus:   "status status_code response",
	partDuration: "request_time:s duration_ms:ms",
}

// caddyColumns are those of Caddy's access log.
var caddyColumns = fields{
	partTime: "ts", partIP: "request.client_ip request.remote_ip request.remote_addr", partUser: "user_id", partMethod: "request.method",
	partTarget: "request.uri", partHost: "request.host", partAgent: "request.headers.User-Agent", partStatus: "status", partDuration: "duration:s",
}

// traefikColumns are those of Traefik's access log in JSON.
var traefikColumns = fields{
	partTime: "StartUTC StartLocal", partIP: "ClientHost ClientAddr", partUser: "ClientUsername", partMethod: "RequestMethod",
	partTarget: "RequestPath", partHost: "RequestHost RequestAddr", partAgent: "request_User-Agent", partStatus: "DownstreamStatus",
	partDuration: "Duration:ns",
}

// envoyColumns are those of Envoy and Envoy Gateway by default.
var envoyColumns = fields{
	partTime: "start_time", partIP: "downstream_remote_address x-forwarded-for x_forwarded_for", partMethod: "method",
	partTarget: "x-envoy-origin-path path", partHost: ":authority authority", partAgent: "user-agent user_agent",
	partStatus: "response_code", partDuration: "duration:ms",
}
