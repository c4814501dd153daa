package io.github.headgate;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** What is asked about: a rule and a key, several of them, or facts for the policy. It does not change. */
public final class Request {
    private final Map<String, Object> body;
    private final boolean outcome;

    private Request(Map<String, Object> body, boolean outcome) {
        this.body = body;
        this.outcome = outcome;
    }

    /**
     * One rule and the key to count under.
     *
     * @param rule the rule's name in the policy
     * @param key what the rule counts by, such as a user; {@code ""} for a rule with one counter for all
     * @return the request, for one unit
     */
    public static Request of(String rule, String key) {
        return of(List.of(new Check(rule, key)));
    }

    /**
     * Several checks: all of them are charged, or none.
     *
     * @param checks the checks, each with a cost of its own
     * @return the request
     */
    public static Request of(List<Check> checks) {
        return new Request(Map.of("checks", checks.stream().map(check ->
                (Object) Times.ordered("rule", check.rule(), "key", check.key(), "cost", check.cost())).toList()), false);
    }

    /**
     * Facts about a request, such as {@code Map.of("user", "ada", "route", "POST /login")}. The policy finds the rules.
     *
     * @param descriptor the facts
     * @return the request, for one unit
     */
    public static Request of(Map<String, String> descriptor) {
        return new Request(Map.of("descriptor", new LinkedHashMap<>(descriptor)), false);
    }

    /**
     * Asks for so many units.
     *
     * @param units at least 1
     * @return the request with this cost
     * @throws IllegalStateException if it has several checks, which have costs of their own
     */
    public Request cost(long units) {
        if (!(body.get("checks") instanceof List<?> checks)) {
            return with("cost", units);
        }
        if (checks.size() != 1) {
            throw new IllegalStateException("headgate: each check has a cost of its own");
        }
        var check = new LinkedHashMap<String, Object>();
        ((Map<?, ?>) checks.get(0)).forEach((name, value) -> check.put((String) name, value));
        check.put("cost", units);
        return with("checks", List.of(check));
    }

    /**
     * Names the request, so that it may be repeated without being charged twice.
     *
     * @param id unique among the requests of the lifetime
     * @return the request with this id
     */
    public Request id(String id) {
        return with("id", id);
    }

    /**
     * How long an id is known, and a reservation can be settled.
     *
     * @param lifetime in the bounds of the service
     * @return the request with this lifetime
     */
    public Request lifetime(Duration lifetime) {
        return with("lifetime_ms", Times.milliseconds(lifetime));
    }

    /**
     * Has a check reserve the units if a rule charges by its status: settle the verdict's reservation with it.
     *
     * @return the request of which the outcome will be told
     */
    public Request outcome() {
        return new Request(body, true);
    }

    private Request with(String name, Object value) {
        var with = new LinkedHashMap<>(body);
        with.put(name, value);
        return new Request(with, outcome);
    }

    Map<String, Object> body() {
        return body;
    }

    boolean hasId() {
        return body.containsKey("id");
    }

    boolean hasOutcome() {
        return outcome;
    }
}
