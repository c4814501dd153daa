package io.github.headgate;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.net.httpserver.HttpServer;
import com.sun.net.httpserver.HttpsConfigurator;
import com.sun.net.httpserver.HttpsServer;
import java.io.File;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.security.KeyStore;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Function;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLException;
import javax.net.ssl.TrustManagerFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What the vectors do not say: failures, permits, threads, futures. */
class ClientTest {
    private final Service service = Service.of("""
            rules:
              - name: mail
                match: { user: present }
                per: [user]
                algorithm: sliding_window
                limits: [3 per 1h]
              - name: many
                per: all
                algorithm: sliding_window
                limits: [1000 per 1h]
                match: { many: present }
              - name: report
                match: { tenant: present }
                per: [tenant]
                in_progress: { limit: 1, shared: true, ttl: 1h, wait: 20s, queue: 10 }
            """, "x-ratelimit");

    @AfterEach
    void anotherDay() {
        service.advance("24h");
    }

    private static String nobody() throws IOException {
        try (var listener = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return "http://127.0.0.1:" + listener.getLocalPort();
        }
    }

    @Test
    void whatIsAsked() {
        try (var client = service.client()) {
            assertEquals(1, client.check(Request.of("mail", "ann").cost(2)).decisions().get(0).remaining());
            assertEquals(0, client.check(Request.of(Map.of("user", "ann"))).decisions().get(0).remaining());
            Verdict both = client.check(Request.of(List.of(new Check("mail", "ann"), new Check("mail", "bob"))));
            assertEquals(List.of(false, "mail", Duration.ofHours(1)), List.of(both.allowed(), both.deniedBy().rule(), both.retryAfter()));
            assertEquals(Verdict.NEVER, client.check(Request.of("mail", "bob").cost(4)).retryAfter());
            var rules = (List<?>) client.explain(Request.of(Map.of("user", "ann"))).get("rules");
            assertEquals(List.of(true, false, false), rules.stream().map(rule -> ((Map<?, ?>) rule).get("binds")).toList());
            assertEquals(List.of("mail"), client.reset(Request.of("mail", "ann")));
            assertThrows(IllegalStateException.class, () -> Request.of(List.of(new Check("a", ""), new Check("b", ""))).cost(2));
            assertThrows(IllegalArgumentException.class, () -> client.check("mail", "\udc80"));
            assertThrows(IllegalArgumentException.class, () -> PermitRequest.of("report", "").wait(Duration.ofHours(1)));
            RequestException mistake = assertThrows(RequestException.class, () -> client.check(Request.of("mail", "ann").cost(-1)));
            assertEquals(List.of("checks[0].cost"), mistake.fields());
            assertTrue(List.of(mistake.getStackTrace()).stream().anyMatch(frame -> frame.getClassName().equals(ClientTest.class.getName())));
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"http://127.0.0.1:99999", "ftp://127.0.0.1", "nothing", "http://", "http://u@127.0.0.1", "http://127.0.0.1?a", "http://127.0.0.1#a", "http://a b"})
    void urlsThatCannotBe(String url) {
        assertTrue(assertThrows(IllegalArgumentException.class, () -> Client.create(url)).getMessage().startsWith("headgate: url"));
    }

    @Test
    void nobodyAnswers() throws IOException {
        String url = nobody();
        try (var client = Client.create(url)) {
            var err = assertThrows(UnavailableException.class, () -> client.check("mail", "ann"));
            assertEquals(0, err.status());
            assertTrue(err.getMessage().startsWith(url + " does not answer ("), err.getMessage());
        }
        for (var onFailure : List.of(OnFailure.ALLOW, OnFailure.DENY)) {
            boolean allowed = onFailure == OnFailure.ALLOW;
            try (var client = Client.builder().url(url).onFailure(onFailure).build()) {
                Verdict verdict = client.check("mail", "ann");
                assertEquals(allowed, verdict.allowed());
                assertInstanceOf(UnavailableException.class, verdict.error());
                assertEquals(allowed, client.peek(Request.of("mail", "ann")).allowed());
                assertEquals(allowed, client.tryAcquire(PermitRequest.of("report", "acme")).isAllowed());
                assertEquals(allowed, client.tryReserve(Request.of("mail", "ann")).isAllowed());
                assertThrows(UnavailableException.class, () -> client.refund(Request.of("mail", "ann"), verdict));
            }
        }
        assertThrows(IllegalArgumentException.class, () -> Client.builder().timeout(Duration.ZERO).build());
    }

