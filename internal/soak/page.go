// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// page writes the last page. It returns true if there is nothing that should not be.
func (s *soak) page(w io.Writer, l *ledger) bool {
	took := time.Since(s.began).Round(time.Second)
	s.mu.Lock()
	troubles := append(append([]string(nil), s.troubles...), l.troubles...)
	s.mu.Unlock()
	fmt.Fprintf(w, "\nsoak of %s, seed %d", min(took, s.duration), s.seed)
	if took < s.duration {
		fmt.Fprintf(w, " (interrupted, %s were asked for)", s.duration)
	}
	fmt.Fprint(w, "\n\n")
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "sent\tarrived\tnot arrived\tunexplained\t  traffic: why it has not arrived")
	for _, x := range l.lines {
		text := x.kind
		if why := x.reasons(); why != "" {
			text += ": " + why
		}
		fmt.Fprintf(t, "%d\t%d\t%d\t%d\t  %s\n", x.sent, x.arrived, x.missing, x.unexplained(), text)
	}
	t.Flush()
	fmt.Fprintf(w, "\nTCP: %d connections begun, %d done with all bytes right (%d MiB), %d broken while their server was killed, %d unexplained\n",
		s.web.begun.Load(), s.web.done.Load(), s.web.bytes.Load()>>20, s.web.broken.Load(), s.web.unexplained.Load())
	fmt.Fprint(w, "\nreceived and counted by interface\n")
	t = tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	for _, p := range l.ports {
		fmt.Fprintf(t, "%d\t%d\t%s\t\n", p.received, p.counted, p.name)
	}
	t.Flush()
	if others := l.others(); len(others) > 0 {
		fmt.Fprint(w, "\ncounted of other traffic (control planes, connections)\n")
		for _, text := range others {
			fmt.Fprintf(w, "  %s\n", text)
		}
	}
	fmt.Fprint(w, "\ndisturbances\n")
	t = tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	for _, a := range s.agitators {
		failed := ""
		if n := a.failed.Load(); n > 0 {
			failed = fmt.Sprintf("  %d FAILED", n)
		}
		fmt.Fprintf(t, "%d\t  %s%s\n", a.times.Load(), a.name, failed)
	}
	t.Flush()
	fmt.Fprintf(w, "  %d reloads in all, %d of them with a new program\n", s.reloads.Load(), s.programs.Load())
	troubles = append(troubles, s.bonds.page(w)...)
	troubles = append(troubles, s.memory(w)...)
	var refused, late uint64
	for _, x := range s.senders {
		refused += x.refused.Load()
		late += x.late.Load()
	}
	fmt.Fprintf(w, "\nthe senders waited %d times for a queue, and left out %d bursts while the machine was busy; servers: %d packets without a number, %d answers not sent\n",
		refused, late, s.echo.strange.Load(), s.echo.failed.Load())
	if len(troubles) == 0 {
		fmt.Fprint(w, "\nok: every packet is accounted for\n")
		return true
	}
	fmt.Fprintf(w, "\nFAILED, %d troubles:\n", len(troubles))
	for n, text := range troubles {
		if n == 40 {
			fmt.Fprintf(w, "  and %d more\n", len(troubles)-n)
			break
		}
		fmt.Fprintf(w, "  %s\n", text)
	}
	return false
}
