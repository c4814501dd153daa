package cli

import (
	"strings"
	"testing"
)

func TestLikeRatelimit(t *testing.T) {
	together := "serve --like-ratelimit-serve --listen 0.0.0.0:8080 --grpc-listen 0.0.0.0:8081 "
	begin := together + "--envoy-independent "
	redis := map[string]string{"REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": "redis:6379"}
	for _, tt := range []struct {
		name string
		env  map[string]string
		want string
	}{
		{
			"files",
			map[string]string{"RUNTIME_ROOT": "/data", "RUNTIME_SUBDIRECTORY": "ratelimit", "USE_STATSD": "false"},
			begin + "--store redis://redis:6379 --envoy-config /data/ratelimit/config --grpc-connection-age 24h --grpc-connection-grace 1h --headers none",
		},
		{"Envoy Gateway", map[string]string{
			"CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL": "envoy-gateway:18001", "CONFIG_GRPC_XDS_NODE_ID": "envoy-ratelimit",
			"CONFIG_GRPC_XDS_SERVER_USE_TLS": "true", "CONFIG_GRPC_XDS_CLIENT_TLS_CERT": "/certs/tls.crt", "CONFIG_GRPC_XDS_CLIENT_TLS_KEY": "/certs/tls.key", "CONFIG_GRPC_XDS_SERVER_TLS_CACERT": "/certs/ca.crt",
			"GRPC_SERVER_USE_TLS": "true", "GRPC_SERVER_TLS_CERT": "/certs/tls.crt", "GRPC_SERVER_TLS_KEY": "/certs/tls.key", "GRPC_CLIENT_TLS_CACERT": "/certs/ca.crt", "GRPC_CLIENT_TLS_SAN": "envoy.local", "FORCE_START_WITHOUT_INITIAL_CONFIG": "true",
		}, begin + "--store redis://redis:6379 --xds-server envoy-gateway:18001 --xds-node envoy-ratelimit --xds-start-empty --xds-tls --xds-ca /certs/ca.crt --xds-cert /certs/tls.crt --xds-key /certs/tls.key --tls-cert /certs/tls.crt --tls-key /certs/tls.key --tls-client-ca /certs/ca.crt --tls-client-name envoy.local --grpc-connection-age 24h --grpc-connection-grace 1h --headers none"},
		{
			"Sentinel",
			map[string]string{"REDIS_TYPE": "SENTINEL", "REDIS_URL": "main,a:1,b:2", "REDIS_AUTH": "p@ss", "REDIS_TLS": "true", "LIMIT_RESPONSE_HEADERS_ENABLED": "true"},
			begin + "--store rediss-sentinel://:p%40ss@a:1,b:2?master=main --envoy-config /srv/runtime_data/current/config --grpc-connection-age 24h --grpc-connection-grace 1h --headers ratelimit-triple",
		},
		{
			"Cluster",
			map[string]string{"REDIS_TYPE": "cluster", "REDIS_URL": "a:1,b:2", "REDIS_AUTH": "me:secret", "CACHE_KEY_PREFIX": "team:", "REDIS_TIMEOUT": "1s", "LOCAL_CACHE_SIZE_IN_BYTES": "1000", "LOG_FORMAT": "json", "LIMIT_RESPONSE_HEADERS_ENABLED": "1", "LIMIT_LIMIT_HEADER": "x-ratelimit-limit"},
			begin + "--store redis-cluster://me:secret@a:1,b:2?prefix=team%3Ahg%3A --store-timeout 1s --envoy-config /srv/runtime_data/current/config --grpc-connection-age 24h --grpc-connection-grace 1h --headers x-ratelimit --deny-cache on --log-format json",
		},
		{
			"memcached",
			map[string]string{"BACKEND_TYPE": "memcache", "MEMCACHE_HOST_PORT": "m:11211"},
			begin + "--store memcached://m:11211 --envoy-config /srv/runtime_data/current/config --grpc-connection-age 24h --grpc-connection-grace 1h --headers none",
		},
		{
			"connections and traces",
			map[string]string{"GRPC_MAX_CONNECTION_AGE": "5m", "GRPC_MAX_CONNECTION_AGE_GRACE": "30s", "TRACING_ENABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318/"},
			begin + "--store redis://redis:6379 --envoy-config /srv/runtime_data/current/config --grpc-connection-age 5m --grpc-connection-grace 30s --otlp http://collector:4318/v1/traces --headers none",
		},
		{
			"all or nothing",
			map[string]string{"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT": "true"},
			together + "--store redis://redis:6379 --envoy-config /srv/runtime_data/current/config --grpc-connection-age 24h --grpc-connection-grace 1h --headers none",
		},
		{
			"a URL",
			map[string]string{"REDIS_URL": "redis://me:secret@r:7/3"},
			begin + "--store redis://me:secret@r:7/3 --envoy-config /srv/runtime_data/current/config --grpc-connection-age 24h --grpc-connection-grace 1h --headers none",
		},
		{"another URL", map[string]string{"REDIS_URL": "http://me:secret@r:7"}, "REDIS_URL is not a URL that begins with redis:// or rediss://"},
		{"traces over gRPC", map[string]string{"TRACING_ENABLED": "true", "TRACING_EXPORTER_PROTOCOL": "grpc"}, `TRACING_EXPORTER_PROTOCOL is "grpc", must be http`},
		{"SHADOW_MODE", map[string]string{"SHADOW_MODE": "true"}, "SHADOW_MODE is not supported; set shadow_mode of each limit"},
		{"QUOTA_MODE", map[string]string{"QUOTA_MODE": "1"}, "QUOTA_MODE is not supported; set quota_mode of each limit"},
		{"MEMCACHE_TLS", map[string]string{"BACKEND_TYPE": "memcache", "MEMCACHE_TLS": "true"}, "MEMCACHE_TLS is not supported; connections to memcached are not secured; use Redis"},
		{"GRPC_UDS", map[string]string{"GRPC_UDS": "/tmp/x"}, "GRPC_UDS: there are no Unix sockets; give GRPC_HOST and GRPC_PORT"},
		{"a Unix socket", map[string]string{"REDIS_SOCKET_TYPE": ""}, `REDIS_SOCKET_TYPE is "unix", must be tcp: there are no Unix sockets`},
		{"a header", map[string]string{"LIMIT_RESPONSE_HEADERS_ENABLED": "true", "LIMIT_LIMIT_HEADER": "X-Mine"}, `LIMIT_LIMIT_HEADER is "X-Mine", must be RateLimit-Limit or X-RateLimit-Limit`},
		{"a kind", map[string]string{"CONFIG_TYPE": "HTTP"}, `CONFIG_TYPE is "HTTP", must be FILE or GRPC_XDS_SOTW`},
		{"no Redis", map[string]string{"REDIS_URL": ""}, "REDIS_URL is missing"},
	} {
		env := make(map[string]string)
		for _, some := range []map[string]string{redis, tt.env} {
			for name, value := range some {
				env[name] = value
			}
		}
		args, _, err := likeRatelimit(env)
		got := strings.Join(args, " ")
		if err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
	_, notes, err := likeRatelimit(map[string]string{"REDIS_SOCKET_TYPE": "tcp", "REDIS_URL": "r:1", "REDIS_PERSECOND": "true", "TRACING_ENABLED": "false"})
	if err != nil || len(notes) != 1 || !strings.HasPrefix(notes[0], "REDIS_PERSECOND is not followed: ") {
		t.Errorf("the notes are %q, %v", notes, err)
	}
}
