// SPDX-License-Identifier: Apache-2.0

package main

// reasons is a panel with the packets of a stage by their reasons.
func reasons(stage string) panel {
	return graph("By reason", "pps", "What the fast path did with the stage's packets: culvert watch -v.",
		q(`sum by (verdict, reason) (rate(culvert_packets_total{instance=~"$instance", interface=~"$interface", stage="`+stage+`"}[$__rate_interval]))`,
			"{{verdict}} {{reason}}"))
}

var scion = board{
	name: "scion", title: "culvert: SCION", variables: []string{"interface", "link"},
	rows: []row{
		{title: "Links", height: 7, panels: []panel{
			states("Links", "By BFD: culvert status.", upDown,
				q(`router_interface_up{instance=~"$instance", interface=~"$link"}`, "{{instance}} {{interface}} to {{neighbor_isd_as}}")),
			states("Siblings", "By BFD.", upDown,
				q(`router_sibling_reachable{instance=~"$instance"}`, "{{instance}} {{sibling}}")),
			graph("BFD packets received", "pps", "",
				q(`rate(router_bfd_received_packets_total{instance=~"$instance", interface=~"$link"}[$__rate_interval])`, "{{instance}} {{interface}}")),
			stat("Keys end in", "s", "The current key of the schedule, and the last one: culvert key list.", nil,
				q(`culvert_scion_key_remaining_seconds{instance=~"$instance"}`, "{{instance}} {{key}}")),
			graph("BFD changes", "short", "Changes of state in five minutes.",
				q(`increase(router_bfd_state_changes_total{instance=~"$instance", interface=~"$link"}[5m])`, "{{instance}} {{interface}}")),
		}},
		{title: "Traffic", panels: []panel{
			graph("In", "pps", "SCION packets by the link that they came in by.",
				q(`sum by (instance, interface) (rate(router_input_pkts_total{instance=~"$instance", interface=~"$link"}[$__rate_interval]))`, "{{instance}} {{interface}}")),
			graph("Out", "pps", "SCION packets by the link that they left by.",
				q(`sum by (instance, interface) (rate(router_output_pkts_total{instance=~"$instance", interface=~"$link"}[$__rate_interval]))`, "{{instance}} {{interface}}")),
			graph("Out, bytes", "Bps", "Bytes of SCION packets, without the underlay.",
				q(`sum by (instance, interface) (rate(router_output_bytes_total{instance=~"$instance", interface=~"$link"}[$__rate_interval]))`, "{{instance}} {{interface}}")),
			graph("By type", "pps", "in, out: of this AS; br_transit: through this router alone.",
				q(`sum by (type) (rate(router_output_pkts_total{instance=~"$instance", interface=~"$link"}[$__rate_interval]))`, "{{type}}")),
		}},
		{title: "Fast path and slow path", panels: []panel{
			reasons("scion"),
			graph("Dropped", "pps", "busy_slow_path: over the limit of the slow path.",
				q(`sum by (instance, interface, reason) (rate(router_dropped_pkts_total{instance=~"$instance", interface=~"$link"}[$__rate_interval]))`,
					"{{instance}} {{interface}} {{reason}}")),
			graph("Refused at sockets", "pps", "Datagrams that do not come from where the link's should, and BFD packets of no session.",
				q(`sum by (instance, link, reason) (rate(culvert_scion_socket_dropped_packets_total{instance=~"$instance", link=~"$link"}[$__rate_interval]))`,
					"{{instance}} {{link}} {{reason}}"),
				q(`sum by (instance, link, reason) (rate(culvert_scion_bfd_dropped_packets_total{instance=~"$instance", link=~"$link"}[$__rate_interval]))`,
					"{{instance}} {{link}} BFD {{reason}}")),
		}},
	},
}

