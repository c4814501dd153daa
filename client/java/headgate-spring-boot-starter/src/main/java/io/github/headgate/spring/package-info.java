/** Headgate in Spring Boot: {@link io.github.headgate.spring.HeadgateAutoConfiguration} says what there is. */
package io.github.headgate.spring;
