// SPDX-License-Identifier: Apache-2.0

// Package pcap compiles expressions with libpcap. It loads the library when it is first used, without cgo.
package pcap

import (
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"culvert/internal/filter/cbpf"
)

const (
	linkEthernet   = 1
	snapLength     = 262144
	optimize       = 1
	netmaskUnknown = 0xffffffff
)

// Libraries are the file names of libpcap: Debian's, then upstream's.
var Libraries = []string{"libpcap.so.0.8", "libpcap.so.1"}

// bpfProgram is struct bpf_program of pcap/bpf.h. Its instructions have the layout of bpf.RawInstruction.
type bpfProgram struct {
	len   uint32
	insns unsafe.Pointer
}

// library has the functions of libpcap.
type library struct {
	// mu serializes the compiler. Before libpcap 1.8 it is not safe for threads, and neither are name services that it loads.
	mu sync.Mutex

	openDead  func(linkType, snapLength int32) uintptr
	close     func(handle uintptr)
	compile   func(handle uintptr, p *bpfProgram, expr string, optimize int32, netmask uint32) int32
	lastError func(handle uintptr) string
	freeCode  func(p *bpfProgram)
	filter    func(insns unsafe.Pointer, frame unsafe.Pointer, wireLen, bufLen uint32) uint32
}

var load = sync.OnceValues(func() (*library, error) { return open(Libraries) })

// open loads the first of the libraries that exists.
func open(names []string) (lib *library, err error) {
	var handle uintptr
	for _, name := range names {
		var openErr error
		if handle, openErr = purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_GLOBAL); openErr == nil {
			break
		}
		err = errors.Join(err, openErr)
	}
	if handle == 0 {
		return nil, fmt.Errorf("load libpcap, which compiles expressions: install the package libpcap0.8, or give "+
			"the output of tcpdump -ddd instead of an expression: %s", oneLine(err))
	}
	lib = &library{}
	for name, f := range map[string]any{
		"pcap_open_dead": &lib.openDead, "pcap_close": &lib.close, "pcap_compile": &lib.compile,
		"pcap_geterr": &lib.lastError, "pcap_freecode": &lib.freeCode, "bpf_filter": &lib.filter,
	} {
		at, err := purego.Dlsym(handle, name)
		if err != nil {
			return nil, fmt.Errorf("load libpcap: it has no function %s: %w", name, err)
		}
		purego.RegisterFunc(f, at)
	}
	return lib, nil
}

// tryCompile compiles an expression. The error is libpcap's message.
func (lib *library) tryCompile(expr string) (cbpf.Program, error) {
	lib.mu.Lock()
	defer lib.mu.Unlock()
	handle := lib.openDead(linkEthernet, snapLength)
	if handle == 0 {
		return nil, errors.New("out of memory")
	}
	defer lib.close(handle)
	var p bpfProgram
	if lib.compile(handle, &p, expr, optimize, netmaskUnknown) != 0 {
		return nil, errors.New(lib.lastError(handle))
	}
	defer lib.freeCode(&p)
	return append(cbpf.Program{}, unsafe.Slice((*instruction)(p.insns), p.len)...), nil
}
