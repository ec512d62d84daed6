// SPDX-License-Identifier: Apache-2.0

package node

import (
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"culvert/internal/capture/captureplane"
	"culvert/internal/config"
	"culvert/internal/datapath"
	"culvert/internal/doctor"
	"culvert/internal/filter/cbpf"
	"culvert/internal/filter/filterplane"
	"culvert/internal/testbed"
)

// captureHere is set for a process that begins a capture and is killed.
const captureHere = "CULVERT_TEST_CAPTURE"

// A capture whose process was killed is found by doctor and ended by the process that serves the data plane. One that runs is left.
func TestLeftCaptureEnds(t *testing.T) {
	testbed.NeedRoot(t)
	if name := os.Getenv(captureHere); name != "" {
		inst, err := datapath.OpenHere(name)
		if err == nil {
			_, err = startCapture(inst)
		}
		if err != nil {
			t.Fatal(err)
		}
		os.Stdout.WriteString("captures\n")
		time.Sleep(time.Minute)
		return
	}
	testbed.CheckLeftovers(t)
	testbed.InNamespace(t)
	testbed.AddVeth(t, "nc0", "nc1")
	inst, err := datapath.Attach(datapath.Options{Name: "captured", Interfaces: []string{"nc0"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { inst.DetachAll(); inst.Close() })
	var log strings.Builder
	f := &follower{inst: inst, log: slog.New(slog.NewTextHandler(&log, nil)), detached: config.DetachedStay, logged: map[string]string{}}
	plain := inst.RunningProgram()

	s, err := startCapture(inst)
	if err != nil {
		t.Fatal(err)
	}
	f.sweepCapture()
	if c, err := captureplane.View(inst); err != nil || c == nil || c.LeftOver || c.PID != os.Getpid() || c.Expression != "none" {
		t.Errorf("a capture that runs: %+v, %v", c, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	killCapture(t)
	if c, err := captureplane.View(inst); err != nil || c == nil || !c.LeftOver {
		t.Fatalf("a capture whose process was killed: %+v, %v", c, err)
	}
	var o doctor.Options
	DoctorRunning(&o)
	if len(o.LeftCaptures) != 1 || o.LeftCaptures[0].Router != "captured" {
		t.Errorf("doctor is told of %+v", o.LeftCaptures)
	}
	if f.swept.IsZero() {
		t.Error("it is not noted when it was looked for")
	}
	f.swept = time.Now().Add(time.Hour) // however long all this has taken
	f.sweepCapture()
	if c, err := captureplane.View(inst); err != nil || c == nil {
		t.Errorf("it was looked for again before %s: %+v, %v", capturePeriod, c, err)
	}
	f.swept = time.Time{}
	f.sweepCapture()
	if c, err := captureplane.View(inst); err != nil || c != nil {
		t.Errorf("it was not ended: %+v, %v", c, err)
	}
	if now := inst.RunningProgram(); now != plain {
		t.Errorf("program %d runs, not %d as before the capture", now, plain)
	}
	f.swept = time.Time{}
	f.sweepCapture()
	if n := strings.Count(log.String(), "the process of a capture was killed"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log.String())
	}
}

// startCapture begins a capture that matches no packet.
func startCapture(inst *datapath.Instance) (*captureplane.Session, error) {
	prog, err := cbpf.Parse([]byte("1\n6 0 0 0\n"))
	if err != nil {
		return nil, err
	}
	o := captureplane.Options{Expression: "none", Program: prog}
	return captureplane.Start(inst, o, []datapath.Fronted{filterplane.NewPart()}, 1<<16)
}

// killCapture lets another process begin a capture, and kills it.
func killCapture(t *testing.T) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), captureHere+"=captured")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for b := make([]byte, 4096); !strings.Contains(got.String(), "captures\n"); {
		n, err := out.Read(b)
		got.Write(b[:n])
		if err != nil {
			t.Fatalf("%v:\n%s", err, got.String())
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
}
