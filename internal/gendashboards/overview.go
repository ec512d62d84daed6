// SPDX-License-Identifier: Apache-2.0

package main

// boards are the dashboards, by the names of their files.
var boards = []board{overview, scion, routing, filter, loadBalancer, fleet}

// upDown are the words for metrics that say whether something works.
var upDown = map[string]string{"0": "down", "1": "up"}

var overview = board{
	name: "overview", title: "culvert: overview", variables: []string{"interface"},
	rows: []row{
		{title: "State", height: 5, panels: []panel{
			stat("Processes", "", "Whether the process answers. The data plane goes on without it.", upDown,
				q(`up{instance=~"$instance"}`, "{{instance}}")),
			stat("Versions", "", "What runs where.", nil,
				q(`culvert_build_info{instance=~"$instance"}`, "{{instance}} {{version}}")),
			stat("Running for", "s", "Since the start of the process.", nil,
				q(`time() - process_start_time_seconds{instance=~"$instance"}`, "{{instance}}")),
			stat("Configuration", "", "Whether the last attempt to apply it was successful: culvert check.",
				map[string]string{"0": "refused", "1": "applied"},
				q(`culvert_config_last_reload_successful{instance=~"$instance"}`, "{{instance}}")),
			stat("Configured for", "s", "Since the configuration in force was applied.", nil,
				q(`time() - culvert_config_last_reload_success_timestamp_seconds{instance=~"$instance"}`, "{{instance}}")),
		}},
		{title: "Stages and interfaces", height: 7, panels: []panel{
			states("Stages", "Whether they are in step with the host: culvert status.", map[string]string{"0": "not ready", "1": "ready"},
				q(`max by (instance, stage) (culvert_stage_state{instance=~"$instance", state="ready"})`, "{{instance}} {{stage}}")),
			states("Interfaces", "Whether they carry the program and have a carrier: culvert doctor.", upDown,
				q(`min by (instance, interface) ({__name__=~"culvert_interface_(attached|up)", instance=~"$instance", interface=~"$interface"})`,
					"{{instance}} {{interface}}")),
		}},
		{title: "Packets", panels: []panel{
			graph("By verdict", "pps", "All that was received.",
				q(`sum by (verdict) (rate(culvert_packets_total{instance=~"$instance", interface=~"$interface"}[$__rate_interval]))`, "{{verdict}}")),
			graph("Bytes by verdict", "Bps", "Frames as they were received.",
				q(`sum by (verdict) (rate(culvert_bytes_total{instance=~"$instance", interface=~"$interface"}[$__rate_interval]))`, "{{verdict}}")),
			graph("By interface", "pps", "",
				q(`sum by (instance, interface) (rate(culvert_packets_total{instance=~"$instance", interface=~"$interface"}[$__rate_interval]))`,
					"{{instance}} {{interface}}")),
			graph("By stage", "pps", "core: claimed by no stage, to the kernel.",
				q(`sum by (stage) (rate(culvert_packets_total{instance=~"$instance", interface=~"$interface"}[$__rate_interval]))`, "{{stage}}")),
		}},
		{title: "Where they went", height: 10, panels: []panel{
			table("Reasons", "pps", "Each packet is counted once: culvert watch -v.",
				q(`sort_desc(sum by (instance, verdict, reason) (rate(culvert_packets_total{instance=~"$instance", interface=~"$interface"}[$__rate_interval]))`+
					` * on (instance, verdict, reason) group_left (text) culvert_reason_info)`, "")),
		}},
		{title: "What is slow or lost", panels: []panel{
			graph("Decided by the fast path", "percentunit", "The share of packets that were forwarded, answered or dropped without the kernel.",
				q(`instance:culvert_fast_path_packets:ratio_rate5m{instance=~"$instance"}`, "{{instance}}")),
			graph("To slow paths", "pps", "limited: over the limit, and dropped.",
				q(`sum by (stage, verdict, reason) (rate(culvert_packets_total{instance=~"$instance", interface=~"$interface", verdict=~"punt|limited"}[$__rate_interval]))`,
					"{{verdict}} {{reason}}")),
			graph("Use of their limits", "percentunit", "At 100 % packets are dropped. Each sender has a tenth of a limit for itself.",
				q(`sum by (instance, stage, reason) (rate(culvert_packets_total{instance=~"$instance", verdict=~"punt|limited"}[$__rate_interval]))`+
					` / on (instance, stage, reason) culvert_reason_limit_packets_per_second{verdict="punt"}`, "{{instance}} {{reason}}")),
			graph("Lost after the verdict", "pps", "culvert doctor tells why.",
				q(`sum by (instance, interface, loss) (rate(culvert_lost_packets_total{instance=~"$instance", interface=~"$interface"}[$__rate_interval]))`,
					"{{instance}} {{interface}} {{loss}}")),
		}},
		{title: "Process", height: 7, panels: []panel{
			graph("CPU", "percentunit", "Of the process: the data plane's packets are not in it.",
				q(`rate(process_cpu_seconds_total{instance=~"$instance"}[$__rate_interval])`, "{{instance}}")),
			graph("Memory", "bytes", "Of the process: the maps of the data plane are not in it.",
				q(`process_resident_memory_bytes{instance=~"$instance"}`, "{{instance}}")),
		}},
	},
}
