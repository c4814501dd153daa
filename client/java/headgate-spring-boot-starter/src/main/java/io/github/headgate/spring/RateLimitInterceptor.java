package io.github.headgate.spring;

import io.github.headgate.Client;
import io.github.headgate.DeniedException;
import io.github.headgate.Request;
import io.github.headgate.Verdict;
import java.lang.reflect.Method;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.aopalliance.intercept.MethodInterceptor;
import org.aopalliance.intercept.MethodInvocation;
import org.springframework.aop.support.AopUtils;
import org.springframework.beans.factory.BeanFactory;
import org.springframework.context.expression.BeanFactoryResolver;
import org.springframework.context.expression.MethodBasedEvaluationContext;
import org.springframework.core.DefaultParameterNameDiscoverer;
import org.springframework.core.ParameterNameDiscoverer;
import org.springframework.core.annotation.AnnotatedElementUtils;
import org.springframework.expression.Expression;
import org.springframework.expression.spel.standard.SpelExpressionParser;

/** Checks calls of methods with {@link RateLimited}. */
final class RateLimitInterceptor implements MethodInterceptor {
    private final BeanFactory beans;
    private final ParameterNameDiscoverer names = new DefaultParameterNameDiscoverer();
    private final SpelExpressionParser parser = new SpelExpressionParser();
    private final Map<String, Expression> expressions = new ConcurrentHashMap<>();

    RateLimitInterceptor(BeanFactory beans) {
        this.beans = beans;
    }

    @Override
    public Object invoke(MethodInvocation call) throws Throwable {
        Class<?> type = call.getThis() == null ? call.getMethod().getDeclaringClass() : AopUtils.getTargetClass(call.getThis());
        Method method = AopUtils.getMostSpecificMethod(call.getMethod(), type);
        RateLimited limited = AnnotatedElementUtils.findMergedAnnotation(method, RateLimited.class);
        if (limited == null) {
            limited = AnnotatedElementUtils.findMergedAnnotation(type, RateLimited.class);
        }
        // The client is looked up late, for beans that are made early.
        Verdict verdict = beans.getBean(Client.class).check(
                Request.of(limited.value(), key(limited.key(), call, method)).cost(limited.cost()));
        if (!verdict.allowed()) {
            throw new DeniedException(verdict);
        }
        return call.proceed();
    }

    private String key(String expression, MethodInvocation call, Method method) {
        if (expression.isEmpty()) {
            return "";
        }
        var context = new MethodBasedEvaluationContext(null, method, call.getArguments(), names);
        context.setBeanResolver(new BeanFactoryResolver(beans));
        Object key = expressions.computeIfAbsent(expression, parser::parseExpression).getValue(context);
        if (key == null) {
            throw new IllegalArgumentException("headgate: the key " + expression + " of " + method + " is null");
        }
        return key.toString();
    }
}
