package io.github.headgate;

import java.time.Duration;

/** There is no decision. The call may have been charged: do not repeat it blindly. */
public final class UnavailableException extends HeadgateException {
    private static final long serialVersionUID = 1L;

    /** 503 in the service's own words, or 0. */
    private final int status;
    /** Until it may be asked again. */
    private final Duration retryAfter;
    /** Whether it is not to be asked again. */
    private final boolean last;

    UnavailableException(String message, Throwable cause, int status, Duration retryAfter, boolean last) {
        super(message, cause);
        this.status = status;
        this.retryAfter = retryAfter;
        this.last = last;
    }

    UnavailableException(String message, Throwable cause) {
        this(message, cause, 0, Duration.ZERO, false);
    }

    /** {@return 503 if the service says itself that its store does not answer; 0 if nobody answers in its name} */
    public int status() {
        return status;
    }

    /** {@return how long to wait before the service is asked again, or zero} */
    public Duration retryAfter() {
        return retryAfter;
    }

    /** {@return whether the service asks not to be asked again} */
    public boolean isFinal() {
        return last;
    }
}
