package io.github.headgate;

/** What becomes of a call while nobody answers. */
public enum OnFailure {
    /** An {@link UnavailableException} is thrown. */
    THROW,
    /** The verdict is an admission without a decision, with the failure in {@link Verdict#error()}. */
    ALLOW,
    /** The verdict is a denial without a decision, with the failure in {@link Verdict#error()}. */
    DENY
}
