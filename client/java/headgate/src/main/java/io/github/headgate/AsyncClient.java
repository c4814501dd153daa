package io.github.headgate;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;

/**
 * The calls of {@link Client} without waiting for their answers. Each future completes with what the method of the same
 * name returns, or exceptionally with what it throws. A future that is cancelled cancels its call; what the call took
 * stays taken. At most 64 calls are under way at a time; further ones wait, within their deadline.
 */
public final class AsyncClient {
    final Calls calls;
    final Set<Permit> permits = ConcurrentHashMap.newKeySet();
    private final Post post;
    private final OnFailure onFailure;
    private final CallListener listener;

    /** How a call is made, apart from those about permits. */
    interface Post {
        CompletableFuture<Calls.Answer> call(String path, Map<String, Object> body, boolean repeat);
    }

    AsyncClient(Calls calls, Post post, OnFailure onFailure, CallListener listener) {
        this.calls = calls;
        this.post = post;
        this.onFailure = onFailure;
        this.listener = listener;
    }

    /**
     * See {@link Client#check(Request)}.
     *
     * @param request what is asked about
     * @return the verdict
     */
    public CompletableFuture<Verdict> check(Request request) {
        String path = "/v1/check?status=true&at=true" + (request.hasOutcome() ? "&outcome=true" : "");
        return decide("check", post.call(path, request.body(), request.hasId()));
    }

    /**
     * See {@link Client#peek(Request)}.
     *
     * @param request what is asked about
     * @return the verdict
     */
    public CompletableFuture<Verdict> peek(Request request) {
        return decide("peek", post.call("/v1/peek?status=true", request.body(), true));
    }

    /**
     * See {@link Client#refund(Request, Verdict)}.
     *
     * @param request what was asked about
     * @param charged the verdict on it
     * @return the state of the limits
     */
    public CompletableFuture<Verdict> refund(Request request, Verdict charged) {
        Map<String, Object> body = new LinkedHashMap<>(request.body());
        if (charged.at() != 0) {
            body.put("at", charged.at());
        }
        return tell("refund", post.call("/v1/refund", body, false), this::verdict);
    }

    /**
     * See {@link Client#reset(Request)}.
     *
     * @param request what is forgotten
     * @return the rules whose counters were forgotten
     */
    public CompletableFuture<List<String>> reset(Request request) {
        return tell("reset", post.call("/v1/reset", request.body(), true), answer ->
                ((List<?>) answer.body().get("reset")).stream().map(String.class::cast).toList());
    }

    /**
     * See {@link Client#explain(Request)}.
     *
     * @param request facts about a request
     * @return the answer of the service
     */
    public CompletableFuture<Map<String, Object>> explain(Request request) {
        return tell("explain", post.call("/v1/explain", request.body(), true), Calls.Answer::body);
    }

    /**
     * See {@link Client#tryReserve(Request)}.
     *
     * @param request what is asked about, with the estimate as its cost
     * @return the reservation, or the answer that there is none
     */
    public CompletableFuture<Reservation> tryReserve(Request request) {
        var call = decide("reserve", post.call("/v1/reserve?status=true&at=true", request.body(), request.hasId()));
        return Calls.then(call, from -> from.thenApply(verdict -> new Reservation(this, verdict)));
    }

    /**
     * See {@link Client#settle(String, long)}.
     *
     * @param reservation the reservation's name
     * @param cost what the work did cost, at least 0
     * @return the state of the limits
     */
    public CompletableFuture<Verdict> settle(String reservation, long cost) {
        return settle(Times.ordered("reservation", reservation, "cost", cost));
    }

    /**
     * See {@link Client#settleStatus(String, int)}.
     *
     * @param reservation the reservation's name
     * @param status the HTTP status that the request ended with
     * @return the state of the limits
     */
    public CompletableFuture<Verdict> settleStatus(String reservation, int status) {
        return settle(Times.ordered("reservation", reservation, "status", (long) status));
    }

    private CompletableFuture<Verdict> settle(Map<String, Object> body) {
        return tell("settle", post.call("/v1/settle", body, true), this::verdict);
    }

    /**
     * See {@link Client#cancel(String)}.
     *
     * @param reservation the reservation's name
     * @return the state of the limits
     */
    public CompletableFuture<Verdict> cancel(String reservation) {
        return tell("cancel", post.call("/v1/cancel", Times.ordered("reservation", reservation), true), this::verdict);
    }

    /**
     * See {@link Client#tryAcquire(PermitRequest)}.
     *
     * @param request which permit is asked for
     * @return the permit, or the answer that there is none
     */
    public CompletableFuture<Permit> tryAcquire(PermitRequest request) {
        var permit = observed("acquire", new Acquiring(this, request), Permit::isAllowed);
        return Calls.then(permit, from -> from.handle((got, err) -> {
            if (Calls.cause(err) instanceof UnavailableException unavailable && onFailure != OnFailure.THROW) {
                return Permit.undecided(this, request, Verdict.undecided(unavailable, onFailure));
            }
            return value(got, err);
        }));
    }

    /** A call whose answer {@link OnFailure} could decide. */
    private CompletableFuture<Verdict> decide(String name, CompletableFuture<Calls.Answer> call) {
        var verdict = Calls.then(call, from -> from.thenApply(answer -> {
            Verdict decided = verdict(answer);
            if (decided.allowed() != (answer.status() == 200)) {
                throw strange(null);
            }
            return decided;
        }));
        return Calls.then(observed(name, verdict, Verdict::allowed), from -> from.handle((got, err) -> {
            if (Calls.cause(err) instanceof UnavailableException unavailable && onFailure != OnFailure.THROW) {
                return Verdict.undecided(unavailable, onFailure);
            }
            return value(got, err);
        }));
    }

    /** A call whose answer is no decision. */
    private <T> CompletableFuture<T> tell(String name, CompletableFuture<Calls.Answer> call, Function<Calls.Answer, T> map) {
        return observed(name, Calls.then(call, from -> from.thenApply(answer -> understood(map, answer))), null);
    }

    private Verdict verdict(Calls.Answer answer) {
        return understood(Verdict::of, answer);
    }

    <T> T understood(Function<Calls.Answer, T> map, Calls.Answer answer) {
        try {
            return map.apply(answer);
        } catch (ClassCastException | NullPointerException err) {
            throw strange(err);
        }
    }

    private UnavailableException strange(Throwable err) {
        return new UnavailableException(calls.url + " cannot decide: its answer is not that of a Headgate", err);
    }

    private static <T> T value(T got, Throwable err) {
        if (err == null) {
            return got;
        }
        if (Calls.cause(err) instanceof RuntimeException known) {
            throw known;
        }
        throw new IllegalStateException(Calls.cause(err));
    }

    private <T> CompletableFuture<T> observed(String name, CompletableFuture<T> call, Function<T, Boolean> allowed) {
        if (listener != null) {
            long began = System.nanoTime();
            call.whenComplete((got, err) -> listener.ended(name,
                    err != null ? failure(Calls.cause(err)) : allowed == null ? "ok" : allowed.apply(got) ? "allowed" : "denied",
                    Duration.ofNanos(System.nanoTime() - began)));
        }
        return call;
    }

    private static String failure(Throwable err) {
        return err instanceof RequestException ? "mistake" : err instanceof CancellationException ? "cancelled" : "unavailable";
    }
}
