package io.github.headgate;

/**
 * One rule, the key to count under, and how many units to take.
 *
 * @param rule the rule's name in the policy
 * @param key what the rule counts by, such as a user; {@code ""} for a rule with one counter for all
 * @param cost units, at least 1
 */
public record Check(String rule, String key, long cost) {
    /**
     * A check for one unit.
     *
     * @param rule the rule's name in the policy
     * @param key what the rule counts by
     */
    public Check(String rule, String key) {
        this(rule, key, 1);
    }
}
