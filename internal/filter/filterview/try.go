// SPDX-License-Identifier: Apache-2.0

package filterview

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"culvert/internal/filter/filterplane"
	"culvert/internal/show/text"
)

// TestOptions say what to try, and on which packets.
type TestOptions struct {
	// On is the data plane whose rules and sets are meant, "" for the only one.
	On string
	// Filter is tried in the place of the running one, unless it is nil; with the running sets, or with its own
	// if Members is not nil.
	Filter  *filterplane.Filter
	Members *filterplane.TesterSets
	// Path is a pcap or pcapng file, "-" for standard input.
	Path  string
	Stdin io.Reader
	// Interface is one of this network namespace that the packets come in by, "" for none that a rule names.
	Interface string
	Out       io.Writer
	JSON      bool
}

// Only is a filter of one rule.
func Only(r filterplane.Rule) *filterplane.Filter {
	return &filterplane.Filter{Rules: []filterplane.Rule{r}}
}

// Tried is a packet, and what became of it.
type Tried struct {
	Number int       `json:"number"`
	Time   time.Time `json:"time"`
	// Length is the packet's, Captured what the file has of it, if that is less.
	Length   int    `json:"length"`
	Captured int    `json:"captured,omitempty"`
	Summary  string `json:"summary"`
	// Verdict is "drop" or "pass".
	Verdict string `json:"verdict"`
	// Rule is the one that decided, left out if none did.
	Rule string `json:"rule,omitempty"`
	// Reason is why it is dropped before any rule is asked, left out if it is not.
	Reason string `json:"reason,omitempty"`
	// Matched are all rules that took the packet, in their order.
	Matched   []string `json:"matched"`
	Short     bool     `json:"short,omitempty"`
	Malformed bool     `json:"malformed,omitempty"`
}

// Totals add up what became of the packets of a file.
type Totals struct {
	Packets   int         `json:"packets"`
	Dropped   int         `json:"dropped"`
	Passed    int         `json:"passed"`
	Cut       int         `json:"cut"`
	Short     int         `json:"short"`
	Malformed int         `json:"malformed"`
	Rules     []RuleTotal `json:"rules"`
}

// RuleTotal is how many packets a rule took, and how many of these it decided on.
type RuleTotal struct {
	Rule    string `json:"rule"`
	Matched int    `json:"matched"`
	Decided int    `json:"decided"`
	words   string
}

// Test runs the packets of a file through a filter that is attached nowhere.
func Test(o TestOptions) error {
	name, in := "standard input", o.Stdin
	if o.Path != "-" {
		file, err := os.Open(o.Path)
		if err != nil {
			var pe *os.PathError
			if errors.As(err, &pe) {
				err = pe.Err
			}
			return fmt.Errorf("reading %s: %w", o.Path, err)
		}
		defer file.Close()
		name, in = o.Path, file
	}
	packets, err := openPcap(bufio.NewReaderSize(in, 1<<16))
	if err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	f, tester, err := o.tester()
	if err != nil {
		return err
	}
	defer tester.Close()
	out := bufio.NewWriter(o.Out)
	r := runner{o: o, tester: tester, out: out}
	for _, rule := range f.Rules {
		r.totals.Rules = append(r.totals.Rules, RuleTotal{Rule: rule.Name, words: describe(rule).Words})
	}
	return errors.Join(r.all(name, packets), out.Flush())
}

// tester loads the filter that is meant.
func (o TestOptions) tester() (f filterplane.Filter, t *filterplane.Tester, err error) {
	if o.Members != nil {
		t, err = filterplane.NewTesterWithSets(*o.Filter, *o.Members)
		return *o.Filter, t, err
	}
	inst, err := Open(o.On)
	switch {
	case err == nil:
		defer inst.Close()
	case o.Filter == nil || o.On != "" || asksForSets(*o.Filter):
		return f, nil, err
	default: // rules without sets need nobody's
		inst = nil
	}
	if o.Filter != nil {
		f = *o.Filter
	} else if f, err = filterplane.Read(inst); err != nil {
		return f, nil, err
	}
	t, err = filterplane.NewTester(inst, f)
	return f, t, err
}

func asksForSets(f filterplane.Filter) bool {
	for _, r := range f.Rules {
		if len(r.Src)+len(r.Dst) > 0 {
			return true
		}
	}
	return false
}

// packetReader is what readers of either format have.
type packetReader interface {
	LinkType() layers.LinkType
	ReadPacketData() ([]byte, gopacket.CaptureInfo, error)
}

func openPcap(r *bufio.Reader) (p packetReader, err error) {
	// A section header block begins every pcapng file.
	if head, peek := r.Peek(4); peek == nil && string(head) == "\x0a\x0d\x0d\x0a" {
		p, err = pcapgo.NewNgReader(r, pcapgo.DefaultNgReaderOptions)
	} else {
		p, err = pcapgo.NewReader(r)
	}
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errors.New("it ends before the first packet: it is no pcap or pcapng file")
	case err != nil:
		return nil, fmt.Errorf("it is no pcap or pcapng file: %w", err)
	case p.LinkType() != layers.LinkTypeEthernet:
		return nil, fmt.Errorf("its packets are %v: the filter judges Ethernet frames", p.LinkType())
	}
	return p, nil
}