    /** Answers every call with a text, and then closes the connection; counts the connections. */
    private static CompletableFuture<Void> answering(ServerSocket listener, String answer, AtomicInteger calls) {
        return CompletableFuture.runAsync(() -> {
            try {
                while (true) {
                    try (Socket connection = listener.accept()) {
                        calls.incrementAndGet();
                        connection.getInputStream().read(new byte[1 << 16]);
                        connection.getOutputStream().write(answer.getBytes());
                    }
                }
            } catch (IOException closed) {
                // The test is over.
            }
        }, task -> new Thread(task).start());
    }

    @Test
    void aServiceThatDeniesIsHeeded() throws IOException {
        String says = "{\"title\":\"t\",\"status\":503,\"detail\":\"the store did not answer\"}";
        try (var listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
                var client = Client.builder().url("http://127.0.0.1:" + listener.getLocalPort()).onFailure(OnFailure.ALLOW).build()) {
            answering(listener, "HTTP/1.1 503 No\r\nContent-Length: " + says.length() + "\r\nConnection: close\r\n\r\n" + says, new AtomicInteger());
            Verdict verdict = client.check("mail", "ann");
            assertEquals(List.of(false, 503), List.of(verdict.allowed(), verdict.status()));
            assertEquals("5", verdict.refusal().headers().get("retry-after"));
        }
    }

