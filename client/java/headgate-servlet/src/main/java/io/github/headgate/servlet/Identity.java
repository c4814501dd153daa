package io.github.headgate.servlet;

import java.net.Inet6Address;
import java.net.InetAddress;
import java.util.List;
import java.util.Locale;
import java.util.regex.Pattern;

/** Who a request is from: the same rules as in Headgate's other middlewares. client/vectors.json has the cases. */
final class Identity {
    private static final Pattern HOST = Pattern.compile("([A-Za-z0-9_-]+(?:\\.[A-Za-z0-9_-]+)*)\\.?(?::[0-9]*)?");
    private static final Pattern LITERAL = Pattern.compile("\\[([0-9A-Fa-f:.]+)](?::[0-9]*)?");
    private static final Pattern BEARER = Pattern.compile("([^!-~]*)([!-~]*)(.*)", Pattern.DOTALL);

    private Identity() {}

    /** Servers read the request in different ways. Its message says why, to the client. */
    static final class UnclearException extends Exception {
        private static final long serialVersionUID = 1L;

        UnclearException(String message) {
            super(message);
        }
    }

    /** The key behind {@code Bearer}, or else the one in X-Api-Key; "" if there is none. */
    static String apiKey(List<String> authorization, List<String> apiKey) throws UnclearException {
        once("Authorization", authorization);
        once("X-Api-Key", apiKey);
        String bearer = authorization.isEmpty() ? "" : bearer(authorization.get(0));
        return bearer.isEmpty() && !apiKey.isEmpty() ? Proxies.trim(apiKey.get(0)) : bearer;
    }

    private static void once(String name, List<String> lines) throws UnclearException {
        if (lines.size() > 1) {
            throw new UnclearException(name + " is there " + lines.size() + " times. Send it once.");
        }
    }

    /**
     * The key is one word of visible ASCII, with spaces before it. Servers do not agree on which part of anything else is
     * the key, so a client that knows one could pass for as many as it likes.
     */
    private static String bearer(String line) throws UnclearException {
        int end = line.length();
        while (end > 0 && (line.charAt(end - 1) == ' ' || line.charAt(end - 1) == '\t')) {
            end--;
        }
        var parts = BEARER.matcher(line.substring(0, end));
        if (!parts.matches() || !parts.group(2).equalsIgnoreCase("bearer") || parts.group(3).isEmpty()) {
            return "";
        }
        String key = parts.group(3).replaceFirst("^ +", "");
        if (!Proxies.trim(parts.group(1)).isEmpty() || !key.matches("[!-~]*")) {
            throw new UnclearException(
                    "Authorization has more than one word behind its scheme, or something else than spaces before it.");
        }
        return key;
    }

    /** The host without its port, in one spelling. */
    static String hostname(String text) throws UnclearException {
        if (text.isEmpty()) {
            return "";
        }
        var name = HOST.matcher(text);
        if (name.matches()) {
            return name.group(1).toLowerCase(Locale.ROOT);
        }
        var literal = LITERAL.matcher(text);
        if (literal.matches()) {
            InetAddress address = Addresses.address(literal.group(1));
            if (address instanceof Inet6Address) {
                return "[" + Addresses.text(address) + "]";
            }
            if (address != null && literal.group(1).indexOf(':') >= 0) {
                // IPv4 within IPv6 keeps its spelling here.
                byte[] b = address.getAddress();
                return "[::ffff:%d.%d.%d.%d]".formatted(b[0] & 0xff, b[1] & 0xff, b[2] & 0xff, b[3] & 0xff);
            }
        }
        throw new UnclearException("Its host is not a name or an address, with or without a port.");
    }
}
