// SPDX-License-Identifier: Apache-2.0

package main

// aboutConfig describes the configuration file, for 'culvert run --help' and culvert.toml(5).
const aboutConfig = `The file is TOML:

  mode = "native"                 # "generic" for drivers without native XDP
  interfaces = ["eth1", "eth2"]   # default: those of the SCION router
  name = "edge"                   # of the data plane, without [scion]; default: culvert
  metrics = "127.0.0.1:9441"      # serves metrics there, without [scion]; default: none
  log_level = "info"              # or "debug", "warn", "error"
  missing = "wait"                # for interfaces that do not exist yet; "refuse": do not
                                  # start without them, which [scion] always does
  detached = "exit"               # what the process does after its data plane was detached
                                  # by hand; "attach": attaches it again; "stay", the default
                                  # with [scion]: goes on with the slow path

  [web]
  listen = "127.0.0.1:9480"       # a page that shows what the data plane does; default: none.
                                  # It has no password

  [cluster]                       # the node takes documents and urgent changes of a cluster from
                                  # etcd, which are merged behind this file; default: none
  name = "edge"                   # of the cluster
  endpoints = ["https://192.0.2.1:2379"]  # the members of etcd
  tls = {ca = "ca.pem", cert = "n1.pem", key = "n1.key"}  # files, which culvert cluster enrol makes
  node = "n1"                     # default: the name of this host
  roles = ["lb", "edge"]          # whose documents are for this node, in this order
  state_dir = "/var/lib/culvert/cluster"  # for the last good documents; this is the default

  [workers]                       # CPUs to spread packets over; default: none
  cpus = "1-3"
  queue = 2048                    # packets that may wait for each CPU; this is the default

  [scion]
  config = "/etc/scion/br.toml"   # the SCION router's own file
  link_interfaces = "strict"      # take a link's datagrams only by the interface that leads
                                  # to its far end; "loose": by any
  bfd_min_ttl = 0                 # least TTL of BFD packets; 0: any
  too_big = "fragment"            # send packets that are too big for their way in IP fragments,
                                  # as the reference does; "answer": drop and answer them by SCMP
  debug_http = false              # true: serve the profiler over HTTP, and let HTTP
                                  # requests change the log level

  # [[scion.key]]                 # keys by schedule, in the place of keys/master0.key
  # file = "keys/2026.key"        # a master key; the file's mode must be 0600
  # not_after = 2027-01-08T00:00:00Z
  # [[scion.key]]
  # file = "keys/2027.key"
  # not_before = 2027-01-01T00:00:00Z

  [route]                         # the IP router
  bypass_netfilter = false        # true: start though forwarded packets bypass netfilter's rules
  mirror = true                   # false: ask the kernel about every packet
  blocks4 = 16384                 # size of the mirror in KiB for IPv4 and for IPv6, without
  blocks6 = 98304                 # its first level; these are the defaults

  [filter]                        # the packet filter
  [[filter.rule]]                 # rules apply in this order
  name = "dns"                    # the counters belong to the name
  action = "limit"                # drop, pass, count or limit
  expression = "udp port 53"      # in libpcap's language; default: every packet
  # program = "dns.ddd"           # or a file with an expression, or what tcpdump -ddd or -dd prints
  interfaces = ["eth1"]           # default: all
  src = ["@bad", "!@good"]        # sets that the source is in, or with ! is not in
  dst = "@ours"                   # the same for the destination
  rate = "1kpps"                  # for limit; also 500kB/s, 10Mbit/s
  per = "src/24,48"               # each such prefix has a rate of its own; default: one rate
  burst = 200                     # packets, or with a unit as in "64kB" bytes
  entries = 100000                # keep rates of at least so many addresses
  # all = true                    # needed for drop or pass of every packet

  [[filter.set]]
  name = "bad"
  type = "prefix"                 # or "endpoint": addresses with ports
  file = "bad.txt"                # see 'culvert filter set add --help'
  # entries = ["192.0.2.0/24"]    # instead of a file; without both, entries are added by hand
  timeout = "12h"                 # for entries without their own; default: no timeout

  [[filter.protect]]              # see 'culvert filter protect --help'
  address = "192.0.2.1:80"
  forwarded = false               # true: the service is behind this host
  # mss = 1440                    # with forwarded: the service's largest segment
  # wscale = 7                    # with forwarded: the service's window scale

  [lb]                            # the load balancer, see 'culvert lb --help'. Numbers and
                                  # times in this table are the defaults.
  ring_size = 65537               # a prime, at least 100 times the backends of a VIP
  flows = 1048576                 # entries of the flow table
  insert_rate = 200000            # new entries a second
  vips = 256                      # room for VIPs,
  backends = 16384                # and for the backends of all VIPs together
  source4 = "10.200.0.0/16"       # outer sources of packets to backends, one address for each
  source6 = "fd00:200::/64"       # flow; default: the source that the routing table gives
  # seed = "text"                 # secret, and the same on all load balancers of a VIP;
                                  # default: see 'culvert lb seed'
  tcp_timeout = "15m"             # a flow's entry ends so long after its last packet
  udp_timeout = "3m"
  syn_timeout = "1m"              # the same for flows of a single packet
  unclaimed = "reject"            # packets to a VIP's address that are for no VIP, if the kernel
                                  # would forward them; "drop" drops, "pass" passes them

  [[lb.vip]]
  address = "192.0.2.1:80"        # without a port: all ports
  protocol = "tcp"                # or "udp"
  hash = "flow"                   # "source": one backend for all flows of a client;
                                  # "source-port": for all of a client's port
  on_failure = "keep"             # "move": move the flows of a backend that fails
  encapsulation = "ipip"          # or "gue", "l2"; backends may have their own
  # vlans = [100]                 # answer on these beside the VLANs of the host's devices
  # quic_server_id = 2            # bytes of server ID in connection IDs (QUIC-LB)
  # quic_config = 0               # config rotation of these connection IDs

  [lb.vip.check]                  # without this table all backends count as up
  type = "http"                   # or "https", "tcp", "udp"
  # port = 8080                   # default: the VIP's
  interval = "1s"                 # a failure is found within this time
  timeout = "500ms"
  rise = 2                        # answers in a row after which a backend is up
  fall = 2                        # failures in a row after which it is down
  path = "/health"                # path, host and status are for http and https
  # host = "www"
  status = "200-399"
  # send = "PING"                 # send and expect are for tcp and udp
  # expect = "PONG"               # the answer must begin with this

  [[lb.vip.backend]]
  address = "10.0.0.11"           # IPv4 or IPv6; for l2 of the VIP's family
  weight = 1                      # share of new flows; 0: none
  # encapsulation = "gue"
  # gue_port = 6080
  # server_id = "0102"            # with quic_server_id

  [[lb.vip.source]]               # more backends, from elsewhere
  kind = "dns"                    # or "file", "etcd"
  # name = "web"                  # default: its host, file or prefix
  host = "web.example.net"        # with dns
  # records = ["a", "aaaa"]       # or "srv"; l2: default those of the VIP's family
  # resolver = "192.0.2.53"       # default: those of /etc/resolv.conf
  min_ttl = "1s"                  # bounds of the time until the next look
  max_ttl = "5m"
  # file = "web.backends"         # with file: an address on each line, and weight=2 and the like
  # prefix = "/services/web/"     # with etcd: a backend for each key that begins with this
  # endpoints = ["https://192.0.2.1:2379"]   # default: those of [cluster]
  # ca = "ca.pem"                 # ca, cert and key: files in PEM
  # cert = "cert.pem"
  # key = "key.pem"
  keep = "50%"                    # an answer that leaves less of the backends is believed
  keep_for = "5m"                 # once it has been the same for this time
  damp = "2s"                     # a change counts after this time
  drain = "30s"                   # a backend that is named no more keeps its flows so long

  [lb.bgp]                        # announces the addresses of VIPs with a backend in service
  asn = 65001
  router_id = "10.0.0.1"
  hold_time = "9s"
  # graceful_restart = "60s"      # neighbors keep the routes so long while culvert restarts
  # communities = ["65001:100"]
  # med = 10

  [[lb.bgp.neighbor]]
  address = "10.0.0.254"
  asn = 65000
  # local_address = "10.0.0.1"
  # password_file = "bgp.secret"  # TCP MD5; the file's mode must be 0600
  # password = "secret"           # instead, if the mode of this file is 0600
  # ttl_security = true           # GTSM: both sides send TTL 255 and accept no other
  # multihop = 2                  # TTL to a neighbor that is not on the link
  # next_hop4 = "10.0.0.1"        # default: the session's own address
  # next_hop6 = "fd00::1"

  [lb.peers]                      # machines with the same VIPs tell each other their flows, so
                                  # that connections survive the loss of one
  listen = "10.0.0.1:9482"        # where the others send to: UDP, with bulk TCP too
  peers = ["10.0.0.2:9482"]       # the others
  key_file = "peers.key"          # the same on all; the file's mode must be 0600
  rate = 20000                    # flows told in a second; this is the default
  # flows = 262144                # most flows told, and kept of others; default: a quarter of
                                  # the flow table

  [lb.peers.bulk]                 # a start asks the others for their flows by TLS, and
                                  # announces addresses then
  cert_file = "lb1.crt"           # names the address in listen
  key_file = "lb1.key"            # its mode must be 0600
  ca_file = "ca.crt"              # whose certificates the others have to have
  timeout = "5s"                  # announce after that time at the latest

  [sflow]                         # exports samples of packets by sFlow version 5
  collector = "192.0.2.9:6343"    # who receives them; 6343 is the default port
  rate = 1000                     # one packet of so many is sampled; this is the default
  drops = 0                       # notify of so many dropped packets a second at most; 0: of none
  polling = "30s"                 # send the interfaces' counters so often; "0s": never
  header = 128                    # bytes of a frame in a sample, 14 to 256
  # agent = "192.0.2.1"           # address that names this host; default: the source address
  sub_agent = 0                   # tells data planes of one agent apart
  # source = "192.0.2.1"          # source address; default: the one that the route gives

At least one of [scion], [route], [filter], [lb] and [sflow] is needed. Without [scion],
interfaces are needed too. Relative paths start at the directory of the file that
has them.

Drop-ins are read after the file, in the order of their names: those of culvert.toml
are culvert.d/*.toml beside it, those of edge.toml edge.d/*.toml. Names that begin
with a dot are left out. Tables of the same name are one table, and each list of
tables, such as [[filter.rule]] or [[lb.vip]], continues that of the files before. A
key is set once: a second value, in whatever file, is an error, and so the order
matters for lists of tables alone. A table of a list is whole in one file: a drop-in
can add a VIP, but no backend to a VIP of another file. A drop-in that cannot be read
is an error like one in the file itself.

When the file is read again, by 'culvert reload' or a new start, what came from it before and is not in it any more
goes, and what was made by hand stays. The file's rules are one block: rules made
by 'culvert filter add' stay in front of it or behind it. A rule of the file and
another one made by hand cannot have the same name; one that is the same in both
becomes the file's. The same holds for VIPs, and for the backends of each VIP.`
