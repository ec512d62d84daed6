// SPDX-License-Identifier: Apache-2.0

package pipelinefuzz

import "slices"

// Numbers of tags after which the filter still reads a packet: in all, and without those of VLAN 0.
const (
	filterTags = 8
	filterKept = 2
)

func isTag(kind uint16) bool { return kind == typeVLAN || kind == typeQinQ }

// judged returns the frame as the filter reads it: without tags of VLAN 0. With more tags than the filter reads, ok is false,
// and the frame is unchanged.
func judged(tr trial) (out trial, ok bool) {
	linear, kept := tr.linear(), 0
	frame := slices.Clone(tr.frame[:12])
	at := 12
	for n := 0; at+2 > linear || isTag(be.Uint16(tr.frame[at:])); n++ {
		if at+6 > linear {
			// The frame may end after a tag. A buffer may not.
			if len(tr.frame) > linear {
				return tr, false
			}
			break
		}
		if n == filterTags {
			return tr, false
		}
		if be.Uint16(tr.frame[at+2:])&0xfff != 0 {
			frame = append(frame, tr.frame[at:at+4]...)
			kept++
		}
		at += 4
	}
	if kept > filterKept {
		return tr, false
	}
	hidden := at - len(frame)
	if hidden == 0 {
		return tr, true
	}
	tr.first = linear - hidden
	tr.frame = append(frame, tr.frame[at:]...)
	return tr, true
}
