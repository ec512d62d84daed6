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
		// A prompt was repeated to the monitor.
		"(qemu) (qemu)\x1b[K\x1b[D\x1b[D(qemu) s\x1b[K\r\nunknown command: '(qemu)'\r\n(qemu) ": "unknown command: '(qemu)'",
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

// TestSettled has the monitor's prompt in front of the first command, as it is seen now and then. The command is given again, but not
// one that the monitor knows and does not carry out.
func TestSettled(t *testing.T) {
	const spoilt = "(qemu) (\x1b[K\x1b[D(q\x1b[K\r\nunknown command: '(qemu)'\r\n(qemu) "
	const wrong = "(qemu) s\x1b[K\r\nDevice 'n9' not found\r\n(qemu) "
	const right = "(qemu) s\x1b[K\r\n(qemu) "
	for _, c := range []struct {
		says  []string
		want  string
		asked int
	}{
		{[]string{right}, "", 1}, {[]string{spoilt, right}, "", 2}, {[]string{spoilt, wrong, right}, "Device 'n9' not found", 2},
		{[]string{spoilt, spoilt, spoilt, spoilt, spoilt, right}, "unknown command: '(qemu)'", 5},
	} {
		asked := 0
		answer, err := settled(func() (string, error) {
			answer, done := answerOf(c.says[asked])
			if !done {
				t.Errorf("%q is no answer", c.says[asked])
			}
			asked++
			return answer, nil
		})
		if err != nil || answer != c.want || asked != c.asked {
			t.Errorf("%q: %q (%v) after %d times, want %q after %d", c.says, answer, err, asked, c.want, c.asked)
		}
	}
}
