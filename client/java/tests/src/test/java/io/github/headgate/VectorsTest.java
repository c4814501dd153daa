package io.github.headgate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Executors;
import java.util.concurrent.ExecutorService;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

/** The cases of client/vectors.json that are about clients. */
@SuppressWarnings("unchecked")
class VectorsTest {
    private static final String GOOD = "HTTP/1.1 200 OK\r\nContent-Length: 63\r\n\r\n"
            + "{\"allowed\":true,\"retry_after_ms\":0,\"delay_ms\":0,\"decisions\":[]}";

    /** A part of the vectors that nobody runs shows here. */
    @Test
    void allAreRun() {
        assertEquals(Set.of("about", "token", "servers", "answers", "calls", "requests", "addresses", "api_keys", "hosts"), Service.VECTORS.keySet());
    }

    /** Answers the request of a user with what a case has, and others well. */
    private static final class Answers implements AutoCloseable {
        final ServerSocket listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        final ConcurrentLinkedQueue<String> requests = new ConcurrentLinkedQueue<>();
        final ConcurrentLinkedQueue<Socket> connections = new ConcurrentLinkedQueue<>();
        final ExecutorService threads = Executors.newCachedThreadPool();
        final Map<String, Object> of;

        Answers(Map<String, Object> of) throws IOException {
            this.of = of;
            threads.execute(this::accept);
        }

        private void accept() {
            try {
                while (true) {
                    Socket connection = listener.accept();
                    connection.setTcpNoDelay(true);
                    connections.add(connection);
                    threads.execute(() -> serve(connection));
                }
            } catch (IOException closed) {
                // The case is over.
            }
        }

        private void serve(Socket connection) {
            var text = new ByteArrayOutputStream();
            try {
                byte[] part = new byte[1 << 16];
                for (int n = connection.getInputStream().read(part); n >= 0; n = connection.getInputStream().read(part)) {
                    text.write(part, 0, n);
                    String request = text.toString(StandardCharsets.ISO_8859_1);
                    int head = request.indexOf("\r\n\r\n");
                    if (head < 0) {
                        continue;
                    }
                    int length = Integer.parseInt(request.toLowerCase().split("content-length: ")[1].split("\r\n")[0]);
                    if (request.length() < head + 4 + length) {
                        continue;
                    }
                    requests.add(text.toString(StandardCharsets.UTF_8));
                    text.reset();
                    answer(connection, request.contains("\"user\""));
                }
            } catch (IOException closed) {
                // The client has closed it.
            }
        }

        private void answer(Socket connection, boolean ofUser) throws IOException {
            if (!ofUser) {
                connection.getOutputStream().write(GOOD.getBytes(StandardCharsets.UTF_8));
                return;
            }
            for (Object part : (List<Object>) of.get("answer")) {
                if (part == null) {
                    connection.shutdownOutput();
                    continue;
                }
                byte[] bytes = ((String) part).getBytes(StandardCharsets.UTF_8);
                if (of.get("bytewise") != Boolean.TRUE) {
                    connection.getOutputStream().write(bytes);
                    continue;
                }
                for (byte b : bytes) {
                    connection.getOutputStream().write(b);
                }
            }
        }

        @Override
        public void close() throws IOException {
            listener.close();
            for (Socket connection : connections) {
                connection.close();
            }
            threads.shutdown();
        }
    }

    @TestFactory
    Stream<DynamicTest> answers() {
        return ((List<Map<String, Object>>) Service.VECTORS.get("answers")).stream()
                .map(of -> DynamicTest.dynamicTest((String) of.get("name"), () -> answer(of)));
    }

