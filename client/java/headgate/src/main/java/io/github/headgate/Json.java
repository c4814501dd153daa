package io.github.headgate;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;

/**
 * JSON as the service speaks it: objects are maps in their order, arrays are lists, whole numbers are {@link Long}, and
 * others {@link Double}.
 */
final class Json {
    /** How deep values may lie in each other. The service's are at most five deep. */
    private static final int DEEPEST = 64;
    private static final Pattern NUMBER = Pattern.compile("-?(0|[1-9][0-9]*)(\\.[0-9]+)?([Ee][+-]?[0-9]+)?");
    private static final Pattern WHOLE = Pattern.compile("-?[0-9]{1,18}");

    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    /** Reads one value.
     *
     * @throws IllegalArgumentException if the text is anything else
     */
    static Object read(String text) {
        var reader = new Json(text);
        Object value = reader.value(0);
        reader.space();
        if (reader.at != text.length()) {
            throw reader.strange();
        }
        return value;
    }

    private Object value(int depth) {
        if (depth > DEEPEST) {
            throw strange();
        }
        space();
        char first = peek();
        return switch (first) {
            case '{' -> object(depth);
            case '[' -> array(depth);
            case '"' -> string();
            case 't' -> word("true", Boolean.TRUE);
            case 'f' -> word("false", Boolean.FALSE);
            case 'n' -> word("null", null);
            default -> number();
        };
    }

    private Map<String, Object> object(int depth) {
        var object = new LinkedHashMap<String, Object>();
        at++;
        space();
        if (peek() == '}') {
            at++;
            return object;
        }
        while (true) {
            space();
            String name = string();
            space();
            expect(':');
            object.put(name, value(depth + 1));
            if (last('}')) {
                return object;
            }
        }
    }

    private List<Object> array(int depth) {
        var array = new ArrayList<Object>();
        at++;
        space();
        if (peek() == ']') {
            at++;
            return array;
        }
        while (true) {
            array.add(value(depth + 1));
            if (last(']')) {
                return array;
            }
        }
    }

    /** Steps over a comma, or over the end, and says whether it was the end. */
    private boolean last(char end) {
        space();
        if (peek() == end) {
            at++;
            return true;
        }
        expect(',');
        return false;
    }

    private String string() {
        expect('"');
        var value = new StringBuilder();
        while (true) {
            char c = next();
            if (c == '"') {
                return value.toString();
            }
            if (c < ' ') {
                throw strange();
            }
            value.append(c == '\\' ? escaped() : c);
        }
    }

    private char escaped() {
        char c = next();
        return switch (c) {
            case '"', '\\', '/' -> c;
            case 'b' -> '\b';
            case 'f' -> '\f';
            case 'n' -> '\n';
            case 'r' -> '\r';
            case 't' -> '\t';
            case 'u' -> {
                int code = 0;
                for (int i = 0; i < 4; i++) {
                    int digit = Character.digit(next(), 16);
                    if (digit < 0) {
                        throw strange();
                    }
                    code = code * 16 + digit;
                }
                yield (char) code;
            }
            default -> throw strange();
        };
    }

    private Object number() {
        int from = at;
        while (at < text.length() && "+-.0123456789Ee".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
        String number = text.substring(from, at);
        if (!NUMBER.matcher(number).matches()) {
            throw strange();
        }
        if (WHOLE.matcher(number).matches()) {
            return Long.valueOf(number);
        }
        return Double.valueOf(number);
    }

    private Object word(String word, Object value) {
        if (!text.startsWith(word, at)) {
            throw strange();
        }
        at += word.length();
        return value;
    }

    private void space() {
        while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
    }

    private char peek() {
        if (at >= text.length()) {
            throw strange();
        }
        return text.charAt(at);
    }

    private char next() {
        char c = peek();
        at++;
        return c;
    }

    private void expect(char c) {
        if (next() != c) {
            throw strange();
        }
    }

    private IllegalArgumentException strange() {
        return new IllegalArgumentException("not JSON at character " + at);
    }

    /** Writes a value: a map, a list, a string, a number, a boolean, or null. */
    static String write(Object value) {
        var to = new StringBuilder();
        write(value, to);
        return to.toString();
    }

    private static void write(Object value, StringBuilder to) {
        String between = "";
        if (value instanceof Map<?, ?> object) {
            to.append('{');
            for (var field : object.entrySet()) {
                to.append(between);
                between = ",";
                write(field.getKey().toString(), to);
                to.append(':');
                write(field.getValue(), to);
            }
            to.append('}');
        } else if (value instanceof List<?> array) {
            to.append('[');
            for (Object item : array) {
                to.append(between);
                between = ",";
                write(item, to);
            }
            to.append(']');
        } else if (value instanceof String string) {
            write(string, to);
        } else {
            to.append(value);
        }
    }

    private static void write(String string, StringBuilder to) {
        to.append('"');
        for (int i = 0; i < string.length(); i++) {
            char c = string.charAt(i);
            if (c == '"' || c == '\\') {
                to.append('\\').append(c);
            } else if (c < ' ') {
                to.append(String.format("\\u%04x", (int) c));
            } else {
                to.append(c);
            }
        }
        to.append('"');
    }
}
