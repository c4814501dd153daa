package io.github.headgate.spring;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * Limits a method of a bean, or all methods of its class: a call is checked first, and throws a
 * {@link io.github.headgate.DeniedException} if it is denied. In a web application, that is answered with 429.
 */
@Documented
@Target({ElementType.METHOD, ElementType.TYPE})
@Retention(RetentionPolicy.RUNTIME)
public @interface RateLimited {
    /** {@return the rule's name in the policy} */
    String value();

    /**
     * What the rule counts by: an expression of Spring (SpEL) over the arguments, such as {@code #user} or
     * {@code #order.customer.id}. Empty is for a rule with one counter for all.
     *
     * @return the expression
     */
    String key() default "";

    /** {@return the units that a call takes} */
    long cost() default 1;
}
