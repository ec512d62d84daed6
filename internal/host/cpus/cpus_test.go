// SPDX-License-Identifier: Apache-2.0

package cpus

import (
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string][]int{
		"0": {0}, "1-3,5": {1, 2, 3, 5}, " 2 , 0-1 ": {2, 0, 1}, "7-7": {7}, "1,1": {1, 1}, "0-1\n": {0, 1},
	} {
		got, err := Parse(text)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: got %v, %v, want %v", text, got, err, want)
		}
	}
	for _, bad := range []string{"", " ", "a", "1-", "-1", "3-1", "1,,2", "+1", "1-2-3", "0-99999999", "0x1"} {
		if got, err := Parse(bad); err == nil {
			t.Errorf("%q: got %v, want an error", bad, got)
		}
	}
}

func TestFormat(t *testing.T) {
	for _, text := range []string{"0", "0-1", "1-3,5", "0,2,4-6"} {
		list, err := Parse(text)
		if err != nil || Format(list) != text {
			t.Errorf("%q comes back as %q, %v", text, Format(list), err)
		}
	}
}

func TestCheck(t *testing.T) {
	online, err := Online()
	if err != nil || len(online) == 0 {
		t.Fatalf("online: %v, %v", online, err)
	}
	for _, c := range []struct {
		list []int
		want string
	}{
		{online, ""},
		{nil, "is empty"},
		{[]int{online[0], online[0]}, "is given twice"},
		{[]int{8191}, "CPU 8191 is not online: there are " + Format(online)},
		{make([]int, len(online)+1), "CPUs: use at most"},
	} {
		err := Check(c.list, len(online))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v: error is %v, want %q", c.list, err, c.want)
		}
	}
}
