// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestManKeepsTables looks for lines of tables in the pages, as literal text.
func TestManKeepsTables(t *testing.T) {
	dir := t.TempDir()
	root := newRootCmd()
	root.SetArgs([]string{"man", dir})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	for page, want := range map[string]string{
		"status":     "\nin, out                           packets, bytes\n",
		"route-get":  "\nagree, difference                   whether they do, and how they do not\n",
		"run":        "\n[scion]\nconfig = \"/etc/scion/br.toml\"   # the SCION router's own file\n",
		"filter-add": "\nlimit RATE  drop what is over RATE, and ask the next rule for the rest\n",
		"lb-decap":   "\nlocal, from, vips             as they are in force; [] allows all\n",
		"lb-show":    "\nring_size, seed_id                  positions of each ring, ID of the seed\n",
		"lb-explain": "\nouter                               source, destination, source_port,\n",
		"lab-up":     "\nveth     one router under test, rut, between the endpoints a and b\n",
		"bench-run":  "\n        empty program takes\nscion3  packets a second",
	} {
		text, err := os.ReadFile(filepath.Join(dir, "culvert-"+page+".1"))
		if err != nil {
			t.Fatal(err)
		}
		var flush strings.Builder // literal lines keep their indentation towards each other
		for line := range strings.Lines(strings.ReplaceAll(string(text), "\\", "")) {
			if page == "status" {
				line = strings.TrimLeft(line, " ")
			}
			flush.WriteString(line)
		}
		if !strings.Contains(flush.String(), ".EX\n") || !strings.Contains(flush.String(), want) {
			t.Errorf("culvert-%s(1) lacks %q:\n%s", page, want, text)
		}
	}
}

// TestTablesStandAlone wants a blank line before each table, without which it is no literal text.
func TestTablesStandAlone(t *testing.T) {
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		before := ""
		for line := range strings.Lines(cmd.Long) {
			if strings.HasPrefix(line, "  ") && !strings.HasPrefix(before, "  ") && strings.TrimSpace(before) != "" {
				t.Errorf("%s: no blank line before %q", cmd.CommandPath(), line)
			}
			before = line
		}
		for _, sub := range cmd.Commands() {
			look(sub)
		}
	}
	look(newRootCmd())
}
