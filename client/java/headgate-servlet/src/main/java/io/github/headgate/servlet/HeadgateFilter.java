package io.github.headgate.servlet;

import io.github.headgate.Client;
import io.github.headgate.DeniedException;
import io.github.headgate.OnFailure;
import io.github.headgate.Refusal;
import io.github.headgate.Request;
import io.github.headgate.RequestException;
import io.github.headgate.UnavailableException;
import io.github.headgate.Verdict;
import jakarta.servlet.AsyncEvent;
import jakarta.servlet.AsyncListener;
import jakarta.servlet.DispatcherType;
import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import jakarta.servlet.http.MappingMatch;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;
import java.util.function.ToLongFunction;

/**
 * Lets through what a Headgate service admits. Register it for requests ({@link DispatcherType#REQUEST}) and, where there
 * are asynchronous ones, for {@link DispatcherType#ASYNC}.
 *
 * <p>The rules see the entries {@code ip}, {@code route}, {@code method}, {@code host}, {@code path} and {@code api_key},
 * and those of {@link Builder#facts}. The verdict is in the request's attribute {@link #VERDICT}. While the service does
 * not answer, the client's {@link OnFailure} decides; where that is to throw, requests pass.
 */
public final class HeadgateFilter implements Filter {
    /** The request's attribute with the {@link Verdict}. */
    public static final String VERDICT = Verdict.class.getName();

    /** The route of requests that no route serves, all of them together: a client cannot make up names. */
    public static final String UNMATCHED = "unmatched";

    private static final String OUTCOME = Outcome.class.getName();
    /** How long a value may be for the service to count by it, in bytes. */
    private static final int MAX_VALUE = 8192;

    private final Client client;
    private final Proxies proxies;
    private final Function<HttpServletRequest, String> route;
    private final Function<HttpServletRequest, Map<String, String>> facts;
    private final ToLongFunction<HttpServletRequest> cost;
    private final Duration maxDelay;
    private final AtomicLong warned = new AtomicLong();

    private HeadgateFilter(Builder builder) {
        client = builder.client;
        proxies = new Proxies(builder.trusted, builder.source);
        route = builder.route;
        facts = builder.facts;
        cost = builder.cost;
        maxDelay = builder.maxDelay;
    }

    /**
     * A builder of a filter.
     *
     * @param client asks the service; the filter does not close it
     * @return the builder
     */
    public static Builder builder(Client client) {
        return new Builder(client);
    }

    /**
     * The pattern of the servlet that will serve a request, as {@code GET /items/*}; {@link #UNMATCHED} for the default
     * servlet.
     *
     * @param request the request
     * @return its route
     */
    public static String servletRoute(HttpServletRequest request) {
        var mapping = request.getHttpServletMapping();
        MappingMatch match = mapping == null ? null : mapping.getMappingMatch();
        if (match == null || match == MappingMatch.DEFAULT) {
            return UNMATCHED;
        }
        return method(request) + " " + (match == MappingMatch.CONTEXT_ROOT ? "/" : mapping.getPattern());
    }

    /**
     * The method as routes name it: a route for GET serves HEAD, too.
     *
     * @param request the request
     * @return the method
     */
    public static String method(HttpServletRequest request) {
        return "HEAD".equals(request.getMethod()) ? "GET" : request.getMethod();
    }

    /** The request is answered without a decision. */
    private static final class RefusedException extends Exception {
        private static final long serialVersionUID = 1L;
        private final transient Refusal refusal;

        RefusedException(int status, String title, String detail) {
            var problem = new LinkedHashMap<String, Object>();
            problem.put("title", title);
            problem.put("status", status);
            if (detail != null) {
                problem.put("detail", detail);
            }
            refusal = Refusal.of(problem, Map.of());
        }
    }

    @Override
    public void doFilter(ServletRequest servletRequest, ServletResponse servletResponse, FilterChain chain)
            throws IOException, ServletException {
        if (!(servletRequest instanceof HttpServletRequest request) || !(servletResponse instanceof HttpServletResponse response)) {
            chain.doFilter(servletRequest, servletResponse);
            return;
        }
        if (request.getAttribute(VERDICT) != null) {
            serve(request, response, chain, (Outcome) request.getAttribute(OUTCOME));
            return;
        }
        Verdict verdict;
        try {
            verdict = decide(request);
        } catch (RefusedException err) {
            refuse(request, response, err.refusal);
            return;
        }
        if (!verdict.allowed()) {
            refuse(request, response, verdict.refusal());
            return;
        }
        request.setAttribute(VERDICT, verdict);
        verdict.headers().forEach(response::setHeader);
        Outcome outcome = verdict.reservation() == null ? null : new Outcome(response, client, verdict.reservation());
        request.setAttribute(OUTCOME, outcome);
        serve(request, outcome == null ? response : outcome, chain, outcome);
    }

