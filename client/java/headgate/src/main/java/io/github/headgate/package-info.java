/**
 * Rate limits of a Headgate service: {@link io.github.headgate.Client}, and {@link io.github.headgate.AsyncClient} without
 * waiting. Nothing here is global.
 */
package io.github.headgate;
