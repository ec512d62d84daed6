// SPDX-License-Identifier: Apache-2.0

package main

// aboutConfig describes the configuration file, for 'culvert run --help' and culvert.toml(5).
const aboutConfig = `The file is TOML:

  mode = "native"                 # or "generic", for drivers without native XDP
  interfaces = ["eth1", "eth2"]   # default: those of the SCION router
  name = "edge"                   # without [scion]; default: culvert
  metrics = "127.0.0.1:9441"      # serves metrics; without [scion]
  missing = "wait"                # or "refuse" to start without one of the interfaces, as with [scion]
  detached = "exit"               # or "attach", or with [scion] "stay", the default there: when detached by hand

  [workers]                       # CPUs to spread packets over; default: none
  cpus = "1-3"
  queue = 2048                    # packets that may wait for each, the default

  [scion]
  config = "/etc/scion/br.toml"   # the SCION router's own file
  link_interfaces = "strict"      # by which its links' datagrams are taken;
                                  # "loose": by any
  bfd_min_ttl = 0                 # least TTL of BFD packets; default: any
  debug_http = false              # true: serve the profiler over HTTP, and let it
                                  # change the log level

  [route]                         # the IP router
  bypass_netfilter = false        # true: start in spite of netfilter's rules
  mirror = true                   # false: ask the kernel for every packet
  blocks4 = 16384                 # size of the mirror in KiB, beside its first
  blocks6 = 98304                 # level; these are the defaults

  [filter]                        # the packet filter: what is not in the file any
                                  # more goes, what was made by hand stays
  [[filter.rule]]                 # in the order in which they are asked
  name = "dns"                    # its counters go by it
  action = "limit"                # drop, pass, count or limit
  expression = "udp port 53"      # of libpcap; default: every packet
  # program = "dns.ddd"           # or a file: expression, or tcpdump -ddd, -dd
  interfaces = ["eth1"]           # default: all
  src = ["@bad", "!@good"]        # sets that source and destination are in or
  dst = "@ours"                   # not in
  rate = "1kpps"                  # of limit; also 500kB/s, 10Mbit/s
  per = "src/24,48"               # default: one rate for the rule
  burst = 200                     # packets, or bytes as "64kB"
  entries = 100000                # addresses to keep in mind at least
  # all = true                    # has to be said to drop every packet

  [[filter.set]]
  name = "bad"
  type = "prefix"                 # or "endpoint": addresses with ports
  file = "bad.txt"                # see 'culvert filter set --help'; or
  # entries = ["192.0.2.0/24"]    # neither: entries are added by hand
  timeout = "12h"                 # of entries without their own

  [[filter.protect]]              # see 'culvert filter protect --help'
  address = "192.0.2.1:80"
  forwarded = false
  # mss = 1440                    # with forwarded
  # wscale = 7

  [lb]                       # the load balancer; see 'culvert lb --help'
  ring_size = 65537               # a prime: 100 times the backends of a VIP or
                                  # more
  flows = 1048576                 # flows to keep in mind
  insert_rate = 200000            # new ones a second
  vips = 256                      # VIPs, and backends of all of them, to leave
  backends = 16384                # room for
  source4 = "10.200.0.0/16"       # outer source of packets to backends, an
  source6 = "fd00:200::/64"       # address of it for each flow; default: as the
                                  # routing table says
  # seed = "text"                 # the same on all balancers of a VIP, and a
                                  # secret; default: see 'culvert lb seed'
  tcp_timeout = "15m"             # how long a flow stays in mind without a
  udp_timeout = "3m"              # packet
  syn_timeout = "1m"              # and one of a single packet
  unclaimed = "reject"            # what is to a VIP's address and no VIP's, if the
                                  # kernel would forward it; "drop", or "pass"
                                  # Numbers and times are the defaults.
  [[lb.vip]]
  address = "192.0.2.1:80"        # without a port: all of them
  protocol = "tcp"                # or "udp"
  hash = "flow"                   # or "source": one backend for a client, or
                                  # "source-port": one for a client's port
  on_failure = "keep"             # or "move" flows of a backend that fails
  encapsulation = "ipip"          # or "gue", "l2": of backends without their own
  # vlans = [100]                 # to answer on beside those of the host's devices
  # quic_server_id = 2            # bytes of server ID in connection IDs (QUIC-LB)
  # quic_config = 0               # config rotation of such connection IDs

  [lb.vip.check]             # without it all backends are taken to live
  type = "http"                   # or "https", "tcp", "udp"
  # port = 8080                   # default: the VIP's
  interval = "1s"                 # a failure is found within it
  timeout = "500ms"
  rise = 2                        # answers that bring a backend back
  fall = 2                        # failures that take it out
  path = "/health"                # of http and https, with host and status
  # host = "www"
  status = "200-399"
  # send = "PING"                 # of tcp and udp
  # expect = "PONG"               # what the answer begins with

  [[lb.vip.backend]]
  address = "10.0.0.11"           # of either family, but for l2
  weight = 1                      # share of new flows; 0 drains
  # encapsulation = "gue"
  # gue_port = 6080
  # server_id = "0102"            # with quic_server_id

  [lb.bgp]                   # announces VIPs with a backend in service
  asn = 65001
  router_id = "10.0.0.1"
  hold_time = "9s"
  # graceful_restart = "60s"      # routers keep the VIPs so long while culvert is restarted
  # communities = ["65001:100"]
  # med = 10

  [[lb.bgp.neighbor]]
  address = "10.0.0.254"
  asn = 65000
  # local_address = "10.0.0.1"
  # password_file = "bgp.secret"  # TCP MD5; the file's mode is 0600. Or password = "secret", if
                                  # this file's is
  # ttl_security = true           # GTSM: both sides send TTL 255 and take no other
  # multihop = 2                  # TTL to a router that is not on the link
  # next_hop4 = "10.0.0.1"        # default: the session's own address
  # next_hop6 = "fd00::1"

One of [scion], [route], [filter] and [lb] must be there. Without [scion]
interfaces must be named. Relative paths start at the file's directory.

Rules of the file stand together. Those made by 'culvert filter add' stay when
the file is read again: in front of the file's or behind them, as they were. A
name is the file's or was made by hand, not both; what is the same in both
becomes the file's. It is the same with VIPs, and with backends of each.`
