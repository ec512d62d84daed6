// SPDX-License-Identifier: Apache-2.0

package planes

import (
	"errors"
	"testing"

	"culvert/internal/show/usage"
)

func TestChoose(t *testing.T) {
	lb := Kind{Name: "load balancer", Plural: "load balancers", None: "start one"}
	anywhere := lb
	anywhere.Anywhere = true
	a, b := candidate{"a", true, true}, candidate{"b", true, true}
	router := candidate{"r", true, false}
	there, elsewhere := candidate{"a", false, true}, candidate{"a", false, true}
	for _, tt := range []struct {
		what  string
		kind  Kind
		all   []candidate
		name  string
		want  int    // the index, if fail is ""
		fail  string // the error, "" for none
		usage bool   // whether it is a usage error
	}{
		{"the only one", lb, []candidate{router, a}, "", 1, "", false},
		{"the one that is named", lb, []candidate{router, a, b}, "b", 2, "", false},
		{"the one here, named", anywhere, []candidate{there, a, elsewhere}, "a", 1, "", false},
		{"one elsewhere, named", anywhere, []candidate{b, there}, "a", 1, "", false},
		{"none", lb, []candidate{router}, "", 0, "no load balancer in this network namespace: start one", false},
		{"none anywhere", anywhere, nil, "", 0, "no load balancer on this machine: start one", false},
		{"several", lb, []candidate{b, router, a}, "", 0, "usage: there are 2 load balancers in this network namespace: use --on with one of a, b", true},
		{"one here and one elsewhere, not named", anywhere, []candidate{there, b}, "", 0, "usage: there are 2 load balancers on this machine: use --on with one of a, b", true},
		{"one name here and elsewhere, not named", anywhere, []candidate{there, a}, "", 1, "", false},
		{"no such name", lb, []candidate{b, router, a}, "c", 0, "no data plane c in this network namespace: there is a, b", false},
		{"no such name, and none", lb, []candidate{router}, "c", 0, "no data plane c in this network namespace: start one", false},
		{"one name twice elsewhere", anywhere, []candidate{there, b, elsewhere}, "a", 0, "2 data planes are called a: run the command in the network namespace of the one you mean", false},
		{"of another kind", lb, []candidate{b, router}, "r", 0, "data plane r is no load balancer: there is b", false},
		{"of another kind, and none", lb, []candidate{router}, "r", 0, "data plane r is no load balancer: start one", false},
	} {
		got, err := tt.kind.choose(tt.all, tt.name)
		switch {
		case tt.fail == "" && (err != nil || got != tt.want):
			t.Errorf("%s: %d, %v, want %d", tt.what, got, err, tt.want)
		case tt.fail != "" && (err == nil || err.Error() != tt.fail || usage.Is(err) != tt.usage):
			t.Errorf("%s: %d, %v, want %s", tt.what, got, err, tt.fail)
		}
	}
}

// TestElsewhere has data planes in other network namespaces than the one that the command runs in.
func TestElsewhere(t *testing.T) {
	k := Kind{Name: "load balancer", Plural: "load balancers", None: "start one"}
	none := k.none()
	for _, tt := range []struct {
		name   string
		places []place
		want   string
	}{
		{"", nil, none.Error()},
		{"", []place{{"a", "red"}}, "no load balancer in this network namespace, but a is in red: 'ip netns exec red culvert ...' works on it"},
		{"a", []place{{"a", "red"}}, "no data plane a in this network namespace, but a is in red: 'ip netns exec red culvert ...' works on it"},
		{"", []place{{"a", ""}}, "no load balancer in this network namespace, but a is in another one: see 'culvert status'"},
		{"", []place{{"a", "red"}, {"b", "blue"}},
			"no load balancer in this network namespace, but a is in red, b is in blue: 'ip netns exec NAMESPACE culvert ...' works on one of them"},
	} {
		err := k.elsewhere(none, tt.name, tt.places)
		var absent *AbsentError
		if err.Error() != tt.want || !errors.As(err, &absent) {
			t.Errorf("%q in %v: %v, want %s", tt.name, tt.places, err, tt.want)
		}
	}
}