    /** By https: the certificate must be trusted and the host's, and a connection has several calls. */
    @Test
    void certificates(@TempDir Path dir) throws Exception {
        String file = dir.resolve("keys").toString();
        var keytool = new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "keytool").toString(), "-genkeypair", "-alias", "a", "-keyalg", "EC",
                "-dname", "CN=test", "-ext", "san=ip:127.0.0.1", "-keystore", file, "-storepass", "secret").redirectErrorStream(true).start();
        String said = new String(keytool.getInputStream().readAllBytes());
        assertEquals(0, keytool.waitFor(), said);
        var store = KeyStore.getInstance(new File(file), "secret".toCharArray());
        var keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        keys.init(store, "secret".toCharArray());
        var trusted = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trusted.init(store);
        var context = SSLContext.getInstance("TLS");
        context.init(keys.getKeyManagers(), trusted.getTrustManagers(), null);
        var server = HttpsServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.setHttpsConfigurator(new HttpsConfigurator(context));
        Set<InetSocketAddress> connections = ConcurrentHashMap.newKeySet();
        server.createContext("/", exchange -> {
            connections.add(exchange.getRemoteAddress());
            exchange.getRequestBody().readAllBytes();
            byte[] text = "{\"allowed\":true,\"retry_after_ms\":0,\"delay_ms\":0,\"decisions\":[]}".getBytes();
            exchange.sendResponseHeaders(200, text.length);
            exchange.getResponseBody().write(text);
            exchange.close();
        });
        server.start();
        int port = server.getAddress().getPort();
        try (var client = Client.builder().url("https://127.0.0.1:" + port).sslContext(context).timeout(Service.TIMEOUT).build();
                var other = Client.builder().url("https://localhost:" + port).sslContext(context).timeout(Service.TIMEOUT).build();
                var jvm = Client.builder().url("https://127.0.0.1:" + port).timeout(Service.TIMEOUT).build()) {
            for (int i = 0; i < 3; i++) {
                assertTrue(client.check("mail", "ann").allowed());
            }
            assertEquals(1, connections.size());
            for (var untrusting : List.of(other, jvm)) {
                assertInstanceOf(SSLException.class, assertThrows(UnavailableException.class, () -> untrusting.check("mail", "ann")).getCause());
            }
        } finally {
            server.stop(0);
        }
    }

    /** What takes nothing twice is repeated, by a tenth of the calls in the long run; what may have taken, never. */
    @Test
    void retriesHaveABudget() throws IOException {
        var calls = new AtomicInteger();
        try (var listener = new ServerSocket(0, 500, InetAddress.getLoopbackAddress());
                var client = Client.builder().url("http://127.0.0.1:" + listener.getLocalPort()).timeout(Service.TIMEOUT).build()) {
            answering(listener, "", calls);
            assertThrows(UnavailableException.class, () -> client.check("mail", "ann"));
            assertEquals(1, calls.get());
            assertThrows(UnavailableException.class, () -> client.check(Request.of("mail", "ann").id("1")));
            assertEquals(4, calls.get());
            var all = new ArrayList<CompletableFuture<Verdict>>();
            for (int i = 0; i < 300; i++) {
                all.add(client.async().peek(Request.of("mail", "ann")));
            }
            all.forEach(call -> assertThrows(UnavailableException.class, () -> Client.await(call)));
            assertTrue(calls.get() > 304 && calls.get() <= 304 + 30 + 10, "calls: " + calls);
        }
    }

    @Test
    void threadsShareALimitExactly() throws Exception {
        var threads = Executors.newFixedThreadPool(16);
        try (var client = service.client()) {
            var admitted = new AtomicInteger();
            var all = new ArrayList<CompletableFuture<Void>>();
            for (int i = 0; i < 1200; i++) {
                all.add(CompletableFuture.runAsync(() -> admitted.addAndGet(client.check("many", "").allowed() ? 1 : 0), threads));
            }
            all.forEach(CompletableFuture::join);
            assertEquals(1000, admitted.get());
        } finally {
            threads.shutdown();
        }
    }

    @Test
    void futuresShareConnections() {
        try (var client = service.client()) {
            var all = new ArrayList<CompletableFuture<Verdict>>();
            for (int i = 0; i < 1200; i++) {
                all.add(client.async().check(Request.of("many", "")));
            }
            assertEquals(1000, all.stream().filter(call -> call.join().allowed()).count());
            // What is cancelled takes its connection along, and no other.
            all.clear();
            for (int i = 0; i < 200; i++) {
                all.add(client.async().peek(Request.of("many", "")));
            }
            for (int i = 0; i < 200; i += 2) {
                all.get(i).cancel(true);
            }
            var left = all.stream().filter(call -> !call.isCancelled()).toList();
            assertTrue(left.size() >= 100 && left.stream().noneMatch(call -> call.join().allowed()), left.size() + " left");
            assertFalse(client.peek(Request.of("many", "")).allowed());
        }
    }

    @Test
    void aThreadThatIsInterruptedStops() throws Exception {
        try (var client = service.client(); var held = client.acquire(PermitRequest.of("report", "acme"))) {
            var ended = new AtomicReference<Object>();
            var thread = new Thread(() -> {
                try {
                    client.acquire(PermitRequest.of("report", "acme").wait(Duration.ofSeconds(20)));
                } catch (CancellationException err) {
                    ended.set(Thread.currentThread().isInterrupted());
                }
            });
            thread.start();
            Service.until(() -> !((List<?>) holders().get("waiting")).isEmpty());
            thread.interrupt();
            thread.join();
            assertEquals(true, ended.get());
            // It gives its place in line back.
            Service.until(() -> ((List<?>) holders().get("waiting")).isEmpty());
            assertEquals(held.holder(), ((Map<?, ?>) ((List<?>) holders().get("permits")).get(0)).get("holder"));
        }
    }

    /** Calls that wait for others when the client is closed are made, and not one by one. */
    @Test
    void callsThatWaitWhenItIsClosed() throws Exception {
        String good = "{\"allowed\":true,\"retry_after_ms\":0,\"delay_ms\":0,\"decisions\":[]}";
        var come = new AtomicInteger();
        var closed = new CountDownLatch(1);
        var two = new CountDownLatch(2);
        var server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.setExecutor(Executors.newCachedThreadPool());
        server.createContext("/", exchange -> {
            exchange.getRequestBody().readAllBytes();
            try {
                if (come.incrementAndGet() <= 64) {
                    closed.await();
                } else {
                    two.countDown();
                    two.await();
                }
            } catch (InterruptedException err) {
                throw new IllegalStateException(err);
            }
            exchange.sendResponseHeaders(200, good.length());
            exchange.getResponseBody().write(good.getBytes());
            exchange.close();
        });
        server.start();
        try {
            var client = Client.builder().url("http://127.0.0.1:" + server.getAddress().getPort()).timeout(Service.TIMEOUT).build();
            var calls = new ArrayList<CompletableFuture<Verdict>>();
            for (int i = 0; i < 70; i++) {
                calls.add(client.async().check(Request.of("mail", "ann")));
            }
            Service.until(() -> come.get() == 64);
            var closing = CompletableFuture.runAsync(client::close);
            Service.until(client.async().calls.threads::isShutdown);
            closed.countDown();
            for (var call : calls) {
                assertTrue(call.join().allowed());
            }
            closing.join();
        } finally {
            two.countDown();
            two.countDown();
            server.stop(0);
            ((ExecutorService) server.getExecutor()).shutdown();
        }
    }

    /** It stops waiting for an answer, too, and other calls go on. */
    @Test
    void aThreadThatIsInterruptedHearsNoAnswer() throws Exception {
        String good = "{\"allowed\":true,\"retry_after_ms\":0,\"delay_ms\":0,\"decisions\":[]}";
        var silent = new CountDownLatch(1);
        var server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.setExecutor(Executors.newCachedThreadPool());
        server.createContext("/", exchange -> {
            if (new String(exchange.getRequestBody().readAllBytes()).contains("silent")) {
                silent.countDown();
                return;
            }
            exchange.sendResponseHeaders(200, good.length());
            exchange.getResponseBody().write(good.getBytes());
            exchange.close();
        });
        server.start();
        try (var client = Client.builder().url("http://127.0.0.1:" + server.getAddress().getPort()).timeout(Duration.ofMinutes(1)).build()) {
            assertTrue(client.check("mail", "ann").allowed()); // There is a connection now.
            var ended = new AtomicReference<Object>();
            var thread = new Thread(() -> {
                try {
                    client.check("mail", "silent");
                } catch (CancellationException err) {
                    ended.set(Thread.currentThread().isInterrupted());
                }
                try {
                    client.check("mail", "ann");
                } catch (CancellationException err) {
                    ended.set(ended.get() + " " + Thread.currentThread().isInterrupted());
                }
            });
            thread.start();
            silent.await();
            thread.interrupt();
            thread.join();
            assertEquals("true true", ended.get());
            assertTrue(client.check("mail", "ann").allowed());
        } finally {
            server.stop(0);
            ((ExecutorService) server.getExecutor()).shutdown();
        }
    }

    @Test
    void reservations() {
        try (var client = service.client()) {
            Function<String, Long> left = user -> client.peek(Request.of("mail", user)).decisions().get(0).remaining();
            try (var reservation = client.reserve(Request.of("mail", "ann").cost(3))) {
                assertEquals(0, left.apply("ann"));
                var denied = assertThrows(DeniedException.class, () -> client.reserve(Request.of("mail", "ann")));
                assertEquals("denied by rule mail, 3 per 1h; it fits in 3600 s", denied.getMessage());
                assertEquals("3600", denied.refusal().headers().get("retry-after"));
                reservation.settle(1);
            }
            assertEquals(2, left.apply("ann"));
            assertThrows(ArithmeticException.class, () -> {
                try (var reservation = client.reserve(Request.of("mail", "ann").cost(2))) {
                    assertEquals(0, left.apply("ann") / (reservation.isAllowed() ? 0 : 1));
                }
            });
            assertEquals(2, left.apply("ann"));
        }
    }

    private Map<String, Object> holders() {
        return service.admin("GET", "/v1/permits/holders?rule=report&key=acme", null);
    }

    @Test
    void permits() {
        try (var client = service.client()) {
            CompletableFuture<Permit> waits;
            try (var permit = client.acquire(PermitRequest.of("report", "acme"))) {
                assertEquals(List.of(0L), permit.slots());
                assertTrue(permit.epoch() > 0 && !permit.isLost());
                var denied = assertThrows(DeniedException.class, () -> client.acquire(PermitRequest.of("report", "acme")));
                assertTrue(denied.getMessage().startsWith("rule report: 1 of 1 in progress; try again in "), denied.getMessage());
                assertEquals(List.of(429, "1"), List.of(denied.refusal().status(), denied.refusal().headers().get("retry-after")));
                waits = client.async().tryAcquire(PermitRequest.of("report", "acme").wait(Duration.ofSeconds(20)));
                Service.until(() -> !((List<?>) holders().get("waiting")).isEmpty());
            }
            assertTrue(waits.join().isAllowed()); // It is released by the end of the client.
        }
        assertEquals(List.of(), holders().get("permits"));
    }

    /** Who acquires and hears nothing that it understands, gives back what it may have been granted. */
    @Test
    void aPermitWhoseGrantWasNotHeardIsGivenBack() throws IOException {
        var asked = new ConcurrentLinkedQueue<String>();
        var server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.createContext("/", exchange -> {
            var body = Json.read(new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8));
            asked.add(exchange.getRequestURI() + " " + ((Map<?, ?>) body).get("holder"));
            exchange.sendResponseHeaders(200, 2);
            exchange.getResponseBody().write("{}".getBytes(StandardCharsets.UTF_8));
            exchange.close();
        });
        server.start();
        try (var client = Client.builder().url("http://127.0.0.1:" + server.getAddress().getPort()).timeout(Service.TIMEOUT).build()) {
            assertThrows(UnavailableException.class, () -> client.acquire(PermitRequest.of("report", "acme").holder("me")));
            Service.until(() -> asked.contains("/v1/permits/release me"));
        } finally {
            server.stop(0);
        }
    }

    @Test
    void aPermitIsRenewedAndLost() {
        try (var client = service.client(); var permit = client.acquire(PermitRequest.of("report", "acme").ttl(Duration.ofSeconds(30)))) {
            service.advance("20s");
            permit.renew(); // The service's clock was turned, and ours was not.
            Service.until(() -> (long) ((Map<?, ?>) ((List<?>) holders().get("permits")).get(0)).get("expires_in_ms") > 20_000);
            permit.check();
            service.admin("POST", "/v1/permits/revoke", Map.of("rule", "report", "key", "acme", "holder", permit.holder()));
            permit.renew();
            Service.until(permit::isLost);
            var lost = assertThrows(PermitLostException.class, permit::check);
            assertEquals("the permit was lost: it was revoked", lost.getMessage());
        }
    }

    /** Its heart beats by itself: a permit of a second is held for longer, by the clock of both. */
    @Test
    void aPermitIsRenewedInTime() {
        var calls = new ConcurrentLinkedQueue<String>();
        try (var client = Client.builder().url(service.url).timeout(Service.TIMEOUT).listener((call, outcome, took) -> calls.add(call + " " + outcome)).build();
                var permit = client.acquire(PermitRequest.of("report", "acme").ttl(Duration.ofSeconds(2)))) {
            service.advance("1s");
            Service.until(() -> (long) ((Map<?, ?>) ((List<?>) holders().get("permits")).get(0)).get("expires_in_ms") > 1_000);
            assertFalse(permit.isLost());
            assertEquals(List.of("acquire allowed"), List.copyOf(calls));
        }
    }

    @Test
    void nothingIsLeftBehind() {
        try (var client = service.client()) {
            assertTrue(client.check("mail", "ann").allowed());
        }
        Service.until(() -> Thread.getAllStackTraces().keySet().stream().noneMatch(thread -> thread.getName().startsWith("headgate-")));
    }
}
