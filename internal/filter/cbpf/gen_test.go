// SPDX-License-Identifier: Apache-2.0

package cbpf_test

//go:generate go tool bpf2go -tags linux -target bpfel -no-global-types -go-package cbpf_test -output-suffix _test -cc clang-19 -strip llvm-strip-19 -cflags "-O2 -g -Wall -Werror -mcpu=v3 -I../../../bpf -I/usr/include/x86_64-linux-gnu" rules ../../../bpf/test/cbpf_test.bpf.c
