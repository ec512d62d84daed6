// SPDX-License-Identifier: Apache-2.0

package dump

import (
	"bufio"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// TestDuration wants durations without their zeros, that mean the same.
func TestDuration(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"500ms": 500 * time.Millisecond, "1s": time.Second, "1m30s": 90 * time.Second, "10m": 10 * time.Minute, "1h": time.Hour, "1h30m": 90 * time.Minute,
		"1h0m5s": time.Hour + 5*time.Second, "100h": 100 * time.Hour,
	} {
		if got := Duration(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
		if again, err := time.ParseDuration(Duration(d)); err != nil || again != d {
			t.Errorf("%v: %v, error %v", d, again, err)
		}
	}
}

// full is a file system without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no room") }

// TestWriter decodes what it writes: comments with line ends do not end, and a table that is a comment is none.
func TestWriter(t *testing.T) {
	write := func(w *Writer) error {
		w.Comment("one\nx = 1")
		w.Table("[[t]]", struct {
			Name string `toml:"name"`
		}{"a'\n\""}, "about\nit")
		w.List("entries", slices.Values([]string{"192.0.2.1", "192.0.2.2 timeout 1m"}))
		w.Commented("[[t]]", struct {
			Name string `toml:"name,multiline"`
		}{"b\nc"}, "no")
		w.Table("[empty]", nil)
		return w.Close()
	}
	var text strings.Builder
	if err := write(&Writer{out: bufio.NewWriter(&text)}); err != nil {
		t.Fatal(err)
	}
	var got struct {
		T []struct {
			Name    string
			Entries []string
		}
		Empty *struct{}
	}
	d := toml.NewDecoder(strings.NewReader(text.String())).DisallowUnknownFields()
	if err := d.Decode(&got); err != nil || len(got.T) != 1 || got.T[0].Name != "a'\n\"" || len(got.T[0].Entries) != 2 || got.Empty == nil {
		t.Errorf("error %v, %+v from\n%s", err, got, text.String())
	}
	if err := write(&Writer{out: bufio.NewWriter(full{})}); err == nil || err.Error() != "writing the dump: no room" {
		t.Errorf("error %v", err)
	}
}
