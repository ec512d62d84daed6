// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"culvert/internal/lab"
)

// asCulvert names the environment variable that makes the test binary culvert.
const asCulvert = "CULVERT_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asCulvert) != "" {
		os.Exit(run())
	}
	os.Exit(m.Run())
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
		nil:                         0,
		errors.New("other"):         1,
		usageError(errors.New("x")): 2,
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
		{"help frob", "no command 'culvert frob': see 'culvert help'"},
		{"help scion frob", "no command 'culvert scion frob': see 'culvert help'"},
		{"completion tcsh", `unknown command "tcsh"`},
		{"completion bash frob", `unknown command "frob"`},
		{"version frob", `unknown command "frob"`},
		{"scion run br.toml", "give the file with --config: culvert scion run --config br.toml"},
		{"bench run veth --rounds 0", "--rounds and --seconds must be numbers above 0"},
		{"bench insn --kernel 6.2", `unknown line of kernels "6.2": there are 6.1, 6.12`},
		{"bench insn --rows cost/frob", `unknown row "cost/frob"`},
		{"bench insn --baseline a --write-baseline b", "--baseline and --write-baseline: give one of them"},
		{"guest", "guest: say what to do"},
		{"route", "route: say what to do"},
		{"route get", "accepts 1 arg"},
		{"route get 192.0.2.0/24", `"192.0.2.0/24" is no address`},
		{"route get 192.0.2.1 --from east", `"east" is no address`},
		{"route check --samples -1", "--samples must be 0 or more"},
		{"filter", "filter: say what to do"},
		{"filter add", "say what to do with packets: drop, pass, count or limit RATE"},
		{"filter add reject icmp", `"reject" is no action`},
		{"filter add drop", "drop without an expression or a set drops every packet: say --all"},
		{"filter add drop -i eth0", "say --all"},
		{"filter add limit", "limit needs a rate"},
		{"filter add limit 10 udp", `"10" is no rate: write packets as`},
		{"filter add limit 10pps --per host", `per "host": use src or dst`},
		{"filter add drop --per src icmp", "per goes with the action limit, not with drop"},
		{"filter add --src bad drop", "write it as @name"},
		{"filter add --name a/b count", "make its name of letters"},
		{"filter add --first --before x count", "--first beside --before"},
		{"filter add --replace count", "--replace needs --name"},
		{"filter add drop -f x icmp", "an expression beside --file"},
		{"filter del", "requires at least 1 arg"},
		{"filter test", "requires at least 1 arg"},
		{"filter test -c x y drop icmp", "a rule beside --config"},
		{"filter test - drop -", "standard input can be the packets or the expression"},
		{"filter set", "set: say what to do"},
		{"filter set add bad", "no entries: name some, or a file with -f"},
		{"filter set add bad -f x 192.0.2.1", "entries beside --file"},
		{"filter set add bad --type mac x", "--type is prefix or endpoint"},
		{"filter protect 192.0.2.1", "is no address with a port"},
		{"filter protect 192.0.2.1:80 --wscale 15 --forwarded", "wscale 15: use 0 to 14"},
		{"filter top --by mac", `by "mac": use src, dst, prefix or port`},
		{"filter top -n 0", "show at least 1"},
		{"guest test", "requires at least 1 arg"},
		{"guest test --kernel 6.2 x", `unknown line of kernels "6.2"`},
		{"bench run veth --size 41", `unknown frame size "41"`},
		{"bench run veth --cpus 3", "unknown number of CPUs 3: give 1 or 2"},
		{"bench run veth --size 64 --rows culvert-cold", "SCION packets take at least 134"},
		{"bench run veth --seconds NaN", "--rounds and --seconds must be numbers above 0"},
		{"bench run veth --seconds 0", "--rounds and --seconds must be numbers above 0"},
	} {
		status, stdout, stderr := culvert(t, strings.Fields(tt.args)...)
		if status != 2 || stdout != "" || !strings.Contains(stderr, tt.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("culvert %s: status %d, stdout %q, stderr %q; want status 2 and one line with %q",
				tt.args, status, stdout, stderr, tt.want)
		}
	}
}

func TestHelpAndVersion(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"", "Available Commands:"},
		{"help", "Available Commands:"},
		{"help scion run", "culvert scion run --config FILE"},
		{"help run", "bypass_netfilter = false"},
		{"help run", "blocks6 = 98304"},
		{"help run", "[[filter.rule]]"},
		{"help filter", "Available Commands:"},
		{"help filter set", "Available Commands:"},
		{"help route", "Available Commands:"},
		{"completion", "Available Commands:"},
		{"completion bash", "bash completion"},
		{"--version", "culvert dev ("},
		{"version", "culvert dev ("},
	} {
		status, stdout, stderr := culvert(t, strings.Fields(tt.args)...)
		if status != 0 || stderr != "" || !strings.Contains(stdout, tt.want) {
			t.Errorf("culvert %s: status %d, stderr %q, stdout\n%.300s\nwant status 0 and %q",
				tt.args, status, stderr, stdout, tt.want)
		}
	}
}
