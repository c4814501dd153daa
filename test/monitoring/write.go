package monitoring

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// runbook is where the sections of the alerts stand.
const runbook = "https://github.com/headgate/headgate/blob/main/docs/runbook.md#"

// Files are all files of deploy/monitoring by their names.
func Files() (map[string][]byte, error) {
	files := map[string][]byte{"alerts.yaml": rules(), "alertmanager.yaml": inhibitions()}
	for _, d := range Dashboards() {
		content, err := d.file()
		if err != nil {
			return nil, err
		}
		files["grafana/"+d.UID+".json"] = content
	}
	return files, nil
}

// rules are the rules of Prometheus.
func rules() []byte {
	var b bytes.Buffer
	b.WriteString("# Written by `make monitoring` from test/monitoring: change it there, or a copy of it.\n")
	b.WriteString("# Thresholds are those of a store on the same network.\ngroups:\n  - name: headgate\n    rules:\n")
	for _, r := range Recordings() {
		fmt.Fprintf(&b, "      - record: %s\n        expr: |-\n%s\n", r.Name, indented(r.Expr))
	}
	for _, a := range Alerts() {
		labels := "severity: " + a.Severity
		if a.Follows {
			labels += ", follows: " + root
		}
		fmt.Fprintf(&b, "      - alert: %s\n        expr: |-\n%s\n        for: %s\n        labels: { %s }\n        annotations:\n", a.Name, indented(a.Expr), a.For, labels)
		fmt.Fprintf(&b, "          summary: %s\n          description: %s\n          runbook_url: %s\n", strconv.Quote(a.Summary), strconv.Quote(a.Description), strconv.Quote(runbook+strings.ToLower(a.Name)))
	}
	return b.Bytes()
}

// inhibitions are a part of Alertmanager's configuration. Not every alert has the label instance, so
// that alerts of a job are held back.
func inhibitions() []byte {
	return fmt.Appendf(nil, `# Written by `+"`make monitoring`"+` from test/monitoring: copy it into Alertmanager's configuration.
# While the store does not answer, one alert says so, and those that follow from it are held back.
inhibit_rules:
  - source_matchers: ['alertname = %q']
    target_matchers: ['follows = %q']
    equal: [job]
`, root, root)
}

// indented is an expression as the block scalar of a rule.
func indented(expr string) string {
	const by = "          "
	return by + strings.ReplaceAll(expr, "\n", "\n"+by)
}

// object is one of JSON.
type object map[string]any

// source is the data source that the dashboard's variable names.
var source = object{"type": "prometheus", "uid": "${datasource}"}

// file is the dashboard as Grafana imports it.
func (d Dashboard) file() ([]byte, error) {
	const columns, width, height = 3, 8, 8
	var panels []object
	y := 0
	add := func(p object, x, w, h int) {
		p["id"], p["gridPos"] = len(panels)+1, object{"x": x, "y": y, "w": w, "h": h}
		panels = append(panels, p)
	}
	for _, row := range d.Rows {
		add(object{"type": "row", "title": row.Title, "collapsed": false, "panels": []object{}}, 0, columns*width, 1)
		y++
		for i, p := range row.Panels {
			add(p.object(), i%columns*width, width, height)
			if i%columns == columns-1 || i == len(row.Panels)-1 {
				y += height
			}
		}
	}
	var marks []object
	for _, a := range Annotations() {
		marks = append(marks, object{"name": a.Name, "iconColor": a.Color, "enable": true, "datasource": source, "expr": a.Expr, "titleFormat": a.Name, "textFormat": a.Text, "step": "60s"})
	}
	var b bytes.Buffer
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false)
	to.SetIndent("", "  ")
	err := to.Encode(object{
		"annotations": object{"list": marks},
		"uid":         d.UID, "title": d.Title, "tags": []string{"headgate"}, "schemaVersion": 39, "editable": true, "graphTooltip": 1,
		"time": object{"from": "now-3h", "to": "now"}, "refresh": "30s", "panels": panels,
		"links": []object{{"type": "dashboards", "tags": []string{"headgate"}, "title": "Headgate", "asDropdown": true, "keepTime": true, "includeVars": true}},
		"templating": object{"list": []object{
			{"name": "datasource", "label": "Source", "type": "datasource", "query": "prometheus"},
			variable("job", "Job", "label_values({__name__=~\"headgate_build_info|headgate_kafka_running\"}, job)"),
			variable("instance", "Instance", "label_values({__name__=~\"headgate_build_info|headgate_kafka_running\", job=~\"$job\"}, instance)"),
		}},
	})
	return b.Bytes(), err
}

// variable is one of the dashboard, whose values a query finds; all are chosen at first.
func variable(name, label, query string) object {
	return object{
		"name": name, "label": label, "type": "query", "datasource": source, "query": object{"query": query, "refId": name},
		"refresh": 2, "sort": 1, "includeAll": true, "multi": true, "allValue": ".*", "current": object{"text": "All", "value": "$__all"},
	}
}

func (p Panel) object() object {
	kind := p.Kind
	if kind == "" {
		kind = "timeseries"
	}
	var targets []object
	for i, q := range p.Queries {
		targets = append(targets, object{"refId": string(rune('A' + i)), "datasource": source, "expr": q.Expr, "legendFormat": q.Legend})
	}
	custom := object{}
	options := object{"reduceOptions": object{"calcs": []string{"lastNotNull"}}, "colorMode": "value"}
	if kind == "timeseries" {
		custom = object{"fillOpacity": 10, "lineWidth": 1, "showPoints": "never"}
		options = object{"legend": object{"displayMode": "list", "placement": "bottom"}, "tooltip": object{"mode": "multi", "sort": "desc"}}
	}
	return object{
		"type": kind, "title": p.Title, "description": p.About, "datasource": source, "targets": targets, "options": options,
		"fieldConfig": object{"defaults": object{"unit": p.Unit, "min": 0, "custom": custom}, "overrides": []object{}},
	}
}
