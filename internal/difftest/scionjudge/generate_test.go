// SPDX-License-Identifier: Apache-2.0

package scionjudge

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"

	"culvert/internal/scion/scionpkt"
)

// generateOptions writes the topology of a mix to a file and returns options for it.
func generateOptions(t *testing.T, mix int) (scionpkt.GenerateOptions, *scionpkt.Network) {
	t.Helper()
	_, n := newNetwork(uint64(mix), scionpkt.Mixes()[mix])
	text, err := n.TopologyJSON()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	o := scionpkt.GenerateOptions{
		Topology: filepath.Join(dir, "topology.json"), Router: n.RouterID,
		Key:   base64.StdEncoding.EncodeToString(n.Key[:]),
		Flows: 200, HopFields: 5, Sizes: []int{300, 1400}, Family: "both",
		Ingress: -1, Egress: -1, Output: filepath.Join(dir, "out.pcap"),
	}
	if err := os.WriteFile(o.Topology, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return o, n
}

// readBack returns the network that the generator reads from the topology, and the frames of its output.
func readBack(t *testing.T, o scionpkt.GenerateOptions, key [16]byte) (*scionpkt.Network, [][]byte) {
	t.Helper()
	text, err := os.ReadFile(o.Topology)
	if err != nil {
		t.Fatal(err)
	}
	n, err := scionpkt.FromTopology(text, o.Router)
	if err != nil {
		t.Fatal(err)
	}
	n.Key = key
	file, err := os.ReadFile(o.Output)
	if err != nil {
		t.Fatal(err)
	}
	r, err := pcapgo.NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	var frames [][]byte
	for {
		f, info, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return n, frames
		}
		if err != nil || info.Length != len(f) {
			t.Fatalf("frame of %d bytes, %d captured, error %v", info.Length, len(f), err)
		}
		frames = append(frames, f)
	}
}

// TestGeneratedFileIsForwarded checks that the reference forwards every packet of a generated file.
func TestGeneratedFileIsForwarded(t *testing.T) {
	for mix := range scionpkt.Mixes() {
		for _, hops := range []int{2, 3, 4, 5, 17, 63} {
			o, n := generateOptions(t, mix)
			o.HopFields = hops
			o.Sizes[0] += 12 * hops
			if err := scionpkt.GenerateFile(o, nil); err != nil {
				t.Fatalf("mix %d, %d hop fields: %v", mix, hops, err)
			}
			back, frames := readBack(t, o, n.Key)
			if len(frames) != o.Flows*len(o.Sizes) {
				t.Fatalf("mix %d, %d hop fields: %d frames", mix, hops, len(frames))
			}
			j := start(t, back)
			for i, f := range frames {
				if res := j.Process(f); res.Kind != Forwarded {
					t.Fatalf("mix %d, %d hop fields, frame %d: %s", mix, hops, i, res)
				}
				if len(f) != o.Sizes[i%2] {
					t.Fatalf("mix %d, %d hop fields, frame %d: %d bytes", mix, hops, i, len(f))
				}
				l, _ := scionpkt.Locate(f)
				if got := hopFields(f[l.SCION:]); got != hops {
					t.Fatalf("mix %d: %d hop fields, want %d", mix, got, hops)
				}
			}
		}
	}
}

// hopFields reads the number of hop fields from the segment lengths.
func hopFields(p []byte) int {
	at := 28 + 4*(int(p[9]>>4&3)+1) + 4*(int(p[9]&3)+1)
	meta := int(p[at+1])<<16 | int(p[at+2])<<8 | int(p[at+3])
	return meta>>12&63 + meta>>6&63 + meta&63
}

// TestGenerateSelects checks that all frames come in at the selected interface, go in the selected direction and have the
// given MAC addresses, and that each flow has its own label.
func TestGenerateSelects(t *testing.T) {
	o, n := generateOptions(t, 0)
	own := n.Interfaces[0]
	o.Ingress = int(own.ID)
	o.Directions = []string{"external->sibling"}
	o.DstMAC, o.SrcMAC = "02:00:00:00:00:02", "02:00:00:00:00:01"
	if err := scionpkt.GenerateFile(o, nil); err != nil {
		t.Fatal(err)
	}
	back, frames := readBack(t, o, n.Key)
	j := start(t, back)
	flows := map[string]bool{}
	for _, f := range frames {
		// The judge's devices have the MAC addresses that FromTopology generates.
		if string(f[:12]) != "\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01" {
			t.Fatalf("MAC addresses %x", f[:12])
		}
		link := back.Interface(own.ID).Link
		copy(f, back.Devices[back.Links[link].Device].MAC[:])
		res := j.Process(f)
		if res.Kind != Forwarded || res.Ingress != link ||
			back.Links[res.Egress].Scope != scionpkt.Sibling {
			t.Fatalf("%s from link %d", res, res.Ingress)
		}
		l, _ := scionpkt.Locate(f)
		flows[string(f[l.SCION+1:l.SCION+4])] = true
	}
	if len(flows) != o.Flows {
		t.Errorf("%d flow labels, want %d", len(flows), o.Flows)
	}
}

