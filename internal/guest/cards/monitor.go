// SPDX-License-Identifier: Apache-2.0

package cards

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// MonitorArguments are QEMU's arguments for a serial port by which a guest commands the emulator: the monitor is a socket in a directory
// of the emulator's, and the port is connected to that.
func MonitorArguments(dir string) []string {
	path := filepath.Join(dir, "monitor")
	return []string{
		"-chardev", "socket,id=monitor,server=on,wait=off,path=" + path, "-mon", "chardev=monitor,mode=readline",
		"-chardev", "socket,id=command,path=" + path, "-serial", "chardev:command",
	}
}

// monitorPort is that port, the third one.
const monitorPort = "/dev/ttyS2"

// answerLimit bounds the wait for the monitor's answer.
const answerLimit = time.Minute

// SetLink plugs or unplugs the cable of a wire's near card, from inside the guest.
func SetLink(wire int, plugged bool) error {
	state := "off"
	if plugged {
		state = "on"
	}
	return command(fmt.Sprintf("set_link n%d %s", wire, state))
}

// command gives the monitor a command that answers nothing and may be given twice. It returns what the monitor answers as an error.
func command(text string) error {
	answer, err := settled(func() (string, error) { return ask(text) })
	if err != nil {
		return fmt.Errorf("the emulator's monitor: %w", err)
	}
	if answer != "" {
		return fmt.Errorf("the emulator's monitor: %s: %s", text, answer)
	}
	return nil
}

// settled asks again while the monitor does not know the command. Until the port is opened for the first time, and for a moment after that,
// the kernel repeats what the monitor writes: the monitor's prompt may be in front of the first command.
func settled(ask func() (answer string, err error)) (answer string, err error) {
	for range 5 {
		answer, err = ask()
		if err != nil || !strings.Contains(answer, "unknown command") {
			break
		}
	}
	return answer, err
}

// ask gives the monitor a command, and returns its answer.
func ask(text string) (answer string, err error) {
	fd, err := unix.Open(monitorPort, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	port := os.NewFile(uintptr(fd), monitorPort)
	defer port.Close()
	raw := unix.Termios{Cflag: unix.CS8 | unix.CREAD | unix.CLOCAL | unix.B115200}
	raw.Cc[unix.VMIN] = 1
	if err := unix.IoctlSetTermios(fd, unix.TCSETSF, &raw); err != nil {
		return "", err
	}
	if _, err := port.WriteString(text + "\n"); err != nil {
		return "", err
	}
	var got []byte
	buffer := make([]byte, 4096)
	for end := time.Now().Add(answerLimit); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		n, _ := unix.Read(fd, buffer)
		got = append(got, buffer[:max(n, 0)]...)
		if answer, done := answerOf(string(got)); done {
			return answer, nil
		}
	}
	return "", fmt.Errorf("no answer to %q: %q", text, got)
}

// answerOf returns the monitor's answer in what it has written: it repeats the command after each character, and clears the rest of
// the line each time. Then comes a line break and the answer, and in the end it asks for another command, in a line of its own. A prompt elsewhere is
// part of what is repeated: one that was in front of the command.
func answerOf(got string) (answer string, done bool) {
	const clearLine, prompt = "\x1b[K", "\n(qemu) "
	at := strings.LastIndex(got, clearLine)
	if at < 0 {
		return "", false
	}
	rest := strings.ReplaceAll(got[at+len(clearLine):], "\r", "")
	answer, done = strings.CutSuffix(rest, prompt)
	return strings.TrimSpace(answer), done && strings.HasPrefix(rest, "\n")
}
