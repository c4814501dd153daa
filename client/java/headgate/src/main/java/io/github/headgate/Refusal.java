package io.github.headgate;

import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * What to answer a client of HTTP with: a problem document (RFC 9457).
 *
 * @param status the HTTP status
 * @param headers the headers, by their names in lower case
 * @param body the body, in UTF-8
 */
public record Refusal(int status, Map<String, String> headers, byte[] body) {
    /**
     * A refusal with a problem document.
     *
     * @param problem the document; its {@code status} is a number
     * @param headers further headers
     * @return the refusal
     */
    public static Refusal of(Map<String, ?> problem, Map<String, String> headers) {
        var all = new LinkedHashMap<>(headers);
        all.put("content-type", "application/problem+json");
        all.put("cache-control", "no-store");
        all.put("x-content-type-options", "nosniff");
        byte[] body = (Json.write(problem) + "\n").getBytes(StandardCharsets.UTF_8);
        return new Refusal(((Number) problem.get("status")).intValue(), Collections.unmodifiableMap(all), body);
    }
}
