/** Limits requests to servlets by a Headgate service. */
package io.github.headgate.servlet;
