package io.github.headgate.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.headgate.Client;
import io.github.headgate.OnFailure;
import io.github.headgate.Service;
import io.github.headgate.servlet.HeadgateFilter;
import io.micrometer.core.instrument.MeterRegistry;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.io.InputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.catalina.startup.Tomcat;
import org.apache.tomcat.util.descriptor.web.FilterDef;
import org.apache.tomcat.util.descriptor.web.FilterMap;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Test;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;

/** The filter, in Spring Boot and in plain Tomcat. */
@SuppressWarnings("unchecked")
class MiddlewareTest {
    private static final Map<String, Object> VECTORS = (Map<String, Object>) Service.VECTORS.get("requests");
    private static final String POLICY = String.join("\n", (List<String>) VECTORS.get("policy")) + """

              - name: mail
                match: { user: present }
                per: [user]
                algorithm: sliding_window
                limits: [1 per 1h]
              - name: colors
                match: { color: present }
                per: [color]
                limits: [1 per 1h]
            """;
    private static final HttpClient HTTP = HttpClient.newHttpClient();
    private static final Map<String, ConfigurableApplicationContext> SITES = new ConcurrentHashMap<>();

    private static Service service(String name) {
        return Service.of(POLICY, name);
    }

    private static ConfigurableApplicationContext started(String url, String... properties) {
        return SITES.computeIfAbsent(url + String.join(",", properties), key -> new SpringApplicationBuilder(Site.class)
                .bannerMode(org.springframework.boot.Banner.Mode.OFF).logStartupInfo(false)
                .properties("headgate.url=" + url, "server.port=0", "server.address=127.0.0.1", "headgate.filter.trust=127.0.0.0/8", "spring.main.lazy-initialization=true",
                        "server.max-http-request-header-size=32KB", "management.endpoint.health.show-details=always",
                        "logging.level.root=error", "logging.level.org.apache.catalina.core=off")
                .properties(properties).run());
    }

    private static ConfigurableApplicationContext site(String server) {
        return started(service(server).url, "headgate.timeout=30s");
    }

    private static String base(ConfigurableApplicationContext site) {
        return "http://127.0.0.1:" + site.getEnvironment().getProperty("local.server.port");
    }

    @AfterAll
    static void stop() {
        SITES.values().forEach(SpringApplication::exit);
    }

