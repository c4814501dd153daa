package io.github.headgate.servlet;

import java.net.Inet4Address;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.util.regex.Pattern;

/** Addresses as text. No name is ever looked up. */
final class Addresses {
    private static final Pattern PORT = Pattern.compile(":[0-9]{1,5}");
    private static final Pattern V6 = Pattern.compile("[0-9A-Fa-f.:]*:[0-9A-Fa-f.:]*");
    private static final String BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
    private static final Pattern V4 = Pattern.compile(BYTE + "(\\." + BYTE + "){3}");
    private static final Pattern V4_TAIL = Pattern.compile(".*:" + V4);

    private Addresses() {}

    /** An address; null if the text is none. One of IPv4 within IPv6 is one of IPv4. */
    static InetAddress address(String text) {
        boolean is = V4.matcher(text).matches()
                || V6.matcher(text).matches() && (text.indexOf('.') < 0 || V4_TAIL.matcher(text).matches());
        try {
            return is ? InetAddress.getByName(text) : null;
        } catch (UnknownHostException err) {
            return null;
        }
    }

    /** An address with or without a port; null if it is none. Without brackets, all of an IPv6 text is the address. */
    static InetAddress node(String text) {
        if (text.isEmpty() || text.length() > 128) {
            return null;
        }
        String host = text;
        if (text.startsWith("[")) {
            int end = text.indexOf(']');
            if (end < 0 || end + 1 < text.length() && !PORT.matcher(text.substring(end + 1)).matches()) {
                return null;
            }
            host = text.substring(1, end);
            if (host.indexOf(':') < 0) {
                return null;
            }
        } else {
            int colon = text.indexOf(':');
            if (colon >= 0 && colon == text.lastIndexOf(':')) {
                if (!PORT.matcher(text.substring(colon)).matches()) {
                    return null;
                }
                host = text.substring(0, colon);
            }
        }
        int zone = host.indexOf('%');
        InetAddress address = address(zone < 0 ? host : host.substring(0, zone));
        return address == null || address.isAnyLocalAddress() ? null : address;
    }

    /** The address in the one spelling of RFC 5952. */
    static String text(InetAddress address) {
        if (address instanceof Inet4Address) {
            return address.getHostAddress();
        }
        byte[] bytes = address.getAddress();
        int[] groups = new int[8];
        int from = -1; // the longest run of zeros
        int most = 1;
        int run = 0;
        for (int i = 0; i < 8; i++) {
            groups[i] = (bytes[2 * i] & 0xff) << 8 | bytes[2 * i + 1] & 0xff;
            run = groups[i] == 0 ? run + 1 : 0;
            if (run > most) {
                most = run;
                from = i - run + 1;
            }
        }
        var text = new StringBuilder();
        for (int i = 0; i < 8; i++) {
            if (i == from) {
                text.append("::");
                i += most - 1;
                continue;
            }
            if (i > 0 && i != from + most || i > 0 && from < 0) {
                text.append(':');
            }
            text.append(Integer.toHexString(groups[i]));
        }
        return text.toString();
    }
}
