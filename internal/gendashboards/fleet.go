// SPDX-License-Identifier: Apache-2.0

package main

// nodes is what to multiply an expression with that has a series for each instance: it leaves the nodes of the clusters that are
// chosen, and adds the names of cluster and node.
const nodes = ` * on (job, instance) group_left (cluster, node) culvert_cluster_info{cluster=~"$cluster", instance=~"$instance"}`

// fleet has a line for each node. It also shows clusters of a Prometheus that federates others, which has the recorded series alone.
var fleet = board{
	name: "fleet", title: "culvert: fleet", variables: []string{"cluster", "vip"},
	rows: []row{
		{title: "Clusters", height: 6, panels: []panel{
			stat("Nodes", "", "Those that report metrics: culvert fleet status.", nil,
				q(`cluster:culvert_nodes:count{cluster=~"$cluster"}`, "{{cluster}}")),
			stat("Reach etcd", "percentunit", "The share of nodes that etcd answers. Without it what runs goes on.", nil,
				q(`cluster:culvert_nodes_reaching_etcd:ratio{cluster=~"$cluster"}`, "{{cluster}}")),
			graph("Nodes by revision", "short", "More than one line: a rollout is under way, or has stopped: culvert fleet history.",
				q(`cluster_revision:culvert_nodes:count{cluster=~"$cluster"}`, "{{cluster}} revision {{revision}}")),
			graph("Packets by verdict", "pps", "Of all nodes.",
				q(`cluster_verdict:culvert_packets:rate5m{cluster=~"$cluster"}`, "{{cluster}} {{verdict}}")),
		}},
		{title: "Services", height: 7, panels: []panel{
			graph("Packets by VIP", "pps", "Sent to backends, by all nodes.",
				q(`cluster_vip:culvert_lb_packets:rate5m{cluster=~"$cluster", vip=~"$vip"}`, "{{cluster}} {{vip}}")),
			graph("Announced by", "short", "Nodes that announce the VIP's address.",
				q(`cluster_vip:culvert_lb_vip_announcing_nodes:sum{cluster=~"$cluster", vip=~"$vip"}`, "{{cluster}} {{vip}}")),
			graph("Not served by", "short", "Nodes on which the VIP has no backend for new flows.",
				q(`cluster_vip:culvert_lb_vip_unserved_nodes:sum{cluster=~"$cluster", vip=~"$vip"}`, "{{cluster}} {{vip}}")),
		}},
		{title: "Nodes", height: 9, panels: []panel{
			states("etcd", "Whether it answers: culvert status.", map[string]string{"0": "not reached", "1": "reached"},
				q(`culvert_cluster_reached`+nodes, "{{cluster}} {{node}}")),
			states("Revision", "Whether the one runs that is to run, and why not: culvert fleet status.", map[string]string{"0": "behind", "1": "current"},
				q(`(1 - culvert_cluster_behind)`+nodes, "{{cluster}} {{node}}")),
			states("In service", "By culvert fleet maintain and resume.", map[string]string{"0": "maintenance", "1": "in service"},
				q(`(1 - culvert_cluster_maintenance)`+nodes, "{{cluster}} {{node}}")),
			states("Process", "Whether the process answers. The data plane goes on without it.", upDown,
				q(`up{instance=~"$instance"}`, "{{instance}}")),
		}},
		{title: "What differs", height: 8, panels: []panel{
			table("Revisions", "", "What each node runs; 0: its own file alone.",
				q(`culvert_cluster_revision`+nodes, "")),
			graph("Refused", "short", "Nodes that refuse the revision that is to run: culvert fleet status.",
				q(`sum by (cluster) (culvert_cluster_refused`+nodes+`)`, "{{cluster}}")),
			graph("Urgent changes", "short", "In force, and such that could not be carried out: culvert fleet urgent.",
				q(`culvert_cluster_urgent`+nodes, "{{cluster}} {{node}}"),
				q(`culvert_cluster_urgent_failed`+nodes, "{{cluster}} {{node}} failed")),
			graph("Certificates end in", "s", "Of the nodes: culvert cluster enrol NODE --again.",
				q(`(culvert_cluster_certificate_expiry_timestamp_seconds - time())`+nodes, "{{cluster}} {{node}}")),
		}},
		{title: "Traffic of nodes", panels: []panel{
			graph("Packets", "pps", "",
				q(`sum by (cluster, node) (sum by (job, instance) (instance_interface_verdict:culvert_packets:rate5m)`+nodes+`)`, "{{cluster}} {{node}}")),
			graph("Dropped", "pps", "",
				q(`sum by (cluster, node) (sum by (job, instance) (instance_interface_verdict:culvert_packets:rate5m{verdict=~"drop|limited"})`+nodes+`)`,
					"{{cluster}} {{node}}")),
			graph("With etcd", "short", "States that the nodes write, and how often they begin to follow it, in five minutes.",
				q(`sum by (cluster) (increase(culvert_cluster_state_writes_total[5m])`+nodes+`)`, "{{cluster}} states"),
				q(`sum by (cluster) (increase(culvert_cluster_sessions_total[5m])`+nodes+`)`, "{{cluster}} sessions")),
			graph("State directory", "short", "Problems with the last good documents: culvert status.",
				q(`culvert_cluster_state_problems`+nodes, "{{cluster}} {{node}}"),
				q(`culvert_cluster_name_taken`+nodes, "{{cluster}} {{node}} has another one's name")),
		}},
	},
}

// peers are the rows about what load balancers of a tier tell each other.
var peers = row{title: "Peers", panels: []panel{
	states("Peers", "Whether they were heard within 5 s, and have the same rings: culvert lb show.", upDown,
		q(`culvert_lb_peer_up{instance=~"$instance"}`, "{{instance}} {{peer}}"),
		q(`culvert_lb_peer_agrees{instance=~"$instance"}`, "{{instance}} {{peer}} same rings")),
	graph("Flows beside the ring", "short", "Of this machine, those that are too many to be told, and those that only peers have told.",
		q(`culvert_lb_peer_deviating_flows{instance=~"$instance"}`, "{{instance}} own"),
		q(`culvert_lb_peer_untold_flows{instance=~"$instance"}`, "{{instance}} untold"),
		q(`culvert_lb_peer_held_flows{instance=~"$instance"}`, "{{instance}} held for peers"),
		q(`culvert_lb_peer_flows_limit{instance=~"$instance"}`, "{{instance}} limit")),
	graph("Flows told", "short", "A second: told to the peers, and what became of those that they have told.",
		q(`rate(culvert_lb_peer_told_flows_total{instance=~"$instance"}[$__rate_interval])`, "{{instance}} told"),
		q(`sum by (instance, result) (rate(culvert_lb_peer_flows_total{instance=~"$instance"}[$__rate_interval]))`, "{{instance}} {{result}}")),
	graph("Datagrams", "pps", "By what became of them; strangers, and what could not be sent.",
		q(`sum by (instance, result) (rate(culvert_lb_peer_datagrams_total{instance=~"$instance"}[$__rate_interval]))`, "{{instance}} {{result}}"),
		q(`rate(culvert_lb_peer_strangers_total{instance=~"$instance"}[$__rate_interval])`, "{{instance}} strangers"),
		q(`rate(culvert_lb_peer_send_errors_total{instance=~"$instance"}[$__rate_interval])`, "{{instance}} not sent")),
	states("Asked at the start", "Whether the peers have told all their flows before this machine announces its VIPs.", map[string]string{"0": "incomplete", "1": "done"},
		q(`1 - culvert_lb_peer_bulk_state{instance=~"$instance", state="incomplete"}`, "{{instance}}")),
}}
