// Command vulndb writes the Go vulnerability database in the form that govulncheck -db reads
// (https://go.dev/doc/security/vuln/database), from the folder of OSV files in module golang.org/x/vulndb: where
// the database's own server is out of reach and a module proxy is not.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// entry is what the indexes need of an OSV file.
type entry struct {
	ID        string   `json:"id"`
	Modified  string   `json:"modified"`
	Withdrawn string   `json:"withdrawn"`
	Aliases   []string `json:"aliases"`
	Affected  []struct {
		Package struct{ Name string } `json:"package"`
	} `json:"affected"`
}

type (
	vuln struct {
		ID       string   `json:"id"`
		Modified string   `json:"modified"`
		Aliases  []string `json:"aliases,omitempty"`
	}
	module struct {
		Path  string `json:"path"`
		Vulns []vuln `json:"vulns"`
	}
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: vulndb FOLDER-OF-OSV-FILES FOLDER-TO-WRITE")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "vulndb:", err)
		os.Exit(1)
	}
}

func write(from, to string) error {
	files, err := filepath.Glob(filepath.Join(from, "GO-*.json"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no entries in %s", from)
	}
	if err != nil {
		return err
	}
	for _, dir := range []string{"ID", "index"} {
		if err := os.MkdirAll(filepath.Join(to, dir), 0o755); err != nil {
			return err
		}
	}
	newest, modules, vulns := "", map[string][]vuln{}, []vuln{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var e entry
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := os.WriteFile(filepath.Join(to, "ID", filepath.Base(file)), data, 0o644); err != nil {
			return err
		}
		newest = max(newest, e.Modified)
		vulns = append(vulns, vuln{e.ID, e.Modified, e.Aliases})
		for _, a := range e.Affected {
			v := vuln{ID: e.ID, Modified: e.Modified}
			if list := modules[a.Package.Name]; e.Withdrawn == "" && !slices.ContainsFunc(list, func(o vuln) bool { return o.ID == e.ID }) {
				modules[a.Package.Name] = append(list, v)
			}
		}
	}
	byModule := []module{}
	for path, list := range modules {
		byModule = append(byModule, module{path, list})
	}
	slices.SortFunc(byModule, func(a, b module) int { return strings.Compare(a.Path, b.Path) })
	for name, index := range map[string]any{"db": map[string]string{"modified": newest}, "modules": byModule, "vulns": vulns} {
		data, err := json.Marshal(index)
		if err == nil {
			err = os.WriteFile(filepath.Join(to, "index", name+".json"), data, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
