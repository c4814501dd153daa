package io.github.headgate;

/**
 * The limit that denied, or the entry of the deny list.
 *
 * @param rule the rule's name, or {@code ""}
 * @param limit the limit, as {@code 5 per 15m}, or {@code ""}
 * @param list the name of the entry of the deny list, or {@code ""}
 */
public record DeniedBy(String rule, String limit, String list) {}
