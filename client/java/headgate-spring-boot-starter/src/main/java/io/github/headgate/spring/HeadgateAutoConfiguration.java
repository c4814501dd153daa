package io.github.headgate.spring;

import io.github.headgate.CallListener;
import io.github.headgate.Client;
import io.github.headgate.DeniedException;
import io.github.headgate.HeadgateException;
import io.github.headgate.OnFailure;
import io.github.headgate.Request;
import io.github.headgate.UnavailableException;
import io.github.headgate.Verdict;
import io.github.headgate.servlet.HeadgateFilter;
import io.micrometer.core.instrument.MeterRegistry;
import jakarta.servlet.DispatcherType;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.util.Map;
import org.springframework.aop.Advisor;
import org.springframework.aop.support.ComposablePointcut;
import org.springframework.aop.support.DefaultPointcutAdvisor;
import org.springframework.aop.support.annotation.AnnotationMatchingPointcut;
import org.springframework.beans.factory.BeanFactory;
import org.springframework.beans.factory.ListableBeanFactory;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.config.BeanDefinition;
import org.springframework.boot.actuate.autoconfigure.health.ConditionalOnEnabledHealthIndicator;
import org.springframework.boot.actuate.health.Health;
import org.springframework.boot.actuate.health.HealthIndicator;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.autoconfigure.condition.ConditionalOnWebApplication;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.boot.ssl.SslBundles;
import org.springframework.boot.web.servlet.FilterRegistrationBean;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Role;
import org.springframework.core.Ordered;
import org.springframework.core.annotation.Order;
import org.springframework.web.bind.annotation.ControllerAdvice;
import org.springframework.web.bind.annotation.ExceptionHandler;
import org.springframework.web.servlet.DispatcherServlet;

/**
 * A {@link Client}; in a servlet application the {@link HeadgateFilter}, whose routes are those of Spring MVC; methods with
 * {@link RateLimited}; with Actuator the health {@code headgate}; with Micrometer the timer {@code headgate.calls}, by
 * {@code call} and {@code outcome}.
 */
@AutoConfiguration
@EnableConfigurationProperties(HeadgateProperties.class)
public class HeadgateAutoConfiguration {
    /** Spring makes it. */
    public HeadgateAutoConfiguration() {}

    @Bean
    @ConditionalOnMissingBean
    Client headgateClient(HeadgateProperties properties, ObjectProvider<CallListener> listener, ObjectProvider<SslBundles> bundles) {
        var client = Client.builder().url(properties.url()).timeout(properties.timeout()).onFailure(properties.onFailure())
                .listener(listener.getIfAvailable());
        if (!properties.sslBundle().isEmpty()) {
            client.sslContext(bundles.getObject().getBundle(properties.sslBundle()).createSslContext());
        }
        return client.build();
    }

    @Bean
    @Role(BeanDefinition.ROLE_INFRASTRUCTURE)
    static Advisor headgateAdvisor(BeanFactory beans) {
        var methods = AnnotationMatchingPointcut.forMethodAnnotation(RateLimited.class);
        var classes = new AnnotationMatchingPointcut(RateLimited.class, true);
        return new DefaultPointcutAdvisor(new ComposablePointcut(methods.getClassFilter(), methods.getMethodMatcher())
                .union((org.springframework.aop.Pointcut) classes), new RateLimitInterceptor(beans));
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnWebApplication(type = ConditionalOnWebApplication.Type.SERVLET)
    @ConditionalOnClass(DispatcherServlet.class)
    static class Web {
        @Bean
        @ConditionalOnMissingBean
        @ConditionalOnProperty(name = "headgate.filter.enabled", matchIfMissing = true)
        HeadgateFilter headgateFilter(Client client, HeadgateProperties properties, ListableBeanFactory beans,
                ObjectProvider<HeadgateFilterCustomizer> customizers) {
            var of = properties.filter();
            var filter = HeadgateFilter.builder(client).trust(of.trust()).source(of.source()).maxDelay(of.maxDelay())
                    .route(new SpringRoutes(beans));
            customizers.orderedStream().forEach(customizer -> customizer.customize(filter));
            return filter.build();
        }

        @Bean
        @ConditionalOnProperty(name = "headgate.filter.enabled", matchIfMissing = true)
        FilterRegistrationBean<HeadgateFilter> headgateFilterRegistration(HeadgateFilter filter, HeadgateProperties properties) {
            var registration = new FilterRegistrationBean<>(filter);
            registration.setDispatcherTypes(DispatcherType.REQUEST, DispatcherType.ASYNC);
            registration.setOrder(properties.filter().order());
            return registration;
        }

        @Bean
        Denials headgateDenials() {
            return new Denials();
        }
    }

    /** Answers denials of methods with {@link RateLimited}, unless the application does. */
    @ControllerAdvice
    @Order(Ordered.LOWEST_PRECEDENCE)
    static class Denials {
        @ExceptionHandler
        void denied(DeniedException err, HttpServletRequest request, HttpServletResponse response) throws IOException {
            HeadgateFilter.refuse(request, response, err.refusal());
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(MeterRegistry.class)
    static class Metrics {
        @Bean
        @ConditionalOnMissingBean
        CallListener headgateMetrics(ObjectProvider<MeterRegistry> registry) {
            return (call, outcome, took) -> registry.ifAvailable(
                    meters -> meters.timer("headgate.calls", "call", call, "outcome", outcome).record(took));
        }
    }

    /** Health, in Spring Boot 3. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(HealthIndicator.class)
    @ConditionalOnEnabledHealthIndicator("headgate")
    static class Actuator {
        @Bean
        @ConditionalOnMissingBean(name = "headgateHealthIndicator")
        HealthIndicator headgateHealthIndicator(Client client, HeadgateProperties properties) {
            return () -> {
                var found = State.of(client, properties);
                return Health.status(found.status).withDetails(found.details).build();
            };
        }
    }

    /** Health, in Spring Boot 4, which has the same types in another package. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(org.springframework.boot.health.contributor.HealthIndicator.class)
    @org.springframework.boot.health.autoconfigure.contributor.ConditionalOnEnabledHealthIndicator("headgate")
    static class Actuator4 {
        @Bean
        @ConditionalOnMissingBean(name = "headgateHealthIndicator")
        org.springframework.boot.health.contributor.HealthIndicator headgateHealthIndicator(Client client, HeadgateProperties properties) {
            return () -> {
                var found = State.of(client, properties);
                return org.springframework.boot.health.contributor.Health.status(found.status).withDetails(found.details).build();
            };
        }
    }

    /**
     * How the service does. While it does not answer, and requests are let through, the application works: then its health
     * is unknown, and not down, so that nobody takes it out of service.
     */
    private record State(String status, Map<String, String> details) {
        static State of(Client client, HeadgateProperties properties) {
            Exception failure;
            try {
                Verdict verdict = client.peek(Request.of(Map.of("method", "GET")));
                failure = verdict.error();
            } catch (HeadgateException err) {
                failure = err;
            }
            if (failure == null) {
                return new State("UP", Map.of("url", properties.url()));
            }
            boolean served = failure instanceof UnavailableException gone && gone.status() == 0 && properties.onFailure() == OnFailure.ALLOW;
            return new State(served ? "UNKNOWN" : "DOWN", Map.of("url", properties.url(), "error", failure.toString()));
        }
    }
}
