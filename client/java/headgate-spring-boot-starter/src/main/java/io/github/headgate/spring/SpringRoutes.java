package io.github.headgate.spring;

import io.github.headgate.servlet.HeadgateFilter;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletRequestWrapper;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.springframework.beans.factory.BeanFactoryUtils;
import org.springframework.beans.factory.ListableBeanFactory;
import org.springframework.core.annotation.AnnotationAwareOrderComparator;
import org.springframework.web.servlet.HandlerExecutionChain;
import org.springframework.web.servlet.HandlerMapping;
import org.springframework.web.servlet.resource.ResourceHttpRequestHandler;
import org.springframework.web.util.ServletRequestPathUtils;

/**
 * The route of Spring MVC that will serve a request, as {@code GET /items/{id}}. It asks the mappings that the dispatcher
 * will ask. Static files are unmatched: the pattern that serves them is also that of what is not found.
 */
final class SpringRoutes implements Function<HttpServletRequest, String> {
    private final ListableBeanFactory beans;
    private volatile List<HandlerMapping> mappings;

    SpringRoutes(ListableBeanFactory beans) {
        this.beans = beans;
    }

    @Override
    public String apply(HttpServletRequest request) {
        if (mappings == null) {
            var all = new ArrayList<>(BeanFactoryUtils.beansOfTypeIncludingAncestors(beans, HandlerMapping.class, true, false).values());
            AnnotationAwareOrderComparator.sort(all);
            mappings = all;
        }
        var looked = new Looked(request);
        ServletRequestPathUtils.parseAndCache(looked);
        try {
            for (HandlerMapping mapping : mappings) {
                HandlerExecutionChain found = mapping.getHandler(looked);
                if (found == null) {
                    continue;
                }
                Object pattern = looked.getAttribute(HandlerMapping.BEST_MATCHING_PATTERN_ATTRIBUTE);
                boolean file = found.getHandler() instanceof ResourceHttpRequestHandler;
                return pattern == null || file ? HeadgateFilter.UNMATCHED : HeadgateFilter.method(request) + " " + pattern;
            }
        } catch (Exception err) {
            // Another method than that of the route, for instance: the dispatcher will say so.
        }
        return HeadgateFilter.UNMATCHED;
    }

    /** A request that is only looked at: what the mappings note stays here. */
    private static final class Looked extends HttpServletRequestWrapper {
        private final Map<String, Object> noted = new HashMap<>();

        Looked(HttpServletRequest request) {
            super(request);
        }

        @Override
        public Object getAttribute(String name) {
            return noted.containsKey(name) ? noted.get(name) : super.getAttribute(name);
        }

        @Override
        public void setAttribute(String name, Object value) {
            noted.put(name, value);
        }

        @Override
        public void removeAttribute(String name) {
            noted.put(name, null);
        }
    }
}
