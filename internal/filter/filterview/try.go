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

// TestOptions are options for Test.
type TestOptions struct {
	// On is the name of the data plane whose rules and sets are tested, "" for the only one.
	On string
	// Filter, unless it is nil, is tested in place of the rules of the data plane. Its sets are those of the data plane, or those
	// in Members if that is not nil.
	Filter  *filterplane.Filter
	Members *filterplane.TesterSets
	// Path is a pcap or pcapng file, "-" for Stdin.
	Path  string
	Stdin io.Reader
	// Interface is the interface of this network namespace by which the packets come in, "" for one that no rule names.
	Interface string
	Out       io.Writer
	JSON      bool
}

// Only returns a filter with one rule.
func Only(r filterplane.Rule) *filterplane.Filter {
	return &filterplane.Filter{Rules: []filterplane.Rule{r}}
}

// Result is what the filter does with a packet of the file.
type Result struct {
	Number int       `json:"number"` // from 1
	Time   time.Time `json:"time"`
	// Length is the length of the packet in bytes. Captured is how many of them the file has, if not all.
	Length   int    `json:"length"`
	Captured int    `json:"captured,omitempty"`
	Summary  string `json:"summary"`
	// Verdict is "drop" or "pass".
	Verdict string `json:"verdict"`
	// Rule is the rule that decided. It is left out if none did.
	Rule string `json:"rule,omitempty"`
	// Reason is why the packet is dropped before any rule sees it. It is left out for other packets.
	Reason string `json:"reason,omitempty"`
	// Matched are the rules that matched, in their order.
	Matched   []string `json:"matched"`
	Short     bool     `json:"short,omitempty"`
	Malformed bool     `json:"malformed,omitempty"`
}

// Totals are the numbers of packets in the file. Cut counts those of which the file has only a part.
type Totals struct {
	Packets   int         `json:"packets"`
	Dropped   int         `json:"dropped"`
	Passed    int         `json:"passed"`
	Cut       int         `json:"cut"`
	Short     int         `json:"short"`
	Malformed int         `json:"malformed"`
	Rules     []RuleTotal `json:"rules"`
}

// RuleTotal is how many packets matched a rule, and on how many of them it decided.
type RuleTotal struct {
	Rule    string `json:"rule"`
	Matched int    `json:"matched"`
	Decided int    `json:"decided"`
	words   string
}

// Test runs the packets of a file through a filter, and writes the verdicts. It does not affect a running filter.
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

// tester loads the filter that is to be tested, and returns it too.
func (o TestOptions) tester() (f filterplane.Filter, t *filterplane.Tester, err error) {
	if o.Members != nil {
		t, err = filterplane.NewTesterWithSets(*o.Filter, *o.Members)
		return *o.Filter, t, err
	}
	inst, err := Open(o.On)
	switch {
	case err == nil:
		defer inst.Close()
	case o.Filter == nil || o.On != "" || usesSets(*o.Filter):
		return f, nil, err
	default: // rules without sets need no data plane
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

func usesSets(f filterplane.Filter) bool {
	for _, r := range f.Rules {
		if len(r.Src)+len(r.Dst) > 0 {
			return true
		}
	}
	return false
}

// packetReader reads the packets of a file of either format.
type packetReader interface {
	LinkType() layers.LinkType
	ReadPacketData() ([]byte, gopacket.CaptureInfo, error)
}

// openPcap returns a reader for a pcap or pcapng file of Ethernet frames.
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

// runner runs packets through a tester and writes the results.
type runner struct {
	o      TestOptions
	tester *filterplane.Tester
	out    io.Writer
	start  time.Time // of the first packet
	totals Totals
	wrote  bool // a packet
}

// Tested is the output of 'culvert filter test -j', which is written while packets are judged.
type Tested struct {
	Packets []Result `json:"packets"`
	Totals  Totals   `json:"totals"`
	// Error says why not all packets of the file were judged.
	Error string `json:"error,omitempty"`
}

// all runs all packets. If it fails halfway, the JSON that it writes is complete and has the error.
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

// each runs and writes the packets one by one.
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
		t := Result{
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

// ethernetHeader is the length of the shortest frame that the kernel runs a program on (ETH_HLEN). Drivers pass on no shorter ones.
const ethernetHeader = 14

func (r *runner) judge(frame []byte) (filterplane.Verdict, error) {
	if len(frame) < ethernetHeader {
		return filterplane.Verdict{Action: filterplane.Pass, Short: true}, nil
	}
	return r.tester.Run(frame, r.o.Interface)
}

func (r *runner) count(t Result) {
	c := &r.totals
	c.Packets++
	if t.Verdict == string(filterplane.Drop) {
		c.Dropped++
	} else {
		c.Passed++
	}
	if t.Captured != 0 {
		c.Cut++
	}
	if t.Short {
		c.Short++
	}
	if t.Malformed {
		c.Malformed++
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

func (r *runner) write(t Result) error {
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

// marshal encodes JSON in one line. It does not escape characters for HTML.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// also returns what else is known about a packet, in words.
func also(t Result) string {
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
		parts = append(parts, "ends before a byte that a rule reads")
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
	lines := []string{fmt.Sprintf("%s: %d dropped, %d passed", text.Count(uint64(c.Packets), "packet"), c.Dropped, c.Passed)}
	t := text.Table{Indent: "  ", Right: []bool{false, true}}
	for _, rule := range c.Rules {
		t.Add(rule.Rule, fmt.Sprint(rule.Matched), rule.words)
	}
	lines = append(lines, t.Lines()...)
	if c.Cut > 0 {
		lines = append(lines, fmt.Sprintf("  %d were truncated when they were captured: rules that read the rest, or lengths, "+
			"may decide otherwise", c.Cut))
	}
	_, err := fmt.Fprintln(r.out, strings.Join(lines, "\n"))
	return err
}
