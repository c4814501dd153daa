package io.github.headgate;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import javax.net.ssl.SSLContext;

/**
 * Asks a Headgate service. Threads may share it.
 *
 * <p>Every method throws a {@link RequestException} for a mistake, and an {@link UnavailableException} if nobody answers,
 * unless {@link OnFailure} decides. If the thread is interrupted, the call is cancelled, the thread stays interrupted,
 * and a {@link CancellationException} is thrown; what the call took stays taken.
 */
public final class Client implements AutoCloseable {
    private final AsyncClient async;
    private final AsyncClient here; // makes calls in their caller's thread

    private Client(Builder builder) {
        var calls = new Calls(builder.url, builder.timeout, builder.sslContext);
        async = new AsyncClient(calls, calls::post, builder.onFailure, builder.listener);
        here = new AsyncClient(calls, calls::postHere, builder.onFailure, builder.listener);
    }

    /**
     * A client with a deadline of one second, which throws if nobody answers.
     *
     * @param url where the service is, as {@code http://127.0.0.1:8080}
     * @return the client
     */
    public static Client create(String url) {
        return builder().url(url).build();
    }

    /** {@return a builder of a client of {@code http://127.0.0.1:8080}} */
    public static Builder builder() {
        return new Builder();
    }

    /** {@return the same calls without waiting for their answers; it is closed with this client} */
    public AsyncClient async() {
        return async;
    }

    /**
     * Takes one unit of a rule's limits for a key.
     *
     * @param rule the rule's name in the policy
     * @param key what the rule counts by, such as a user
     * @return the verdict
     */
    public Verdict check(String rule, String key) {
        return check(Request.of(rule, key));
    }

    /**
     * Takes units from every limit that binds the request, or from none.
     *
     * @param request what is asked about
     * @return the verdict
     */
    public Verdict check(Request request) {
        return await(here.check(request));
    }

    /**
     * Says what {@link #check(Request)} would say, and takes nothing.
     *
     * @param request what is asked about
     * @return the verdict
     */
    public Verdict peek(Request request) {
        return await(here.peek(request));
    }

    /**
     * Gives back what a check took.
     *
     * @param request what was asked about; a smaller cost gives back a part
     * @param charged the verdict on it, which has the time that is given back to
     * @return the state of the limits
     */
    public Verdict refund(Request request, Verdict charged) {
        return await(here.refund(request, charged));
    }

    /**
     * Forgets what was used.
     *
     * @param request what is forgotten
     * @return the rules whose counters were forgotten
     */
    public List<String> reset(Request request) {
        return await(here.reset(request));
    }

    /**
     * Says which rules bind a request and why. It is for people, not for the path of requests.
     *
     * @param request facts about a request
     * @return the answer of the service: maps, lists, strings, numbers as {@link Long} or {@link Double}
     */
    public Map<String, Object> explain(Request request) {
        return await(here.explain(request));
    }

    /**
     * Takes an estimate, to be settled when the cost is known.
     *
     * @param request what is asked about, with the estimate as its cost
     * @return the reservation
     * @throws DeniedException if it does not fit
     */
    public Reservation reserve(Request request) {
        Reservation reservation = tryReserve(request);
        if (!reservation.isAllowed()) {
            throw new DeniedException(reservation.verdict());
        }
        return reservation;
    }

    /**
     * Takes an estimate, to be settled when the cost is known.
     *
     * @param request what is asked about, with the estimate as its cost
     * @return the reservation, or the answer that there is none
     */
    public Reservation tryReserve(Request request) {
        return await(here.tryReserve(request));
    }

    /**
     * Makes the units of a reservation those that the work did cost.
     *
     * @param reservation the reservation's name, from any process
     * @param cost units, at least 0
     * @return the state of the limits
     */
    public Verdict settle(String reservation, long cost) {
        return await(here.settle(reservation, cost));
    }

    /**
     * Makes the units of a reservation those that the status of a request costs.
     *
     * @param reservation the reservation's name, from any process
     * @param status the HTTP status that the request ended with
     * @return the state of the limits
     */
    public Verdict settleStatus(String reservation, int status) {
        return await(here.settleStatus(reservation, status));
    }

    /**
     * Gives all units of a reservation back.
     *
     * @param reservation the reservation's name, from any process
     * @return the state of the limits
     */
    public Verdict cancel(String reservation) {
        return await(here.cancel(reservation));
    }

    /**
     * Takes a permit of a rule that bounds what is in progress. It is renewed until it is closed.
     *
     * @param request which permit is asked for
     * @return the permit
     * @throws DeniedException if there is none in time
     */
    public Permit acquire(PermitRequest request) {
        Permit permit = tryAcquire(request);
        if (!permit.isAllowed()) {
            throw DeniedException.of(permit);
        }
        return permit;
    }

    /**
     * Takes a permit of a rule that bounds what is in progress. It is renewed until it is closed.
     *
     * @param request which permit is asked for
     * @return the permit, or the answer that there is none
     */
    public Permit tryAcquire(PermitRequest request) {
        return await(async.tryAcquire(request));
    }

    /** Gives permits back, and ends the threads of this client. */
    @Override
    public void close() {
        List.copyOf(async.permits).forEach(Permit::close);
        async.calls.close();
    }

    static <T> T await(CompletableFuture<T> call) {
        try {
            return call.get();
        } catch (InterruptedException err) {
            call.cancel(true);
            Thread.currentThread().interrupt();
            throw interrupted();
        } catch (ExecutionException err) {
            if (err.getCause() instanceof RuntimeException known) {
                known.fillInStackTrace(); // with that of this thread, which has called
                throw known;
            }
            throw new IllegalStateException(err.getCause());
        }
    }

    static CancellationException interrupted() {
        return new CancellationException("headgate: the thread was interrupted while it waited for the service");
    }

    /** Builds a client. */
    public static final class Builder {
        private String url = "http://127.0.0.1:8080";
        private Duration timeout = Duration.ofSeconds(1);
        private OnFailure onFailure = OnFailure.THROW;
        private SSLContext sslContext;
        private CallListener listener;

        private Builder() {}

        /**
         * Where the service is.
         *
         * @param url begins with {@code http://} or {@code https://}, and may have a path
         * @return this
         */
        public Builder url(String url) {
            this.url = Objects.requireNonNull(url, "url");
            return this;
        }

        /**
         * The time for a whole call: waiting for a connection, connecting, asking, retries. The default is one second.
         *
         * @param timeout a millisecond to a minute
         * @return this
         */
        public Builder timeout(Duration timeout) {
            this.timeout = Objects.requireNonNull(timeout, "timeout");
            return this;
        }

        /**
         * What becomes of check, peek, reserve and acquire while nobody answers. The default is to throw.
         *
         * @param onFailure what to do
         * @return this
         */
        public Builder onFailure(OnFailure onFailure) {
            this.onFailure = Objects.requireNonNull(onFailure, "onFailure");
            return this;
        }

        /**
         * The certificates to trust and to show, for {@code https}. The default is that of the JVM.
         *
         * @param sslContext the certificates
         * @return this
         */
        public Builder sslContext(SSLContext sslContext) {
            this.sslContext = sslContext;
            return this;
        }

        /**
         * Who hears of every call that has ended.
         *
         * @param listener for metrics, for instance
         * @return this
         */
        public Builder listener(CallListener listener) {
            this.listener = listener;
            return this;
        }

        /**
         * Makes the client. It asks nothing yet.
         *
         * @return the client
         * @throws IllegalArgumentException if the URL or the timeout cannot be
         */
        public Client build() {
            return new Client(this);
        }
    }
}