    private static HttpResponse<InputStream> begin(String base, String method, String path, List<List<String>> headers) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(base + path)).timeout(Service.TIMEOUT).method(method, HttpRequest.BodyPublishers.noBody());
        headers.forEach(line -> request.header(line.get(0), line.get(1)));
        return HTTP.send(request.build(), HttpResponse.BodyHandlers.ofInputStream());
    }

    private record Answer(int status, Map<String, String> headers, String body) {
        Map<String, Object> problem() throws IOException {
            assertEquals("application/problem+json", headers.get("content-type"));
            return Service.json(body);
        }
    }

    private static Answer ask(String base, String method, String path, List<List<String>> headers) throws Exception {
        var answer = begin(base, method, path, headers);
        var got = new TreeMap<String, String>();
        answer.headers().map().forEach((name, lines) -> {
            assertTrue(lines.size() == 1 || name.equalsIgnoreCase("vary"), name + " is there twice");
            got.put(name.toLowerCase(Locale.ROOT), lines.get(0));
        });
        try (var body = answer.body()) {
            return new Answer(answer.statusCode(), got, new String(body.readAllBytes(), StandardCharsets.UTF_8));
        }
    }

    private static String nobody() throws IOException {
        try (var listener = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return "http://127.0.0.1:" + listener.getLocalPort();
        }
    }

    private interface Bases {
        String of(String server);
    }

    private static void vectors(List<String> servers, Bases bases) throws Exception {
        servers.stream().filter(name -> !name.equals("away")).forEach(name -> service(name).advance("24h")); // behind those of others
        for (var of : (List<Map<String, Object>>) VECTORS.get("cases")) {
            String server = (String) of.get("server");
            if (!servers.contains(server)) {
                continue;
            }
            int number = 0;
            for (var step : (List<Map<String, Object>>) of.get("steps")) {
                String where = of.get("name") + ", step " + ++number;
                if (step.containsKey("advance")) {
                    service(server).advance((String) step.get("advance"));
                    continue;
                }
                var to = (Map<String, Object>) step.get("request");
                var want = (Map<String, Object>) step.get("want");
                var headers = new ArrayList<>((List<List<String>>) to.get("headers"));
                if (to.get("times") instanceof Long times) {
                    var last = headers.remove(headers.size() - 1);
                    headers.add(List.of(last.get(0), last.get(1).repeat((int) (long) times)));
                }
                var got = ask(bases.of(server), (String) to.get("method"), (String) to.get("path"), headers);
                var limits = new TreeMap<>(got.headers);
                limits.keySet().removeIf(name -> !name.contains("ratelimit") && !List.of("retry-after", "cache-control", "x-content-type-options").contains(name));
                assertEquals(Map.of("status", want.get("status"), "headers", want.get("headers")),
                        Map.of("status", (long) got.status, "headers", limits), () -> where + ": " + got.body);
                if (want.containsKey("problem")) {
                    assertEquals(want.get("problem"), Service.json(got.body), where);
                    assertEquals("application/problem+json", got.headers.get("content-type"), where);
                }
            }
        }
    }

    @Test
    void requestsToSpring() throws Exception {
        vectors(List.of("x-ratelimit", "away"), server -> base(site(server)));
    }

    /** The same site of servlets, with all servers; and one that denies while the service is gone. */
    @Test
    void requestsToTomcat() throws Exception {
        var tomcat = new Tomcat();
        tomcat.setBaseDir(System.getProperty("java.io.tmpdir"));
        tomcat.setPort(0);
        tomcat.getConnector().setProperty("address", "127.0.0.1");
        tomcat.getConnector().setProperty("maxHttpRequestHeaderSize", "32768");
        tomcat.setSilent(true);
        var clients = new HashMap<String, Client>();
        var servers = List.of("x-ratelimit", "ratelimit-triple", "draft-11", "away");
        servers.forEach(name -> clients.put(name, service(name).client()));
        clients.put("gone", Client.builder().url(nobody()).onFailure(OnFailure.DENY).build());
        try {
            clients.forEach((name, client) -> context(tomcat, name, client));
            tomcat.start();
            String base = "http://127.0.0.1:" + tomcat.getConnector().getLocalPort() + "/";
            vectors(servers, name -> base + name);
            var closed = ask(base + "gone", "GET", "/items/1", List.of());
            assertEquals(List.of(503, "5"), List.of(closed.status, closed.headers.get("retry-after")));
            assertEquals("Capacity is reduced for the moment", closed.problem().get("title"));
        } finally {
            tomcat.stop();
            tomcat.destroy();
            clients.values().forEach(Client::close);
        }
    }

    private static void context(Tomcat tomcat, String name, Client client) {
        var context = tomcat.addContext("/" + name, null);
        var filter = new FilterDef();
        filter.setFilterName("headgate");
        filter.setFilter(HeadgateFilter.builder(client).trust(List.of("127.0.0.0/8"))
                .route(request -> HeadgateFilter.servletRoute(request).replace("/items/*", "/items/{id}")).build());
        context.addFilterDef(filter);
        var map = new FilterMap();
        map.setFilterName("headgate");
        map.addURLPattern("/*");
        context.addFilterMap(map);
        Tomcat.addServlet(context, "site", new HttpServlet() {
            private static final long serialVersionUID = 1L;

            @Override
            protected void service(HttpServletRequest request, HttpServletResponse response) throws IOException {
                var writer = response.getWriter();
                if (request.getHeader("X-Status") != null) {
                    response.setStatus(Integer.parseInt(request.getHeader("X-Status")));
                }
                writer.println("ok");
            }
        });
        Tomcat.addServlet(context, "none", new HttpServlet() {
            private static final long serialVersionUID = 1L;

            @Override
            protected void service(HttpServletRequest request, HttpServletResponse response) throws IOException {
                response.sendError(404);
            }
        });
        List.of("/items/*", "/paced", "/login").forEach(pattern -> context.addServletMappingDecoded(pattern, "site"));
        context.addServletMappingDecoded("/", "none");
    }

    /** The status of an asynchronous answer, and of an exception, counts before the client has it. */
    @Test
    void outcomes() throws Exception {
        String base = base(site("x-ratelimit"));
        var from = List.of("X-Forwarded-For", "203.0.113.98");
        for (int i = 0; i < 4; i++) {
            assertEquals(204, ask(base, "POST", "/login", List.of(from, List.of("X-Status", "204"), List.of("X-Async", "1"))).status);
            assertEquals(500, ask(base, "POST", "/login", List.of(from, List.of("X-Status", "500"))).status);
        }
        for (int left = 1; left >= 0; left--) {
            var got = ask(base, "POST", "/login", List.of(from, List.of("X-Status", "401"), List.of("X-Async", "1")));
            assertEquals(List.of(401, Integer.toString(left)), List.of(got.status, got.headers.get("x-ratelimit-remaining")));
        }
        assertEquals(429, ask(base, "POST", "/login", List.of(from, List.of("X-Status", "204"))).status);
    }

    @Test
    void singleMethods() throws Exception {
        String base = base(site("x-ratelimit"));
        var from = List.of(List.of("X-Forwarded-For", "203.0.113.97"));
        assertEquals("hi to Ann", ask(base, "POST", "/mail/Ann", from).body);
        var denied = ask(base, "POST", "/mail/ann", from);
        assertEquals(List.of(429, "3600", List.of("mail")), List.of(denied.status, denied.headers.get("retry-after"), denied.problem().get("violated-policies")));
        assertEquals("hi to Bob", ask(base, "POST", "/mail/Bob", from).body);
    }

    @Test
    void factsOfTheApplication() throws Exception {
        String base = base(site("x-ratelimit"));
        var red = List.of(List.of("X-Forwarded-For", "203.0.113.96"), List.of("X-Color", "red"));
        assertEquals(200, ask(base, "GET", "/paced", red).status);
        assertEquals(List.of("colors"), ask(base, "GET", "/paced", red).problem().get("violated-policies"));
    }

    @Test
    void answersAreStreamed() throws Exception {
        String base = base(site("x-ratelimit"));
        try (var body = begin(base, "GET", "/events", List.of(List.of("X-Forwarded-For", "203.0.113.95"))).body()) {
            assertEquals("first", new String(body.readNBytes(5), StandardCharsets.UTF_8));
            assertEquals(200, ask(base, "POST", "/read", List.of(List.of("X-Forwarded-For", "203.0.113.95"))).status);
            assertEquals("last", new String(body.readAllBytes(), StandardCharsets.UTF_8));
        }
    }

    private static Map<String, Object> health(String base) throws Exception {
        var health = ask(base, "GET", "/actuator/health", List.of(List.of("X-Forwarded-For", "203.0.113.94")));
        assertEquals(200, health.status);
        return ((Map<String, Map<String, Object>>) Service.json(health.body).get("components")).get("headgate");
    }

    @Test
    void healthAndMetrics() throws Exception {
        var site = site("x-ratelimit");
        assertEquals(Map.of("status", "UP", "details", Map.of("url", service("x-ratelimit").url)), health(base(site)));
        MeterRegistry meters = site.getBean(MeterRegistry.class);
        assertTrue(meters.get("headgate.calls").tags("call", "check", "outcome", "allowed").timer().count() > 0);
        assertTrue(meters.get("headgate.calls").tags("call", "peek", "outcome", "allowed").timer().count() > 0);
    }

    /** Its failure is not the site's: requests pass, and nobody takes the site out of service for it. */
    @Test
    void aServiceThatIsGone() throws Exception {
        String nobody = nobody();
        var health = health(base(started(nobody)));
        assertEquals("UNKNOWN", health.get("status"));
        assertTrue(health.get("details").toString().contains("error=io.github.headgate.UnavailableException: " + nobody + " does not answer"), health.toString());
    }
}