    private void answer(Map<String, Object> of) throws Exception {
        Duration timeout = of.containsKey("timeout_ms") ? Duration.ofMillis((long) of.get("timeout_ms")) : Service.TIMEOUT;
        try (var server = new Answers(of)) {
            String url = "http://127.0.0.1:" + server.listener.getLocalPort() + "/below/";
            // One client, since its connections are the point; only the first call has the case's deadline.
            try (var client = Client.builder().url(url).timeout(timeout).build();
                    var patient = Client.builder().url(url).timeout(Service.TIMEOUT).build()) {
                var got = new HashMap<String, Object>();
                try {
                    Verdict verdict = client.check(Request.of(Map.of("user", "schlüssel")));
                    got.putAll(Map.of("kind", "verdict", "allowed", verdict.allowed(), "status", (long) verdict.status(), "headers", verdict.headers()));
                } catch (UnavailableException err) {
                    got.putAll(Map.of("kind", "unavailable", "status", (long) err.status(), "retry_after_ms", err.retryAfter().toMillis(), "final", err.isFinal()));
                } catch (RequestException err) {
                    got.putAll(Map.of("kind", "mistake", "status", (long) err.status()));
                }
                var want = (Map<String, Object>) of.get("outcome");
                got.keySet().retainAll(want.keySet());
                assertEquals(want, got);
                assertTrue((timeout == Service.TIMEOUT ? client : patient).check(Request.of(Map.of())).allowed());
                assertEquals(of.get("connection_again") == Boolean.TRUE ? 1 : 2, server.connections.size());
                String request = server.requests.peek();
                assertTrue(request.startsWith("POST /below/v1/check?status=true&at=true HTTP/1.1\r\n"), request);
                assertTrue(request.contains("\r\nHost: 127.0.0.1:"), request);
                assertTrue(request.endsWith("{\"descriptor\":{\"user\":\"schlüssel\"}}"), request);
            }
        }
    }

    private static long ms(Duration time) {
        return time.equals(Verdict.NEVER) ? -1 : time.toMillis();
    }

    /** The verdict as the HTTP API writes it. */
    private static Map<String, Object> body(Verdict verdict) {
        var body = new HashMap<String, Object>(Map.of("allowed", verdict.allowed(), "retry_after_ms", ms(verdict.retryAfter()),
                "delay_ms", ms(verdict.delay()), "decisions", verdict.decisions().stream().map(VectorsTest::body).toList()));
        DeniedBy by = verdict.deniedBy();
        if (by != null) {
            body.put("denied_by", by.list().isEmpty() ? Map.of("rule", by.rule(), "limit", by.limit()) : Map.of("list", by.list()));
        }
        if (verdict.reservation() != null) {
            body.put("reservation", verdict.reservation());
            body.put("expires_in_ms", ms(verdict.expiresIn()));
        }
        return body;
    }

    private static Map<String, Object> body(Decision d) {
        var body = new HashMap<String, Object>(Map.of("rule", d.rule(), "limit", d.limit(), "algorithm", d.algorithm(), "allowed", d.allowed(),
                "capacity", d.capacity(), "remaining", d.remaining(), "period_ms", ms(d.period()), "retry_after_ms", ms(d.retryAfter()),
                "reset_after_ms", ms(d.resetAfter())));
        if (d.soft()) {
            body.put("soft", true);
        }
        if (!d.source().equals("store")) {
            body.put("source", d.source());
        }
        return body;
    }

    private static Request request(Map<String, Object> step) {
        var from = (Map<String, Object>) step.get("request");
        Request request = from.get("descriptor") instanceof Map<?, ?> descriptor
                ? Request.of((Map<String, String>) descriptor)
                : Request.of(((List<Map<String, Object>>) from.get("checks")).stream().map(c ->
                        new Check((String) c.get("rule"), (String) c.get("key"), (long) c.getOrDefault("cost", 1L))).toList());
        if (from.get("cost") instanceof Long cost) {
            request = request.cost(cost);
        }
        if (from.get("id") instanceof String id) {
            request = request.id(id);
        }
        if (from.get("lifetime_ms") instanceof Long lifetime) {
            request = request.lifetime(Duration.ofMillis(lifetime));
        }
        return step.get("outcome") == Boolean.TRUE ? request.outcome() : request;
    }

