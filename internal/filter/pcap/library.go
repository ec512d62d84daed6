// SPDX-License-Identifier: Apache-2.0

// Package pcap compiles expressions with libpcap itself. The library is loaded when first used, without cgo.
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

// Libraries are the names of libpcap: Debian's, then that of its authors.
var Libraries = []string{"libpcap.so.0.8", "libpcap.so.1"}

// bpfProgram is struct bpf_program of pcap/bpf.h. Its instructions have the layout of bpf.RawInstruction.
type bpfProgram struct {
	len   uint32
	insns unsafe.Pointer
}

// library has the functions of libpcap. Its compiler is not safe to be called by two threads at once before 1.8, and
// loads name services that are not either: mu is held.
type library struct {
	mu sync.Mutex

	openDead  func(linkType, snapLength int32) uintptr
	close     func(handle uintptr)
	compile   func(handle uintptr, p *bpfProgram, expr string, optimize int32, netmask uint32) int32
	lastError func(handle uintptr) string
	freeCode  func(p *bpfProgram)
	filter    func(insns unsafe.Pointer, frame unsafe.Pointer, wireLen, bufLen uint32) uint32
}

var load = sync.OnceValues(func() (*library, error) { return open(Libraries) })

// open loads the first library that is there.
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

// tryCompile returns libpcap's own message as the error.
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
