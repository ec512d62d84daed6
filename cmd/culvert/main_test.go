// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"culvert/cmd/culvert/internal/cli"
	"culvert/internal/lab"
	"culvert/internal/show/usage"
	"culvert/internal/version"
)

// asCulvert is the environment variable that makes the test binary run as culvert.
const asCulvert = "CULVERT_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asCulvert) != "" {
		os.Exit(run())
	}
	os.Exit(runTests(m))
}

// runTests runs the tests with a temporary directory for the files that culvert keeps.
func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "culvert-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	os.Setenv("STATE_DIRECTORY", dir)
	return m.Run()
}

// must panics on an error, of a step without which a test has nothing to look at.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// culvert runs a command line and returns its exit status and what it wrote.
func culvert(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asCulvert+"=1")
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func TestExitStatus(t *testing.T) {
	for err, want := range map[error]int{
		nil:                          0,
		errors.New("other"):          1,
		usage.Error(errors.New("x")): 2,
		labError(fmt.Errorf("no: %w", lab.ErrNoCommand)): 127,
	} {
		if got := exitStatus(err); got != want {
			t.Errorf("%v gives status %d, want %d", err, got, want)
		}
	}
}

func TestWrongUsage(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"frob", `unknown command "frob"`},
		{"statsu", `unknown command "statsu" for "culvert": did you mean 'status'? (see 'culvert --help')`},
		{"lb shwo", `unknown command "shwo" for "culvert lb": did you mean 'show'? (see 'culvert lb --help')`},
		{"help frob", "no command 'culvert frob': see 'culvert help'"},
		{"help scion frob", "no command 'culvert scion frob': see 'culvert help'"},
		{"completion tcsh", `unknown command "tcsh"`},
		{"completion bash frob", `unknown command "frob"`},
		{"version frob", `unknown command "frob"`},
		{"scion run br.toml", "give the file with -c: culvert scion run -c br.toml"},
		{"run edge.toml", "give the file with -c: culvert run -c edge.toml"},
		{"attach -j eth0", "culvert attach prints no JSON: leave -j and -p out (see 'culvert attach --help')"},
		{"-p watch", "culvert watch prints no JSON"},
		{"key remove 0", `unknown command "remove" for "culvert key"`},
		{"key del", "takes 1 argument, not 0"},
		{"bench run veth --rounds 0", "--rounds and --seconds must be numbers above 0"},
		{"bench insn --kernel 6.2", `unknown line of kernels "6.2": there are 6.1, 6.12`},
		{"bench insn --rows cost/frob", `unknown row "cost/frob"`},
		{"bench insn --baseline a --write-baseline b", "--baseline and --write-baseline: give one of them"},
		{"guest", "guest: name a verb"},
		{"route", "route: name a verb"},
		{"route get", "takes 1 argument, not 0"},
		{"route get 192.0.2.0/24", `"192.0.2.0/24" is no address`},
		{"route get 192.0.2.1 --from east", `"east" is no address`},
		{"route check --samples -1", "--samples must be 0 or more"},
		{"filter", "filter: name a verb"},
		{"filter add", "no action: give drop, pass, count or limit RATE"},
		{"filter add reject icmp", `"reject" is no action`},
		{"filter add drop", "drop without an expression or a set drops every packet: use --all"},
		{"filter add drop -i eth0", "use --all"},
		{"filter add limit", "limit needs a rate"},
		{"filter add limit 10 udp", `"10" is no rate: write packets as`},
		{"filter add limit 10pps --per host", `per "host": use src or dst`},
		{"filter add drop --per src icmp", "per goes with the action limit, not with drop"},
		{"filter add --src bad drop", "write it as @name"},
		{"filter add --name a/b count", "make its name of letters"},
		{"filter add --first --before x count", "--first beside --before"},
		{"filter add --replace count", "--replace needs --name"},
		{"filter add drop -f x icmp", "an expression beside --file"},
		{"filter del", "takes at least 1 argument, not 0"},
		{"filter test", "takes at least 1 argument, not 0"},
		{"filter test -c x y drop icmp", "a rule beside --config"},
		{"filter test - drop -", "standard input can be the packets or the expression"},
		{"filter set", "set: name a verb"},
		{"filter set add bad", "no entries: name some, or a --file"},
		{"filter set add bad -f x 192.0.2.1", "entries beside --file"},
		{"filter set add bad --type mac x", "--type is prefix or endpoint"},
		{"filter protect 192.0.2.1", "is no address with a port"},
		{"filter protect 192.0.2.1:80 --wscale 15 --forwarded", "wscale 15: use 0 to 14"},
		{"filter top --by mac", `by "mac": use src, dst, prefix or port`},
		{"filter top -n 0", "show at least 1"},
		{"lb", "lb: name a verb"},
		{"lb vip", "vip: name a verb"},
		{"lb vip add 192.0.2.1:80", `VIP 192.0.2.1:80 lacks its protocol: write 192.0.2.1:80/tcp or 192.0.2.1:80/udp`},
		{"lb vip add 192.0.2.1:80/icmp", `"icmp" is no protocol of a VIP: use tcp or udp: write 192.0.2.1:80/tcp or 192.0.2.1:80/udp`},
		{"lb vip add 192.0.2.1:0/tcp", "port 0: leave the port out"},
		{"lb vip add www/tcp", `"www" is no address of a VIP`},
		{"lb vip set 192.0.2.1/tcp", "VIP 192.0.2.1/tcp: give a setting to change"},
		{"lb backend set 192.0.2.1/tcp 10.0.0.11", "VIP 192.0.2.1/tcp: backend 10.0.0.11: give a setting to change"},
		{"lb vip set 192.0.2.1/tcp --hash client", `VIP 192.0.2.1/tcp: hash "client": use flow, source or source-port`},
		{"lb vip set 192.0.2.1/tcp --check none --check-rise 2", "check none beside how to check"},
		{"lb vip set 192.0.2.1/tcp --quic-server-id 300", "invalid argument"},
		{"lb backend add 192.0.2.1:80/tcp", "takes 2 arguments, not 1"},
		{"lb backend add 192.0.2.1:80/tcp 10.0.0.11:80", "is no address of a backend: write it without a port, as 10.0.0.11"},
		{"lb backend add 192.0.2.1:80/tcp 198.18.1.999", `"198.18.1.999" is no IP address: write a backend's as 10.0.0.11 or fd00::11`},
		{"lb backend add 192.0.2.1:80/tcp 198.18.1.999:80", `"198.18.1.999:80" is no IP address: write a backend's as 10.0.0.11 or fd00::11`},
		{"lb backend add 192.0.2.1:80/tcp 10.0.0.11 --weight -1", "VIP 192.0.2.1:80/tcp: backend 10.0.0.11: weight -1: use 0 to 65535"},
		{"lb backend set 192.0.2.1:80/tcp 10.0.0.11 --weight 65536", "weight 65536: use 0 to 65535"},
		{"lb backend set 192.0.2.1:80/tcp 10.0.0.11 --encap vxlan", `encapsulation "vxlan": use ipip, gue or l2`},
		{"lb drain", "takes between 1 and 2 arguments, not 0"},
		{"lb decap", "decap: name a verb"},
		{"lb decap eth9", `unknown command "eth9" for "culvert lb decap"`},
		{"lb decap del", "takes at least 1 argument, not 0"},
		{"lb decap add --gue-port 7", "takes at least 1 argument, not 0"},
		{"lb decap add -j eth9", "culvert lb decap add prints no JSON"},
		{"lb decap del eth9 --vip 192.0.2.1", "unknown flag: --vip"},
		{"lb decap add eth9 --gue-port 0", "--gue-port 0: use 1 to 65535"},
		{"lb decap add eth9 --gue-port x", `invalid argument "x" for "--gue-port"`},
		{"lb decap add eth9 --from 10.0.0.1/8", "write 10.0.0.0/8"},
		{"lb decap add eth9 --vip www", `--vip "www" is no address`},
		{"guest test", "takes at least 1 argument, not 0"},
		{"guest test --kernel 6.2 x", `unknown line of kernels "6.2"`},
		{"bench run veth --size 41", `unknown frame size "41"`},
		{"bench run veth --cpus 3", "unknown number of CPUs 3: give 1 or 2"},
		{"bench run veth --size 64 --rows culvert-cold", "SCION packets take at least 134"},
		{"bench run veth --seconds NaN", `invalid argument "NaN" for "--seconds" flag: write it in seconds, as 0.5, or with a unit, as 500ms`},
		{"watch --interval soon", `invalid argument "soon" for "--interval" flag: write it in seconds, as 0.5, or with a unit, as 500ms (see`},
		{"watch -n x", `invalid argument "x" for "-n, --count" flag: write a whole number (see`},
		{"watch -n 0", `invalid argument "0" for "-n, --count" flag: use 1 or more, or leave it out for no end (see`},
		{"filter watch -n -1", `invalid argument "-1" for "-n, --count" flag: use 1 or more, or leave it out for no end (see`},
		{"watch -n 99999999999999999999", `invalid argument "99999999999999999999" for "-n, --count" flag: the number is out of range (see`},
		{"gen blast x --rate fast", `invalid argument "fast" for "--rate" flag: write a number (see`},
		{"gen blast x --port -1", `invalid argument "-1" for "--port" flag: write a whole number of 0 or more (see`},
		{"watch --help=x", `invalid argument "x" for "-h, --help" flag: write true or false (see`},
		{"bench run veth --seconds 0", "--rounds and --seconds must be numbers above 0"},
	} {
		status, stdout, stderr := culvert(t, strings.Fields(tt.args)...)
		if status != 2 || stdout != "" || !strings.Contains(stderr, tt.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("culvert %s: status %d, stdout %q, stderr %q; want status 2 and one line with %q",
				tt.args, status, stdout, stderr, tt.want)
		}
	}
}

