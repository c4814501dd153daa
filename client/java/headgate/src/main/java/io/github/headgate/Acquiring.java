package io.github.headgate;

import java.net.InetAddress;
import java.net.UnknownHostException;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;

/** A permit that is asked for until it is granted, or the time to wait is over. */
final class Acquiring extends CompletableFuture<Permit> {
    /** For how long one call may be held back by the service, and a place in line is kept until the next one. */
    private static final Duration HOLD = Duration.ofSeconds(20);
    private static final Duration KEEP = Duration.ofSeconds(2);

    private final AsyncClient client;
    private final PermitRequest request;
    private final Map<String, Object> who;
    private final long until;
    private volatile Future<?> current;

    Acquiring(AsyncClient client, PermitRequest request) {
        this.client = client;
        this.request = request;
        this.who = who(request);
        this.until = System.nanoTime() + request.wait.toNanos();
        whenComplete((permit, err) -> {
            if (isCancelled()) {
                current.cancel(true);
            }
            if (isCancelled() || Calls.cause(err) instanceof UnavailableException) {
                // The service may have granted it, or keep a place in line.
                client.calls.post("/v1/permits/release", who, true);
            }
        });
        ask();
    }

    static Map<String, Object> who(PermitRequest request) {
        String holder = request.holder;
        if (holder == null) {
            String host = "unknown";
            try {
                host = InetAddress.getLocalHost().getHostName();
            } catch (UnknownHostException err) {
                // The name is for people.
            }
            holder = host.substring(0, Math.min(64, host.length())) + "/" + ProcessHandle.current().pid() + "/" + UUID.randomUUID();
        }
        return Times.ordered("rule", request.rule, "key", request.key, "holder", holder);
    }

    private void ask() {
        long began = System.nanoTime();
        Duration left = Duration.ofNanos(Math.max(until - began, 0));
        Duration hold = left.compareTo(HOLD) < 0 ? left : HOLD;
        Map<String, Object> body = new LinkedHashMap<>(who);
        body.put("wait_ms", Times.milliseconds(hold));
        body.put("keep_ms", left.compareTo(hold) > 0 ? KEEP.toMillis() : 0L);
        if (request.cost != 0) {
            body.put("cost", request.cost);
        }
        if (request.ttl != null) {
            body.put("ttl_ms", Times.milliseconds(request.ttl));
        }
        var call = client.calls.post("/v1/permits/acquire", body, true, client.calls.timeout, hold);
        current = call;
        call.whenComplete((answer, err) -> {
            if (err != null) {
                completeExceptionally(err);
                return;
            }
            try {
                client.understood(a -> answered(a, began), answer);
            } catch (RuntimeException strange) {
                completeExceptionally(strange);
            }
        });
        if (isDone()) {
            call.cancel(true);
        }
    }

    private Void answered(Calls.Answer answer, long began) {
        var body = answer.body();
        if ((boolean) body.get("allowed") || body.get("waiting") != Boolean.TRUE) {
            var permit = new Permit(client, who, request.ttl, body, began);
            if (!complete(permit)) {
                permit.releaseAsync();
            }
            return null;
        }
        Duration left = Duration.ofNanos(Math.max(until - System.nanoTime(), 0));
        Duration wait = Times.of(body.get("retry_after_ms"));
        var pause = Calls.sleep(wait.compareTo(left) < 0 ? wait : left);
        current = pause;
        pause.thenRunAsync(this::ask, client.calls.threads);
        return null;
    }
}