// TestGenerateFromMasterKeys checks that packets made from master keys are valid under the forwarding key derived from
// them.
func TestGenerateFromMasterKeys(t *testing.T) {
	o, _ := generateOptions(t, 1)
	keys := filepath.Join(filepath.Dir(o.Topology), "keys")
	if err := os.Mkdir(keys, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"master0.key", "master1.key"} {
		key := base64.StdEncoding.EncodeToString([]byte("sixteen bytes!!!"))
		if err := os.WriteFile(filepath.Join(keys, name), []byte(key), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o.Key, o.Keys, o.Output = "", keys, "-"
	var out bytes.Buffer
	if err := scionpkt.GenerateFile(o, &out); err != nil {
		t.Fatal(err)
	}
	o.Output = filepath.Join(filepath.Dir(o.Topology), "stdout.pcap")
	if err := os.WriteFile(o.Output, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	// PBKDF2-HMAC-SHA256 of the master key with salt "Derive OF Key" and 1000 rounds.
	derived := [16]byte{
		0x9b, 0x71, 0x52, 0xde, 0x79, 0xc7, 0x46, 0xc3, 0x13, 0x57, 0x23, 0x43, 0xab, 0xeb, 0xc9, 0x00,
	}
	back, frames := readBack(t, o, derived)
	if res := start(t, back).Process(frames[0]); res.Kind != Forwarded {
		t.Errorf("%s", res)
	}
}

func TestGenerateRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*scionpkt.GenerateOptions)
		want  string
	}{
		"no such topology": {func(o *scionpkt.GenerateOptions) { o.Topology += "x" }, "no such file"},
		"no such router":   {func(o *scionpkt.GenerateOptions) { o.Router = "br-9" }, `["br-1"`},
		"key too short":    {func(o *scionpkt.GenerateOptions) { o.Key = "AAAA" }, "16 bytes"},
		"no keys":          {func(o *scionpkt.GenerateOptions) { o.Keys = "/nonexistent" }, "/nonexistent"},
		"no flows":         {func(o *scionpkt.GenerateOptions) { o.Flows = 0 }, "at least 1"},
		"one hop field":    {func(o *scionpkt.GenerateOptions) { o.HopFields = 1 }, "2 to 63"},
		"frame too short":  {func(o *scionpkt.GenerateOptions) { o.Sizes[1] = 99 }, "too short"},
		"frame too long":   {func(o *scionpkt.GenerateOptions) { o.Sizes[1] = 70000 }, "do not fit"},
		"family":           {func(o *scionpkt.GenerateOptions) { o.Family = "5" }, "4, 6 or both"},
		"direction":        {func(o *scionpkt.GenerateOptions) { o.Directions = []string{"up"} }, "external->host"},
		"MAC":              {func(o *scionpkt.GenerateOptions) { o.SrcMAC = "02" }, "six bytes"},
		"host":             {func(o *scionpkt.GenerateOptions) { o.Hosts = []string{"fd00::9"} }, "family"},
		"interface":        {func(o *scionpkt.GenerateOptions) { o.Ingress = 65536 }, "has no interface 65536"},
		"no way":           {func(o *scionpkt.GenerateOptions) { o.Ingress, o.Egress = 29, 29 }, "no way"},
		"directory":        {func(o *scionpkt.GenerateOptions) { o.Output = "/nonexistent/x" }, "/nonexistent/x"},
	} {
		t.Run(name, func(t *testing.T) {
			o, _ := generateOptions(t, 0)
			c.spoil(&o)
			err := scionpkt.GenerateFile(o, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %q does not say %q", err, c.want)
			}
			if strings.ContainsRune(err.Error(), '\n') {
				t.Errorf("error has several lines: %s", strconv.Quote(err.Error()))
			}
			if _, err := os.Stat(o.Output); err == nil {
				t.Error("a file was left behind")
			}
			left, err := filepath.Glob(filepath.Join(filepath.Dir(o.Topology), ".culvert-gen-*"))
			if err != nil || len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}
