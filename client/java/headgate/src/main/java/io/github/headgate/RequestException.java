package io.github.headgate;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** The service has refused the call as a mistake. Nothing was charged. */
public final class RequestException extends HeadgateException {
    private static final long serialVersionUID = 1L;

    /** The HTTP status. */
    private final int status;
    private final transient Map<String, Object> problem;

    RequestException(String message, int status, Map<String, Object> problem) {
        super(message, null);
        this.status = status;
        this.problem = problem;
    }

    /** {@return the HTTP status: 409 for an id that belongs to another request, 410 for a permit that has ended} */
    public int status() {
        return status;
    }

    /** {@return the problem document (RFC 9457); its {@code errors} name the fields} */
    public Map<String, Object> problem() {
        return problem == null ? Map.of() : problem;
    }

    /** {@return the fields with mistakes, such as {@code checks[0].cost}} */
    public List<String> fields() {
        var fields = new ArrayList<String>();
        if (problem().get("errors") instanceof List<?> errors) {
            for (Object error : errors) {
                if (error instanceof Map<?, ?> named && named.get("field") instanceof String field) {
                    fields.add(field);
                }
            }
        }
        return fields;
    }
}