    private void serve(HttpServletRequest request, HttpServletResponse response, FilterChain chain, Outcome outcome)
            throws IOException, ServletException {
        int failed = HttpServletResponse.SC_INTERNAL_SERVER_ERROR;
        try {
            chain.doFilter(request, response);
            failed = 0;
        } catch (ServletException | RuntimeException err) {
            // A permit or a reservation was denied.
            DeniedException denied = denied(err);
            if (denied == null || response.isCommitted()) {
                throw err;
            }
            failed = denied.refusal().status();
            response.resetBuffer();
            if (outcome != null) {
                outcome.settle(failed);
            }
            refuse(request, response, denied.refusal());
        } finally {
            if (outcome != null) {
                end(request, outcome, failed);
            }
        }
    }

    private static void end(HttpServletRequest request, Outcome outcome, int failed) {
        if (failed != 0) {
            outcome.settle(failed);
        } else if (!request.isAsyncStarted()) {
            outcome.settle(outcome.getStatus());
        } else {
            // One that is not dispatched again.
            request.getAsyncContext().addListener(new AsyncListener() {
                @Override
                public void onComplete(AsyncEvent event) {
                    outcome.settle(outcome.getStatus());
                }

                @Override
                public void onTimeout(AsyncEvent event) {}

                @Override
                public void onError(AsyncEvent event) {}

                @Override
                public void onStartAsync(AsyncEvent event) {
                    event.getAsyncContext().addListener(this);
                }
            });
        }
    }

    private static DeniedException denied(Throwable err) {
        for (Throwable cause = err; cause != null; cause = cause.getCause()) {
            if (cause instanceof DeniedException denied) {
                return denied;
            }
        }
        return null;
    }

    private Verdict decide(HttpServletRequest request) throws RefusedException, ServletException {
        long units = cost.applyAsLong(request);
        if (units == 0) {
            return Verdict.unlimited();
        }
        Request asked = Request.of(describe(request)).cost(units).outcome();
        Verdict verdict;
        try {
            verdict = client.check(asked);
        } catch (RequestException err) {
            // A mistake in what was asked is the program's, and never lets a request in.
            request.getServletContext().log("headgate: " + err.getMessage(), err);
            throw new RefusedException(500, "The request could not be handled", null);
        } catch (UnavailableException err) {
            verdict = Verdict.undecided(err, OnFailure.ALLOW);
        }
        if (verdict.error() != null) {
            warn(request, verdict.error());
        }
        return verdict.allowed() && !verdict.delay().isZero() ? hold(asked, verdict) : verdict;
    }

    /** Says in the log, once a second at most, why there was no decision. */
    private void warn(HttpServletRequest request, UnavailableException failure) {
        long now = System.nanoTime();
        long last = warned.get();
        if ((last == 0 || now - last >= 1_000_000_000) && warned.compareAndSet(last, now)) {
            request.getServletContext().log("headgate: no decision: " + failure.getMessage());
        }
    }

    /** Waits for the delay of a leaky bucket. One that is too long gives back what was taken. */
    private Verdict hold(Request asked, Verdict verdict) throws ServletException {
        if (verdict.delay().compareTo(maxDelay) > 0) {
            giveBack(asked, verdict);
            return tooSlow(verdict);
        }
        try {
            Thread.sleep(verdict.delay().toMillis());
            return verdict;
        } catch (InterruptedException err) {
            giveBack(asked, verdict);
            Thread.currentThread().interrupt();
            throw new ServletException("the request was interrupted while it was held for its turn", err);
        }
    }

    /** Otherwise it stays charged, as it would after a crash. */
    private void giveBack(Request asked, Verdict verdict) {
        if (verdict.reservation() == null) {
            client.async().refund(asked, verdict);
        } else {
            client.async().cancel(verdict.reservation());
        }
    }

    private Verdict tooSlow(Verdict verdict) {
        Duration wait = verdict.delay().minus(maxDelay);
        var headers = new TreeMap<>(verdict.headers());
        headers.put("retry-after", Long.toString(wait.plusNanos(999_999_999).toSeconds()));
        var problem = new LinkedHashMap<String, Object>();
        problem.put("type", "https://iana.org/assignments/http-problem-types#quota-exceeded");
        problem.put("title", "The assigned quota is exceeded");
        problem.put("status", 429);
        problem.put("detail", "The request would wait for %s ms, and may wait for %s ms.".formatted(
                verdict.delay().toMillis(), maxDelay.toMillis()));
        problem.put("retry_after_ms", wait.toMillis());
        return new Verdict(false, wait, verdict.delay(), verdict.decisions(), null, verdict.at(), 429, headers, problem, null,
                Duration.ZERO, null);
    }

