package main

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write deploy/kubernetes/headgate.yaml from the chart")

// kinds are the objects that the chart and the manifests may hold.
var kinds = map[string]func() any{
	"v1/ConfigMap":                              func() any { return new(corev1.ConfigMap) },
	"v1/Secret":                                 func() any { return new(corev1.Secret) },
	"v1/Service":                                func() any { return new(corev1.Service) },
	"v1/ServiceAccount":                         func() any { return new(corev1.ServiceAccount) },
	"batch/v1/Job":                              func() any { return new(batchv1.Job) },
	"apps/v1/Deployment":                        func() any { return new(appsv1.Deployment) },
	"autoscaling/v2/HorizontalPodAutoscaler":    func() any { return new(autoscalingv2.HorizontalPodAutoscaler) },
	"policy/v1/PodDisruptionBudget":             func() any { return new(policyv1.PodDisruptionBudget) },
	"networking.k8s.io/v1/NetworkPolicy":        func() any { return new(networkingv1.NetworkPolicy) },
	monitoring.GroupName + "/v1/ServiceMonitor": func() any { return new(monitoringv1.ServiceMonitor) },
}

// decode reads each object strictly into its Kubernetes type, and returns them by kind.
func decode(t *testing.T, text []byte) map[string]any {
	t.Helper()
	objects := make(map[string]any)
	for document := range bytes.SplitSeq(append([]byte("\n"), text...), []byte("\n---\n")) {
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal(document, &meta); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if meta.Kind == "" {
			continue
		}
		made := kinds[meta.APIVersion+"/"+meta.Kind]
		if made == nil {
			t.Fatalf("nobody expects a %s/%s", meta.APIVersion, meta.Kind)
		}
		object := made()
		if err := yaml.UnmarshalStrict(document, object); err != nil {
			t.Fatalf("%s: %v in\n%s", meta.Kind, err, document)
		}
		objects[meta.Kind] = object
	}
	return objects
}

func helm(t *testing.T, args ...string) ([]byte, error) {
	t.Helper()
	programs, err := filepath.Glob("../bin/tools/helm-*")
	if err != nil || len(programs) != 1 {
		t.Fatalf("helm is not installed: scripts/install-test-programs does it (%q, %v)", programs, err)
	}
	return exec.CommandContext(t.Context(), programs[0], args...).CombinedOutput()
}

func render(t *testing.T, args ...string) []byte {
	t.Helper()
	out, err := helm(t, append([]string{"template", "headgate", "../deploy/helm/headgate", "--kube-version", "1.32.0"}, args...)...)
	if err != nil {
		t.Fatalf("helm template %q: %v\n%s", args, err, out)
	}
	return out
}

const shared = "replicas=3,store.url=redis://valkey:6379/0"

// Everything that the chart can make is what Kubernetes knows, field by field.
func TestChart(t *testing.T) {
	t.Parallel()
	if out, err := helm(t, "lint", "--strict", "../deploy/helm/headgate"); err != nil {
		t.Errorf("helm lint: %v\n%s", err, out)
	}
	for name, c := range map[string]struct {
		values string
		kinds  string
	}{
		"defaults": {"", "ConfigMap Deployment Job Service ServiceAccount"},
		"shared":   {shared, "ConfigMap Deployment Job PodDisruptionBudget Service ServiceAccount"},
		"gateway": {
			"mode=gateway,gateway.upstreams[0]=http://shop:80,tls.existingSecret=t,networkPolicy.enabled=true,serviceMonitor.enabled=true",
			"ConfigMap Deployment Job NetworkPolicy Service ServiceAccount ServiceMonitor",
		},
		"ratelimit": {
			`mode=ratelimit,store.url=redis://r:6379,tls.existingSecret=t,tls.clientCA=true,ratelimit.config.a\.yaml=domain: a`,
			"ConfigMap Deployment Job Service ServiceAccount",
		},
		"all": {
			"autoscaling.enabled=true,networkPolicy.enabled=true,serviceMonitor.enabled=true,resp.enabled=true," +
				"existingSecret=s,store.existingSecret=r,env.HEADGATE_HEADERS=draft-11,podLabels.a=b,podAnnotations.c=d," +
				"service.annotations.e=f,serviceMonitor.labels.g=h,serviceAccount.annotations.i=j,nodeSelector.k=l,image.pullSecrets[0].name=m",
			"ConfigMap Deployment HorizontalPodAutoscaler Job NetworkPolicy PodDisruptionBudget Service ServiceAccount ServiceMonitor",
		},
	} {
		objects := decode(t, render(t, "--set", c.values))
		for kind := range strings.FieldsSeq(c.kinds) {
			if objects[kind] == nil {
				t.Errorf("%s: no %s", name, kind)
			}
		}
		if len(objects) != len(strings.Fields(c.kinds)) {
			t.Errorf("%s: %d kinds, want %s", name, len(objects), c.kinds)
		}
		pod := objects["Deployment"].(*appsv1.Deployment).Spec.Template.Spec
		grace := *pod.TerminationGracePeriodSeconds
		container := pod.Containers[0]
		if env(container, "HEADGATE_DRAIN_DELAY") != "5s" || env(container, "HEADGATE_SHUTDOWN_TIMEOUT") != "10s" || grace <= 15 {
			t.Errorf("%s: the pod may be killed after %d s, before it has ended what is in flight", name, grace)
		}
		security := container.SecurityContext
		if !*security.ReadOnlyRootFilesystem || *security.AllowPrivilegeEscalation || !*pod.SecurityContext.RunAsNonRoot {
			t.Errorf("%s: the container may do more than it needs: %+v", name, security)
		}
	}
}

