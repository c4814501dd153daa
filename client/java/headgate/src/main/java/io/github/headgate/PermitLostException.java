package io.github.headgate;

/** The permit was lost while the work went on: others may have it soon. */
public final class PermitLostException extends HeadgateException {
    private static final long serialVersionUID = 1L;

    PermitLostException(String message) {
        super(message, null);
    }
}
