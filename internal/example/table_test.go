// SPDX-License-Identifier: Apache-2.0

//go:build example

package example_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"culvert/internal/stages"
)

// Errors of the file are one line, with the position in front.
func TestTable(t *testing.T) {
	const head = "interfaces = [\"a\"]\n[example]\n"
	const service = "[[example.service]]\naddress = \"192.0.2.1:80\"\nprotocol = \"tcp\"\nto = \"10.0.0.1:8080\"\n"
	for text, want := range map[string]string{
		"tunnel = \"fd00::1\"\n":                                ":3:10: tunnel = \"fd00::1\": use an IPv4 address",
		"turbo = 1\n":                                           ":3:1: unknown key \"example.turbo\"",
		"[[example.service]]\nprotocol = \"tcp\"\n":             ":3:3: address is missing",
		strings.Replace(service, "192.0.2.1:80", "web", 1):      ":4:11: address = \"web\": use address:port",
		strings.Replace(service, "tcp", "sctp", 1):              ":5:12: service 192.0.2.1:80: protocol = \"sctp\"",
		strings.Replace(service, "10.0.0.1:8080", "[::1]:1", 1): ":6:6: service 192.0.2.1:80: to = \"[::1]:1\"",
		service + service:                                       ":8:11: a second service 192.0.2.1:80/tcp",
		service + strings.Replace(service, "tcp", "udp", 1):     "",
	} {
		path := filepath.Join(t.TempDir(), "culvert.toml")
		must(t, os.WriteFile(path, []byte(head+text), 0o600))
		_, err := stages.Load(path)
		if want == "" && err == nil {
			continue
		}
		if err == nil || want == "" || !strings.HasPrefix(err.Error(), path+want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
