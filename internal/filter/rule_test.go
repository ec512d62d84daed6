// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"culvert/internal/filter/filterplane"

	"golang.org/x/net/bpf"
)

func text(s string) *string { return &s }

func TestRuleInWords(t *testing.T) {
	for _, tt := range []struct {
		spec Spec
		want string
	}{
		{Spec{Action: "drop", Expression: text("icmp")}, "drop icmp"},
		{Spec{Action: "drop", Expression: text(" udp \n port 53 ")}, "drop 'udp port 53'"},
		{Spec{Action: "count"}, "count"},
		{Spec{Action: "drop", All: true, Interfaces: []string{"eth0"}}, "drop -i eth0 --all"},
		{Spec{Action: "drop", Src: []string{"@bad", "!@good"}}, "drop --src @bad --src '!@good'"},
		{Spec{Action: "pass", All: true}, "pass --all"},
		{Spec{Action: "pass", Dst: []string{"@ours"}, Expression: text("tcp")}, "pass --dst @ours tcp"},
		{
			Spec{Action: "limit", Rate: "1000/s", Per: "src/24,48", Burst: "200", Entries: 100, Interfaces: []string{"a", "b"}},
			"limit 1kpps --per src/24,48 --burst 200 --entries 100 -i a -i b",
		},
		{Spec{Action: "limit", Rate: "10Mbit/s", Burst: "64kB"}, "limit 1.25MB/s --burst 64kB"},
		{Spec{Action: "drop", Expression: text("2\n48 0 0 23\n6 0 0 1\n")}, "drop (classic BPF of 2 instructions)"},
		{Spec{Action: "drop", Expression: text("{ 0x30, 0, 0, 23 },\n{ 0x6, 0, 0, 0 },\n")}, "drop (classic BPF of 2 instructions)"},
	} {
		r, err := tt.spec.Rule()
		if err != nil {
			t.Errorf("%s: %v", tt.want, err)
		} else if got := Words(r); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}

func TestBadRules(t *testing.T) {
	for _, tt := range []struct {
		spec       Spec
		part, want string
	}{
		{Spec{Action: "reject"}, PartAction, `"reject" is no action`},
		{Spec{Action: ""}, PartAction, "is no action"},
		{Spec{Action: "drop"}, PartAction, "would drop every packet"},
		{Spec{Action: "drop", Interfaces: []string{"eth0"}}, PartAction, "would drop every packet"},
		{Spec{Action: "drop", Expression: text("1\n6 0 0 262144")}, PartAction, "would drop every packet"},
		{Spec{Action: "pass"}, PartAction, "would pass every packet, past the rest of the filter"},
		{Spec{Action: "pass", Interfaces: []string{"eth0"}}, PartAction, "would pass every packet"},
		{Spec{Action: "pass", Expression: text("1\n6 0 0 262144")}, PartAction, "would pass every packet"},
		{Spec{Action: "pass", All: true, Expression: text("icmp")}, PartAll, "leave it out"},
		{Spec{Action: "drop", All: true, Expression: text("icmp")}, PartAll, "leave it out"},
		{Spec{Action: "count", All: true}, PartAll, "leave it out"},
		{Spec{Action: "drop", Expression: text("")}, PartExpression, "the expression is empty"},
		{Spec{Action: "drop", Expression: text(" \n")}, PartExpression, "the expression is empty"},
		{Spec{Action: "drop", Expression: text("icmp\x00 or tcp")}, PartExpression, "cannot be printed"},
		{Spec{Action: "drop", Expression: text("port 99999999")}, PartExpression, ""},
		{Spec{Action: "drop", Expression: text("(000) ldh [12]\n(001) ret #0")}, PartExpression, "use tcpdump -ddd"},
		{Spec{Action: "drop", Expression: text("2\n6 0 0 1\n")}, PartExpression, "classic BPF: line 1"},
		{Spec{Action: "drop", Expression: text("1\n48 0 0 23\n")}, PartExpression, "classic BPF: "},
		{Spec{Name: "a b", Action: "count"}, PartName, "make its name of letters"},
		{Spec{Name: "-a", Action: "count"}, PartName, "begin its name"},
		{Spec{Name: strings.Repeat("x", 64), Action: "count"}, PartName, "64 characters: at most 63"},
		{Spec{Action: "limit"}, PartRate, "limit needs a rate"},
		{Spec{Action: "limit", Rate: "10"}, PartRate, "is no rate"},
		{Spec{Action: "limit", Rate: "10pps", Per: "x"}, PartPer, "use src or dst"},
		{Spec{Action: "limit", Rate: "10pps", Burst: "1B"}, PartBurst, "leave out the B"},
		{Spec{Action: "limit", Rate: "10pps", Entries: 9}, PartEntries, "entries without per"},
		{Spec{Action: "limit", Rate: "10pps", Per: "src", Entries: -1}, PartEntries, "use 1 to"},
		{Spec{Action: "limit", Rate: "10pps", Per: "src", Entries: filterplane.MaxEntries + 1}, PartEntries, "use 1 to"},
		{Spec{Action: "limit", Rate: "60GB/s"}, PartRate, "use 1B/s to 50GB/s"},
		{Spec{Action: "limit", Rate: "1pps", Burst: "3600"}, PartBurst, "in an hour, 3600"},
		{Spec{Action: "drop", Rate: "10pps", Expression: text("icmp")}, PartRate, "rate goes with the action limit"},
		{Spec{Action: "drop", Per: "src", Expression: text("icmp")}, PartPer, "per goes with the action limit"},
		{Spec{Action: "count", Src: []string{"bad"}}, PartSrc, "write it as @name"},
		{Spec{Action: "count", Dst: []string{"!@"}}, PartDst, "the name of a set is empty"},
		{Spec{Action: "count", Interfaces: []string{"a", "a"}}, PartInterfaces, "twice"},
	} {
		_, err := tt.spec.Rule()
		var part *PartError
		if !errors.As(err, &part) || part.Part != tt.part || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: %v (%+v), want %q of %s", tt.spec, err, part, tt.want, tt.part)
		}
	}
}

