// Renders a chart as Helm does: Go's templates with sprig, `include` and `toYaml`. For tests/deploy/check.py, with Debian's
// golang-go, golang-github-masterminds-sprig-dev and golang-gopkg-yaml.v3-dev; Helm itself is in no package.
//
//	render CHART [VALUES]
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"gopkg.in/yaml.v3"
)

func main() {
	dir := os.Args[1]
	load := func(p string, into interface{}) {
		b, err := os.ReadFile(p)
		if err != nil {
			panic(err)
		}
		if err := yaml.Unmarshal(b, into); err != nil {
			panic(err)
		}
	}
	chart := map[string]interface{}{}
	load(dir+"/Chart.yaml", &chart)
	c := map[string]interface{}{}
	for k, v := range chart {
		c[strings.ToUpper(k[:1])+k[1:]] = v
	}
	values := map[string]interface{}{}
	load(dir+"/values.yaml", &values)
	if len(os.Args) > 2 {
		over := map[string]interface{}{}
		load(os.Args[2], &over)
		var merge func(a, b map[string]interface{})
		merge = func(a, b map[string]interface{}) {
			for k, v := range b {
				if m, ok := v.(map[string]interface{}); ok {
					if n, ok := a[k].(map[string]interface{}); ok {
						merge(n, m)
						continue
					}
				}
				a[k] = v
			}
		}
		merge(values, over)
	}
	t := template.New("")
	f := sprig.TxtFuncMap()
	f["include"] = func(name string, data interface{}) (string, error) {
		var b bytes.Buffer
		err := t.ExecuteTemplate(&b, name, data)
		return b.String(), err
	}
	f["toYaml"] = func(v interface{}) string { b, _ := yaml.Marshal(v); return strings.TrimSuffix(string(b), "\n") }
	t.Funcs(f).Option("missingkey=zero")
	files, _ := filepath.Glob(dir + "/templates/*")
	for _, p := range files {
		b, _ := os.ReadFile(p)
		template.Must(t.New(filepath.Base(p)).Parse(string(b)))
	}
	data := map[string]interface{}{"Values": values, "Chart": c, "Release": map[string]interface{}{"Name": "llm", "Namespace": "inference", "Service": "Helm"}}
	for _, p := range files {
		n := filepath.Base(p)
		if strings.HasPrefix(n, "_") || strings.HasSuffix(n, ".txt") {
			continue
		}
		fmt.Printf("---\n# Source: %s\n", n)
		if err := t.ExecuteTemplate(os.Stdout, n, data); err != nil {
			panic(err)
		}
		fmt.Println()
	}
}
