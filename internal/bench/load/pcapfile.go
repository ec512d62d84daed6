// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
)

// ReadFrames reads all Ethernet frames of a pcap or pcapng file.
func ReadFrames(path string) ([][]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	frames, err := readFrames(bufio.NewReaderSize(f, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return frames, nil
}

// pcapReader is a reader of a pcap or a pcapng file.
type pcapReader interface {
	LinkType() layers.LinkType
	ReadPacketData() ([]byte, gopacket.CaptureInfo, error)
}

func openPcap(r *bufio.Reader) (pcapReader, error) {
	// A section header block begins every pcapng file.
	if head, err := r.Peek(4); err == nil && string(head) == "\x0a\x0d\x0d\x0a" {
		return pcapgo.NewNgReader(r, pcapgo.DefaultNgReaderOptions)
	}
	return pcapgo.NewReader(r)
}

func readFrames(r *bufio.Reader) ([][]byte, error) {
	p, err := openPcap(r)
	if err != nil {
		return nil, fmt.Errorf("it is no pcap file: %w", err)
	}
	if p.LinkType() != layers.LinkTypeEthernet {
		return nil, fmt.Errorf("its link type is %v: only Ethernet frames can be sent", p.LinkType())
	}
	var frames [][]byte
	for {
		data, info, err := p.ReadPacketData()
		switch {
		case errors.Is(err, io.EOF) && len(frames) > 0:
			return frames, nil
		case errors.Is(err, io.EOF):
			return nil, errors.New("it holds no packets")
		case err != nil:
			return nil, fmt.Errorf("packet %d: %w", len(frames), err)
		case info.CaptureLength < info.Length:
			return nil, fmt.Errorf("packet %d is cut to %d of %d bytes: capture whole packets", len(frames),
				info.CaptureLength, info.Length)
		}
		frames = append(frames, data)
	}
}

// writeFrames writes frames as a pcap file.
func writeFrames(w io.Writer, frames [][]byte) error {
	buffered := bufio.NewWriterSize(w, 1<<20)
	p := pcapgo.NewWriter(buffered)
	if err := p.WriteFileHeader(1<<18, layers.LinkTypeEthernet); err != nil {
		return err
	}
	for _, f := range frames {
		if err := p.WritePacket(gopacket.CaptureInfo{CaptureLength: len(f), Length: len(f)}, f); err != nil {
			return err
		}
	}
	return buffered.Flush()
}
