// SPDX-License-Identifier: Apache-2.0

//go:build browser

package browser

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"culvert/internal/lab"
)

// pageAt is where the page is in the namespace rut of the lab.
const pageAt = "127.0.0.1:9480"

// patience is how long something may take that takes a second or two on an idle machine. On a busy one the lab's checks and sessions
// fail for a while, and the page asks seldom.
const patience = 5 * time.Minute

// labName is the name of a lab of topology all that runs already, for work on the page: a lab takes minutes to come up.
var labName = os.Getenv("CULVERT_TEST_LAB")

// world is a lab with traffic, and a tunnel to its page, as 'ssh -L' makes one.
type world struct {
	*lab.Lab
	tunnel net.Listener
	// deaf has the tunnel's far end answer nobody.
	deaf atomic.Bool
}

// bed is the lab of all tests.
var bed *world

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l, err := upAll(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if labName == "" {
		defer func() {
			if err := l.Down(); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}()
	}
	bed = &world{Lab: l}
	if bed.tunnel, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer bed.tunnel.Close()
	go bed.carry(ctx)
	end := bed.traffic(ctx)
	defer end()
	return m.Run()
}

func root() string {
	dir, err := filepath.Abs("../../..")
	if err != nil {
		panic(err)
	}
	return dir
}

func upAll(ctx context.Context) (*lab.Lab, error) {
	if labName != "" {
		return lab.Open(labName)
	}
	return lab.Up(ctx, "all", lab.Options{
		Name: fmt.Sprintf("w%d", os.Getpid()), Culvert: filepath.Join(root(), "bin", "culvert"), Out: os.Stderr,
		Peers: lab.Peers{Module: filepath.Join(root(), "peers"), Bin: filepath.Join(root(), "bin", "peers")},
	})
}

// carry connects those who come to the tunnel with the page.
func (w *world) carry(ctx context.Context) {
	for {
		near, err := w.tunnel.Accept()
		if err != nil {
			return
		}
		go func() {
			defer near.Close()
			if w.deaf.Load() {
				return
			}
			var far net.Conn
			err := w.Do("rut", func() (err error) {
				far, err = (&net.Dialer{}).DialContext(ctx, "tcp", pageAt)
				return err
			})
			if err != nil {
				return
			}
			defer far.Close()
			var both sync.WaitGroup
			both.Go(func() { _, _ = io.Copy(far, near); _ = far.(*net.TCPConn).CloseWrite() })
			both.Go(func() { _, _ = io.Copy(near, far); _ = near.(*net.TCPConn).CloseWrite() })
			both.Wait()
		}()
	}
}

// url returns the address of the page at the tunnel's near end.
func (w *world) url() string { return "http://" + w.tunnel.Addr().String() + "/" }

// traffic sends packets through every stage until it is told to end.
func (w *world) traffic(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	last := w.ASes[len(w.ASes)-1]
	for _, c := range []struct {
		ns   string
		argv []string
	}{
		{"client", []string{"ping", "-q", "-n", "-i", "0.01", "1.1.1.1"}},
		{"client", []string{"ping", "-q", "-n", "-i", "0.05", "2606:4700:4700::1111"}},
		{"client", []string{"ping", "-q", "-n", "-i", "0.02", "-I", w.All.Blocked.String(), "1.1.1.1"}},
		{"client", []string{"sh", "-c", "while curl -s -o /dev/null -m 2 'http://203.0.113.80:80/' || sleep 0.2; do sleep 0.05; done"}},
		{"client", []string{"sh", "-c", "while curl -s -o /dev/null -m 2 'http://[2001:db8:80::80]:80/' || sleep 0.2; do sleep 0.1; done"}},
		{"client", []string{"sh", "-c", "while curl -s -o /dev/null -m 2 'http://" + w.All.Protected.String() + "/metrics' || sleep 0.2; do sleep 1; done"}},
		{"as1h", []string{"scion", "ping", last.IA + "," + last.Host.String(), "--interval", "20ms"}},
	} {
		all.Go(func() {
			for ctx.Err() == nil {
				cmd, err := w.Command(ctx, c.ns, c.argv...)
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					return
				}
				_ = cmd.Run()
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// tab is a tab of a browser. It notes what a page must not do.
type tab struct {
	context.Context
	t *testing.T

	mu       sync.Mutex
	wrong    []string // errors on the console, exceptions
	requests []string // URLs
}

// browse starts a browser with one tab.
func browse(t *testing.T, more ...chromedp.ExecAllocatorOption) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.NoSandbox, // root has none
		chromedp.ExecPath("chromium"),
		chromedp.Flag("disable-gpu", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("force-color-profile", "srgb"),
		// No name leads anywhere but one that an attacker has let point to this machine.
		chromedp.Flag("host-resolver-rules", "MAP rebound.example 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1"),
		chromedp.WSURLReadTimeout(patience), chromedp.UserDataDir(t.TempDir()),
	)
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), append(options, more...)...)
	t.Cleanup(cancel)
	return newTab(t, ctx)
}

func newTab(t *testing.T, ctx context.Context) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &tab{Context: ctx, t: t}
	if err := chromedp.Do(ctx); err != nil { // starts the browser, which ends with this context
		t.Fatal(err)
	}
	err := chromedp.Listen(ctx, func(event any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.wrong = append(b.wrong, e.ExceptionDetails.Text)
		case *runtime.EventConsoleAPICalled:
			for _, a := range e.Args {
				b.wrong = append(b.wrong, fmt.Sprintf("console.%s: %s", e.Type, a.Value))
			}
		case *log.EventEntryAdded:
			b.wrong = append(b.wrong, fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
		case *network.EventRequestWillBeSent:
			b.requests = append(b.requests, e.Request.URL)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	call(b, network.Enable, network.EnableParams{})
	call(b, log.Enable, cdp.Empty{})
	return b
}

// do does something in the tab.
func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	get(b, chromedp.Steps(steps...))
}

// get does something in the tab, and returns its result.
func get[T any](b *tab, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.Context, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, action)
	if err != nil {
		b.t.Fatal(err)
	}
	return value
}

// call calls a method of the browser's protocol.
func call[P, R any](b *tab, method cdp.Command[P, R], params P) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.Context, patience)
	defer cancel()
	if _, err := chromedp.Call(ctx, method, params); err != nil {
		b.t.Fatal(err)
	}
}

// eval returns the value of an expression.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	return get(b, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// until waits until an expression is true.
func (b *tab) until(what, expression string) {
	b.t.Helper()
	for end := time.Now().Add(patience); !eval[bool](b, "Boolean("+expression+")"); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("%s: not after %s; the page has:\n%s", what, patience, eval[string](b, "document.body.innerText"))
		}
	}
}

// live opens the page, and waits until it has rates.
func (b *tab) live() {
	b.t.Helper()
	b.do(chromedp.Navigate(bed.url()))
	b.until("rates", `document.querySelector('[data-arrow="all>"]')?.dataset.rate`)
}

// scheme has the browser prefer light or dark.
func (b *tab) scheme(name string) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
}

// clean wants that nothing went wrong, and that all was asked of the page's own origin.
func (b *tab) clean() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.wrong {
		b.t.Errorf("the console has: %s", w)
	}
	for _, u := range b.requests {
		if !strings.HasPrefix(u, bed.url()) {
			b.t.Errorf("the page has asked for %s", u)
		}
	}
	if len(b.requests) < 5 {
		b.t.Errorf("only %d requests were seen", len(b.requests))
	}
}