func TestReadText(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	for content, want := range map[string]string{"icmp\n": "", "": "is empty", " \n": "is empty", strings.Repeat("x", maxText+1): "is longer than"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadText(path, nil)
		if want == "" && (err != nil || got != content) || want != "" && (err == nil || !strings.HasPrefix(err.Error(), path+" "+want)) {
			t.Errorf("%.10q: %.10q, %v", content, got, err)
		}
	}
	if _, err := ReadText(path+"y", nil); err == nil || err.Error() != "reading "+path+"y: no such file or directory" {
		t.Errorf("got %v", err)
	}
	if got, err := ReadText("-", strings.NewReader("tcp")); err != nil || got != "tcp" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := ReadText("-", strings.NewReader("")); err == nil || !strings.HasPrefix(err.Error(), "standard input is empty") {
		t.Errorf("got %v", err)
	}
}

func rule(name string, file bool) filterplane.Rule {
	return filterplane.Rule{Name: name, Action: filterplane.Count, File: file}
}

// list returns rules of these names. Those with a capital letter are the file's.
func list(names string) (rules []filterplane.Rule) {
	for _, name := range strings.Fields(names) {
		rules = append(rules, rule(name, name != strings.ToLower(name)))
	}
	return rules
}

// namesOf returns the names of rules, with "(wrong)" before one that is the file's against its name, or by hand.
func namesOf(rules []filterplane.Rule) string {
	var names []string
	for _, r := range rules {
		if r.File != (r.Name != strings.ToLower(r.Name)) {
			names = append(names, "(wrong)")
		}
		names = append(names, r.Name)
	}
	return strings.Join(names, " ")
}

func TestMergeRules(t *testing.T) {
	for _, tt := range []struct{ running, file, want string }{
		{"", "A B", "A B"},
		{"x y", "A B", "x y A B"},
		{"x A y B z", "B C A", "x B C A y z"},
		{"x A y", "", "x y"},
		{"A x", "C D", "C D x"},
		{"x y", "", "x y"},
		{"A B", "B", "B"},
	} {
		file := list(tt.file)
		for n := range file {
			file[n].File = false // Merge sets it
		}
		got, err := Merge(filterplane.Filter{Rules: list(tt.running)}, filterplane.Filter{Rules: file})
		if err != nil || namesOf(got.Rules) != tt.want {
			t.Errorf("%s with %s: %s, %v, want %s", tt.running, tt.file, namesOf(got.Rules), err, tt.want)
		}
	}
}

