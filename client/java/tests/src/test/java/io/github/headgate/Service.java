package io.github.headgate;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Pattern;

/** A headgate. The tests of one JVM share those with the same policy and options. */
public final class Service {
    /** A machine that is busy with other tests may be slow; none of these is about that. */
    public static final Duration TIMEOUT = Duration.ofSeconds(30);

    public static final Map<String, Object> VECTORS = vectors();
    private static final String TOKEN = (String) VECTORS.get("token");
    private static final Map<List<String>, Service> STARTED = new ConcurrentHashMap<>();
    private static final HttpClient HTTP = HttpClient.newHttpClient();

    public final String url;

    @SuppressWarnings("unchecked")
    public static Map<String, Object> json(String text) {
        return (Map<String, Object>) Json.read(text);
    }

    private static Map<String, Object> vectors() {
        try {
            Path here = Path.of("").toAbsolutePath();
            while (!Files.exists(here.resolve("client/vectors.json"))) {
                here = here.getParent();
            }
            return json(Files.readString(here.resolve("client/vectors.json")));
        } catch (IOException err) {
            throw new IllegalStateException(err);
        }
    }

    /** Of the servers of the vectors, the one with this name. */
    @SuppressWarnings("unchecked")
    public static Service of(String policy, String name) {
        var options = ((Map<String, List<String>>) VECTORS.get("servers")).get(name);
        return STARTED.computeIfAbsent(List.of(policy, name), k -> new Service(policy, options));
    }

    private Service(String policy, List<String> options) {
        String program = System.getenv("HEADGATE_PROGRAM");
        if (program == null) {
            throw new IllegalStateException("HEADGATE_PROGRAM is not set: it must be a headgate that is built, as by `make build`");
        }
        try {
            Path file = Files.createTempFile("headgate-java-", ".yml");
            Files.writeString(file, policy);
            var command = new ArrayList<>(List.of(program, "serve", "--listen", "127.0.0.1:0", "--config", file.toString()));
            command.addAll(options);
            var builder = new ProcessBuilder(command);
            builder.environment().keySet().removeIf(name -> name.startsWith("HEADGATE_"));
            builder.environment().put("HEADGATE_ADMIN_TOKEN", TOKEN);
            builder.redirectErrorStream(true);
            var process = builder.start();
            Runtime.getRuntime().addShutdownHook(new Thread(() -> {
                process.destroyForcibly();
                file.toFile().delete();
            }));
            url = address(process);
        } catch (IOException err) {
            throw new IllegalStateException(err);
        }
    }

    private static String address(Process process) throws IOException {
        var log = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
        var said = new StringBuilder();
        var serving = Pattern.compile("msg=serving address=(\\S+)");
        for (String line = log.readLine(); line != null; line = log.readLine()) {
            said.append(line).append('\n');
            var found = serving.matcher(line);
            if (found.find()) {
                var rest = new Thread(() -> log.lines().forEach(l -> {}));
                rest.setDaemon(true);
                rest.start();
                return found.group(1);
            }
        }
        throw new IllegalStateException("headgate ended:\n" + said);
    }

    public Client client() {
        return Client.builder().url(url).timeout(TIMEOUT).build();
    }

    public void advance(String by) {
        admin("POST", "/v1/clock", Map.of("advance", by));
    }

    /** Asks as the admin. */
    public Map<String, Object> admin(String method, String path, Map<String, Object> body) {
        try {
            var answer = HTTP.send(HttpRequest.newBuilder(URI.create(url + path)).timeout(TIMEOUT)
                    .header("authorization", "Bearer " + TOKEN).header("content-type", "application/json")
                    .method(method, body == null ? HttpRequest.BodyPublishers.noBody() : HttpRequest.BodyPublishers.ofString(Json.write(body)))
                    .build(), HttpResponse.BodyHandlers.ofString());
            if (answer.statusCode() != 200) {
                throw new IllegalStateException(path + ": " + answer.statusCode() + " " + answer.body());
            }
            return json(answer.body());
        } catch (IOException | InterruptedException err) {
            throw new IllegalStateException(err);
        }
    }

    /** Waits until something is true. */
    public static void until(java.util.function.BooleanSupplier what) {
        long end = System.nanoTime() + TIMEOUT.toNanos();
        while (!what.getAsBoolean()) {
            if (System.nanoTime() - end > 0) {
                throw new AssertionError("it does not come true");
            }
            try {
                Thread.sleep(5);
            } catch (InterruptedException err) {
                throw new IllegalStateException(err);
            }
        }
    }
}
