package io.github.headgate;

import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;

/**
 * The outcome for a request.
 *
 * @param allowed whether the request may go on
 * @param retryAfter until the request fits, if nothing else comes: zero if it does now, {@link #NEVER} if it never will
 * @param delay how long to hold an allowed request, for the pace of a leaky bucket
 * @param decisions the outcome for each limit
 * @param deniedBy what denied; null if nothing did
 * @param at the time of the decision by the store's clock, in microseconds, for a refund to name
 * @param status 200, 429, 403 for the deny list, or 503 for a denial without a decision
 * @param headers the headers that tell the client of its limits, in the service's dialect, by their names in lower case
 * @param problem the body to answer the client of a denied request with (RFC 9457); null if it is allowed
 * @param reservation what settles the request; null if there is nothing to settle
 * @param expiresIn how long the reservation can be settled
 * @param error why there is no decision, if {@link OnFailure} decided; otherwise null
 */
public record Verdict(boolean allowed, Duration retryAfter, Duration delay, List<Decision> decisions, DeniedBy deniedBy,
        long at, int status, Map<String, String> headers, Map<String, Object> problem, String reservation,
        Duration expiresIn, UnavailableException error) {

    /** The time that does not come. It has too many seconds to be converted to milliseconds. */
    public static final Duration NEVER = ChronoUnit.FOREVER.getDuration();

    private static final Duration UNAVAILABLE_FOR = Duration.ofSeconds(5);
    private static final Set<String> FOR_CLIENTS = Set.of("retry-after", "ratelimit", "ratelimit-policy",
            "ratelimit-limit", "ratelimit-remaining", "ratelimit-reset", "ratelimit-warning", "x-ratelimit-limit",
            "x-ratelimit-remaining", "x-ratelimit-reset", "x-ratelimit-warning");

    /**
     * An admission of what is not limited.
     *
     * @return the verdict
     */
    public static Verdict unlimited() {
        return new Verdict(true, Duration.ZERO, Duration.ZERO, List.of(), null, 0, 200, Map.of(), null, null,
                Duration.ZERO, null);
    }

    /**
     * What to answer the client of a denied request with.
     *
     * @return the answer
     * @throws IllegalStateException if the request is allowed
     */
    public Refusal refusal() {
        if (problem == null) {
            throw new IllegalStateException("headgate: an allowed request has no refusal");
        }
        return Refusal.of(problem, headers);
    }

    /** Whoever answers with something else throws NullPointerException or ClassCastException. */
    static Verdict of(Calls.Answer answer) {
        Map<String, Object> body = answer.body();
        Map<String, Object> problem = null;
        if (answer.status() == 403) {
            // The client is not to find its way around the list.
            problem = Times.ordered("title", "The request is not allowed", "status", 403L);
        } else if (answer.status() != 200) {
            problem = Times.ordered();
            for (String name : List.of("type", "title", "status", "detail", "violated-policies", "retry_after_ms")) {
                if (body.containsKey(name)) {
                    problem.put(name, body.get(name));
                }
            }
            problem.put("status", (long) answer.status());
        }
        DeniedBy deniedBy = null;
        if (body.get("denied_by") instanceof Map<?, ?> by) {
            deniedBy = new DeniedBy(text(by, "rule"), text(by, "limit"), text(by, "list"));
        }
        var headers = new TreeMap<>(answer.headers());
        headers.keySet().retainAll(FOR_CLIENTS);
        return new Verdict((boolean) body.get("allowed"), Times.of(body.get("retry_after_ms")),
                Times.of(body.get("delay_ms")),
                ((List<?>) body.get("decisions")).stream().map(d -> Decision.of((Map<?, ?>) d)).toList(), deniedBy,
                body.get("at") instanceof Long at ? at : 0, answer.status(), headers, problem,
                (String) body.get("reservation"), Times.of(body.getOrDefault("expires_in_ms", 0L)), null);
    }

    private static String text(Map<?, ?> object, String name) {
        return object.get(name) instanceof String text ? text : "";
    }

    /**
     * The verdict without a decision. A service that answers was told itself to let nothing pass, so then it is a denial.
     *
     * @param error why there is none
     * @param onFailure {@link OnFailure#ALLOW}, or a denial
     * @return the verdict
     */
    public static Verdict undecided(UnavailableException error, OnFailure onFailure) {
        if (onFailure == OnFailure.ALLOW && error.status() == 0) {
            return new Verdict(true, Duration.ZERO, Duration.ZERO, List.of(), null, 0, 200, Map.of(), null, null,
                    Duration.ZERO, error);
        }
        return new Verdict(false, UNAVAILABLE_FOR, Duration.ZERO, List.of(), null, 0, 503,
                Map.of("retry-after", Long.toString(UNAVAILABLE_FOR.toSeconds())),
                Times.ordered("type", "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
                        "title", "Capacity is reduced for the moment", "status", 503L,
                        "detail", "The rate limiter could not decide on the request.",
                        "retry_after_ms", UNAVAILABLE_FOR.toMillis()),
                null, Duration.ZERO, error);
    }
}