var routing = board{
	name: "routing", title: "culvert: routing", variables: []string{"interface"},
	rows: []row{
		{title: "Traffic", panels: []panel{
			reasons("route"),
			graph("Forwarded", "Bps", "Bytes of frames, by the interface that they came in by.",
				q(`sum by (instance, interface) (rate(culvert_bytes_total{instance=~"$instance", interface=~"$interface", stage="route", verdict="fwd"}[$__rate_interval]))`,
					"{{instance}} {{interface}}")),
		}},
		{title: "Mirror", panels: []panel{
			states("State", "Whether the programs forward by the mirror; else they ask the kernel: culvert route show.",
				map[string]string{"0": "not current", "1": "current"},
				q(`culvert_route_mirror_state{instance=~"$instance", state="current"}`, "{{instance}} {{family}}")),
			graph("Age", "s", "For how long it has not been known to equal the kernel's tables.",
				q(`culvert_route_mirror_age_seconds{instance=~"$instance"}`, "{{instance}} {{family}}")),
			graph("Routes", "short", "",
				q(`culvert_route_routes{instance=~"$instance"}`, "{{instance}} {{family}}")),
			states("Who forwards", "The kernel, because of a setting that the fast path does not honor: culvert status.",
				map[string]string{"0": "kernel", "1": "fast path"},
				q(`1 - culvert_route_left_to_kernel{instance=~"$instance"}`, "{{instance}} {{family}}")),
		}},
		{title: "Room", panels: []panel{
			graph("Blocks in use", "percentunit", "blocks4 and blocks6 of the configuration.",
				q(`instance_family:culvert_route_mirror_blocks:ratio{instance=~"$instance"}`, "{{instance}} {{family}}")),
			graph("Entries without room", "short", "The programs ask the kernel for them.",
				q(`culvert_route_mirror_lost_entries{instance=~"$instance"}`, "{{instance}} {{family}}")),
			graph("Next hops and neighbors", "short", "",
				q(`culvert_route_next_hops{instance=~"$instance"}`, "{{instance}} next hops"),
				q(`culvert_route_neighbors{instance=~"$instance"}`, "{{instance}} neighbors")),
			graph("Memory", "bytes", "Of the mirror.",
				q(`culvert_route_mirror_bytes{instance=~"$instance"}`, "{{instance}}")),
		}},
		{title: "Following the kernel", height: 7, panels: []panel{
			graph("Tables read anew", "short", "In five minutes.",
				q(`increase(culvert_route_table_reads_total{instance=~"$instance"}[5m])`, "{{instance}}")),
			graph("The latest reading took", "s", "",
				q(`culvert_route_table_read_duration_seconds{instance=~"$instance"}`, "{{instance}}")),
			graph("Notifications lost", "short", "In five minutes.",
				q(`increase(culvert_route_notification_overruns_total{instance=~"$instance"}[5m])`, "{{instance}}")),
		}},
	},
}

var filter = board{
	name: "filter", title: "culvert: filter", variables: []string{"interface", "rule"},
	rows: []row{
		{title: "Traffic", panels: []panel{
			reasons("filter"),
			graph("Share that was dropped", "percentunit", "Of all packets received.",
				q(`instance:culvert_filter_dropped_packets:ratio_rate5m{instance=~"$instance"}`, "{{instance}}")),
		}},
		{title: "Rules", panels: []panel{
			graph("Packets", "pps", "That match: culvert filter list.",
				q(`sum by (rule, action) (rate(culvert_filter_rule_packets_total{instance=~"$instance", rule=~"$rule"}[$__rate_interval]))`, "{{rule}} ({{action}})")),
			graph("Bytes", "Bps", "",
				q(`sum by (rule, action) (rate(culvert_filter_rule_bytes_total{instance=~"$instance", rule=~"$rule"}[$__rate_interval]))`, "{{rule}} ({{action}})")),
			graph("Over their rate", "pps", "Dropped by rules with the action limit.",
				q(`sum by (rule) (rate(culvert_filter_rule_over_limit_packets_total{instance=~"$instance", rule=~"$rule"}[$__rate_interval]))`, "{{rule}}")),
			table("Rates", "", "In packets or in bytes a second, of the whole rule or of each source or destination.",
				q(`{__name__=~"culvert_filter_rule_limit_(packets|bytes)_per_second", instance=~"$instance", rule=~"$rule"}`, "")),
		}},
		{title: "Sets and protected services", panels: []panel{
			graph("Entries", "short", "That have not expired: culvert filter set show.",
				q(`culvert_filter_set_entries{instance=~"$instance"}`, "{{instance}} {{set}}")),
			graph("SYN cookies", "pps", "SYNs answered with cookies, and packets without one.",
				q(`sum by (reason) (rate(culvert_packets_total{instance=~"$instance", interface=~"$interface", reason=~"filter-synack|filter-cookie"}[$__rate_interval]))`, "{{reason}}")),
			table("Protected services", "", "",
				q(`culvert_filter_protected_service_info{instance=~"$instance"}`, "")),
			graph("Cut off and contradictory packets", "pps", "short: they end before a byte that a rule reads; malformed: their header contradicts itself.",
				q(`rate(culvert_filter_short_packets_total{instance=~"$instance"}[$__rate_interval])`, "{{instance}} short"),
				q(`rate(culvert_filter_malformed_packets_total{instance=~"$instance"}[$__rate_interval])`, "{{instance}} malformed")),
		}},
	},
}

