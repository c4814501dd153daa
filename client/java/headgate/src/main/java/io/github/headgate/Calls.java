package io.github.headgate;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Flow;
import java.util.concurrent.Future;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import javax.net.ssl.SSLContext;

/** Calls to the service: connections, deadlines, retries. */
final class Calls implements AutoCloseable {
    /** An answer: its status, its headers by their names in lower case, and the object in its body. */
    record Answer(int status, Map<String, String> headers, Map<String, Object> body) {}

    // A call that takes nothing twice is repeated, within its deadline and a budget: a tenth of the calls, and ten
    // besides. So a service that is down is asked little more often than by a client without retries.
    private static final int TRIES = 3;
    private static final double SHARE = 0.1;
    private static final double FLOOR = 10;
    private static final double HOARD = 110;
    private static final Duration BACKOFF = Duration.ofMillis(100);

    /** How many calls are under way at a time, and so how many connections there are. Held ones do not count. */
    private static final int MOST = 64;
    /** How many bytes of an answer are read. Those of the service are far smaller. */
    private static final int MAX_BODY = 4 << 20;

    final String url;
    final Duration timeout;
    final ExecutorService threads;
    private final HttpClient http;
    private final String base;
    private final Slots slots;
    private double spare = FLOOR; // retries; races between threads do not matter

