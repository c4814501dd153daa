package io.github.headgate.spring;

import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;
import org.springframework.http.ResponseEntity;
import org.springframework.stereotype.Service;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestHeader;
import org.springframework.web.bind.annotation.RestController;
import org.springframework.web.servlet.function.RouterFunction;
import org.springframework.web.servlet.function.RouterFunctions;
import org.springframework.web.servlet.function.ServerResponse;
import org.springframework.web.servlet.mvc.method.annotation.ResponseBodyEmitter;

/** The site that the vectors are about, in Spring Boot. */
@Configuration(proxyBeanMethods = false)
@EnableAutoConfiguration
@Import({Site.Pages.class, Site.Mail.class})
class Site {
    @Bean
    RouterFunction<ServerResponse> paced() {
        return RouterFunctions.route().GET("/paced", request -> ServerResponse.ok().body("ok")).build();
    }

    @Bean
    HeadgateFilterCustomizer facts() {
        return filter -> filter.facts(request -> Map.of("color", request.getHeader("X-Color") == null ? "" : request.getHeader("X-Color")));
    }

    @RestController
    static class Pages {
        private final Mail mail;
        private final ResponseBodyEmitter events = new ResponseBodyEmitter();

        Pages(Mail mail) {
            this.mail = mail;
        }

        @GetMapping("/items/{id}")
        List<String> item(@PathVariable String id) {
            return List.of(id);
        }

        /** Whatever the status, its answer may be asynchronous, and empty. */
        @PostMapping("/login")
        Object login(@RequestHeader("X-Status") int status, @RequestHeader(value = "X-Async", required = false) String async) {
            if (status == 500) {
                throw new ArithmeticException("by zero");
            }
            Callable<ResponseEntity<Void>> later = () -> ResponseEntity.status(status).build();
            return async == null ? ResponseEntity.status(status).body(Map.of("status", status)) : later;
        }

        @PostMapping("/mail/{user}")
        String mail(@PathVariable String user) {
            return mail.send(user, "hi");
        }

        /** Answers in two parts, the second when somebody has read the first. */
        @GetMapping("/events")
        ResponseBodyEmitter events() throws IOException {
            events.send("first");
            return events;
        }

        @PostMapping("/read")
        void read() throws IOException {
            events.send("last");
            events.complete();
        }
    }

    @Service
    static class Mail {
        @RateLimited(value = "mail", key = "#user.toLowerCase()")
        String send(String user, String text) {
            return text + " to " + user;
        }
    }
}
