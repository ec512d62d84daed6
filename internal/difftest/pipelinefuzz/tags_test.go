// SPDX-License-Identifier: Apache-2.0

package pipelinefuzz

import "slices"

// Tags that the filter looks behind: so many in a row, and so many beside those of VLAN 0.
const (
	filterTags = 8
	filterKept = 2
)

func isTag(kind uint16) bool { return kind == typeVLAN || kind == typeQinQ }

// judged is the frame as the filter judges it: without tags of VLAN 0. It is not ok with more tags than are looked
// behind, and then as it came in.
func judged(tr trial) (out trial, ok bool) {
	linear, kept := tr.linear(), 0
	frame := slices.Clone(tr.frame[:12])
	at := 12
	for n := 0; at+2 > linear || isTag(be.Uint16(tr.frame[at:])); n++ {
		if at+6 > linear {
			// The end of the frame is the end of its tags, that of a buffer is not.
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