    private Map<String, String> describe(HttpServletRequest request) throws RefusedException {
        var entries = new LinkedHashMap<String, String>();
        try {
            entries.put("api_key", Identity.apiKey(lines(request, "Authorization"), lines(request, "X-Api-Key")));
            String host = request.getHeader("Host");
            entries.put("host", Identity.hostname(host == null ? "" : host));
        } catch (Identity.UnclearException err) {
            throw new RefusedException(400, "The request can be read in two ways", err.getMessage());
        }
        entries.put("ip", proxies.client(request.getRemoteAddr(), lines(request, proxies.source)));
        entries.put("route", route.apply(request));
        entries.put("method", request.getMethod());
        String path = request.getContextPath() + request.getServletPath();
        entries.put("path", request.getPathInfo() == null ? path : path + request.getPathInfo());
        entries.putAll(facts.apply(request));
        entries.values().removeIf(value -> value == null || value.isEmpty());
        for (var entry : entries.entrySet()) {
            String value = entry.getValue();
            if (value.length() > MAX_VALUE / 3 && value.getBytes(StandardCharsets.UTF_8).length > MAX_VALUE) {
                throw new RefusedException(431, "The request is too large", "What it gives as its " + entry.getKey() + " is too long.");
            }
        }
        return entries;
    }

    private static List<String> lines(HttpServletRequest request, String name) {
        return Collections.list(request.getHeaders(name));
    }

    /**
     * Answers with a problem document.
     *
     * @param request the request; one for HEAD has no body
     * @param response is not committed
     * @param refusal the answer
     * @throws IOException if the client is gone
     */
    public static void refuse(HttpServletRequest request, HttpServletResponse response, Refusal refusal) throws IOException {
        response.setStatus(refusal.status());
        refusal.headers().forEach(response::setHeader);
        response.setContentLength(refusal.body().length);
        if (!"HEAD".equals(request.getMethod())) {
            response.getOutputStream().write(refusal.body());
        }
    }

    /** Builds a filter. */
    public static final class Builder {
        private final Client client;
        private Collection<String> trusted = List.of();
        private String source = "x-forwarded-for";
        private Function<HttpServletRequest, String> route = HeadgateFilter::servletRoute;
        private Function<HttpServletRequest, Map<String, String>> facts = request -> Map.of();
        private ToLongFunction<HttpServletRequest> cost = request -> 1;
        private Duration maxDelay = Duration.ofSeconds(30);

        private Builder(Client client) {
            this.client = client;
        }

        /**
         * The proxies that are believed when they say who the client is: prefixes ({@code 10.0.0.0/8}), addresses
         * ({@code ::1}), or {@code unix} for peers on a Unix socket. The default is none.
         *
         * @param trusted the proxies
         * @return this
         */
        public Builder trust(Collection<String> trusted) {
            this.trusted = trusted;
            return this;
        }

        /**
         * The header in which proxies name the client: {@code x-forwarded-for} (the default) or {@code forwarded}, to which
         * each proxy adds, or one with a single address, such as {@code x-real-ip}.
         *
         * @param header its name
         * @return this
         */
        public Builder source(String header) {
            this.source = header;
            return this;
        }

        /**
         * The name of a request's route. The default is {@link HeadgateFilter#servletRoute}.
         *
         * @param route as {@code GET /items/{id}}, or {@link HeadgateFilter#UNMATCHED}
         * @return this
         */
        public Builder route(Function<HttpServletRequest, String> route) {
            this.route = route;
            return this;
        }

        /**
         * More facts for the policy, such as the user.
         *
         * @param facts entries by their names; what is null or empty is left out
         * @return this
         */
        public Builder facts(Function<HttpServletRequest, Map<String, String>> facts) {
            this.facts = facts;
            return this;
        }

        /**
         * The units that a request takes; 0 is not limited. The default is 1.
         *
         * @param cost the units
         * @return this
         */
        public Builder cost(ToLongFunction<HttpServletRequest> cost) {
            this.cost = cost;
            return this;
        }

        /**
         * For how long a request may be held for a leaky bucket. The default is 30 seconds.
         *
         * @param maxDelay the longest
         * @return this
         */
        public Builder maxDelay(Duration maxDelay) {
            this.maxDelay = maxDelay;
            return this;
        }

        /**
         * Makes the filter.
         *
         * @return the filter
         * @throws IllegalArgumentException if a proxy or the header cannot be
         */
        public HeadgateFilter build() {
            return new HeadgateFilter(this);
        }
    }
}
