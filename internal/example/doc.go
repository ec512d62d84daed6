// SPDX-License-Identifier: Apache-2.0

// Package example is about the stage of bpf/example, which is built for tests alone. It shows what a stage may do beside
// forwarding packets itself: leave another destination to the stages behind it, and take headers off in front of the
// pipeline. docs/development.md, "Adding a stage", walks through it.
package example

// The objects are committed with those that users load, and checked like them.
//
//go:generate go tool bpf2go -tags linux -target amd64,arm64 -no-global-types -output-suffix _test -cc clang-19 -strip llvm-strip-19 -cflags "-O2 -g -Wall -Werror -mcpu=v3 -DCULVERT_EXAMPLE -I../../bpf -I/usr/include/x86_64-linux-gnu" -type reason -type counter -type port -type route_hop -type route_action -type example_service -type example_target pipeline ../../bpf/culvert.bpf.c
//go:generate go tool bpf2go -tags linux -target bpfel -no-global-types -output-suffix _test -cc clang-19 -strip llvm-strip-19 -cflags "-O2 -g -Wall -Werror -mcpu=v3 -DCULVERT_EXAMPLE -I../../bpf -I/usr/include/x86_64-linux-gnu" front ../../bpf/example/front.bpf.c