// TestMergeByHand merges files with what was made by hand. What both have becomes the file's.
func TestMergeByHand(t *testing.T) {
	running := filterplane.Filter{
		Rules: []filterplane.Rule{rule("x", false), rule("y", false)},
		Sets:  []filterplane.Set{{Name: "mine"}, {Name: "old", File: true}},
		Top:   filterplane.TopSrc,
	}
	fileRule := rule("x", true)
	for _, tt := range []struct {
		name       string
		file, want filterplane.Filter
	}{
		{
			"the same rule",
			filterplane.Filter{Rules: []filterplane.Rule{rule("x", false)}},
			filterplane.Filter{
				Rules: []filterplane.Rule{rule("y", false), fileRule}, Sets: []filterplane.Set{{Name: "mine"}}, Top: filterplane.TopSrc,
			},
		},
		{
			"a set of the same name and type",
			filterplane.Filter{Sets: []filterplane.Set{{Name: "mine"}}},
			filterplane.Filter{Rules: running.Rules, Sets: []filterplane.Set{{Name: "mine", File: true}}, Top: filterplane.TopSrc},
		},
		{
			"another type for a set of the earlier file",
			filterplane.Filter{Sets: []filterplane.Set{{Name: "old", Endpoints: true}}},
			filterplane.Filter{
				Rules: running.Rules, Sets: []filterplane.Set{{Name: "mine"}, {Name: "old", Endpoints: true, File: true}}, Top: filterplane.TopSrc,
			},
		},
		{
			"another set",
			filterplane.Filter{Sets: []filterplane.Set{{Name: "old"}, {Name: "new"}}},
			filterplane.Filter{
				Rules: running.Rules, Top: filterplane.TopSrc,
				Sets: []filterplane.Set{{Name: "mine"}, {Name: "old", File: true}, {Name: "new", File: true}},
			},
		},
	} {
		if got, err := Merge(running, tt.file); err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, %v, want %+v", tt.name, got, err, tt.want)
		}
	}
	if got := TakenOver(running, filterplane.Filter{Sets: []filterplane.Set{{Name: "mine"}}}); !slices.Equal(got, []string{"mine"}) {
		t.Errorf("taken over: %v", got)
	}
}

func TestMergeRefuses(t *testing.T) {
	passes := rule("x", false)
	passes.Action = filterplane.Pass
	fromOld := rule("x", false)
	fromOld.Src = []filterplane.SetRef{{Set: "old"}}
	toNone := rule("z", false)
	toNone.Dst = []filterplane.SetRef{{Set: "none"}}
	for _, tt := range []struct {
		name          string
		running, file filterplane.Filter
		want          string
		at            *FileError // without its error; nil if the error is not about a table
	}{
		{
			"another rule of the name",
			filterplane.Filter{Rules: []filterplane.Rule{rule("x", false)}},
			filterplane.Filter{Rules: []filterplane.Rule{passes}},
			"rule x is there already, made by hand: delete it with 'culvert filter del x'",
			&FileError{Table: TableRule, Name: "x", Part: PartName},
		},
		{
			"a set of the name with another type",
			filterplane.Filter{Sets: []filterplane.Set{{Name: "mine"}}},
			filterplane.Filter{Sets: []filterplane.Set{{Name: "mine", Endpoints: true}}},
			"set mine is there already, made by hand, with members of another type",
			&FileError{Table: TableSet, Name: "mine", Part: "type"},
		},
		{
			"no set any more for a rule made by hand",
			filterplane.Filter{Rules: []filterplane.Rule{fromOld}, Sets: []filterplane.Set{{Name: "old", File: true}}},
			filterplane.Filter{},
			"rule x, made by hand, uses set old, which is no longer in the file: delete the rule with 'culvert filter del x'",
			nil,
		},
		{
			"no set for a rule of the file",
			filterplane.Filter{},
			filterplane.Filter{Rules: []filterplane.Rule{toNone}},
			"rule z: no set none",
			&FileError{Table: TableRule, Name: "z", Part: PartDst},
		},
	} {
		_, err := Merge(tt.running, tt.file)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
		var at *FileError
		if errors.As(err, &at) {
			at = &FileError{Table: at.Table, Name: at.Name, Part: at.Part}
		}
		if !reflect.DeepEqual(at, tt.at) {
			t.Errorf("%s: the error is about %+v, want %+v", tt.name, at, tt.at)
		}
	}
}

