# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The steps of test-deb.sh, which has the functions.

step "install: nothing runs, and the text says what to do"
have 'culvert check && systemctl enable --now culvert' inside dpkg -i "/packages/culvert_${version}_amd64.deb"
[[ $(inside culvert version) == "culvert $version "* ]] || fail "the version is $(inside culvert version)"
[[ $(shown culvert ActiveState) == inactive && $(shown culvert UnitFileState) == disabled ]] || fail "culvert is active or enabled"
[[ -z $(inside find /etc/culvert -perm /o+rwx) ]] || fail "anybody may look into /etc/culvert"
inside systemctl start culvert 2>/dev/null && fail "the default configuration starts"
have 'no stage is on' inside journalctl --no-pager -u culvert
inside systemctl stop culvert
inside systemctl reset-failed culvert 2>/dev/null || true # it is forgotten once it is stopped

step "configure and start: ready when packets flow"
inside sh -c 'cat >/etc/culvert/culvert.toml' <<'T'
interfaces = ["eth1", "eth2"]
[route]
[filter]
[[filter.rule]]
name = "telnet"
action = "drop"
expression = "tcp dst port 23"
T
inside culvert check >/dev/null
inside systemctl enable --quiet --now culvert
have 'culvert on eth1, eth2: filter ready, .*route ready' shown culvert StatusText
have 'served by process' inside culvert status
[[ $(shown culvert NRestarts) == 0 ]] || fail "it was started more than once"
load_on
sleep 3
load_off "traffic"
have 'fwd +route ' inside culvert status

step "reload"
load_on
inside sh -c 'mkdir -p /etc/culvert/culvert.d && cat >/etc/culvert/culvert.d/smtp.toml' <<'T'
[[filter.rule]]
name = "smtp"
action = "drop"
expression = "tcp dst port 25"
T
pid=$(main_pid)
inside systemctl reload culvert || fail "systemctl reload failed"
have smtp inside culvert filter list
[[ $(main_pid) == "$pid" && $(shown culvert ActiveState) == active ]] || fail "the process was started again, or is $(shown culvert ActiveState)"
load_off "reload"

step "what the process does on its sockets, inside its sandbox"
# A collector of sFlow, which ends after some datagrams of version 5.
# shellcheck disable=SC2016 # the variables are Perl's
inside ip netns exec end2 perl -MIO::Socket::INET -e '$| = 1; $s = IO::Socket::INET->new(LocalPort => 6343, Proto => "udp") or die;
  print "ready\n"; while ($n < 5 && $s->recv($d, 65535)) { $n++ if unpack("N", $d) == 5 }' >out/deb-test/collector.log 2>&1 &
collector=$!
wait_for 60 grep -q ready out/deb-test/collector.log
inside sh -c 'cat >/etc/culvert/culvert.d/see.toml' <<'T'
[web]
listen = "127.0.0.1:9480"
[sflow]
collector = "198.18.2.2"
rate = 100
drops = 10
polling = "1s"
T
inside systemctl reload culvert || fail "systemctl reload failed"
load_on
have '"done":"rule ntp added"' ask culvert.sock /v1/filter/add --json '{"rule": "ntp", "action": "drop", "expression": "udp port 123"}'
have '"done":"' ask culvert.sock /v1/filter/set/add --json '{"set": "bad", "entries": ["192.0.2.0/24"], "timeout": "10m"}'
have '\[\[filter.rule\]\]' inside culvert filter dump
inside sh -c 'culvert filter dump --sets /tmp/sets >/tmp/dump.toml && test -s /tmp/sets/bad.set' || fail "no dump in files"
# The buffers of a capture are locked memory, 4 MB for each CPU, and more than a process may have by default on most machines.
[[ $(shown culvert LimitMEMLOCK) == infinity ]] || fail "a capture may find no memory: LimitMEMLOCK is $(shown culvert LimitMEMLOCK)"
inside curl -sSN --fail-with-body -m 120 --unix-socket /run/culvert/culvert.sock -o /tmp/packets.pcapng \
  'http://culvert/v1/capture?expression=udp&n=20' || fail "no capture on the socket: $(inside cat /tmp/packets.pcapng)"
[[ $(inside od -An -N4 -tx1 /tmp/packets.pcapng) == ' 0a 0d 0d 0a' ]] || fail "the capture is no pcapng file"
inside sh -c 'timeout 60 culvert capture -n 20 -w /tmp/packets2.pcapng udp' || fail "no capture on the command line"
inside sh -c 'curl -sN -m 250 -D /tmp/head --unix-socket /run/culvert/culvert.show.sock http://culvert/v1/events >/tmp/events &
  until grep -q " 200 " /tmp/head; do sleep 0.1; done
  culvert filter del ntp
  until grep -q "\"event\":\"change\".*filter del" /tmp/events; do sleep 0.1; done
  kill $!' >/dev/null 2>&1 || fail "no event of a change"
