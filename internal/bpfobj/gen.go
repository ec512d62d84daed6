// SPDX-License-Identifier: Apache-2.0

// Package bpfobj has the eBPF objects with the Go types and names that are generated from them, and helpers for the layout of
// values in their maps.
package bpfobj

// The objects are committed, so that building culvert needs no clang. 'make check-generated' fails if they are stale. The first
// line has the types of the pipeline, for both of its objects: with the example and without.
//
//go:generate -command bpf2go-pipeline go tool bpf2go -target amd64,arm64 -no-global-types -cc clang-19 -strip llvm-strip-19 -type reason -type reason_block -type counter -type port -type limit -type scion_ingress -type scion_port -type scion_iface -type scion_link -type next_hop -type scion_host -type scion_counters -type aes_cmac_key -type hop_cache_entry -type route_hop -type route_dev -type route_way -type route_vlan -type route_neighbor -type route_state -type route_action -type route_fixed -type lb_vip_key -type lb_vip -type lb_vip_cache_entry -type lb_vlan -type lb_named_vlan -type bloom -type enqueued -type lb_backend -type lb_backend_latch -type lb_encap -type lb_backend_counters -type lb_event -type lb_bucket -type lb_entry -type lb_flow_state -type lb_chunk -type lb_finding -type lb_server_key
//go:generate bpf2go-pipeline -tags linux,!example -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I../../bpf -I/usr/include/x86_64-linux-gnu" Pipeline ../../bpf/culvert.bpf.c
//go:generate go tool bpf2go -tags linux -target bpfel -no-global-types -cc clang-19 -strip llvm-strip-19 -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I../../bpf -I/usr/include/x86_64-linux-gnu" -type loss Losses ../../bpf/core/losses.bpf.c
//go:generate go tool bpf2go -tags linux -target amd64,arm64 -no-global-types -cc clang-19 -strip llvm-strip-19 -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I../../bpf -I/usr/include/x86_64-linux-gnu" Probe ../../bpf/lb/probe.bpf.c
//go:generate go tool bpf2go -tags linux,!example -target bpfel -no-global-types -cc clang-19 -strip llvm-strip-19 -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I../../bpf -I/usr/include/x86_64-linux-gnu" -type flow_keys -type counter -type filter_limit -type top_bucket -type top_secret -type filter_service -type filter_service_key Filter ../../bpf/filter/filter.bpf.c
//go:generate go tool bpf2go -tags linux -target bpfel -no-global-types -cc clang-19 -strip llvm-strip-19 -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I../../bpf -I/usr/include/x86_64-linux-gnu" -type decap_reason -type decap_counter -type decap_addr -type decap_prefix Decap ../../bpf/decap/decap.bpf.c
//go:generate go tool bpf2go -tags linux -target amd64,arm64 -no-global-types -cc clang-19 -strip llvm-strip-19 -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I../../bpf -I/usr/include/x86_64-linux-gnu" GC ../../bpf/lb/gc.bpf.c
//go:generate go tool bpf2go -tags linux -target bpfel -no-global-types -cc clang-19 -strip llvm-strip-19 -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I../../bpf -I/usr/include/x86_64-linux-gnu" Explain ../../bpf/lb/explain.bpf.c
//go:generate go tool bpf2go -tags linux -target bpfel -no-global-types -cc clang-19 -strip llvm-strip-19 -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I../../bpf -I/usr/include/x86_64-linux-gnu" -type socket_device -type socket_drops Socket ../../bpf/scion/socket.bpf.c
//go:generate go tool bpf2go -tags linux -target amd64,arm64 -no-global-types -cc clang-19 -strip llvm-strip-19 -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I../../bpf -I/usr/include/x86_64-linux-gnu" Migrate ../../bpf/lb/migrate.bpf.c

// While somebody captures, these take the place of the pipeline and the filter.
//
//go:generate go tool bpf2go -tags linux -target amd64,arm64 -no-global-types -cc clang-19 -strip llvm-strip-19 -cflags "-O2 -g -Wall -Werror -mcpu=v3 -DCULVERT_CAPTURE -DCULVERT_SFLOW -I../../bpf -I/usr/include/x86_64-linux-gnu" -type capture_record -type capture_packet -type capture_kind Capture ../../bpf/culvert.bpf.c
//go:generate go tool bpf2go -tags linux -target bpfel -no-global-types -cc clang-19 -strip llvm-strip-19 -cflags "-O2 -g -Wall -Werror -mcpu=v3 -DCULVERT_CAPTURE -DCULVERT_SFLOW -I../../bpf -I/usr/include/x86_64-linux-gnu" FilterCapture ../../bpf/filter/filter.bpf.c

// While packets are sampled for sFlow, these are what is loaded. The objects of a capture sample too.
//
//go:generate go tool bpf2go -tags linux -target amd64,arm64 -no-global-types -cc clang-19 -strip llvm-strip-19 -cflags "-O2 -g -Wall -Werror -mcpu=v3 -DCULVERT_SFLOW -I../../bpf -I/usr/include/x86_64-linux-gnu" -type sflow_record -type sflow_count -type sflow_packet -type sflow_kind SFlow ../../bpf/culvert.bpf.c
//go:generate go tool bpf2go -tags linux -target bpfel -no-global-types -cc clang-19 -strip llvm-strip-19 -cflags "-O2 -g -Wall -Werror -mcpu=v3 -DCULVERT_SFLOW -I../../bpf -I/usr/include/x86_64-linux-gnu" FilterSFlow ../../bpf/filter/filter.bpf.c

// Tests of internal/example are built with the tag example, and have these objects in the place of those above that count
// packets by reason: the stage of bpf/example is in them.
//
//go:generate bpf2go-pipeline -tags linux,example -output-stem pipeline_example -cflags "-O2 -g -Wall -Werror -mcpu=v3 -DCULVERT_EXAMPLE -I../../bpf -I/usr/include/x86_64-linux-gnu" -type example_service -type example_target Pipeline ../../bpf/culvert.bpf.c
//go:generate go tool bpf2go -tags linux,example -output-stem filter_example -target bpfel -no-global-types -cc clang-19 -strip llvm-strip-19 -cflags "-O2 -g -Wall -Werror -mcpu=v3 -DCULVERT_EXAMPLE -I../../bpf -I/usr/include/x86_64-linux-gnu" -type flow_keys -type counter -type filter_limit -type top_bucket -type top_secret -type filter_service -type filter_service_key Filter ../../bpf/filter/filter.bpf.c
//go:generate go tool bpf2go -tags linux,example -target bpfel -no-global-types -cc clang-19 -strip llvm-strip-19 -cflags "-O2 -g -Wall -Werror -mcpu=v3 -DCULVERT_EXAMPLE -I../../bpf -I/usr/include/x86_64-linux-gnu" Example ../../bpf/example/front.bpf.c
