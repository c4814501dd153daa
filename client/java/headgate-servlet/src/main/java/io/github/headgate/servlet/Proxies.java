package io.github.headgate.servlet;

import java.net.InetAddress;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Locale;
import java.util.regex.Pattern;

/** The proxies that are believed when they say who the client is. client/vectors.json has the cases. */
final class Proxies {
    /** How many trusted entries of a forwarded list are walked, so that a long forged list costs little. */
    private static final int MAX_HOPS = 64;

    private static final String TOKEN_CHARS = "!#$%&'*+\\-.^_`|~0-9A-Za-z";
    private static final Pattern TOKEN = Pattern.compile("[" + TOKEN_CHARS + "]+");
    private static final Pattern FOR_VALUE = Pattern.compile("[" + TOKEN_CHARS + ":\\[\\]]+");

    /** An address and how many of its bits count. */
    private record Network(byte[] address, int bits) {
        boolean has(byte[] other) {
            if (other.length != address.length) {
                return false;
            }
            for (int i = 0; i < bits; i++) {
                if (((address[i / 8] ^ other[i / 8]) & 0x80 >> i % 8) != 0) {
                    return false;
                }
            }
            return true;
        }
    }

    final String source;
    private final List<Network> networks = new ArrayList<>();
    private final boolean socket;

    Proxies(Collection<String> trusted, String source) {
        if (!TOKEN.matcher(source).matches()) {
            throw new IllegalArgumentException(
                    "headgate: the source of client addresses is \"" + source + "\", must be a header's name");
        }
        this.source = source.toLowerCase(Locale.ROOT);
        this.socket = trusted.contains("unix");
        trusted.stream().filter(text -> !"unix".equals(text)).map(Proxies::network).forEach(networks::add);
    }

    private static Network network(String text) {
        String[] parts = text.split("/", 2);
        InetAddress address = Addresses.address(parts[0]);
        if (address != null) {
            int most = address.getAddress().length * 8;
            int bits = parts.length == 1 ? most : parts[1].matches("[0-9]{1,3}") ? Integer.parseInt(parts[1]) : -1;
            if (bits == 0) {
                throw new IllegalArgumentException(
                        "headgate: trusted proxy \"" + text + "\" is every address: any client could forge its own");
            }
            if (bits > 0 && bits <= most) {
                return new Network(address.getAddress(), bits);
            }
        }
        throw new IllegalArgumentException(
                "headgate: trusted proxy \"" + text + "\" is not an address or a prefix such as 10.0.0.0/8");
    }

    /** The client's address, by the peer of the connection and the lines of the header; null if there is none. */
    String client(String peer, List<String> lines) {
        boolean unnamed = peer == null || peer.isEmpty();
        InetAddress address = unnamed ? null : Addresses.node(peer);
        if (address == null && !(socket && unnamed)) {
            return null;
        }
        if (address == null || trusts(address)) {
            if (source.equals("x-forwarded-for") || source.equals("forwarded")) {
                address = walk(address, lines);
            } else if (lines.size() == 1) {
                InetAddress named = Addresses.node(trim(lines.get(0)));
                address = named == null ? address : named;
            }
        }
        return address == null ? null : Addresses.text(address);
    }

    private boolean trusts(InetAddress address) {
        byte[] bytes = address.getAddress();
        return networks.stream().anyMatch(network -> network.has(bytes));
    }

    /** The lines are one list, which is read from its right end: there the nearest proxy has written. */
    private InetAddress walk(InetAddress nearest, List<String> lines) {
        boolean listed = source.equals("x-forwarded-for");
        InetAddress last = nearest;
        int hops = 0;
        for (int i = lines.size() - 1; i >= 0; i--) {
            for (String rest = lines.get(i); rest != null;) {
                int comma = listed ? rest.lastIndexOf(',') : lastComma(rest);
                String entry = trim(rest.substring(comma + 1));
                InetAddress address = listed ? Addresses.node(entry) : forwardedFor(entry);
                if (address == null || hops == MAX_HOPS) {
                    return last;
                }
                if (!trusts(address)) {
                    return address;
                }
                last = address;
                hops++;
                rest = comma < 0 ? null : rest.substring(0, comma);
            }
        }
        return last;
    }

    /**
     * The last comma that is not quoted. It is looked for from the right end: an open quote that a client has written on
     * the left must not swallow what the proxies have added.
     */
    private static int lastComma(String text) {
        boolean quoted = false;
        for (int i = text.length() - 1; i >= 0; i--) {
            char c = text.charAt(i);
            if (c == '"' && !(quoted && escaped(text, i))) {
                quoted = !quoted;
            } else if (c == ',' && !quoted) {
                return i;
            }
        }
        return -1;
    }

    private static boolean escaped(String text, int at) {
        int from = at;
        while (from > 0 && text.charAt(from - 1) == '\\') {
            from--;
        }
        return (at - from) % 2 == 1;
    }

    /** The address of an element's parameter {@code for}. One that breaks the grammar has none. */
    private static InetAddress forwardedFor(String element) {
        InetAddress found = null;
        String rest = element;
        while (true) {
            int equals = rest.indexOf('=');
            if (equals < 0) {
                return null;
            }
            String name = rest.substring(0, equals).replaceFirst("^[ \t]+", "");
            if (!TOKEN.matcher(name).matches()) {
                return null;
            }
            rest = rest.substring(equals + 1);
            String value;
            if (rest.startsWith("\"")) {
                int end = 1;
                while (end < rest.length() && rest.charAt(end) != '"') {
                    end += rest.charAt(end) == '\\' ? 2 : 1;
                }
                if (end >= rest.length()) {
                    return null;
                }
                value = rest.substring(1, end); // An address needs no escapes.
                rest = rest.substring(end + 1);
            } else {
                var match = FOR_VALUE.matcher(rest);
                if (!match.lookingAt()) {
                    return null;
                }
                value = match.group();
                rest = rest.substring(match.end());
            }
            if (name.equalsIgnoreCase("for")) {
                if (found != null) {
                    return null;
                }
                found = Addresses.node(value);
                if (found == null) {
                    return null;
                }
            }
            rest = rest.replaceFirst("^[ \t]+", "");
            if (rest.isEmpty()) {
                return found;
            }
            if (!rest.startsWith(";")) {
                return null;
            }
            rest = rest.substring(1);
        }
    }

    /** Without spaces and tabs around it. */
    static String trim(String text) {
        int from = 0;
        int to = text.length();
        while (from < to && blank(text.charAt(from))) {
            from++;
        }
        while (to > from && blank(text.charAt(to - 1))) {
            to--;
        }
        return text.substring(from, to);
    }

    private static boolean blank(char c) {
        return c == ' ' || c == '\t';
    }
}
