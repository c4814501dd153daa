package io.github.headgate;

/**
 * A reservation, or the answer that there is none. At the end of a {@code try} it is cancelled, unless it was settled: so
 * work that fails costs nothing.
 */
public final class Reservation implements AutoCloseable {
    private final AsyncClient client;
    private final Verdict verdict;
    private boolean done;

    Reservation(AsyncClient client, Verdict verdict) {
        this.client = client;
        this.verdict = verdict;
        this.done = verdict.reservation() == null;
    }

    /** {@return whether the work may begin} */
    public boolean isAllowed() {
        return verdict.allowed();
    }

    /** {@return the verdict on the estimate; its {@link Verdict#reservation()} settles it in any process} */
    public Verdict verdict() {
        return verdict;
    }

    /**
     * Says what the work has cost.
     *
     * @param cost units, at least 0
     * @throws HeadgateException if the service has not taken it; it may be said again
     */
    public void settle(long cost) {
        if (verdict.reservation() != null) {
            Client.await(client.settle(verdict.reservation(), cost));
        }
        done = true;
    }

    /**
     * Says how the work has ended, for rules that charge by the outcome.
     *
     * @param status the HTTP status
     * @throws HeadgateException if the service has not taken it; it may be said again
     */
    public void settleStatus(int status) {
        if (verdict.reservation() != null) {
            Client.await(client.settleStatus(verdict.reservation(), status));
        }
        done = true;
    }

    /** Gives all of it back, unless it was settled. Nobody hears of a failure: the estimate then stays charged. */
    @Override
    public void close() {
        if (done) {
            return;
        }
        done = true;
        try {
            Client.await(client.cancel(verdict.reservation()));
        } catch (HeadgateException err) {
            // What the work has thrown counts more.
        }
    }
}