// TestNoConfiguration runs commands without the default configuration.
func TestNoConfiguration(t *testing.T) {
	missing, there := filepath.Join(t.TempDir(), "culvert.toml"), t.TempDir()
	for _, verb := range []*cobra.Command{newRunCmd(), newAttachCmd(), newScionRunCmd()} {
		if err := cli.HaveConfig(verb, missing); !usage.Is(err) || !strings.Contains(err.Error(), "no configuration: there is no "+missing) {
			t.Errorf("%s: %v", verb.Name(), err)
		}
		if err := cli.HaveConfig(verb, there); err != nil {
			t.Errorf("%s: %v", verb.Name(), err)
		}
		must(verb.Flags().Set("config", missing))
		if err := cli.HaveConfig(verb, missing); err != nil {
			t.Errorf("%s -c: %v", verb.Name(), err)
		}
	}
}

// TestSCIONRunOfOwnFile gives 'scion run' culvert's own file.
func TestSCIONRunOfOwnFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		must(os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	filter := write("filter.toml", "interfaces = [\"none\"]\n[filter]\n")
	router := write("router.toml", "[scion]\nconfig = \"missing.toml\"\n")
	for _, tt := range []struct {
		status int
		args   []string
		want   string
	}{
		{1, []string{"-c", filter}, filter + " has no [scion]: use culvert run -c " + filter},
		{1, []string{"-c", router}, "missing.toml"},
		{2, []string{"-c", router, "--loose-links"}, `--loose-links goes with the SCION router's own file: write link_interfaces = "loose" into [scion] of ` + router},
		{2, []string{"-c", router, "--debug-http"}, "write debug_http = true into [scion] of " + router},
		{1, []string{"-c", filepath.Join(dir, "none.toml")}, "none.toml: no such file"},
	} {
		status, out, errs := culvert(t, append([]string{"scion", "run"}, tt.args...)...)
		if status != tt.status || out != "" || !strings.Contains(errs, tt.want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("scion run %v: status %d, stdout %q, stderr %q; want status %d and %q", tt.args, status, out, errs, tt.status, tt.want)
		}
	}
}

func TestHelpAndVersion(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"", "Available Commands:"},
		{"help", "Available Commands:"},
		{"help scion run", "culvert scion run -c /etc/scion/br.toml"},
		{"help run", "bypass_netfilter = false"},
		{"help run", "blocks6 = 98304"},
		{"help run", "-c, --config FILE   configuration FILE, see culvert.toml(5) (default \"/etc/culvert/culvert.toml\")"},
		{"help run", "[[filter.rule]]"},
		{"help run", "[[lb.vip.backend]]"},
		{"help lb", "Available Commands:"},
		{"help filter", "Available Commands:"},
		{"help filter set", "Available Commands:"},
		{"help route", "Available Commands:"},
		{"completion", "Available Commands:"},
		{"completion bash", "bash completion"},
		{"--version", "culvert " + version.Short() + " ("},
		{"version", "culvert " + version.Short() + " ("},
	} {
		status, stdout, stderr := culvert(t, strings.Fields(tt.args)...)
		if status != 0 || stderr != "" || !strings.Contains(stdout, tt.want) {
			t.Errorf("culvert %s: status %d, stderr %q, stdout\n%.300s\nwant status 0 and %q",
				tt.args, status, stderr, stdout, tt.want)
		}
	}
}