    private static Object call(Client client, Map<String, Object> step, List<Object> before) {
        var to = (Map<String, Object>) step.get("request");
        String reservation = (String) to.get("reservation");
        return switch ((String) step.get("call")) {
            case "check" -> client.check(request(step));
            case "peek" -> client.peek(request(step));
            case "reset" -> client.reset(request(step));
            case "refund" -> client.refund(request(step), (Verdict) before.get((int) (long) step.get("at_of")));
            case "reserve" -> client.tryReserve(request(step)).verdict();
            case "settle" -> to.get("status") instanceof Long status ? client.settleStatus(reservation, (int) (long) status)
                    : client.settle(reservation, (long) to.get("cost"));
            case "cancel" -> client.cancel(reservation);
            case "acquire" -> client.tryAcquire(PermitRequest.of((String) to.get("rule"), (String) to.get("key")).holder((String) to.get("holder")));
            default -> throw new IllegalArgumentException(step.toString());
        };
    }

    private static Service service(String name) {
        var vectors = (Map<String, Object>) Service.VECTORS.get("calls");
        return Service.of(String.join("\n", (List<String>) vectors.get("policy")), name);
    }

    @Test
    void calls() {
        var vectors = (Map<String, Object>) Service.VECTORS.get("calls");
        for (var of : (List<Map<String, Object>>) vectors.get("cases")) {
            var service = service((String) of.getOrDefault("server", "x-ratelimit"));
            try (var client = service.client()) {
                var answers = new ArrayList<Object>();
                var held = new LinkedHashMap<String, Permit>();
                for (var step : (List<Map<String, Object>>) of.get("steps")) {
                    String where = of.get("name") + ", step " + (answers.size() + 1);
                    if (step.containsKey("advance")) {
                        service.advance((String) step.get("advance"));
                        answers.add(null);
                        continue;
                    }
                    if ("release".equals(step.get("call"))) {
                        Permit permit = held.remove(((Map<?, ?>) step.get("request")).get("holder"));
                        if (permit != null) {
                            permit.close();
                        }
                        answers.add(null);
                        continue;
                    }
                    var want = (Map<String, Object>) step.get("want");
                    try {
                        Object got = call(client, step, answers);
                        answers.add(got);
                        assertFalse(want.containsKey("error"), where);
                        compare(where, want, got);
                        if (got instanceof Permit permit) {
                            held.put(permit.holder(), permit);
                        }
                    } catch (RequestException err) {
                        answers.add(null);
                        assertEquals(List.of("mistake", want.get("status"), want.getOrDefault("fields", List.of())),
                                List.of(want.getOrDefault("error", ""), (long) err.status(), err.fields()), where);
                    } catch (UnavailableException err) {
                        answers.add(null);
                        assertEquals(List.of("unavailable", want.get("status"), want.getOrDefault("retry_after_ms", -1L)),
                                List.of(want.getOrDefault("error", ""), (long) err.status(), ms(err.retryAfter())), where);
                    }
                }
                held.values().forEach(Permit::close);
            }
        }
        service("x-ratelimit").advance("24h"); // for those who come next
    }

    private static void compare(String where, Map<String, Object> want, Object got) {
        var body = (Map<String, Object>) want.get("body");
        if (got instanceof Verdict verdict) {
            assertEquals(body, body(verdict), where);
            if (want.containsKey("headers")) {
                assertEquals(want.get("status"), (long) verdict.status(), where);
                assertEquals(want.get("headers"), verdict.headers(), where);
            }
        } else if (got instanceof Permit permit) {
            var slots = body.get("permit") instanceof Map<?, ?> granted ? granted.get("slots") : List.of();
            assertEquals(Stream.of("allowed", "in_use", "limit", "retry_after_ms").map(body::get).collect(Collectors.toList()),
                    List.of(permit.isAllowed(), permit.inUse(), permit.limit(), ms(permit.retryAfter())), where);
            assertEquals(slots, permit.slots(), where);
        } else {
            assertEquals(body.get("reset"), got, where);
        }
    }
}
