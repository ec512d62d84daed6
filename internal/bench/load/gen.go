// SPDX-License-Identifier: Apache-2.0

// Package load generates packets in the kernel and counts them at the far end, with their order and latency. It also
// measures the cost of an XDP program by itself.
package load

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -no-global-types -type cost_state -target bpfel -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I../../../bpf -I/usr/include/x86_64-linux-gnu" Bench ../../../bpf/bench/cost.bpf.c
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -no-global-types -type progress -target bpfel -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I../../../bpf -I/usr/include/x86_64-linux-gnu" benchGen ../../../bpf/bench/gen.bpf.c
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -no-global-types -type count -type flow_state -type delay_count -target bpfel -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I../../../bpf -I/usr/include/x86_64-linux-gnu" benchSink ../../../bpf/bench/sink.bpf.c
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -no-global-types -type place -target bpfel -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I../../../bpf -I/usr/include/x86_64-linux-gnu" refusal ../../../bpf/bench/refusal.bpf.c
//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -no-global-types -type softirq_time -target bpfel -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I../../../bpf -I/usr/include/x86_64-linux-gnu" softirq ../../../bpf/bench/softirq.bpf.c
