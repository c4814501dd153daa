package io.github.headgate.servlet;

import io.github.headgate.Client;
import io.github.headgate.HeadgateException;
import jakarta.servlet.ServletOutputStream;
import jakarta.servlet.WriteListener;
import jakarta.servlet.http.HttpServletResponse;
import jakarta.servlet.http.HttpServletResponseWrapper;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.Writer;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * A response whose status is told to the service before the client has it, and so before the client asks again: at the
 * first byte, or at the end of one that is empty.
 */
final class Outcome extends HttpServletResponseWrapper {
    private final Client client;
    private final String reservation;
    private final AtomicBoolean settled = new AtomicBoolean();
    private ServletOutputStream stream;
    private PrintWriter writer;

    Outcome(HttpServletResponse response, Client client, String reservation) {
        super(response);
        this.client = client;
        this.reservation = reservation;
    }

    void settle(int status) {
        if (settled.getAndSet(true)) {
            return;
        }
        try {
            client.settleStatus(reservation, status);
        } catch (HeadgateException err) {
            // It stays charged until the reservation ends.
        }
    }

    private void begin() {
        settle(getStatus());
    }

    @Override
    public void sendError(int status, String message) throws IOException {
        settle(status);
        super.sendError(status, message);
    }

    @Override
    public void sendError(int status) throws IOException {
        settle(status);
        super.sendError(status);
    }

    @Override
    public void sendRedirect(String location) throws IOException {
        settle(SC_FOUND);
        super.sendRedirect(location);
    }

    @Override
    public void flushBuffer() throws IOException {
        begin();
        super.flushBuffer();
    }

    @Override
    public ServletOutputStream getOutputStream() throws IOException {
        if (stream == null) {
            stream = new Stream(super.getOutputStream());
        }
        return stream;
    }

    @Override
    public PrintWriter getWriter() throws IOException {
        if (writer == null) {
            PrintWriter to = super.getWriter();
            writer = new PrintWriter(new Writer() {
                @Override
                public void write(char[] text, int from, int length) throws IOException {
                    begin();
                    to.write(text, from, length);
                    failed();
                }

                @Override
                public void flush() throws IOException {
                    begin();
                    to.flush();
                    failed();
                }

                @Override
                public void close() {
                    begin();
                    to.close();
                }

                private void failed() throws IOException {
                    if (to.checkError()) {
                        throw new IOException("the connection is gone");
                    }
                }
            });
        }
        return writer;
    }

    private final class Stream extends ServletOutputStream {
        private final ServletOutputStream to;

        Stream(ServletOutputStream to) {
            this.to = to;
        }

        @Override
        public void write(int b) throws IOException {
            begin();
            to.write(b);
        }

        @Override
        public void write(byte[] bytes, int from, int length) throws IOException {
            begin();
            to.write(bytes, from, length);
        }

        @Override
        public void flush() throws IOException {
            begin();
            to.flush();
        }

        @Override
        public void close() throws IOException {
            begin();
            to.close();
        }

        @Override
        public boolean isReady() {
            return to.isReady();
        }

        @Override
        public void setWriteListener(WriteListener listener) {
            to.setWriteListener(listener);
        }
    }
}
