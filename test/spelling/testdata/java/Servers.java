import com.sun.net.httpserver.HttpServer;
import io.javalin.Javalin;
import io.undertow.Handlers;
import io.undertow.Undertow;
import io.undertow.server.HttpHandler;
import io.vertx.core.Vertx;
import io.vertx.ext.web.Router;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.File;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.URI;
import java.nio.file.Files;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.apache.catalina.Context;
import org.apache.catalina.startup.Tomcat;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.glassfish.jersey.jdkhttp.JdkHttpServerFactory;
import org.glassfish.jersey.server.ResourceConfig;
import org.glassfish.jersey.server.model.Resource;
import org.springframework.context.annotation.Bean;
import org.springframework.web.context.support.AnnotationConfigWebApplicationContext;
import org.springframework.web.servlet.DispatcherServlet;
import org.springframework.web.servlet.config.annotation.EnableWebMvc;
import org.springframework.web.servlet.function.RequestPredicates;
import org.springframework.web.servlet.function.RouterFunction;
import org.springframework.web.servlet.function.RouterFunctions;
import org.springframework.web.servlet.function.ServerResponse;

/**
 * Tomcat, Jetty, Spring, Undertow, Javalin, Jersey and Vert.x in one process. Each prints its name
 * and its port when it serves.
 */
public class Servers {
    /** Answers with the name of the route that it is mapped to. */
    static class Route extends HttpServlet {
        final String name;

        Route(String name) {
            this.name = name;
        }

        @Override
        protected void service(HttpServletRequest request, HttpServletResponse response) throws IOException {
            response.getOutputStream().print(name);
        }
    }

    @EnableWebMvc
    public static class Routes {
        @Bean
        public RouterFunction<ServerResponse> routes() {
            return RouterFunctions.route()
                    .route(RequestPredicates.path("/v1/token"), r -> ServerResponse.ok().body("token"))
                    .route(RequestPredicates.path("/admin/**"), r -> ServerResponse.ok().body("admin"))
                    .route(RequestPredicates.path("/**"), r -> ServerResponse.ok().body("other"))
                    .build();
        }
    }

    static HttpHandler undertow(String name) {
        return exchange -> exchange.getResponseSender().send(name);
    }

    static Resource jersey(String path, String name) {
        Resource.Builder resource = Resource.builder(path);
        resource.addMethod("POST").handledBy(request -> name);
        return resource.build();
    }

    static Tomcat tomcat() throws IOException {
        Tomcat tomcat = new Tomcat();
        File dir = Files.createTempDirectory("tomcat").toFile();
        dir.deleteOnExit();
        tomcat.setBaseDir(dir.getPath());
        tomcat.setPort(0);
        tomcat.getConnector().setProperty("address", "127.0.0.1");
        return tomcat;
    }

    public static void main(String[] args) throws Exception {
        Logger.getLogger("").setLevel(Level.WARNING);

        Tomcat tomcat = tomcat();
        Context context = tomcat.addContext("", null);
        for (String[] route : new String[][] {{"token", "/v1/token"}, {"admin", "/admin/*"}, {"other", "/"}}) {
            Tomcat.addServlet(context, route[0], new Route(route[0]));
            context.addServletMappingDecoded(route[1], route[0]);
        }
        tomcat.start();
        System.out.println("tomcat " + tomcat.getConnector().getLocalPort());

        Server jetty = new Server();
        ServerConnector connector = new ServerConnector(jetty);
        connector.setHost("127.0.0.1");
        jetty.addConnector(connector);
        ServletContextHandler handler = new ServletContextHandler("/");
        handler.addServlet(new ServletHolder(new Route("token")), "/v1/token");
        handler.addServlet(new ServletHolder(new Route("admin")), "/admin/*");
        handler.addServlet(new ServletHolder(new Route("other")), "/");
        jetty.setHandler(handler);
        jetty.start();
        System.out.println("jetty " + connector.getLocalPort());

        AnnotationConfigWebApplicationContext beans = new AnnotationConfigWebApplicationContext();
        beans.register(Routes.class);
        Tomcat under = tomcat();
        Context spring = under.addContext("", null);
        Tomcat.addServlet(spring, "spring", new DispatcherServlet(beans)).setLoadOnStartup(1);
        spring.addServletMappingDecoded("/", "spring");
        under.start();
        System.out.println("spring " + under.getConnector().getLocalPort());

        Undertow undertow = Undertow.builder().addHttpListener(0, "127.0.0.1").setIoThreads(1).setWorkerThreads(1)
                .setHandler(Handlers.path(undertow("other")).addExactPath("/v1/token", undertow("token")).addPrefixPath("/admin", undertow("admin")))
                .build();
        undertow.start();
        System.out.println("undertow " + ((InetSocketAddress) undertow.getListenerInfo().get(0).getAddress()).getPort());

        Javalin javalin = Javalin.create(config -> {
            config.startup.showJavalinBanner = false;
            config.routes.post("/v1/token", c -> c.result("token"));
            config.routes.post("/admin/*", c -> c.result("admin"));
            config.routes.post("/*", c -> c.result("other"));
        }).start("127.0.0.1", 0);
        System.out.println("javalin " + javalin.port());

        HttpServer jersey = JdkHttpServerFactory.createHttpServer(URI.create("http://127.0.0.1:0/"), new ResourceConfig()
                .registerResources(jersey("/v1/token", "token"), jersey("/admin/{rest: .*}", "admin"), jersey("/{rest: .*}", "other")));
        System.out.println("jersey " + jersey.getAddress().getPort());

        Vertx vertx = Vertx.vertx();
        Router router = Router.router(vertx);
        for (String[] route : new String[][] {{"token", "/v1/token"}, {"admin", "/admin/*"}, {"other", "/*"}}) {
            router.route(route[1]).handler(c -> c.end(route[0]));
        }
        vertx.createHttpServer().requestHandler(router).listen(0, "127.0.0.1")
                .onSuccess(server -> System.out.println("vertx " + server.actualPort()));

        System.in.read(); // until the test ends
        System.exit(0);
    }
}