func env(c corev1.Container, name string) string {
	for _, e := range c.Env {
		if e.Name == name {
			return e.Value
		}
	}
	return ""
}

// A misspelt or impossible value is found before anything is installed.
func TestChartRefusesMistakes(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]string{
		"replica=2":               "replica",
		"store.uri=redis://r":     "uri",
		"store.url=r:6379":        "pattern",
		"http.port=0":             "minimum",
		"mode=proxy":              "mode",
		"drainDelay=5":            "drainDelay",
		"mode=gateway":            "needs gateway.upstreams",
		"mode=ratelimit":          "needs store.url",
		"tls.clientCA=true":       "needs mode=ratelimit",
		"ratelimit.config.edge=d": "edge",
	} {
		command := "lint"
		if strings.HasPrefix(want, "needs ") {
			command = "template" // which lint does, and takes a failure for a remark
		}
		if out, err := helm(t, command, "../deploy/helm/headgate", "--kube-version", "1.32.0", "--set", values); err == nil || !bytes.Contains(out, []byte(want)) {
			t.Errorf("%s: %v\n%s\nwant %q", values, err, out, want)
		}
	}
}

// The Job that runs before an upgrade finds mistakes in what the upgrade would install.
func TestChartChecksThePolicy(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		values []string
		code   int
	}{
		"the chart's":  {nil, 0},
		"mistaken":     {[]string{"policy=rules: [{name: a, limits: [many]}]"}, 2},
		"a gateway":    {[]string{"mode=gateway", "gateway.file=upstreams: [{name: shop, targets: ['http://127.0.0.1:1']}]"}, 0},
		"no gateway":   {[]string{"mode=gateway", "gateway.file=upstream: nowhere"}, 2},
		"ratelimit":    {[]string{"mode=ratelimit", "store.url=redis://r", `ratelimit.config.a\.yaml=domain: a`}, 0},
		"no ratelimit": {[]string{"mode=ratelimit", "store.url=redis://r", `ratelimit.config.a\.yaml=domains: a`}, 2},
	} {
		args := []string{"--show-only", "templates/check.yaml"}
		for _, value := range tt.values {
			// Commas and braces of the texts are not helm's.
			args = append(args, "--set-string", strings.NewReplacer(",", `\,`, "{", `\{`, "}", `\}`).Replace(value))
		}
		objects := decode(t, render(t, args...))
		dir := t.TempDir()
		for file, text := range objects["ConfigMap"].(*corev1.ConfigMap).Data {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		job := objects["Job"].(*batchv1.Job)
		if job.Annotations["helm.sh/hook"] != "pre-install,pre-upgrade" || *job.Spec.BackoffLimit != 0 {
			t.Errorf("%s: the Job does not run before an upgrade, once: %v", name, job.Annotations)
		}
		words := job.Spec.Template.Spec.Containers[0].Args
		for i := range words {
			words[i] = strings.Replace(words[i], "/etc/headgate/policy", dir, 1)
		}
		check := exec.CommandContext(t.Context(), program, words...)
		out, _ := check.CombinedOutput() // The exit code says it.
		if code := check.ProcessState.ExitCode(); code != tt.code {
			t.Errorf("%s: headgate %q ends with %d, want %d\n%s", name, words, code, tt.code, out)
		}
	}
}

// Replicas that count alone would admit each limit several times.
func TestChartRefusesReplicasThatShareNothing(t *testing.T) {
	t.Parallel()
	for _, values := range []string{"replicas=2", "autoscaling.enabled=true"} {
		out, err := helm(t, "template", "../deploy/helm/headgate", "--kube-version", "1.32.0", "--set", values)
		if err == nil || !bytes.Contains(out, []byte("would each count alone")) {
			t.Errorf("%s: %v\n%s", values, err, out)
		}
	}
}

// The plain manifests are what the chart makes of a Redis and three replicas.
func TestManifests(t *testing.T) {
	t.Parallel()
	const name = "../deploy/kubernetes/headgate.yaml"
	want := append([]byte("# Headgate with three replicas that share their limits in Redis or Valkey. Made from the chart in\n"+
		"# deploy/helm/headgate; apply it with: kubectl apply -f headgate.yaml\n"),
		render(t, "--set", shared+",existingSecret=headgate,checkPolicy=false")...)
	if *update {
		if err := os.WriteFile(name, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{name, "../deploy/kubernetes/sidecar.yaml", "../deploy/kubernetes/secret.yaml"} {
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if file == name && !bytes.Equal(got, want) {
			t.Errorf("%s is not what the chart makes: go test ./release -run Manifests -update writes it", file)
		}
		decode(t, got)
	}
}

// The policies that stand in the chart, the manifests and the packages have no mistakes and no
// warnings.
func TestPolicies(t *testing.T) {
	t.Parallel()
	files := map[string][]byte{}
	for name, manifests := range map[string][]byte{"chart": render(t), "sidecar": read(t, "../deploy/kubernetes/sidecar.yaml")} {
		files[name] = []byte(decode(t, manifests)["ConfigMap"].(*corev1.ConfigMap).Data["headgate.yaml"])
	}
	files["package"] = read(t, "../deploy/package/headgate.yaml")
	files["compose"] = read(t, "../deploy/compose/headgate.yaml")
	for name, policy := range files {
		file := filepath.Join(t.TempDir(), name+".yaml")
		if err := os.WriteFile(file, policy, 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), program, "lint", "--strict", file).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