func TestInsertAndDelete(t *testing.T) {
	f := filterplane.Filter{Rules: list("a rule1 B"), Sets: []filterplane.Set{{Name: "s"}}}
	for _, tt := range []struct {
		name string
		at   Place
		want string
		err  string
	}{
		{"", Place{}, "a rule1 B rule2", ""},
		{"rule7", Place{}, "a rule1 B rule7", ""},
		{"c", Place{First: true}, "c a rule1 B", ""},
		{"c", Place{Before: "B"}, "a rule1 c B", ""},
		{"c", Place{Before: "z"}, "", "no rule z: see"},
		{"B", Place{}, "", "there is a rule B already: replace it with --replace, or choose another --name"},
	} {
		g := f
		_, err := Insert(&g, rule(tt.name, false), tt.at)
		switch {
		case tt.err == "" && (err != nil || namesOf(g.Rules) != tt.want):
			t.Errorf("%+v: %s, %v, want %s", tt.at, namesOf(g.Rules), err, tt.want)
		case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
			t.Errorf("%+v: %v, want %s", tt.at, err, tt.err)
		}
	}
	g := f
	for _, want := range []string{"rule2", "rule3", "rule4"} { // the rule before is deleted each time
		name, err := Insert(&g, rule("", false), Place{})
		if err != nil || name != want {
			t.Errorf("rule %s (%v), want %s: a name is given once", name, err, want)
		}
		if err := Delete(&g, []string{name}); err != nil {
			t.Error(err)
		}
	}
	if merged, err := Merge(g, filterplane.Filter{Rules: list("z")}); err != nil || merged.Named != g.Named {
		t.Errorf("%d names given (%v), want %d", merged.Named, err, g.Named)
	}
	r := rule("x", false)
	r.Src = []filterplane.SetRef{{Set: "t"}}
	if _, err := Insert(&f, r, Place{}); err == nil || !strings.Contains(err.Error(), "rule x: no set t") {
		t.Errorf("an unknown set: %v", err)
	}
	r.Src[0].Set = "s"
	if _, err := Insert(&f, r, Place{}); err != nil {
		t.Error(err)
	}
	if err := DeleteSets(&f, []string{"s"}); err == nil || !strings.Contains(err.Error(), "rule x uses set s") {
		t.Errorf("a set in use: %v", err)
	}
	if err := Delete(&f, []string{"a", "z"}); err == nil || namesOf(f.Rules) != "a rule1 B x" {
		t.Errorf("%s after %v", namesOf(f.Rules), err)
	}
	if err := Delete(&f, []string{"x", "a", "a"}); err != nil || namesOf(f.Rules) != "rule1 B" {
		t.Errorf("%s after %v", namesOf(f.Rules), err)
	}
	if err := DeleteSets(&f, []string{"s"}); err != nil || len(f.Sets) != 0 {
		t.Errorf("%v after %v", f.Sets, err)
	}
}

func TestMatchesAll(t *testing.T) {
	for _, tt := range []struct {
		name string
		code []bpf.RawInstruction
		want bool
	}{
		{"no code", nil, true},
		{"ret #1", []bpf.RawInstruction{{Op: 6, K: 1}}, true},
		{"ret #0", []bpf.RawInstruction{{Op: 6}}, false},
		{"a load", []bpf.RawInstruction{{Op: 0x30}}, false},
	} {
		if got := matchesAll(tt.code); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
