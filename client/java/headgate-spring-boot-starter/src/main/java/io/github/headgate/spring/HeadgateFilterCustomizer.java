package io.github.headgate.spring;

import io.github.headgate.servlet.HeadgateFilter;

/** A bean of this type changes the filter before it is built: its facts, its costs, its routes. */
@FunctionalInterface
public interface HeadgateFilterCustomizer {
    /**
     * Changes the filter.
     *
     * @param filter as the properties have it
     */
    void customize(HeadgateFilter.Builder filter);
}