    Calls(String url, Duration timeout, SSLContext tls) {
        if (timeout.compareTo(Duration.ofMillis(1)) < 0 || timeout.compareTo(Duration.ofMinutes(1)) > 0) {
            throw new IllegalArgumentException("headgate: timeout is " + timeout + ", must be 1 ms to 60 s");
        }
        this.url = url;
        this.timeout = timeout;
        this.base = base(url);
        var number = new AtomicInteger();
        this.threads = new ThreadPoolExecutor(0, Integer.MAX_VALUE, 10, TimeUnit.SECONDS, new SynchronousQueue<>(), task -> {
            var thread = new Thread(task, "headgate-" + number.incrementAndGet());
            thread.setDaemon(true);
            return thread;
        }, (task, closed) -> task.run()); // What is under way when the client is closed still ends.
        this.slots = new Slots(threads);
        var builder = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).executor(threads);
        this.http = (tls == null ? builder : builder.sslContext(tls)).build();
    }

    private static String base(String url) {
        URI uri;
        try {
            uri = URI.create(url);
        } catch (IllegalArgumentException err) {
            throw new IllegalArgumentException("headgate: url is " + url + ": " + err.getMessage(), err);
        }
        if (!("http".equals(uri.getScheme()) || "https".equals(uri.getScheme())) || uri.getHost() == null) {
            throw new IllegalArgumentException(
                    "headgate: url is " + url + ", must begin with http:// or https:// and have a host");
        }
        if (uri.getUserInfo() != null || uri.getQuery() != null || uri.getFragment() != null) {
            throw new IllegalArgumentException(
                    "headgate: url has a user, a password, a query or a fragment, must have none of them");
        }
        return url.replaceFirst("/+$", "");
    }

    /** Waits for what is under way, at the latest until its deadline, where the JDK can tell (from 21 on). */
    @Override
    public void close() {
        if (http instanceof AutoCloseable closeable) {
            try {
                closeable.close();
            } catch (Exception err) {
                throw new IllegalStateException(err);
            }
        }
        threads.shutdown();
    }

    /** Makes a call. The deadline covers all of it: waiting for a connection, and retries. */
    CompletableFuture<Answer> post(String path, Map<String, Object> body, boolean repeat) {
        return post(path, body, repeat, timeout, Duration.ZERO);
    }

    /** Makes a call that the service may hold back. */
    CompletableFuture<Answer> post(String path, Map<String, Object> body, boolean repeat, Duration within, Duration hold) {
        var request = HttpRequest.newBuilder(URI.create(base + path)).header("content-type", "application/json")
                .POST(HttpRequest.BodyPublishers.ofByteArray(utf8(Json.write(body)))).build();
        if (repeat) {
            spare = Math.min(spare + SHARE, HOARD);
        }
        var call = new Call(request, repeat, within.plus(hold), !hold.isZero());
        call.attempt();
        return call;
    }

    private static byte[] utf8(String text) {
        try {
            ByteBuffer bytes = StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(text));
            byte[] array = new byte[bytes.remaining()];
            bytes.get(array);
            return array;
        } catch (CharacterCodingException err) {
            throw new IllegalArgumentException("headgate: the request is not text: it has half of a surrogate pair", err);
        }
    }

    /** Completes after some time. Who cancels it frees the timer. */
    static CompletableFuture<Void> sleep(Duration time) {
        return new CompletableFuture<Void>().completeOnTimeout(null, Math.max(0, time.toNanos()), TimeUnit.NANOSECONDS);
    }

    /** A stage that cancels what it stems from when it is cancelled. */
    static <A, B> CompletableFuture<B> then(CompletableFuture<A> from, Function<CompletableFuture<A>, CompletableFuture<B>> map) {
        CompletableFuture<B> to = map.apply(from);
        to.whenComplete((value, err) -> {
            if (to.isCancelled()) {
                from.cancel(true);
            }
        });
        return to;
    }

    /** Whatever ended a stage, without the wrapping of the stages between. */
    static Throwable cause(Throwable err) {
        return err instanceof CompletionException && err.getCause() != null ? err.getCause() : err;
    }

    /** One call, with its tries. */
    private final class Call extends CompletableFuture<Answer> {
        private final HttpRequest request;
        private final boolean repeat;
        private final boolean held;
        private final long deadline;
        private int tried;
        private volatile Future<?> current;

        Call(HttpRequest request, boolean repeat, Duration within, boolean held) {
            this.request = request;
            this.repeat = repeat;
            this.held = held;
            this.deadline = System.nanoTime() + within.toNanos();
            var timer = sleep(within);
            timer.thenRunAsync(() -> completeExceptionally(
                    new UnavailableException(url + " does not answer within " + Times.text(within) + " s", null)), threads);
            whenComplete((answer, err) -> {
                timer.cancel(false);
                stop();
            });
        }

        private void stop() {
            Future<?> running = current;
            if (running != null) {
                running.cancel(true);
            }
        }

        /** Notes what is to be cancelled with the call. */
        private <T extends Future<?>> T doing(T what) {
            current = what;
            if (isDone()) {
                what.cancel(true);
            }
            return what;
        }

        void attempt() {
            tried++;
            if (held) {
                send();
                return;
            }
            var slot = doing(slots.take());
            slot.whenComplete((taken, err) -> {
                if (err == null) {
                    send().whenComplete((response, failed) -> slots.give());
                }
            });
        }

        private CompletableFuture<?> send() {
            var sent = doing(http.sendAsync(request, Body::new));
            sent.whenComplete((response, err) -> {
                try {
                    if (err == null) {
                        complete(read(response));
                    } else if (!isDone()) {
                        Throwable why = cause(err);
                        again(new UnavailableException(url + " does not answer (" + why(why) + ")", why));
                    }
                } catch (UnavailableException unavailable) {
                    again(unavailable);
                } catch (RuntimeException other) {
                    completeExceptionally(other);
                }
            });
            return sent;
        }

        private void again(UnavailableException err) {
            var random = ThreadLocalRandom.current();
            long wait = (long) (random.nextDouble() * (BACKOFF.toNanos() << (tried - 1)));
            if (!err.retryAfter().isZero()) {
                wait = Math.max(wait, (long) (err.retryAfter().toNanos() * (1 + random.nextDouble() / 10)));
            }
            if (!repeat || err.isFinal() || tried == TRIES || spare < 1 || System.nanoTime() + wait - deadline >= 0) {
                completeExceptionally(err);
                return;
            }
            spare--;
            doing(sleep(Duration.ofNanos(wait))).thenRunAsync(this::attempt, threads);
        }
    }

    private static String why(Throwable err) {
        for (Throwable e = err; e != null; e = e.getCause()) {
            if (e.getMessage() != null) {
                return e.getMessage();
            }
        }
        return err.getClass().getSimpleName();
    }

    private Answer read(HttpResponse<byte[]> response) {
        Map<String, Object> body = null;
        try {
            if (Json.read(new String(response.body(), StandardCharsets.UTF_8)) instanceof Map<?, ?> object) {
                body = new HashMap<>();
                for (var field : object.entrySet()) {
                    body.put((String) field.getKey(), field.getValue());
                }
            }
        } catch (IllegalArgumentException err) {
            // It says nothing.
        }
        int status = response.statusCode();
        var headers = new HashMap<String, String>();
        response.headers().map().forEach((name, lines) -> headers.put(name.toLowerCase(Locale.ROOT), String.join(", ", lines)));
        if (body != null && (status == 200 || status == 403 || status == 429)) {
            return new Answer(status, headers, body);
        }
        String detail = body != null && body.get("detail") instanceof String text ? text : "status " + status;
        // What stands between may answer in the place of the service, which never redirects.
        if (body == null || status / 100 == 3 || status == 503) {
            String after = headers.getOrDefault("retry-after", "");
            throw new UnavailableException(url + " cannot decide: " + detail, null, body != null && status == 503 ? 503 : 0,
                    after.matches("[0-9]{1,9}") ? Duration.ofSeconds(Long.parseLong(after)) : Duration.ZERO,
                    "no".equals(headers.get("headgate-retry")));
        }
        var message = new StringBuilder(detail);
        if (body.get("errors") instanceof List<?> errors) {
            for (Object error : errors) {
                if (error instanceof Map<?, ?> named) {
                    message.append("; ").append(named.get("field")).append(' ').append(named.get("detail"));
                }
            }
        }
        throw new RequestException(message.toString(), status, body);
    }

    /** Reads the body of an answer. Where two readers could see two answers, it sees none. */
    private static final class Body implements HttpResponse.BodySubscriber<byte[]> {
        private final CompletableFuture<byte[]> body = new CompletableFuture<>();
        private final ByteArrayOutputStream read = new ByteArrayOutputStream();
        private final boolean clear;
        private Flow.Subscription subscription;

        Body(HttpResponse.ResponseInfo answer) {
            var lengths = answer.headers().allValues("content-length");
            var codings = answer.headers().allValues("transfer-encoding");
            clear = lengths.size() + codings.size() <= 1 && codings.stream().allMatch("chunked"::equalsIgnoreCase)
                    && lengths.stream().allMatch(length -> length.matches("[0-9]{1,15}"));
        }

        @Override
        public CompletionStage<byte[]> getBody() {
            return body;
        }

        @Override
        public void onSubscribe(Flow.Subscription subscription) {
            this.subscription = subscription;
            if (clear) {
                subscription.request(Long.MAX_VALUE);
            } else {
                refuse("the length of its answer is not clear");
            }
        }

        @Override
        public void onNext(List<ByteBuffer> parts) {
            for (ByteBuffer part : parts) {
                if (read.size() + part.remaining() > MAX_BODY) {
                    refuse("its answer has more than " + MAX_BODY + " bytes");
                    return;
                }
                byte[] bytes = new byte[part.remaining()];
                part.get(bytes);
                read.writeBytes(bytes);
            }
        }

        private void refuse(String why) {
            subscription.cancel(); // This closes the connection.
            body.completeExceptionally(new IOException(why));
        }

        @Override
        public void onError(Throwable err) {
            body.completeExceptionally(err);
        }

        @Override
        public void onComplete() {
            body.complete(read.toByteArray());
        }
    }

    /** Bounds the calls under way. Further ones wait in their order. */
    private static final class Slots {
        private final ExecutorService threads;
        private final Queue<CompletableFuture<Void>> waiting = new ArrayDeque<>();
        private int free = MOST;

        Slots(ExecutorService threads) {
            this.threads = threads;
        }

        synchronized CompletableFuture<Void> take() {
            if (free > 0) {
                free--;
                return CompletableFuture.completedFuture(null);
            }
            var turn = new CompletableFuture<Void>();
            waiting.add(turn);
            return turn;
        }

        synchronized void give() {
            CompletableFuture<Void> next = waiting.poll();
            while (next != null && next.isDone()) {
                next = waiting.poll(); // It was cancelled.
            }
            if (next == null) {
                free++;
                return;
            }
            CompletableFuture<Void> turn = next;
            threads.execute(() -> {
                if (!turn.complete(null)) {
                    give(); // It was cancelled just now.
                }
            });
        }
    }
}
