package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// The jars that scripts/install-test-programs fetches for client/java.
const (
	javaTools   = "java-client-1"
	springBoot4 = "spring-boot-4.1.2"
)

// javaPath returns where programs find the package, which is compiled with Spring Boot 3, once for all
// tests.
func javaPath(t *testing.T) string {
	t.Helper()
	javaPackage.Do(func() {
		health, err := filepath.Glob(filepath.Join(tool(t, springBoot4), "spring-boot-health-*.jar"))
		if err != nil || len(health) != 1 {
			t.Fatalf("%s has %q: %v", springBoot4, health, err)
		}
		var sources []string
		for _, module := range []string{"headgate", "headgate-servlet", "headgate-spring-boot-starter"} {
			sources = append(sources, javaSources(t, module)...)
		}
		resources, err := filepath.Abs("../../client/java/headgate-spring-boot-starter/src/main/resources")
		if err != nil {
			t.Fatal(err)
		}
		javaPackage.path = javac(t, filepath.Join(scratch, "java"), health[0], sources) + string(filepath.ListSeparator) + resources
	})
	if javaPackage.path == "" {
		t.Fatal("the package for Java was not compiled")
	}
	return javaPackage.path
}

var javaPackage struct {
	sync.Once
	path string
}

// javac compiles sources of Java into a directory, which it returns.
func javac(t *testing.T, out, path string, sources []string) string {
	t.Helper()
	args := []string{
		"-J-XX:TieredStopAtLevel=1", "-parameters", "--release", "17", "-Xlint:all,-processing,-serial,-classfile", "-Werror",
		"-cp", path + string(filepath.ListSeparator) + filepath.Join(tool(t, javaTools), "*"), "-d", out,
	}
	if said, err := command(t, "javac", append(args, sources...)...).CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, said)
	}
	return out
}

// javaSources are those of a module.
func javaSources(t *testing.T, module string) (sources []string) {
	t.Helper()
	if err := filepath.WalkDir(filepath.Join("..", "..", "client", "java", module, "src"), func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".java" {
			sources = append(sources, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return sources
}

// runJUnit runs the tests of Java that were compiled into a directory, to their end, or which of them
// the options say.
func runJUnit(t *testing.T, compiled, tools string, env []string, options ...string) {
	t.Helper()
	path := strings.Join([]string{compiled, javaPath(t), filepath.Join(tool(t, tools), "*")}, string(filepath.ListSeparator))
	cmd := command(t, "java", append([]string{
		"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", path, "org.junit.platform.console.ConsoleLauncher", "execute",
		"--scan-classpath", compiled, "--details=summary", "--disable-banner", "--disable-ansi-colors", "--fail-if-no-tests",
	}, options...)...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), " 0 tests skipped ") {
		t.Errorf("the tests of Java: %v\n%s", err, out)
	}
}

// TestJavaPackage: the tests of the package for Java, against this program, and real releases of Spring
// Boot and Tomcat.
func TestJavaPackage(t *testing.T) {
	t.Parallel()
	compiled, env := javac(t, t.TempDir(), javaPath(t), javaSources(t, "tests")), []string{"HEADGATE_PROGRAM=" + binary}
	runJUnit(t, compiled, javaTools, env)
	runJUnit(t, compiled, springBoot4, env, "--include-package=io.github.headgate.spring")
}
