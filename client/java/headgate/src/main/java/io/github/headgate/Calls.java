package io.github.headgate;

import java.io.IOException;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
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
    /**
     * How long a connection is kept without a call: less than what services and proxies keep it for, so that it is not
     * closed just when a call is sent.
     */
    private static final Duration KEEP = Duration.ofSeconds(4);

    final String url;
    final Duration timeout;
    final ExecutorService threads;
    private final URI base;
    private final String path;
    private final String head;
    private final SSLContext tls;
    private final Slots slots;
    private final ConcurrentLinkedDeque<Connection> idle = new ConcurrentLinkedDeque<>(); // the last one used first
    private final AtomicBoolean watched = new AtomicBoolean(); // whether a timer looks for idle ones that are too old
    private double spare = FLOOR; // retries; races between threads do not matter

    Calls(String url, Duration timeout, SSLContext tls) {
        if (timeout.compareTo(Duration.ofMillis(1)) < 0 || timeout.compareTo(Duration.ofMinutes(1)) > 0) {
            throw new IllegalArgumentException("headgate: timeout is " + timeout + ", must be 1 ms to 60 s");
        }
        this.url = url;
        this.timeout = timeout;
        this.base = base(url);
        this.path = base.getRawPath().replaceFirst("/+$", "");
        this.head = " HTTP/1.1\r\nHost: " + base.getRawAuthority() + "\r\nContent-Type: application/json\r\nContent-Length: ";
        this.tls = tls;
        var number = new AtomicInteger();
        this.threads = new ThreadPoolExecutor(0, Integer.MAX_VALUE, 10, TimeUnit.SECONDS, new SynchronousQueue<>(), task -> {
            var thread = new Thread(task, "headgate-" + number.incrementAndGet());
            thread.setDaemon(true);
            return thread;
        }, (task, closed) -> task.run()); // What is under way when the client is closed still ends.
        this.slots = new Slots(threads);
    }

    private static URI base(String url) {
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
        if (uri.getPort() > 65_535) {
            throw new IllegalArgumentException("headgate: url is " + url + ", must have a port of at most 65535");
        }
        if (uri.getUserInfo() != null || uri.getQuery() != null || uri.getFragment() != null) {
            throw new IllegalArgumentException(
                    "headgate: url has a user, a password, a query or a fragment, must have none of them");
        }
        return uri;
    }

    /** Waits for what is under way, at the latest for the time of a call. */
    @Override
    public void close() {
        threads.shutdown();
        try {
            threads.awaitTermination(timeout.toNanos(), TimeUnit.NANOSECONDS);
        } catch (InterruptedException err) {
            Thread.currentThread().interrupt();
        }
        forget(Duration.ZERO);
    }

    /** A connection that is open and has no call, or null. */
    private Connection connected() {
        for (Connection kept = idle.pollFirst(); kept != null; kept = idle.pollFirst()) {
            if (kept.fresh(KEEP.toNanos())) {
                return kept;
            }
            kept.close();
        }
        return null;
    }

    /** Keeps a connection for the next call. */
    private void keep(Connection connection) {
        idle.addFirst(connection);
        if (threads.isShutdown()) {
            forget(Duration.ZERO);
        } else if (!watched.getAndSet(true)) {
            watch();
        }
    }

    private void watch() {
        sleep(KEEP).thenRun(() -> {
            forget(KEEP);
            watched.set(false);
            if (!idle.isEmpty() && !watched.getAndSet(true)) {
                watch();
            }
        });
    }

    /** Closes the connections that have had no call for so long. */
    private void forget(Duration without) {
        for (Connection oldest = idle.pollLast(); oldest != null; oldest = idle.pollLast()) {
            if (oldest.kept() < without.toNanos()) {
                idle.addLast(oldest);
                return;
            }
            oldest.close();
        }
    }

    /** Makes a call. The deadline covers all of it: waiting for a connection, and retries. */
    CompletableFuture<Answer> post(String to, Map<String, Object> body, boolean repeat) {
        return post(to, body, repeat, timeout, Duration.ZERO);
    }

    /** Makes a call that the service may hold back. */
    CompletableFuture<Answer> post(String to, Map<String, Object> body, boolean repeat, Duration within, Duration hold) {
        var call = new Call(request(to, body), repeat, within.plus(hold), !hold.isZero());
        call.attempt(threads);
        return call;
    }

    /** Makes a call in this thread if it can, and else in another one. */
    CompletableFuture<Answer> postHere(String to, Map<String, Object> body, boolean repeat) {
        var call = new Call(request(to, body), repeat, timeout, false);
        call.attempt(Runnable::run);
        return call;
    }

    private byte[] request(String to, Map<String, Object> body) {
        String json = Json.write(body);
        try {
            ByteBuffer text = StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(json));
            byte[] first = ("POST " + path + to + head + text.remaining() + "\r\n\r\n").getBytes(StandardCharsets.ISO_8859_1);
            byte[] all = Arrays.copyOf(first, first.length + text.remaining());
            text.get(all, first.length, text.remaining());
            return all;
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
        private final byte[] request;
        private final boolean repeat;
        private final boolean held;
        private final long deadline;
        private int tried;
        private Runnable stop; // ends what is under way; guarded by this call

        Call(byte[] request, boolean repeat, Duration within, boolean held) {
            this.request = request;
            this.repeat = repeat;
            this.held = held;
            this.deadline = System.nanoTime() + within.toNanos();
            if (repeat) {
                spare = Math.min(spare + SHARE, HOARD);
            }
            var timer = sleep(within);
            timer.thenRunAsync(() -> completeExceptionally(
                    new UnavailableException(url + " does not answer within " + Times.text(within) + " s", null)), threads);
            whenComplete((answer, err) -> {
                timer.cancel(false);
                doing(null);
            });
        }

        /** Notes what ends with the call, in the place of what did. */
        private synchronized void doing(Runnable stop) {
            if (isDone() && this.stop != null) {
                this.stop.run();
            }
            this.stop = stop;
            if (isDone() && stop != null) {
                stop.run();
            }
        }

        void attempt(Executor in) {
            tried++;
            var slot = held ? Slots.FREE : slots.take();
            boolean here = in != threads && slot.isDone();
            doing(() -> slot.cancel(true));
            slot.whenComplete((taken, err) -> {
                if (err == null) {
                    in.execute(() -> send(here));
                }
            });
        }

        /** Asks, and waits for the answer. A caller's thread does not connect: no deadline ends the search for an address. */
        private void send(boolean here) {
            // An interrupt would close what it finds.
            Connection connection = here && Thread.currentThread().isInterrupted() ? null : connected();
            if (connection == null && here) {
                threads.execute(() -> send(false));
                return;
            }
            Answer answer = null;
            RuntimeException failed = null;
            try {
                if (connection == null) {
                    connection = new Connection();
                    doing(connection::close);
                    connection.connect(base, tls);
                } else {
                    doing(connection::close);
                }
                answer = read(connection.exchange(request));
            } catch (IOException err) {
                failed = here && Thread.currentThread().isInterrupted()
                        ? Client.interrupted() : new UnavailableException(url + " does not answer (" + why(err) + ")", err);
            } catch (RuntimeException err) {
                failed = err;
            }
            doing(null);
            if (connection != null && connection.again()) {
                keep(connection);
            } else if (connection != null) {
                connection.close();
            }
            if (!held) {
                slots.give();
            }
            if (failed instanceof UnavailableException unavailable) {
                again(unavailable);
            } else if (failed != null) {
                completeExceptionally(failed);
            } else {
                complete(answer);
            }
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
            var pause = sleep(Duration.ofNanos(wait));
            doing(() -> pause.cancel(true));
            pause.thenRunAsync(() -> attempt(threads), threads);
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

    private Answer read(Connection.Raw response) {
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
        int status = response.status();
        var headers = response.headers();
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
                if (error instanceof Map<?, ?> named && named.containsKey("field")) {
                    message.append("; ").append(named.get("field")).append(' ').append(named.get("detail"));
                }
            }
        }
        throw new RequestException(message.toString(), status, body);
    }

    /** Bounds the calls under way. Further ones wait in their order. */
    private static final class Slots {
        static final CompletableFuture<Void> FREE = CompletableFuture.completedFuture(null);

        private final ExecutorService threads;
        private final Queue<CompletableFuture<Void>> waiting = new ArrayDeque<>();
        private int free = MOST;

        Slots(ExecutorService threads) {
            this.threads = threads;
        }

        synchronized CompletableFuture<Void> take() {
            if (free > 0) {
                free--;
                return FREE;
            }
            var turn = new CompletableFuture<Void>();
            waiting.add(turn);
            return turn;
        }

        void give() {
            CompletableFuture<Void> turn = next();
            if (turn == null) {
                return;
            }
            threads.execute(() -> { // without the lock: when the client is closed, this thread makes the call
                if (!turn.complete(null)) {
                    give(); // It was cancelled just now.
                }
            });
        }

        private synchronized CompletableFuture<Void> next() {
            CompletableFuture<Void> next = waiting.poll();
            while (next != null && next.isDone()) {
                next = waiting.poll(); // It was cancelled.
            }
            if (next == null) {
                free++;
            }
            return next;
        }
    }
}
