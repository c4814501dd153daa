package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The jars that scripts/install-test-programs fetches for client/java.
const (
	javaTools   = "java-client-1"
	springBoot4 = "spring-boot-4.1.2"
)

// javaPath compiles the package and further sources, with Spring Boot 3, and returns where programs
// find that.
func javaPath(t *testing.T, sources ...string) string {
	t.Helper()
	health, err := filepath.Glob(filepath.Join(tool(t, springBoot4), "spring-boot-health-*.jar"))
	if err != nil || len(health) != 1 {
		t.Fatalf("%s has %q: %v", springBoot4, health, err)
	}
	out, jars := t.TempDir(), filepath.Join(tool(t, javaTools), "*")+string(filepath.ListSeparator)+health[0]
	args := []string{"-J-XX:TieredStopAtLevel=1", "-parameters", "--release", "17", "-Xlint:all,-processing,-serial,-classfile", "-Werror", "-cp", jars, "-d", out}
	for _, module := range []string{"headgate", "headgate-servlet", "headgate-spring-boot-starter"} {
		args = append(args, javaSources(t, module)...)
	}
	if out, err := command(t, "javac", append(args, sources...)...).CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
	resources, err := filepath.Abs("../../client/java/headgate-spring-boot-starter/src/main/resources")
	if err != nil {
		t.Fatal(err)
	}
	return out + string(filepath.ListSeparator) + resources
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

// runJUnit runs the tests of Java that were compiled, to their end, or which of them the options say.
func runJUnit(t *testing.T, path, tools string, env []string, options ...string) {
	t.Helper()
	compiled, _, _ := strings.Cut(path, string(filepath.ListSeparator))
	jars := string(filepath.ListSeparator) + filepath.Join(tool(t, tools), "*")
	cmd := command(t, "java", append([]string{
		"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", path + jars, "org.junit.platform.console.ConsoleLauncher", "execute",
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
	path, env := javaPath(t, javaSources(t, "tests")...), []string{"HEADGATE_PROGRAM=" + binary}
	runJUnit(t, path, javaTools, env)
	runJUnit(t, path, springBoot4, env, "--include-package=io.github.headgate.spring")
}
