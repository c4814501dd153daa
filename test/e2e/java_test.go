package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// javaTools are the jars that scripts/install-test-programs fetches for client/java.
const javaTools = "java-client-1"

// javaPath compiles the package and further sources, and returns where programs find all of it.
func javaPath(t *testing.T, sources ...string) string {
	t.Helper()
	out, jars := t.TempDir(), filepath.Join(tool(t, javaTools), "*")
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
	return strings.Join([]string{out, resources, jars}, string(filepath.ListSeparator))
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

// runJUnit runs the tests of Java that were compiled, to their end.
func runJUnit(t *testing.T, path string, env ...string) {
	t.Helper()
	compiled, _, _ := strings.Cut(path, string(filepath.ListSeparator))
	cmd := command(t, "java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", path, "org.junit.platform.console.ConsoleLauncher", "execute",
		"--scan-classpath", compiled, "--details=summary", "--disable-banner", "--disable-ansi-colors", "--fail-if-no-tests")
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
	runJUnit(t, javaPath(t, javaSources(t, "tests")...), "HEADGATE_PROGRAM="+binary)
}
