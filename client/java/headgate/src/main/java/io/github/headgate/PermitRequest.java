package io.github.headgate;

import java.time.Duration;
import java.util.Objects;

/** Which permit is asked for. It does not change. */
public final class PermitRequest {
    private static final Duration LONGEST = Duration.ofMinutes(10);

    final String rule;
    final String key;
    final long cost;
    final Duration ttl;
    final Duration wait;
    final String holder;

    private PermitRequest(String rule, String key, long cost, Duration ttl, Duration wait, String holder) {
        this.rule = Objects.requireNonNull(rule, "rule");
        this.key = Objects.requireNonNull(key, "key");
        this.cost = cost;
        this.ttl = ttl;
        this.wait = wait;
        this.holder = holder;
    }

    /**
     * A permit for one unit, which is not waited for.
     *
     * @param rule the name of a rule that bounds what is in progress
     * @param key what the rule counts by; {@code ""} for a rule with one counter for all
     * @return the request
     */
    public static PermitRequest of(String rule, String key) {
        return new PermitRequest(rule, key, 0, null, Duration.ZERO, null);
    }

    /**
     * Asks for so many units.
     *
     * @param units at least 1
     * @return the request with this cost
     */
    public PermitRequest cost(long units) {
        return new PermitRequest(rule, key, units, ttl, wait, holder);
    }

    /**
     * Asks for a lease of this length instead of the rule's. It is renewed as long as the permit is held.
     *
     * @param length in the bounds of the rule
     * @return the request with this length
     */
    public PermitRequest ttl(Duration length) {
        return new PermitRequest(rule, key, cost, length, wait, holder);
    }

    /**
     * Waits for the permit, in line, if its rule has a wait.
     *
     * @param longest zero to ten minutes
     * @return the request that waits
     */
    public PermitRequest wait(Duration longest) {
        if (longest.isNegative() || longest.compareTo(LONGEST) > 0) {
            throw new IllegalArgumentException("headgate: wait is " + longest + ", must be zero to ten minutes");
        }
        return new PermitRequest(rule, key, cost, ttl, longest, holder);
    }

    /**
     * Names the holder. Without this, each permit has a name of its own.
     *
     * @param name whose permit it is; who asks again gets the same permit
     * @return the request with this holder
     */
    public PermitRequest holder(String name) {
        return new PermitRequest(rule, key, cost, ttl, wait, name);
    }
}
