// SPDX-License-Identifier: Apache-2.0

package scionjudge

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"unsafe"

	"github.com/scionproto/scion/pkg/slayers"
	"github.com/scionproto/scion/router"
	"github.com/scionproto/scion/router/bfd"
	// Registers the underlay that every reference router uses.
	"github.com/scionproto/scion/router/control"
	_ "github.com/scionproto/scion/router/underlayproviders/udpip"
)

// The reference keeps what the judge needs in unexported fields: its own tests replace the
// underlay's sockets from inside the package. There is no other way to run the real data plane
// without sockets, so this file reaches in. A version of the reference with other fields makes
// New fail at once, not give other verdicts: the fields are looked up by name and type.

// field returns a pointer to an unexported field of the struct that v points to.
func field[T any](v reflect.Value, name string) *T {
	f := v.Elem().FieldByName(name)
	if !f.IsValid() || f.Type() != reflect.TypeFor[T]() {
		panic(fmt.Sprintf("judge: the reference has no field %s of type %s in %s",
			name, reflect.TypeFor[T](), v.Elem().Type()))
	}
	return (*T)(unsafe.Pointer(f.UnsafeAddr()))
}

func dataPlane(c *router.Connector) reflect.Value { return reflect.ValueOf(&c.DataPlane) }

// underlayOf is the UDP/IP underlay of a reference that has no links yet.
func underlayOf(c *router.Connector) router.UnderlayProvider {
	return (*field[map[string]router.UnderlayProvider](dataPlane(c), "underlays"))["udpip"]
}

// drainPool takes all free packet buffers away from a running, idle reference. From then on a
// receiver can only get a buffer that another step has just given back.
func drainPool(c *router.Connector) {
	pool := field[router.PacketPool](dataPlane(c), "packetPool")
	free := reflect.ValueOf(pool).Elem().FieldByName("pool")
	for free.Len() > 0 {
		pool.Get()
	}
}

// setSessionDown gives the link that leads to the interface a BFD session that is not up, or
// takes it away again. Only an idle reference may be changed.
func setSessionDown(c *router.Connector, ifID uint16, down bool) error {
	links := field[[1 << 16]router.Link](dataPlane(c), "interfaces")
	session := field[*bfd.Session](reflect.ValueOf(links[ifID]), "bfdSession")
	if !down {
		*session = nil
		return nil
	}
	s, err := bfd.NewSession(nil, control.BFD{}, bfd.Metrics{})
	if err != nil {
		return fmt.Errorf("judge: make a BFD session: %w", err)
	}
	*session = s
	return nil
}

func be64(b []byte) uint64 { return binary.BigEndian.Uint64(b) }

// dstIsIP tells whether a SCION packet names its destination host by an IP address.
func dstIsIP(p []byte) bool {
	return len(p) >= slayers.CmnHdrLen && slayers.AddrType(p[9]>>4) != slayers.T4Svc
}

// sameAddressing tells whether the second packet is the first, perhaps with its path changed, and
// not an answer to it: lengths and address headers agree.
func sameAddressing(in, out []byte) bool {
	if len(in) != len(out) || len(in) < slayers.CmnHdrLen {
		return false
	}
	n := slayers.CmnHdrLen + 16 +
		slayers.AddrType(in[9]>>4).Length() + slayers.AddrType(in[9]&15).Length()
	return len(in) >= n && string(in[:n]) == string(out[:n])
}
