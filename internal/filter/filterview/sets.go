// SPDX-License-Identifier: Apache-2.0

package filterview

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"culvert/internal/datapath"
	"culvert/internal/filter/filterplane"
	"culvert/internal/filter/filterset"
	"culvert/internal/filter/filterstage"
	"culvert/internal/show"
	"culvert/internal/show/text"
)

// Set is a named set.
type Set struct {
	Name string `json:"set"`
	// Type is "prefix" or "endpoint".
	Type string `json:"type"`
	// From is "file" or "hand".
	From string `json:"from"`
	// Count is the number of entries, for prefixes the shortest list of them.
	Count int `json:"count"`
	// Rules are the names of the rules that use the set.
	Rules []string `json:"rules"`
}

// SetList is what `culvert filter set list -j` prints. Fields are added in later versions, never renamed.
type SetList struct {
	Sets []Set `json:"sets"`
}

// Entry is a member of a set.
type Entry struct {
	Entry string `json:"entry"`
	// Seconds is the time until the entry expires. It is left out for an entry that does not.
	Seconds float64 `json:"seconds,omitempty"`
}

// timeout returns the timeout of an entry as in a file of entries. It is at least 1 s, because 0 would mean for ever.
func (e Entry) timeout() string {
	if e.Seconds == 0 {
		return ""
	}
	d := time.Duration(e.Seconds * float64(time.Second)).Round(time.Second)
	return " timeout " + max(d, time.Second).String()
}

// collectSets returns the sets of a data plane, whose filter is f.
func collectSets(inst *datapath.Instance, f filterplane.Filter) ([]Set, error) {
	all := []Set{}
	for _, s := range f.Sets {
		out := Set{Name: s.Name, Type: setType(s), From: from(s.File), Rules: []string{}}
		for _, r := range f.Rules {
			uses := func(ref filterplane.SetRef) bool { return ref.Set == s.Name }
			if slices.ContainsFunc(slices.Concat(r.Src, r.Dst), uses) {
				out.Rules = append(out.Rules, r.Name)
			}
		}
		n, err := countEntries(inst, s)
		if err != nil {
			return nil, err
		}
		out.Count = n
		all = append(all, out)
	}
	return all, nil
}

func setType(s filterplane.Set) string {
	if s.Endpoints {
		return filterstage.SetEndpoints
	}
	return filterstage.SetPrefixes
}

// countEntries returns the number of a set's entries that have not expired.
func countEntries(inst *datapath.Instance, s filterplane.Set) (int, error) {
	m, err := readMembers(inst, s, filterplane.Now())
	if err != nil {
		return 0, err
	}
	if m.Prefixes == nil {
		return len(m.Endpoints), nil
	}
	return m.Prefixes.Len(), nil
}

func setLines(sets []Set) []string {
	t := text.Table{Indent: "  ", Right: []bool{false, true}}
	for _, s := range sets {
		count := filterstage.CountText(s.Count, s.Type == filterstage.SetEndpoints)
		_, noun, _ := strings.Cut(count, " ")
		used := ""
		if len(s.Rules) > 0 {
			used = "for " + strings.Join(s.Rules, ", ")
		}
		t.Add("set "+s.Name, count+strings.Repeat(" ", len(" endpoints")-len(noun)-1), "from "+s.From, used)
	}
	return t.Lines()
}

// ListSets writes the sets of a data plane.
func ListSets(on string, asJSON bool, out io.Writer) error {
	inst, err := Open(on)
	if err != nil {
		return err
	}
	defer inst.Close()
	f, err := filterplane.Read(inst)
	if err != nil {
		return err
	}
	sets, err := collectSets(inst, f)
	if err != nil {
		return err
	}
	if asJSON {
		return show.JSON(out, SetList{sets})
	}
	for _, line := range setLines(sets) {
		if _, err := fmt.Fprintln(out, strings.TrimSpace(line)); err != nil {
			return err
		}
	}
	if len(sets) == 0 {
		_, err = fmt.Fprintf(out, "%s has no sets: make one with 'culvert filter set add NAME ENTRY...'\n", inst.Name())
	}
	return err
}

// SetEntries is the output of 'culvert filter set show -j'.
type SetEntries struct {
	Name string `json:"set"`
	// Type is prefix or endpoint.
	Type string `json:"type"`
	// From is file or hand.
	From    string  `json:"from"`
	Entries []Entry `json:"entries"`
}

// ListSet writes the entries of a set in the format of a file of entries, or as JSON.
func ListSet(on, name string, asJSON bool, out io.Writer) error {
	inst, err := Open(on)
	if err != nil {
		return err
	}
	defer inst.Close()
	f, err := filterplane.Read(inst)
	if err != nil {
		return err
	}
	s, err := f.NamedSet(name)
	if err != nil {
		return err
	}
	entries, err := readEntries(inst, *s)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(out)
	if asJSON {
		enc := json.NewEncoder(w)
		err = enc.Encode(SetEntries{name, setType(*s), from(s.File), entries})
		if err != nil {
			return err
		}
		return w.Flush()
	}
	for _, e := range entries {
		w.WriteString(e.Entry)
		w.WriteString(e.timeout())
		w.WriteByte('\n')
	}
	return w.Flush()
}

// readEntries returns the members of a set, sorted, without expired ones.
func readEntries(inst *datapath.Instance, s filterplane.Set) ([]Entry, error) {
	now := filterplane.Now()
	m, err := readMembers(inst, s, now)
	if err != nil {
		return nil, err
	}
	entries := []Entry{}
	for name, until := range members(m) {
		entries = append(entries, Entry{name, until.Until(now).Seconds()})
	}
	return entries, nil
}

// readMembers returns the members of a set without those that have expired.
func readMembers(inst *datapath.Instance, s filterplane.Set, now filterset.Time) (m filterplane.Members, err error) {
	if s.Endpoints {
		if m.Endpoints, err = filterplane.Endpoints(inst, s.Name); err == nil {
			m.Endpoints.Expire(now)
		}
		return m, err
	}
	if m.Prefixes, err = filterplane.Prefixes(inst, s.Name); err == nil {
		m.Prefixes.Expire(now)
	}
	return m, err
}

// members returns the members of a set as text, sorted, with the times when they expire.
func members(m filterplane.Members) iter.Seq2[string, filterset.Time] {
	return func(yield func(string, filterset.Time) bool) {
		if m.Prefixes == nil {
			for _, at := range slices.SortedFunc(maps.Keys(m.Endpoints), netip.AddrPort.Compare) {
				if !yield(at.String(), m.Endpoints[at]) {
					return
				}
			}
			return
		}
		for prefix, until := range m.Prefixes.All() {
			name := prefix.String()
			if prefix.IsSingleIP() {
				name = prefix.Addr().String()
			}
			if !yield(name, until) {
				return
			}
		}
	}
}
