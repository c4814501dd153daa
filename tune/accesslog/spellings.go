package accesslog

import (
	"regexp"
	"strings"
)

// to is a sink of a part.
func to(p part, rank uint8) []sink { return []sink{{part: p, rank: rank}} }

// lasting returns the sink of a duration in the given unit.
func lasting(unit string) []sink { return []sink{{part: partDuration, unit: units[unit]}} }

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
	known: func(name string) []sink {
		switch name {
		case "remote_addr":
			return to(partIP, 0)
		case "remote_user":
			return to(partUser, 0)
		case "time_local", "time_iso8601":
			return to(partTime, 1)
		case "msec":
			return to(partTime, 0)
		case "request":
			return to(partRequest, 0)
		case "request_method":
			return to(partMethod, 0)
		case "request_uri":
			return to(partTarget, 0)
		case "uri", "document_uri":
			return to(partTarget, 1)
		case "host":
			return to(partHost, 0)
		case "http_host":
			return to(partHost, 1)
		case "server_name":
			return to(partHost, 2)
		case "http_user_agent":
			return to(partAgent, 0)
		case "status":
			return to(partStatus, 0)
		case "request_time":
			return lasting("s")
		}
		return nil
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
	known: func(name string) []sink {
		switch name {
		case "a", "h":
			return to(partIP, 0)
		case "{c}a":
			return to(partIP, 1)
		case "u":
			return to(partUser, 0)
		case "t":
			return to(partTime, 1)
		case "{sec}t":
			return []sink{{part: partTime, rank: 1, unit: 1e6}}
		case "{msec}t":
			return []sink{{part: partTime, unit: 1e3}}
		case "{usec}t":
			return []sink{{part: partTime, unit: 1}}
		case "r":
			return to(partRequest, 0)
		case "m":
			return to(partMethod, 0)
		case "U":
			return to(partTarget, 1)
		case "{Host}i":
			return to(partHost, 0)
		case "V":
			return to(partHost, 1)
		case "v":
			return to(partHost, 2)
		case "{User-Agent}i", "{User-agent}i":
			return to(partAgent, 0)
		case "s":
			return to(partStatus, 0)
		case "D", "{us}T":
			return lasting("us")
		case "{ms}T":
			return lasting("ms")
		case "T", "{s}T":
			return lasting("s")
		}
		return nil
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
	known: func(name string) []sink {
		head, _, _ := strings.Cut(name, "(")
		switch head {
		case "START_TIME":
			return to(partTime, 0)
		case "DOWNSTREAM_REMOTE_ADDRESS", "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT":
			return to(partIP, 0)
		case "DOWNSTREAM_DIRECT_REMOTE_ADDRESS", "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT":
			return to(partIP, 1)
		case "RESPONSE_CODE":
			return to(partStatus, 0)
		case "DURATION":
			return lasting("ms")
		}
		switch strings.ToUpper(name) {
		case "REQ(:METHOD)":
			return to(partMethod, 0)
		case "REQ(X-ENVOY-ORIGINAL-PATH?:PATH)", "REQ(:PATH)":
			return to(partTarget, 0)
		case "REQ(:AUTHORITY)":
			return to(partHost, 0)
		case "REQ(USER-AGENT)":
			return to(partAgent, 0)
		case "REQ(X-FORWARDED-FOR)":
			return to(partIP, 2)
		}
		return nil
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
var traefik = spelling{next: nginx.next, ended: true, known: func(name string) []sink {
	if name == "duration_ms" {
		return lasting("ms")
	}
	return nginx.known(name)
}}

// alb is the log of AWS's load balancer, which has the time at which a request arrived.
var alb = spelling{next: nginx.next, known: func(name string) []sink {
	switch name {
	case "request_creation_time":
		return to(partTime, 0)
	case "time":
		return to(partTime, 1)
	case "client_port":
		return to(partIP, 0)
	case "elb_status_code":
		return to(partStatus, 0)
	case "request":
		return to(partRequest, 0)
	case "user_agent":
		return to(partAgent, 0)
	case "domain_name":
		return to(partHost, 0)
	}
	return nil
}}

// column is a field whose meaning in JSON and CSV is known.
type column struct {
	name string
	sink sink
}

// columns are names of fields with only one possible meaning.
var columns = []column{
	{"time", sink{part: partTime}},
	{"timestamp", sink{part: partTime, rank: 1}},
	{"@timestamp", sink{part: partTime, rank: 2}},
	{"ts", sink{part: partTime, rank: 3}},
	{"time_iso8601", sink{part: partTime, rank: 4}},
	{"time_local", sink{part: partTime, rank: 5}},
	{"start_time", sink{part: partTime, rank: 6}},
	{"date", sink{part: partTime, rank: 7}},
	{"ip", sink{part: partIP}},
	{"client_ip", sink{part: partIP, rank: 1}},
	{"clientip", sink{part: partIP, rank: 2}},
	{"remote_ip", sink{part: partIP, rank: 3}},
	{"remote_addr", sink{part: partIP, rank: 4}},
	{"client", sink{part: partIP, rank: 5}},
	{"user", sink{part: partUser}},
	{"remote_user", sink{part: partUser, rank: 1}},
	{"user_id", sink{part: partUser, rank: 2}},
	{"request", sink{part: partRequest}},
	{"method", sink{part: partMethod}},
	{"request_method", sink{part: partMethod, rank: 1}},
	{"verb", sink{part: partMethod, rank: 2}},
	{"request_uri", sink{part: partTarget}},
	{"uri", sink{part: partTarget, rank: 1}},
	{"path", sink{part: partTarget, rank: 2}},
	{"url", sink{part: partTarget, rank: 3}},
	{"host", sink{part: partHost}},
	{"http_host", sink{part: partHost, rank: 1}},
	{"server_name", sink{part: partHost, rank: 2}},
	{"status", sink{part: partStatus}},
	{"status_code", sink{part: partStatus, rank: 1}},
	{"response", sink{part: partStatus, rank: 2}},
	{"user_agent", sink{part: partAgent}},
	{"http_user_agent", sink{part: partAgent, rank: 1}},
	{"agent", sink{part: partAgent, rank: 2}},
	{"request_time", sink{part: partDuration, unit: 1e6}},
	{"duration_ms", sink{part: partDuration, rank: 1, unit: 1e3}},
}

// caddyColumns are those of Caddy's access log.
var caddyColumns = []column{
	{"ts", sink{part: partTime}},
	{"request.client_ip", sink{part: partIP}},
	{"request.remote_ip", sink{part: partIP, rank: 1}},
	{"request.remote_addr", sink{part: partIP, rank: 2}},
	{"user_id", sink{part: partUser}},
	{"request.method", sink{part: partMethod}},
	{"request.uri", sink{part: partTarget}},
	{"request.host", sink{part: partHost}},
	{"request.headers.User-Agent", sink{part: partAgent}},
	{"status", sink{part: partStatus}},
	{"duration", sink{part: partDuration, unit: 1e6}},
}

// traefikColumns are those of Traefik's access log in JSON.
var traefikColumns = []column{
	{"StartUTC", sink{part: partTime}},
	{"StartLocal", sink{part: partTime, rank: 1}},
	{"ClientHost", sink{part: partIP}},
	{"ClientAddr", sink{part: partIP, rank: 1}},
	{"ClientUsername", sink{part: partUser}},
	{"RequestMethod", sink{part: partMethod}},
	{"RequestPath", sink{part: partTarget}},
	{"RequestHost", sink{part: partHost}},
	{"RequestAddr", sink{part: partHost, rank: 1}},
	{"request_User-Agent", sink{part: partAgent}},
	{"DownstreamStatus", sink{part: partStatus}},
	{"Duration", sink{part: partDuration, unit: 1e-3}},
}

// envoyColumns are those of Envoy and Envoy Gateway by default.
var envoyColumns = []column{
	{"start_time", sink{part: partTime}},
	{"downstream_remote_address", sink{part: partIP}},
	{"x-forwarded-for", sink{part: partIP, rank: 1}},
	{"x_forwarded_for", sink{part: partIP, rank: 2}},
	{"method", sink{part: partMethod}},
	{"x-envoy-origin-path", sink{part: partTarget}},
	{"path", sink{part: partTarget, rank: 1}},
	{":authority", sink{part: partHost}},
	{"authority", sink{part: partHost, rank: 1}},
	{"user-agent", sink{part: partAgent}},
	{"user_agent", sink{part: partAgent, rank: 1}},
	{"response_code", sink{part: partStatus}},
	{"duration", sink{part: partDuration, unit: 1e3}},
}
