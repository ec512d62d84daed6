// SPDX-License-Identifier: Apache-2.0

package scionplane

//go:generate go tool bpf2go -tags linux -target amd64,arm64 -no-global-types -output-suffix _test -cc clang-19 -strip llvm-strip-19 -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I../../../bpf -I/usr/include/x86_64-linux-gnu" mac ../../../bpf/test/mac_test.bpf.c
