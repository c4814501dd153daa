package io.github.headgate;

import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.StandardSocketOptions;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.SSLSocketFactory;

/**
 * A connection to the service, over HTTP/1.1, with one call at a time. The thread that makes the call waits; another one,
 * or an interrupt, ends it by closing the connection. For calls this small that takes a tenth of the time of
 * java.net.http, which hands each one through several threads.
 */
final class Connection implements AutoCloseable {
    /** What was answered: headers by their names in lower case. */
    record Raw(int status, Map<String, String> headers, byte[] body) {}

    /** How many bytes of an answer are read. Those of the service are far smaller. */
    private static final int MAX_HEAD = 64 << 10;
    private static final int MAX_BODY = 4 << 20;
    private static final int MAX_LINE = 1 << 10;
    private static final String TOO_MANY_HEADERS = "the headers of its answer have more than " + MAX_HEAD + " bytes";

    private static final Pattern STATUS = Pattern.compile("HTTP/1\\.([01]) (\\d{3})(?: .*)?");
    private static final Pattern FIELD = Pattern.compile("([!#$%&'*+.^_`|~\\w-]+):([^\\x00\\n\\r]*)");
    private static final Pattern CLOSE = Pattern.compile("\\bclose\\b", Pattern.CASE_INSENSITIVE);
    private static final Pattern LENGTH = Pattern.compile("\\d{1,15}");
    private static final Pattern PART = Pattern.compile("([0-9a-fA-F]{1,8})[ \\t]*(?:;.*)?");

    private final SocketChannel channel;
    private InputStream in;
    private OutputStream out;
    private byte[] buffer = new byte[4 << 10];
    private int at; // what was read of the buffer
    private int end; // what has come
    private boolean again;
    private long since;

    Connection() throws IOException {
        channel = SocketChannel.open();
    }

    void connect(URI to, SSLContext tls) throws IOException {
        boolean secure = "https".equals(to.getScheme());
        String host = to.getHost().replaceAll("^\\[|]$", "");
        int port = to.getPort() >= 0 ? to.getPort() : secure ? 443 : 80;
        channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
        channel.connect(new InetSocketAddress(InetAddress.getByName(host), port));
        Socket socket = channel.socket();
        if (secure) {
            var factory = tls == null ? (SSLSocketFactory) SSLSocketFactory.getDefault() : tls.getSocketFactory();
            var over = (SSLSocket) factory.createSocket(socket, host, port, true);
            var parameters = over.getSSLParameters();
            parameters.setEndpointIdentificationAlgorithm("HTTPS");
            parameters.setApplicationProtocols(new String[] {"http/1.1"});
            over.setSSLParameters(parameters);
            over.startHandshake();
            socket = over;
        }
        in = socket.getInputStream();
        out = socket.getOutputStream();
    }

    /** Whether there may be another call: nothing has come since the last one, and its end neither. */
    boolean fresh(long keep) {
        if (kept() > keep) {
            return false;
        }
        try {
            if (in.available() > 0) {
                return false; // TLS has it already.
            }
            channel.configureBlocking(false);
            int come = channel.read(ByteBuffer.allocate(1));
            channel.configureBlocking(true);
            return come == 0;
        } catch (IOException err) {
            return false;
        }
    }

    /** For how long it has had no call, in nanoseconds. */
    long kept() {
        return System.nanoTime() - since;
    }

    /** Whether the last call has left the connection so that there may be another. */
    boolean again() {
        since = System.nanoTime();
        return again && channel.isOpen();
    }

    /** Closes the connection, from any thread. */
    @Override
    public void close() {
        try {
            channel.close();
        } catch (IOException err) {
            // It is of no more use.
        }
    }

