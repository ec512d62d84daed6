// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"bytes"
	"strings"
	"testing"
)

// The layout is that of the kernel's documentation, written out by hand.
func TestArchive(t *testing.T) {
	var b bytes.Buffer
	a := newArchive(&b)
	a.file("/d/f", 0o755, []byte("hello"))
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	header := func(inode, mode, links, size, name string) string {
		zero := "00000000"
		return "070701" + inode + mode + zero + zero + links + zero + size + strings.Repeat(zero, 4) + name + zero
	}
	want := header("00000001", "000041ED", "00000002", "00000000", "00000002") + "d\x00" +
		header("00000002", "000081ED", "00000001", "00000005", "00000004") + "d/f\x00\x00\x00" + "hello\x00\x00\x00" +
		header("00000003", "00000000", "00000001", "00000000", "0000000B") + "TRAILER!!!\x00\x00\x00\x00"
	if b.String() != want {
		t.Errorf("got\n%q\nwant\n%q", b.String(), want)
	}
}
