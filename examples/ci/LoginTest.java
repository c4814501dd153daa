import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.headgate.Client;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import org.junit.jupiter.api.Test;

class LoginTest {
    private static final String URL = System.getenv().getOrDefault("HEADGATE_URL", "http://127.0.0.1:8080");

    static void advance(String by) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(URL + "/v1/clock"))
                .header("Authorization", "Bearer " + System.getenv("HEADGATE_ADMIN_TOKEN"))
                .POST(HttpRequest.BodyPublishers.ofString("{\"advance\": \"" + by + "\"}")).build();
        var answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        assertEquals(200, answer.statusCode(), answer.body());
    }

    @Test
    void theSixthAttemptIsDenied() throws Exception {
        advance("15m"); // whatever came before is over
        try (var client = Client.builder().url(URL).timeout(Duration.ofSeconds(30)).build()) {
            for (int i = 0; i < 5; i++) {
                assertTrue(client.check("login-user", "joan").allowed());
            }
            assertEquals(Duration.ofMinutes(15), client.check("login-user", "joan").retryAfter());
            advance("15m");
            assertTrue(client.check("login-user", "joan").allowed());
        }
    }
}
