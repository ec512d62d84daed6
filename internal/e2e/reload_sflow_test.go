// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	decoder "github.com/netsampler/goflow2/v2/decoders/sflow"
)

// sampleCollector is a collector of sFlow beside culvert, and what it has received.
type sampleCollector struct {
	port int
	// on tells whether the configuration has sFlow, and started how often it was switched on.
	on      bool
	started int

	sync.Mutex
	last            uint32 // number of the last datagram
	begun           int    // datagrams with the number 1
	flows, discards int
	bad             []string
}

// sflowRates are the rates that configurations have. A sample takes much longer than a packet.
var sflowRates = []int{5000, 10000}

// sflow returns the table [sflow] of configuration number n: it is switched on, changed with and without a new program, and switched off.
func (b *everything) sflow(n int) string {
	at := n % 6
	on := at != 3 && at != 4
	if on && !b.flows.on {
		b.flows.started++
	}
	b.flows.on = on
	if !on {
		return ""
	}
	rate, polling := sflowRates[0], 10
	switch at {
	case 1:
		polling = 20
	case 2:
		rate = sflowRates[1]
	}
	return fmt.Sprintf("\n[sflow]\ncollector = \"127.0.0.1:%d\"\nrate = %d\ndrops = 20\npolling = \"%ds\"\n", b.flows.port, rate, polling)
}

// collect opens the collector. It notes datagrams until the test ends.
func (b *everything) collect() {
	b.Helper()
	var conn *net.UDPConn
	check(b.T, b.into.Netns.Do(func() (err error) {
		if conn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}); err == nil {
			err = conn.SetReadBuffer(4 << 20)
		}
		return err
	}))
	c := &b.flows
	c.port = conn.LocalAddr().(*net.UDPAddr).Port
	done := make(chan bool)
	b.Cleanup(func() { conn.Close(); <-done })
	go func() {
		defer close(done)
		for buf := make([]byte, 1<<16); ; {
			n, err := conn.Read(buf)
			if err != nil {
				return
			}
			c.note(bytes.Clone(buf[:n]))
		}
	}()
}

// note notes a datagram.
func (c *sampleCollector) note(datagram []byte) {
	c.Lock()
	defer c.Unlock()
	var p decoder.Packet
	if err := decoder.DecodeMessageVersion(bytes.NewBuffer(datagram), &p); err != nil {
		c.bad = append(c.bad, fmt.Sprintf("decoding %x: %v", datagram, err))
		return
	}
	switch p.SequenceNumber {
	case 1:
		c.begun++
	case c.last + 1:
	default:
		c.bad = append(c.bad, fmt.Sprintf("datagram %d after %d", p.SequenceNumber, c.last))
	}
	c.last = p.SequenceNumber
	for _, s := range p.Samples {
		switch s := s.(type) {
		case decoder.FlowSample:
			c.flows++
			if !slices.Contains(sflowRates, int(s.SamplingRate)) {
				c.bad = append(c.bad, fmt.Sprintf("a sample of one packet in %d", s.SamplingRate))
			}
		case decoder.DropSample:
			c.discards++
		}
	}
}

// checkSamples wants datagrams whose numbers go on for as long as sFlow is on, and begin anew only when it has been switched on.
func (b *everything) checkSamples() {
	b.Helper()
	c := &b.flows
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		c.Lock()
		begun, flows, discards, bad := c.begun, c.flows, c.discards, c.bad
		c.Unlock()
		switch {
		case len(bad) > 0:
			b.Errorf("sFlow: %d things are wrong, the first is: %s", len(bad), bad[0])
			return
		case begun == c.started && flows > 0 && discards > 0:
			b.Logf("sFlow was switched on %d times: %d samples, %d notifications of dropped packets", begun, flows, discards)
			return
		case begun > c.started || time.Now().After(end):
			b.Errorf("sFlow was switched on %d times: it has begun %d times, with %d samples and %d notifications", c.started, begun, flows, discards)
			return
		}
	}
}
