// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"

	"culvert/internal/host/pins"
)

// feature is a feature of the kernel that the programs in bpf/ use.
type feature struct {
	name string
	// since is the version of the first kernel that has it.
	since string
	// probe returns ebpf.ErrNotSupported if this kernel does not have it.
	probe func() error
}

func helper(name, since string, fn asm.BuiltinFunc) feature {
	return feature{name, since, func() error { return features.HaveProgramHelper(ebpf.XDP, fn) }}
}

func mapType(name, since string, t ebpf.MapType) feature {
	return feature{name, since, func() error { return features.HaveMapType(t) }}
}

var wantedFeatures = []feature{
	{"XDP programs", "4.8", func() error { return features.HaveProgramType(ebpf.XDP) }},
	{"raw tracepoints", "4.17", func() error { return features.HaveProgramType(ebpf.RawTracepoint) }},
	{"BTF", "5.2 with CONFIG_DEBUG_INFO_BTF=y", haveBTF},
	{"cookies of network namespaces", "5.14", haveCookies},
	{"multi-buffer XDP", "5.18", haveMultiBuffer},
	helper("bpf_fib_lookup", "4.18", asm.FnFibLookup),
	helper("bpf_ktime_get_coarse_ns", "5.11", asm.FnKtimeGetCoarseNs),
	helper("bpf_xdp_get_buff_len", "5.18", asm.FnXdpGetBuffLen),
	helper("bpf_ktime_get_tai_ns", "6.1", asm.FnKtimeGetTaiNs),
	mapType("per-CPU array maps", "4.6", ebpf.PerCPUArray),
	mapType("ring buffer maps", "5.8", ebpf.RingBuf),
}

func haveBTF() error {
	_, err := os.Stat("/sys/kernel/btf/vmlinux")
	if errors.Is(err, os.ErrNotExist) {
		return ebpf.ErrNotSupported
	}
	return err
}

func haveCookies() error {
	_, err := pins.Cookie()
	if errors.Is(err, pins.ErrTooOld) {
		return ebpf.ErrNotSupported
	}
	return err
}

// xdpHasFrags is BPF_F_XDP_HAS_FRAGS of linux/bpf.h.
const xdpHasFrags = 1 << 5

func haveMultiBuffer() error {
	if err := features.HaveProgramType(ebpf.XDP); err != nil {
		return err
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type:         ebpf.XDP,
		Flags:        xdpHasFrags,
		License:      "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
	})
	if err != nil {
		// A program without the flag has just been loaded, so the kernel refuses the flag.
		return fmt.Errorf("%w: %w", ebpf.ErrNotSupported, err)
	}
	return prog.Close()
}

// featureSet is the result of all probes.
type featureSet struct {
	// missing are the features that the kernel does not have.
	missing []feature
	// unknown is the first error that says nothing about the kernel, such as a missing privilege.
	unknown error
	// probed is the number of features that were probed.
	probed int
}

func probeFeatures() featureSet {
	set := featureSet{probed: len(wantedFeatures)}
	for _, f := range wantedFeatures {
		err := f.probe()
		switch {
		case err == nil:
		case errors.Is(err, ebpf.ErrNotSupported):
			set.missing = append(set.missing, f)
		case set.unknown == nil:
			set.unknown = fmt.Errorf("%s: %w", f.name, plain(err))
		}
	}
	return set
}

func checkKernel(release string, set featureSet) Finding {
	f := Finding{
		Check:   "kernel",
		Finding: fmt.Sprintf("%s has the %d features that culvert uses", release, set.probed),
	}
	if set.missing == nil && set.unknown != nil {
		f.Status = Warn
		f.Finding = fmt.Sprintf("%s: its features cannot be probed: %v", release, set.unknown)
		f.Command = "sudo culvert doctor"
	}
	if set.missing != nil {
		var names []string
		f.Status = Fail
		for _, m := range set.missing {
			names = append(names, fmt.Sprintf("%s (since %s)", m.name, m.since))
		}
		f.Finding = fmt.Sprintf("%s lacks %s", release, strings.Join(names, ", "))
		f.Command = "apt-get install -t bookworm-backports linux-image-amd64 && reboot"
	}
	return f
}
