// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"culvert/internal/filter/filterplane"
)

func TestReplace(t *testing.T) {
	f := filterplane.Filter{Rules: list("a B c")}
	before := f.Rules
	r := rule("a", false)
	r.Action = filterplane.Drop
	if err := Replace(&f, r); err != nil || namesOf(f.Rules) != "a B c" || f.Rules[0].Action != filterplane.Drop {
		t.Errorf("%s, %v", namesOf(f.Rules), err)
	}
	if before[0].Action != filterplane.Count {
		t.Error("the rules that run were written to")
	}
	if err := Replace(&f, rule("B", false)); err != nil || !f.Rules[1].File {
		t.Errorf("a rule of the file is made by hand now: %+v, %v", f.Rules[1], err)
	}
	if err := Replace(&f, rule("z", false)); err == nil || !strings.Contains(err.Error(), "no rule z") {
		t.Errorf("got %v", err)
	}
}

func TestAddSet(t *testing.T) {
	f := filterplane.Filter{Sets: []filterplane.Set{{Name: "a"}}}
	if err := AddSet(&f, filterplane.Set{Name: "b", Endpoints: true}); err != nil || len(f.Sets) != 2 || !f.Sets[1].Endpoints {
		t.Errorf("%v: %v", f.Sets, err)
	}
	if err := AddSet(&f, filterplane.Set{Name: "a"}); !errors.Is(err, ErrExists) || len(f.Sets) != 2 {
		t.Errorf("%v: %v", f.Sets, err)
	}
}

func TestProtect(t *testing.T) {
	at := netip.MustParseAddrPort
	f := filterplane.Filter{Services: []filterplane.Service{{Addr: at("192.0.2.1:80"), File: true}}}
	if err := Protect(&f, filterplane.Service{Addr: at("192.0.2.1:80")}); err == nil || !strings.Contains(err.Error(), "change it there") {
		t.Errorf("a service of the file: %v", err)
	}
	for _, mss := range []uint16{0, 1440} { // the second time it changes
		if err := Protect(&f, filterplane.Service{Addr: at("192.0.2.2:80"), MSS: mss}); err != nil {
			t.Error(err)
		}
	}
	if len(f.Services) != 2 || f.Services[1].MSS != 1440 {
		t.Errorf("got %+v", f.Services)
	}
	file := filterplane.Filter{Services: []filterplane.Service{{Addr: at("192.0.2.2:80"), MSS: 1440, File: true}}}
	got, err := Merge(f, file)
	if err != nil || len(got.Services) != 1 || !got.Services[0].File || got.Services[0].MSS != 1440 {
		t.Errorf("got %+v, %v", got.Services, err)
	}
	file.Services[0].MSS = 0
	var fe *FileError
	if _, err := Merge(f, file); !errors.As(err, &fe) || fe.Table != TableProtect || fe.Name != "192.0.2.2:80" ||
		!strings.Contains(err.Error(), "end that with 'culvert filter unprotect 192.0.2.2:80'") {
		t.Errorf("another service of the address made by hand: %v", err)
	}
	if err := Unprotect(&f, at("192.0.2.2:80")); err != nil || len(f.Services) != 1 {
		t.Errorf("got %+v, %v", f.Services, err)
	}
	if err := Unprotect(&f, at("192.0.2.2:80")); err == nil {
		t.Error("no error")
	}
}

func TestCheckService(t *testing.T) {
	for _, tt := range []struct {
		s    filterplane.Service
		want string
	}{
		{filterplane.Service{}, ""},
		{filterplane.Service{Forwarded: true, MSS: 1440, WindowScale: 14}, ""},
		{filterplane.Service{Forwarded: true, MSS: 535}, "mss"},
		{filterplane.Service{Forwarded: true, WindowScale: 15}, "wscale"},
		{filterplane.Service{MSS: 1440}, "mss"},
		{filterplane.Service{WindowScale: 7}, "wscale"},
	} {
		if key, err := CheckService(tt.s); key != tt.want || (err == nil) != (tt.want == "") {
			t.Errorf("%+v: %q, %v, want %q", tt.s, key, err, tt.want)
		}
	}
}

func TestBy(t *testing.T) {
	for _, name := range []string{"src", "dst", "prefix", "port"} {
		if by, err := ParseBy(name); err != nil || FormatBy(by) != name {
			t.Errorf("%s: %v, %v", name, by, err)
		}
	}
	if _, err := ParseBy("mac"); err == nil {
		t.Error("mac is taken")
	}
	if got := FormatBy(filterplane.TopOff); got != "" {
		t.Errorf("off is %q", got)
	}
}
