package io.github.headgate;

import java.time.Duration;

/** Hears of every call that has ended, such as for metrics. It is called on any thread, and must not block. */
@FunctionalInterface
public interface CallListener {
    /**
     * A call has ended.
     *
     * @param call its name: check, peek, refund, reset, explain, reserve, settle, cancel, acquire
     * @param outcome allowed or denied; ok for what decides nothing; mistake, unavailable, cancelled
     * @param took how long it took, with its retries
     */
    void ended(String call, String outcome, Duration took);
}