var loadBalancer = board{
	name: "lb", title: "culvert: load balancer", variables: []string{"interface", "vip"},
	rows: []row{
		{title: "Service", height: 7, panels: []panel{
			states("VIPs", "Whether a backend takes new flows: culvert lb show.", map[string]string{"0": "no backend", "1": "served"},
				q(`culvert_lb_vip_served{instance=~"$instance", vip=~"$vip"}`, "{{instance}} {{vip}}")),
			states("Backends", "By their checks; one without counts as up.", upDown,
				q(`1 - culvert_lb_backend_state{instance=~"$instance", vip=~"$vip", state="down"}`, "{{instance}} {{vip}} {{backend}}")),
			states("BGP sessions", "", map[string]string{"0": "down", "1": "established"},
				q(`culvert_bgp_session_state{instance=~"$instance", state="established"}`, "{{instance}} {{neighbor}}")),
			graph("Announced to", "short", "Neighbors that were told of the VIP's address.",
				q(`culvert_lb_vip_announced_neighbors{instance=~"$instance", vip=~"$vip"}`, "{{instance}} {{vip}}")),
		}},
		{title: "Traffic", panels: []panel{
			graph("Packets", "pps", "Sent to backends.",
				q(`sum by (vip) (rate(culvert_lb_backend_packets_total{instance=~"$instance", vip=~"$vip"}[$__rate_interval]))`, "{{vip}}")),
			graph("Bytes", "Bps", "Of IP packets, without outer headers.",
				q(`sum by (vip) (rate(culvert_lb_backend_bytes_total{instance=~"$instance", vip=~"$vip"}[$__rate_interval]))`, "{{vip}}")),
			graph("New flows", "cps", "By backend.",
				q(`sum by (vip, backend) (rate(culvert_lb_backend_flows_total{instance=~"$instance", vip=~"$vip"}[$__rate_interval]))`, "{{vip}} {{backend}}")),
			reasons("lb"),
		}},
		{title: "Backends", panels: []panel{
			table("States", "", "The state that each is in.",
				q(`culvert_lb_backend_state{instance=~"$instance", vip=~"$vip"} == 1`, "")),
			graph("In service", "percentunit", "The share of a VIP's backends that are to get new flows and can.",
				q(`instance_vip:culvert_lb_backends_in_service:ratio{instance=~"$instance", vip=~"$vip"}`, "{{instance}} {{vip}}")),
			graph("Checks that fail", "percentunit", "",
				q(`sum by (vip, backend) (rate(culvert_lb_backend_check_failures_total{instance=~"$instance", vip=~"$vip"}[$__rate_interval]))`+
					` / (sum by (vip, backend) (rate(culvert_lb_backend_checks_total{instance=~"$instance", vip=~"$vip"}[$__rate_interval])) > 0)`, "{{vip}} {{backend}}")),
			graph("Weights", "short", "0: drained, or weight 0.",
				q(`culvert_lb_backend_weight{instance=~"$instance", vip=~"$vip"}`, "{{instance}} {{vip}} {{backend}}")),
		}},
		{title: "Flow table", panels: []panel{
			graph("Flows", "short", "An estimate: culvert lb flows --totals.",
				q(`culvert_lb_flow_table_flows{instance=~"$instance"}`, "{{instance}}"),
				q(`culvert_lb_flow_table_capacity{instance=~"$instance"}`, "{{instance}} capacity")),
			graph("Use", "percentunit", "",
				q(`instance:culvert_lb_flow_table_flows:ratio{instance=~"$instance"}`, "{{instance}}")),
			graph("Events", "short", "What has happened beside being sent to a backend, a second.",
				q(`sum by (vip, event) (rate(culvert_lb_vip_events_total{instance=~"$instance", vip=~"$vip"}[$__rate_interval]))`, "{{vip}} {{event}}")),
		}},
		peers,
	},
}