    /** Sends a request, and reads its answer. */
    Raw exchange(byte[] request) throws IOException {
        again = false;
        out.write(request);
        Matcher first;
        Map<String, String> headers;
        do { // An interim answer may come before the one that counts.
            int left = MAX_HEAD;
            String line = line(left, TOO_MANY_HEADERS);
            first = STATUS.matcher(line);
            if (!first.matches() || first.group(2).equals("101")) {
                throw new IOException("its answer is not HTTP/1.1");
            }
            headers = new HashMap<>();
            while (!(line = line(left -= line.length() + 2, TOO_MANY_HEADERS)).isEmpty()) {
                Matcher field = FIELD.matcher(line);
                if (!field.matches()) {
                    throw new IOException("its answer has a line that is no header");
                }
                headers.merge(field.group(1).toLowerCase(Locale.ROOT), field.group(2).strip(), (a, b) -> a + ", " + b);
            }
        } while (first.group(2).startsWith("1"));
        int status = Integer.parseInt(first.group(2));
        String coding = headers.get("transfer-encoding");
        String length = headers.get("content-length");
        boolean toTheEnd = false;
        byte[] body;
        if (status == 204 || status == 304) {
            body = new byte[0];
        } else if (coding != null ? length != null || !coding.equalsIgnoreCase("chunked") : length != null && !LENGTH.matcher(length).matches()) {
            throw new IOException("the length of its answer is not clear"); // Two readers could see two answers.
        } else if (coding != null) {
            body = parts();
        } else if (length != null) {
            var read = new ByteArrayOutputStream();
            take(Long.parseLong(length), read);
            body = read.toByteArray();
        } else {
            toTheEnd = true;
            body = rest();
        }
        again = !toTheEnd && first.group(1).equals("1") && at == end && !CLOSE.matcher(headers.getOrDefault("connection", "")).find();
        return new Raw(status, headers, body);
    }

    /** Waits for more, behind what is left in the buffer. */
    private boolean more() throws IOException {
        if (at > 0) {
            System.arraycopy(buffer, at, buffer, 0, end - at);
            end -= at;
            at = 0;
        }
        if (end == buffer.length) {
            buffer = Arrays.copyOf(buffer, 2 * end);
        }
        int come = in.read(buffer, end, buffer.length - end);
        end += Math.max(come, 0);
        return come >= 0;
    }

    private void need() throws IOException {
        if (!more()) {
            throw new EOFException("the connection was closed before the answer");
        }
    }

    /** Reads a line of at most so many bytes, without its end. */
    private String line(int most, String why) throws IOException {
        for (int i = at;; i++) {
            while (i + 1 >= end) {
                i -= at;
                need();
                i += at;
            }
            if (i - at > most) {
                throw new IOException(why);
            }
            if (buffer[i] == '\r' && buffer[i + 1] == '\n') {
                var line = new String(buffer, at, i - at, StandardCharsets.ISO_8859_1);
                at = i + 2;
                return line;
            }
        }
    }

    /** Reads so many bytes of a body. */
    private void take(long size, ByteArrayOutputStream to) throws IOException {
        if (size > MAX_BODY - to.size()) {
            throw new IOException("its answer has more than " + MAX_BODY + " bytes");
        }
        for (int left = (int) size; left > 0;) {
            if (at == end) {
                need();
            }
            int part = Math.min(left, end - at);
            to.write(buffer, at, part);
            at += part;
            left -= part;
        }
    }

    private byte[] rest() throws IOException {
        var body = new ByteArrayOutputStream();
        do {
            take(end - at, body);
        } while (more());
        return body.toByteArray();
    }

    private byte[] parts() throws IOException {
        var body = new ByteArrayOutputStream();
        while (true) {
            Matcher part = PART.matcher(line(MAX_LINE, "its answer has a part without a length"));
            if (!part.matches()) {
                throw new IOException("its answer has a part without a length");
            }
            long size = Long.parseLong(part.group(1), 16);
            if (size == 0) {
                break;
            }
            take(size, body);
            if (!line(MAX_LINE, "its answer has a part of another length").isEmpty()) {
                throw new IOException("its answer has a part of another length");
            }
        }
        while (!line(MAX_LINE, "its answer has a trailer of more than " + MAX_LINE + " bytes").isEmpty()) {
            // Trailers say nothing.
        }
        return body.toByteArray();
    }
}
