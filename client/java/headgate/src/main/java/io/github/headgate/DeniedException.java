package io.github.headgate;

import java.time.Duration;
import java.util.Map;

/**
 * A denial, where there is no other way to say it: from {@link Client#acquire}, {@link Client#reserve}, or a method that
 * is limited.
 */
public final class DeniedException extends HeadgateException {
    private static final long serialVersionUID = 1L;

    /** Until it fits. */
    private final Duration retryAfter;
    private final transient Refusal refusal;

    private DeniedException(String message, Duration retryAfter, Refusal refusal) {
        super(message, null);
        this.retryAfter = retryAfter;
        this.refusal = refusal;
    }

    /**
     * A denied verdict as an exception.
     *
     * @param verdict the verdict
     */
    public DeniedException(Verdict verdict) {
        this(message(verdict), verdict.retryAfter(), verdict.refusal());
    }

    static DeniedException of(Permit permit) {
        String message = "rule %s: %d of %d in progress; try again in %s s".formatted(
                permit.rule(), permit.inUse(), permit.limit(), Times.text(permit.retryAfter()));
        long wait = Math.max(1, Times.roundedUp(permit.retryAfter()));
        Map<String, Object> problem = Times.ordered("title", "Too much is in progress", "status", 429L, "detail", message);
        return new DeniedException(message, permit.retryAfter(),
                Refusal.of(problem, Map.of("retry-after", Long.toString(wait))));
    }

    /** {@return how long until it fits; {@link Verdict#NEVER} if it never does} */
    public Duration retryAfter() {
        return retryAfter;
    }

    /** {@return what to answer a client of HTTP with} */
    public Refusal refusal() {
        return refusal;
    }

    private static String message(Verdict verdict) {
        DeniedBy by = verdict.deniedBy();
        String what = "the rate limiter";
        if (by != null) {
            what = by.list().isEmpty() ? "rule " + by.rule() + ", " + by.limit() : by.list();
        }
        return "denied by " + what + "; " + (verdict.retryAfter().equals(Verdict.NEVER)
                ? "it never fits" : "it fits in " + Times.text(verdict.retryAfter()) + " s");
    }
}
