package io.github.headgate;

import java.time.Duration;
import java.util.Map;

/**
 * The outcome for one limit.
 *
 * @param rule the rule's name
 * @param limit the limit, as {@code 5 per 15m}
 * @param algorithm how it counts, as {@code sliding_window}
 * @param allowed whether this limit allows the request
 * @param capacity the most units that fit at once
 * @param period the limit's period
 * @param remaining units left now
 * @param retryAfter until the request fits, if nothing else comes; {@link Verdict#NEVER} if it never will
 * @param resetAfter until the limit is fully free again
 * @param soft whether the limit is close, as the policy's {@code soft} says
 * @param shadow whether the limit only counts, and denies nothing
 * @param source who decided: {@code store}, or a layer before it
 */
public record Decision(String rule, String limit, String algorithm, boolean allowed, long capacity, Duration period,
        long remaining, Duration retryAfter, Duration resetAfter, boolean soft, boolean shadow, String source) {

    static Decision of(Map<?, ?> body) {
        return new Decision((String) body.get("rule"), (String) body.get("limit"), (String) body.get("algorithm"),
                (boolean) body.get("allowed"), (long) body.get("capacity"), Times.of(body.get("period_ms")),
                (long) body.get("remaining"), Times.of(body.get("retry_after_ms")),
                Times.of(body.get("reset_after_ms")), body.get("soft") == Boolean.TRUE,
                body.get("shadow") == Boolean.TRUE, body.get("source") instanceof String source ? source : "store");
    }
}
