// SPDX-License-Identifier: Apache-2.0

package cards

import (
	"strings"
	"testing"
)

func TestAnswerOf(t *testing.T) {
	const echo = "QEMU monitor - type 'help'\r\n(qemu) s\x1b[K\x1b[Dse\x1b[K\r\n"
	for text, want := range map[string]string{
		echo + "(qemu) ": "",
		echo + "Device 'n9' not found\r\n(qemu) ": "Device 'n9' not found",
	} {
		if answer, done := answerOf(text); !done || answer != want {
			t.Errorf("%q gives %q, %t", text, answer, done)
		}
		for end := range len(text) - len("(qemu) ") {
			if _, done := answerOf(text[:end]); done {
				t.Errorf("%q counts as an answer", text[:end])
			}
		}
	}
	if args := strings.Join(MonitorArguments("/dir"), " "); !strings.Contains(args, "path=/dir/monitor") {
		t.Error(args)
	}
}
