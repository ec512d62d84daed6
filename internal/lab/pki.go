// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// certValidity is the validity of AS certificates. The default of scion-pki is three
// days, and a lab may be up for longer.
const certValidity = "30d"

// makePKI makes the certificates of all ASes with scion-pki in the lab's directory,
// and copies the TRC to each AS. Core ASes issue their own certificates. AS 2 issues
// those of the others.
func (l *Lab) makePKI(ctx context.Context) error {
	var conf strings.Builder
	conf.WriteString("ASes:\n")
	for _, as := range l.ASes {
		fmt.Fprintf(&conf, "  %q:\n", as.IA)
		if as.Core {
			conf.WriteString("    core: true\n    voting: true\n    authoritative: true\n    issuing: true\n")
		} else {
			fmt.Fprintf(&conf, "    cert_issuer: %q\n", l.ASes[1].IA)
		}
	}
	topo := filepath.Join(l.Dir, "pki.topo")
	if err := os.WriteFile(topo, []byte(conf.String()), 0o644); err != nil {
		return fmt.Errorf("write the plan of the PKI: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(l.Dir, "db"), 0o755); err != nil {
		return fmt.Errorf("make the directory of the databases: %w", err)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(l.Peers, "scion-pki"),
		"testcrypto", "-t", topo, "-o", l.Dir, "--as-validity", certValidity)
	if out, err := cmd.CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("make the certificates with scion-pki: %w: %s", err, lines[len(lines)-1])
	}
	const trc = "ISD1-B1-S1.trc"
	b, err := os.ReadFile(filepath.Join(l.Dir, "trcs", trc))
	if err != nil {
		return fmt.Errorf("read the TRC that scion-pki made: %w", err)
	}
	for _, as := range l.ASes {
		if err := os.WriteFile(filepath.Join(as.ConfigDir, "certs", trc), b, 0o644); err != nil {
			return fmt.Errorf("give %s the TRC: %w", as.NS, err)
		}
	}
	return nil
}
