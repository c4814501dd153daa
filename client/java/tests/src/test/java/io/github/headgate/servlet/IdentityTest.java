package io.github.headgate.servlet;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.github.headgate.Service;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The cases of client/vectors.json that are about who a request is from. */
@SuppressWarnings("unchecked")
class IdentityTest {
    private static Stream<Map<String, Object>> vectors(String part) {
        return ((List<Map<String, Object>>) Service.VECTORS.get(part)).stream();
    }

    @TestFactory
    Stream<DynamicTest> addresses() {
        return vectors("addresses").map(of -> DynamicTest.dynamicTest((String) of.get("name"), () ->
                assertEquals(of.get("want"), new Proxies((List<String>) of.get("trusted"), (String) of.get("source"))
                        .client((String) of.get("peer"), (List<String>) of.get("lines")))));
    }

    @TestFactory
    Stream<DynamicTest> apiKeys() {
        return vectors("api_keys").map(of -> DynamicTest.dynamicTest(of.get("headers").toString(), () ->
                same(of, () -> Identity.apiKey(lines(of, "Authorization"), lines(of, "X-Api-Key")))));
    }

    private static List<String> lines(Map<String, Object> of, String name) {
        return ((List<List<String>>) of.get("headers")).stream().filter(line -> line.get(0).equals(name)).map(line -> line.get(1)).toList();
    }

    @TestFactory
    Stream<DynamicTest> hosts() {
        return vectors("hosts").map(of -> DynamicTest.dynamicTest("host " + of.get("host"), () ->
                same(of, () -> Identity.hostname((String) of.get("host")))));
    }

    private interface Reading {
        String read() throws Identity.UnclearException;
    }

    private static void same(Map<String, Object> of, Reading reading) throws Identity.UnclearException {
        if (of.get("unclear") == Boolean.TRUE) {
            assertThrows(Identity.UnclearException.class, reading::read);
        } else {
            assertEquals(of.get("want"), reading.read());
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "example.com", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/", "0.0.0.0/0", "::/0", "1.2.3"})
    void proxiesThatCannotBe(String trusted) {
        assertThrows(IllegalArgumentException.class, () -> new Proxies(List.of(trusted), "x-forwarded-for"));
    }

    @Test
    void sourcesThatCannotBe() {
        assertThrows(IllegalArgumentException.class, () -> new Proxies(List.of(), "two words"));
    }
}
