package io.github.headgate;

import java.math.BigDecimal;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;

/** Times on the wire, which are whole milliseconds. */
final class Times {
    private Times() {}

    static Duration of(Object milliseconds) {
        long ms = (long) milliseconds;
        return ms < 0 ? Verdict.NEVER : Duration.ofMillis(ms);
    }

    /** Rounded up: waiting that long is enough. */
    static long milliseconds(Duration time) {
        return time.plusNanos(999_999).toMillis();
    }

    static long roundedUp(Duration time) {
        return time.plusNanos(999_999_999).toSeconds();
    }

    /** Seconds, as {@code 0.25} or {@code 3600}. */
    static String text(Duration time) {
        return BigDecimal.valueOf(time.toMillis(), 3).stripTrailingZeros().toPlainString();
    }

    /** A map of names and values, in their order. */
    static Map<String, Object> ordered(Object... pairs) {
        var map = new LinkedHashMap<String, Object>();
        for (int i = 0; i < pairs.length; i += 2) {
            map.put((String) pairs[i], pairs[i + 1]);
        }
        return map;
    }
}
