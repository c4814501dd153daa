package io.github.headgate;

/** Whatever goes wrong with a service. */
public abstract class HeadgateException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    HeadgateException(String message, Throwable cause) {
        super(message, cause);
    }
}
