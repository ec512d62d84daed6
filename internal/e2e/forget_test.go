// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	"culvert/internal/lab"
)

// TestDetachAllForgets removes what is left of dead routers and nothing else. There are four routers: one here, one in
// namespace "there", one in "gone", which is deleted, and one in "served", whose interfaces are deleted and whose process goes
// on. The script has a bpffs and namespace names of its own, since the command under test looks at the whole machine.
func TestDetachAllForgets(t *testing.T) {
	l := up(t, "veth", lab.Options{Name: "fgt", StaticNeighbors: true})
	as, err := l.AS("rut")
	check(t, err)
	const script = `
mount -t proc proc /proc
umount /sys/fs/bpf
mount -t bpf -o mode=0700 bpf /sys/fs/bpf
mount -t tmpfs tmpfs /run/netns
until_seen() { # COUNT TEXT: waits until status shows it so often
	for try in $(seq 300); do
		[ $($culvert status | grep -c "$2") != $1 ] || return 0
		sleep 0.1
	done
	echo "status does not show $2 $1 times:"
	$culvert status
	exit 1
}
culvert=$0 node=$1 router=$2
in_ns() { ns=$1; shift; nsenter --net=/run/netns/$ns "$@"; }
for ns in there gone served; do
	ip netns add $ns
	ip -n $ns link set lo up
	for i in a b; do
		ip -n $ns link add to-$i type veth peer name far-$i
		ip -n $ns link set to-$i up
		ip -n $ns link set far-$i up
	done
	ip -n $ns address add 198.18.1.1/24 dev to-a
	ip -n $ns address add 198.18.2.1/24 dev to-b
	ip -n $ns address add 198.18.20.1/24 dev to-b
done
in_ns there $culvert attach -c $node to-a to-b
in_ns gone $culvert attach -c $node to-a to-b
in_ns served $culvert scion run --config $router >/dev/null 2>&1 &
until_seen 1 'served by'
until_seen 3 'key 0 ' # it sets its own when it has found its interfaces
for try in $(seq 300); do
	[ $(in_ns served ss -Hanu | grep -c 50000) -lt 2 ] || break # and then opens the sockets of its links
	sleep 0.1
done
ip -n served link del to-a
ip -n served link del to-b
ip netns del gone
until_seen 1 'interfaces are gone'
until_seen 1 'none of its interfaces exists' # its process waits for them
$culvert attach -c $node to-a to-b
echo "at first $($culvert status | grep -c '^router') routers"
$culvert detach --all
echo "then $($culvert status | grep -c '^router') routers"
$culvert status | grep -o '(there)\|(served)' | sort
echo "there $(ip -n there link show | grep -c 'prog/xdp') interfaces, here $(ip link show | grep -c 'prog/xdp')"
kill $($culvert status | sed -n 's/.*served by process \([0-9]*\).*/\1/p')
until_seen 0 'served by'
$culvert detach --all
echo "in the end $($culvert status | grep -c '^router') routers"
`
	out, err := l.Run(t.Context(), "rut", "unshare", "--mount", "--pid", "--fork", "--kill-child",
		"/bin/sh", "-ec", script, program(), nodeConfig(t, l, "rut"), as.RouterConfig)
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	text := string(out)
	_, text, _ = strings.Cut(text, "at first")
	for _, want := range []string{
		" 4 routers\n",
		" removed: it was on no interface\n",
		"router " + as.RouterID + " detached\n",
		"then 2 routers\n(served)\n(there)\nthere 2 interfaces, here 0\nrouter " + as.RouterID + " of network namespace ",
		"in the end 1 routers\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if n := strings.Count(text, "removed"); n != 2 {
		t.Errorf("%d routers were removed, want one at a time:\n%s", n, out)
	}
}