have 'Content-Security-Policy' inside curl -sSi http://127.0.0.1:9480/
have '"routers"' inside curl -sS --fail http://127.0.0.1:9480/v1/status
wait "$collector" || fail "no collector of sFlow has got datagrams: $(<out/deb-test/collector.log)"
have 'culvert_sflow_samples_total\{.*kind="flow".*\} [1-9]' ask culvert.show.sock /metrics
# Members of the group see, and others do not; nobody but root changes anything.
as_nobody() { inside setpriv --reuid 65534 --regid 65534 --groups "$1" curl -sS -m 60 --unix-socket "/run/culvert/$2" http://culvert/v1/status; }
group=$(inside getent group culvert | cut -d : -f 3)
have '"router":"culvert"' as_nobody "$group" culvert.show.sock
as_nobody 65534 culvert.show.sock 2>/dev/null && fail "others than members of the group see what the data plane does"
as_nobody "$group" culvert.sock 2>/dev/null && fail "members of the group get to root's socket"
have '"ok":true|"changes":\[' ask culvert.sock /v1/reload --json '{}'
inside rm /etc/culvert/culvert.d/see.toml
inside systemctl reload culvert || fail "systemctl reload failed"
load_off "changes and captures over the sockets"
[[ -z $(inside journalctl --no-pager -q -u culvert -g 'not permitted|denied|Read-only file system') ]] ||
  fail "the sandbox is in the way: $(inside journalctl --no-pager -u culvert -g 'not permitted|denied|Read-only file system')"
inside sh -c 'rm -r /tmp/packets.pcapng /tmp/packets2.pcapng /tmp/dump.toml /tmp/sets /tmp/events /tmp/head'

step "upgrade under load"
load_on
have 'Unpacking culvert .* over ' inside dpkg -i "/packages/culvert_${next}_amd64.deb"
[[ $(inside culvert version) == "culvert $next "* ]] || fail "the version is $(inside culvert version)"
[[ $(main_pid) != "$pid" && $(shown culvert ActiveState) == active ]] || fail "the process was not started again"
have 'adopted=true' inside journalctl --no-pager -u culvert
sleep 2
load_off "upgrade"
have smtp inside culvert filter list

step "the process stands still: systemd starts it again, and packets flow meanwhile"
load_on
pid=$(main_pid)
inside sh -c "kill -STOP $pid"
restarted() { [[ $(shown culvert NRestarts) == 1 && $(shown culvert ActiveState) == active ]]; }
wait_for 120 restarted
have 'Watchdog timeout' inside journalctl --no-pager -u culvert
load_off "watchdog"

step "over a data plane of another layout"
load_on
inside sh -c '/otherlayout /sys/fs/bpf/culvert/*/culvert'
inside systemctl restart culvert || fail "it does not start over a data plane of another layout"
have 'filter ready, .*route ready' shown culvert StatusText
sleep 2
load_off "another layout"

step "stop: the data plane stays"
load_on
inside systemctl stop culvert
have 'not served' inside culvert status
load_off "stop"
inside systemctl start culvert

step "culvert@ beside it"
inside sh -c 'ip netns exec end1 ip link add e3 type veth peer name eth3 netns 1 && ip link set eth3 up && cat >/etc/culvert/edge.toml' <<'T'
name = "edge"
interfaces = ["eth3"]
[[filter.rule]]
name = "telnet"
action = "drop"
expression = "tcp dst port 23"
T
inside systemctl start culvert@edge || fail "culvert@edge does not start"
have 'edge on eth3: filter ready' shown culvert@edge StatusText

step "remove: stopped and taken off, and the configuration stays"
have 'data plane edge detached' inside dpkg -r culvert
for dev in eth1 eth2 eth3; do
  have '' inside ip link show "$dev"
  [[ $(inside ip link show "$dev") != *xdp* ]] || fail "$dev still has a program"
done
[[ -z $(inside find /sys/fs/bpf -mindepth 1 ! -name '*.debug') ]] || fail "pins are left: $(inside find /sys/fs/bpf)" # the kernel's are .debug
inside test -e /etc/culvert/culvert.toml || fail "the configuration is gone"
have 'could not be found|not-found' inside sh -c 'systemctl is-active culvert; systemctl status culvert 2>&1; true'

step "purge: nothing is left"
inside dpkg -P culvert
inside ip link del eth3
files >out/deb-test/after
diff out/deb-test/before out/deb-test/after || fail "these files are left, or gone"
[[ -z $(inside getent group culvert) ]] || fail "the group is left"
[[ -z $(inside systemctl list-units --all --plain --no-legend 'culvert*') ]] || fail "units are left: $(inside systemctl list-units --all 'culvert*')"

echo "ok: the package was installed, reloaded, upgraded, removed and purged without losing a packet"