type runner struct {
	o      TestOptions
	tester *filterplane.Tester
	out    io.Writer
	start  time.Time
	totals Totals
	wrote  bool
}

// all ends what it writes also if it cannot go on.
func (r *runner) all(name string, packets packetReader) error {
	if r.o.JSON {
		fmt.Fprint(r.out, `{"packets": [`)
	}
	failed := r.each(name, packets)
	if r.totals.Rules == nil {
		r.totals.Rules = []RuleTotal{}
	}
	if !r.o.JSON {
		if failed == nil {
			failed = r.writeTotals()
		}
		return failed
	}
	end := ""
	if failed != nil {
		b, err := marshal(failed.Error())
		if err != nil {
			return err
		}
		end = fmt.Sprintf(", \"error\": %s", b)
	}
	b, err := marshal(r.totals)
	if err == nil {
		_, err = fmt.Fprintf(r.out, "\n], \"totals\": %s%s}\n", b, end)
	}
	return errors.Join(failed, err)
}

func (r *runner) each(name string, packets packetReader) error {
	for n := 1; ; n++ {
		frame, info, err := packets.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading packet %d of %s: %w", n, name, err)
		}
		v, err := r.judge(frame)
		if err != nil {
			return fmt.Errorf("packet %d of %s: %w", n, name, err)
		}
		t := Tried{
			Number: n, Time: info.Timestamp.UTC(), Length: info.Length, Summary: summary(frame), Verdict: string(v.Action),
			Rule: v.Rule, Reason: v.Reason, Matched: append([]string{}, v.Matched...), Short: v.Short, Malformed: v.Malformed,
		}
		if info.CaptureLength < info.Length {
			t.Captured = info.CaptureLength
		}
		r.count(t)
		if err := r.write(t); err != nil {
			return err
		}
	}
}

// ethernetHeader is the least that the kernel runs a program on (ETH_HLEN). A driver hands over nothing shorter.
const ethernetHeader = 14

func (r *runner) judge(frame []byte) (filterplane.Verdict, error) {
	if len(frame) < ethernetHeader {
		return filterplane.Verdict{Action: filterplane.Pass, Short: true}, nil
	}
	return r.tester.Run(frame, r.o.Interface)
}

func (r *runner) count(t Tried) {
	c := &r.totals
	c.Packets++
	if t.Verdict == string(filterplane.Drop) {
		c.Dropped++
	} else {
		c.Passed++
	}
	for _, x := range []struct {
		is bool
		n  *int
	}{{t.Captured != 0, &c.Cut}, {t.Short, &c.Short}, {t.Malformed, &c.Malformed}} {
		if x.is {
			*x.n++
		}
	}
	for n := range c.Rules {
		for _, name := range t.Matched {
			if name == c.Rules[n].Rule {
				c.Rules[n].Matched++
			}
		}
		if t.Rule == c.Rules[n].Rule {
			c.Rules[n].Decided++
		}
	}
}

func (r *runner) write(t Tried) error {
	if r.o.JSON {
		b, err := marshal(t)
		if err != nil {
			return err
		}
		comma := ","
		if !r.wrote {
			comma = ""
		}
		r.wrote = true
		_, err = fmt.Fprintf(r.out, "%s\n  %s", comma, b)
		return err
	}
	if !r.wrote {
		r.start = t.Time
	}
	r.wrote = true
	rule := t.Rule
	if rule == "" {
		rule = "-"
	}
	line := fmt.Sprintf("%5d  %10.6f  %-4s  %-16s  %s", t.Number, t.Time.Sub(r.start).Seconds(), t.Verdict, rule, t.Summary)
	if also := also(t); also != "" {
		line += "  (" + also + ")"
	}
	_, err := fmt.Fprintln(r.out, line)
	return err
}

// marshal writes JSON in one line, as it is read: nobody puts it into a page of HTML.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// also is what else there is to say of a packet.
func also(t Tried) string {
	var parts []string
	var others []string
	for _, name := range t.Matched {
		if name != t.Rule {
			others = append(others, name)
		}
	}
	if len(others) > 0 {
		parts = append(parts, "matched by "+strings.Join(others, ", "))
	}
	if t.Reason != "" {
		parts = append(parts, t.Reason)
	}
	if t.Short {
		parts = append(parts, "ends before what a rule asks for")
	}
	if t.Malformed {
		parts = append(parts, "malformed")
	}
	if t.Captured != 0 {
		parts = append(parts, fmt.Sprintf("judged by %d of %d bytes", t.Captured, t.Length))
	}
	return strings.Join(parts, "; ")
}

func (r *runner) writeTotals() error {
	c := r.totals
	lines := []string{fmt.Sprintf("%d packets: %d dropped, %d passed", c.Packets, c.Dropped, c.Passed)}
	t := text.Table{Indent: "  ", Right: []bool{false, true}}
	for _, rule := range c.Rules {
		t.Add(rule.Rule, fmt.Sprint(rule.Matched), rule.words)
	}
	lines = append(lines, t.Lines()...)
	if c.Cut > 0 {
		lines = append(lines, fmt.Sprintf("  %d were cut when they were captured: rules that look at what is missing, or at lengths, "+
			"may say otherwise", c.Cut))
	}
	_, err := fmt.Fprintln(r.out, strings.Join(lines, "\n"))
	return err
}
