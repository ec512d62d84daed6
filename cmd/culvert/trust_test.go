// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// TestUntrustedPins attaches where users other than root may change pins.
func TestUntrustedPins(t *testing.T) {
	for _, c := range []struct{ name, prepare, refusal, mend string }{
		{"world-writable", "mount -t bpf bpf /sys/fs/bpf",
			"others than root may write to /sys/fs/bpf (mode 1777)", "chmod go-w /sys/fs/bpf"},
		{"made by somebody", "mount -t bpf -o mode=0700 bpf /sys/fs/bpf && mkdir -m 0700 /sys/fs/bpf/culvert && chown 65534 /sys/fs/bpf/culvert",
			"/sys/fs/bpf/culvert belongs to user 65534, not to root", "chown root /sys/fs/bpf/culvert"},
	} {
		t.Run(c.name, func(t *testing.T) {
			script := `set -e
				ip link set lo up
				ip link add v0 type veth peer name v1
				` + c.prepare + `
				printf 'interfaces = ["v0"]\n[route]\n' >$DIR/route.toml
				for verb in "attach -c $DIR/route.toml v0" status doctor; do
					echo "== $verb"
					"$CULVERT" $verb 2>&1 || true
				done
				echo "== on v0"
				ip -d link show v0 | grep xdp || true
				` + c.mend + `
				echo "== mended"
				"$CULVERT" attach -c $DIR/route.toml v0 2>&1
				"$CULVERT" detach --all 2>&1`
			parts, out := ownSpaces(t, script)
			for _, verb := range []string{"attach", "status", "doctor"} {
				if !strings.Contains(parts[verb], c.refusal) || !strings.Contains(parts[verb], c.mend) {
					t.Errorf("%s does not say %q -> %q: %s", verb, c.refusal, c.mend, parts[verb])
				}
			}
			if parts["on"] != "" {
				t.Errorf("attached all the same: %s", parts["on"])
			}
			if !strings.Contains(parts["mended"], "v0") {
				t.Errorf("mended, and not attached: %s", out)
			}
		})
	}
}

// TestUntrustedPinsInside has directories below culvert's own that users other than root may change: that of the network namespace,
// and that of a data plane. Commands that attach refuse, and doctor names the directory.
func TestUntrustedPinsInside(t *testing.T) {
	const mounted = `mount -t bpf -o mode=0700 bpf /sys/fs/bpf && mkdir -m 0700 /sys/fs/bpf/culvert
		space=/sys/fs/bpf/culvert/$(stat -Lc %i /proc/self/ns/net)
		`
	for _, c := range []struct{ name, prepare, verb, refusal, mend string }{
		{"namespace, router", mounted + "mkdir -m 0777 $space", "attach -c $DIR/route.toml v0",
			"others than root may write to SPACE (mode 0777)", "chmod go-w SPACE"},
		{"namespace, tunnels", mounted + "mkdir -m 0777 $space", "lb decap add v0 --from 10.0.0.0/8",
			"others than root may write to SPACE (mode 0777)", "chmod go-w SPACE"},
		{"tunnels", mounted + "mkdir -m 0700 $space && mkdir -m 0700 $space/%decap && chown 65534 $space/%decap", "lb decap add v0 --from 10.0.0.0/8",
			"SPACE/%decap belongs to user 65534, not to root", "chown root SPACE/%decap"},
		{"tunnels, list", mounted + "mkdir -m 0700 $space && mkdir -m 0777 $space/%decap", "lb decap show",
			"others than root may write to SPACE/%decap (mode 0777)", "chmod go-w SPACE/%decap"},
		{"link", mounted + "mkdir -m 0777 /sys/fs/bpf/else && ln -s ../else $space", "lb decap add v0 --from 10.0.0.0/8",
			"SPACE is no directory", "rm SPACE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			script := `set -e
				ip link set lo up
				ip link add v0 type veth peer name v1
				ip addr add 192.0.2.1/24 dev v0
				umask 0
				` + c.prepare + `
				printf 'interfaces = ["v0"]\n[route]\n' >$DIR/route.toml
				echo "== space"; echo $space
				for verb in "` + c.verb + `" doctor; do
					echo "== ${verb%% *}"
					"$CULVERT" $verb 2>&1 && echo SUCCESS || true
				done
				echo "== on v0"
				ip -d link show v0 | grep xdp || true
				` + strings.ReplaceAll(c.mend, "SPACE", "$space") + `
				echo "== mended"
				"$CULVERT" lb decap add v0 --from 10.0.0.0/8 2>&1
				"$CULVERT" doctor -i v0 | grep ' bpffs '
				"$CULVERT" detach --all 2>&1`
			parts, out := ownSpaces(t, script)
			verb, _, _ := strings.Cut(c.verb, " ")
			space := strings.TrimSpace(parts["space"])
			refusal, mend := strings.ReplaceAll(c.refusal, "SPACE", space), strings.ReplaceAll(c.mend, "SPACE", space)
			for _, verb := range []string{verb, "doctor"} {
				if !strings.Contains(parts[verb], refusal) || !strings.Contains(parts[verb], mend) || strings.Contains(parts[verb], "SUCCESS") {
					t.Errorf("%s does not say %q -> %q: %s", verb, refusal, mend, parts[verb])
				}
			}
			if parts["on"] != "" {
				t.Errorf("attached all the same: %s", parts["on"])
			}
			if !strings.Contains(parts["mended"], "mounted at /sys/fs/bpf") {
				t.Errorf("mended, and doctor is not content: %s", out)
			}
		})
	}
}
