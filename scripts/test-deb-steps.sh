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
