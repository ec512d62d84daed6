// SPDX-License-Identifier: Apache-2.0

package captureplane

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf/perf"

	"culvert/internal/datapath"
	"culvert/internal/testbed"
)

// asCapturer is the environment variable that makes the test binary capture on the data plane of the network namespace, until it is
// killed.
const asCapturer = "CULVERT_TEST_CAPTURER"

func TestMain(m *testing.M) {
	if os.Getenv(asCapturer) != "" {
		if err := captureForever(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	testbed.Main(m)
}

// captureForever captures all packets, and says so on standard output.
func captureForever() error {
	inst, err := datapath.OpenHere(bedName)
	if err != nil {
		return err
	}
	s, err := Start(inst, Options{Program: all, InBytes: 64, OutBytes: 64}, others(), 1<<16)
	if err != nil {
		return err
	}
	fmt.Println("capturing")
	s.Reader().SetDeadline(time.Now().Add(testbed.Patience))
	for {
		if err := s.Read(&perf.Record{}); err != nil {
			return err
		}
	}
}
