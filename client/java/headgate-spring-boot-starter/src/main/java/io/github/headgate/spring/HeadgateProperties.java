package io.github.headgate.spring;

import io.github.headgate.OnFailure;
import java.time.Duration;
import java.util.List;
import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;

/**
 * The properties {@code headgate.*}.
 *
 * @param url where the service is
 * @param timeout the time for a whole call
 * @param onFailure what becomes of requests and calls while the service does not answer
 * @param sslBundle the SSL bundle for https; empty for the certificates of the JVM
 * @param filter the servlet filter
 */
@ConfigurationProperties("headgate")
public record HeadgateProperties(@DefaultValue("http://127.0.0.1:8080") String url, @DefaultValue("1s") Duration timeout,
        @DefaultValue("allow") OnFailure onFailure, @DefaultValue("") String sslBundle, @DefaultValue Filter filter) {

    /**
     * The servlet filter.
     *
     * @param enabled whether requests are limited
     * @param trust the proxies that are believed when they name the client: prefixes, addresses, or {@code unix}
     * @param source the header in which they name it
     * @param maxDelay for how long a request may be held for a leaky bucket
     * @param order its order among filters; the default is just before Spring Security, so that its answers are seen, too
     */
    public record Filter(@DefaultValue("true") boolean enabled, @DefaultValue List<String> trust,
            @DefaultValue("x-forwarded-for") String source, @DefaultValue("30s") Duration maxDelay,
            @DefaultValue("-101") int order) {}
}
