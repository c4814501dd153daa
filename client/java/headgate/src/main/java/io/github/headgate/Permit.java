package io.github.headgate;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * A permit, or the answer that there is none. It is renewed until it is released or lost, and released at the end of a
 * {@code try}.
 */
public final class Permit implements AutoCloseable {
    /** A permit counts as lost this part of its time before its lease ends: for what the work needs to stop. */
    private static final int MARGIN = 10;

    private final AsyncClient client;
    private final Map<String, Object> who;
    private final Duration asked;
    private final boolean allowed;
    private final boolean shadow;
    private final long inUse;
    private final long limit;
    private final Duration retryAfter;
    private final boolean granted;
    private final long epoch;
    private final List<Long> slots;
    private final AtomicBoolean released = new AtomicBoolean();
    private final CompletableFuture<Void> ended = new CompletableFuture<>();
    private volatile Duration ttl = Duration.ZERO;
    private volatile long ends;
    private volatile String why = ""; // it was lost

    Permit(AsyncClient client, Map<String, Object> who, Duration asked, Map<String, Object> body, long began) {
        this.client = client;
        this.who = who;
        this.asked = asked;
        this.allowed = (boolean) body.get("allowed");
        this.shadow = body.get("shadow") == Boolean.TRUE;
        this.inUse = (long) body.get("in_use");
        this.limit = (long) body.get("limit");
        this.retryAfter = Times.of(body.get("retry_after_ms"));
        if (body.get("permit") instanceof Map<?, ?> permit) {
            this.granted = true;
            this.epoch = (long) permit.get("epoch");
            this.slots = ((List<?>) permit.get("slots")).stream().map(Long.class::cast).toList();
            keep(permit, began);
            client.permits.add(this);
            renewAfter(ttl.dividedBy(6));
        } else {
            this.granted = false;
            this.epoch = 0;
            this.slots = List.of();
        }
    }

    static Permit undecided(AsyncClient client, PermitRequest request, Verdict verdict) {
        return new Permit(client, Acquiring.who(request), null, Times.ordered("allowed", verdict.allowed(), "in_use", 0L,
                "limit", 0L, "retry_after_ms", Times.milliseconds(verdict.retryAfter())), 0);
    }

    /** {@return whether the work may begin: with a permit, in shadow, or because the rule or {@link OnFailure} lets it} */
    public boolean isAllowed() {
        return allowed;
    }

    /** {@return whether the rule only measures, so that there is no permit} */
    public boolean isShadow() {
        return shadow;
    }

    /** {@return the rule's name} */
    public String rule() {
        return (String) who.get("rule");
    }

    /** {@return whose permit it is} */
    public String holder() {
        return (String) who.get("holder");
    }

    /** {@return with {@link #slots()}, the fence: a larger epoch of a slot is the later holder; 0 without a permit} */
    public long epoch() {
        return epoch;
    }

    /** {@return the places that the permit has among those of its key} */
    public List<Long> slots() {
        return slots;
    }

    /** {@return how many units are in use} */
    public long inUse() {
        return inUse;
    }

    /** {@return how many units there are} */
    public long limit() {
        return limit;
    }

    /** {@return how long until it is worth asking again, if it was not allowed} */
    public Duration retryAfter() {
        return retryAfter;
    }

    /** {@return whether the permit was lost; by the clock, too, as for a process that was stopped} */
    public boolean isLost() {
        if (granted && why.isEmpty() && System.nanoTime() - ends >= 0) {
            why = "it could not be renewed in time";
        }
        return !why.isEmpty();
    }

    /**
     * Throws if the permit was lost. Call it before what others must not do at the same time.
     *
     * @throws PermitLostException if it was lost
     */
    public void check() {
        if (isLost()) {
            throw new PermitLostException("the permit was lost: " + why);
        }
    }

    /**
     * Gives the permit back. Nobody hears of a failure: the permit then ends by itself.
     */
    @Override
    public void close() {
        var released = releaseAsync();
        try {
            Client.await(released);
        } catch (HeadgateException err) {
            // It ends by itself.
        }
    }

    /**
     * Gives the permit back.
     *
     * @return completes when the service has heard it, or exceptionally if it has not: the permit then ends by itself
     */
    public CompletableFuture<Void> releaseAsync() {
        client.permits.remove(this);
        ended.complete(null);
        if (!granted || released.getAndSet(true)) {
            return CompletableFuture.completedFuture(null);
        }
        Map<String, Object> body = new LinkedHashMap<>(who);
        body.put("epoch", epoch);
        return client.calls.post("/v1/permits/release", body, true).thenApply(answer -> null);
    }

    /** Notes how long it lasts, counted from before the call that was answered with it. */
    private void keep(Map<?, ?> permit, long began) {
        ttl = Times.of(permit.get("ttl_ms"));
        ends = began + Times.of(permit.get("expires_in_ms")).minus(ttl.dividedBy(MARGIN)).toNanos();
    }

    private void renewAfter(Duration wait) {
        long left = Math.max(ends - System.nanoTime(), 0) / 2;
        long pause = (long) (wait.toNanos() * (1 - ThreadLocalRandom.current().nextDouble() / 8));
        var timer = Calls.sleep(Duration.ofNanos(Math.min(pause, left)));
        ended.thenRun(() -> timer.cancel(false));
        timer.thenRunAsync(this::renew, client.calls.threads);
    }

    void renew() {
        if (isLost() || ended.isDone()) {
            return;
        }
        long began = System.nanoTime();
        Map<String, Object> body = new LinkedHashMap<>(who);
        body.put("epoch", epoch);
        if (asked != null) {
            body.put("ttl_ms", Times.milliseconds(asked));
        }
        Duration left = Duration.ofNanos(Math.max(1, ends - began));
        Duration within = left.compareTo(client.calls.timeout) < 0 ? left : client.calls.timeout;
        client.calls.post("/v1/permits/renew", body, false, within, Duration.ZERO).whenComplete((answer, err) -> {
            if (ended.isDone()) {
                return;
            }
            if (err == null && answer.body().get("permit") instanceof Map<?, ?> permit) {
                keep(permit, began);
                renewAfter(ttl.dividedBy(3));
            } else if (Calls.cause(err) instanceof RequestException refused && refused.status() == 410) {
                why = refused.problem().get("revoked") == Boolean.TRUE ? "it was revoked" : "the service knows no such permit";
            } else {
                long soon = Math.min(Math.max(ttl.toNanos() / 20, 10_000_000), 1_000_000_000);
                renewAfter(Duration.ofNanos((long) (soon * (0.5 + ThreadLocalRandom.current().nextDouble()))));
            }
        });
    }
}
