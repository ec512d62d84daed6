// SPDX-License-Identifier: Apache-2.0

//go:build browser

package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"culvert/internal/lab"
)

// arrows is what is on the arrows of the page at a clock.
type arrows struct {
	Clock, Seconds float64
	Packets        map[string]uint64
	Rates          map[string]*float64
	Texts          map[string]string
}

// readArrows reads all arrows at once.
const readArrows = `(() => {
	const a = { Clock: Number(document.querySelector("#flow").dataset.clock), Seconds: Number(document.querySelector("#flow").dataset.seconds), Packets: {}, Rates: {}, Texts: {} };
	for (const e of document.querySelectorAll("[data-arrow]")) {
		a.Packets[e.dataset.arrow] = Number(e.dataset.packets);
		a.Rates[e.dataset.arrow] = e.dataset.rate === undefined ? null : Number(e.dataset.rate);
		a.Texts[e.dataset.arrow] = e.textContent;
	}
	return a;
})()`

// counted returns the packets of an interface, and of each verdict, as the command line tells.
func counted(t *testing.T) (byInterface map[string]uint64, byEnd map[string]uint64) {
	t.Helper()
	out, err := bed.Run(t.Context(), "rut", bed.Culvert, "status", "-j")
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Routers []struct {
			Here       bool
			Interfaces []struct {
				Interface string
				Packets   uint64
				Reasons   []struct {
					Verdict string
					Limited bool
					Packets uint64
				}
			}
		}
	}
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatal(err)
	}
	byInterface, byEnd = make(map[string]uint64), make(map[string]uint64)
	ends := map[string]string{"fwd": "out", "punt": "slow", "pass": "kernel", "drop": "drop"}
	for _, r := range report.Routers {
		if !r.Here {
			continue
		}
		for _, i := range r.Interfaces {
			byInterface[i.Interface] = i.Packets
			for _, reason := range i.Reasons {
				end := ends[reason.Verdict]
				if reason.Limited {
					end = "drop"
				}
				byEnd[end] += reason.Packets
			}
		}
	}
	return byInterface, byEnd
}

// TestRates compares the figures on the arrows with the counters: totals lie between two looks by the command line, each rate is the
// difference of two totals by the time between them, and what comes into a stage is what leaves it.
func TestRates(t *testing.T) {
	b := browse(t)
	b.live()
	compared := 0
	for end := time.Now().Add(patience); compared < 3 && time.Now().Before(end); {
		interfacesBefore, endsBefore := counted(t)
		first := eval[arrows](b, readArrows)
		// The look that goes on now may have begun before the command line's.
		b.until("the next look", fmt.Sprintf(`Number(document.querySelector("#flow").dataset.clock) > %f`, first.Clock))
		second := eval[arrows](b, readArrows)
		b.until("the look after it", fmt.Sprintf(`Number(document.querySelector("#flow").dataset.clock) > %f`, second.Clock))
		second = eval[arrows](b, readArrows)
		b.until("another look", fmt.Sprintf(`Number(document.querySelector("#flow").dataset.clock) > %f`, second.Clock))
		third := eval[arrows](b, readArrows)
		interfacesAfter, endsAfter := counted(t)
		for name, before := range interfacesBefore {
			if n := second.Packets[name+">"]; n < before || n > interfacesAfter[name] {
				t.Errorf("%s: the page has %d packets, the command line %d before and %d after", name, n, before, interfacesAfter[name])
			}
		}
		for end, before := range endsBefore {
			if n := second.Packets["all>"+end]; n < before || n > endsAfter[end] {
				t.Errorf("%s: the page has %d packets, the command line %d before and %d after", end, n, before, endsAfter[end])
			}
		}
		if seconds := third.Clock - second.Clock; math.Abs(seconds-third.Seconds) < 1e-5 { // no other look was between them
			compared++
			for name, rate := range third.Rates {
				if want := float64(third.Packets[name]-second.Packets[name]) / seconds; rate == nil || math.Abs(*rate-want) > 1e-3*want+1e-6 {
					t.Errorf("%s has the rate %v, and %d packets in %g s", name, rate, third.Packets[name]-second.Packets[name], seconds)
				}
			}
		}
		stages := []string{"filter", "lb", "scion", "route", "core"}
		for n, stage := range stages {
			left := third.Packets[">"+stage]
			for _, end := range []string{"out", "slow", "kernel", "drop"} {
				left -= third.Packets[stage+">"+end]
			}
			behind := uint64(0)
			if n+1 < len(stages) {
				behind = third.Packets[">"+stages[n+1]]
			}
			if left != behind {
				t.Errorf("%s has %d packets left, and behind it are %d", stage, left, behind)
			}
		}
		for _, name := range []string{"filter>drop", "lb>out", "scion>out", "scion>slow", "route>out", "all>"} {
			if rate := third.Rates[name]; rate == nil || *rate == 0 || third.Texts[name] == "0" {
				t.Errorf("%s has the rate %v, %q, though there is traffic", name, rate, third.Texts[name])
			}
		}
	}
	if compared == 0 {
		t.Error("no two looks that follow each other were seen")
	}
	b.clean()
}

// TestBackendDown stops a backend: the page says so first, with the reason, and after it has come back, no more.
func TestBackendDown(t *testing.T) {
	b := browse(t)
	b.live()
	const problem = `[...document.querySelectorAll("#problems li")].find(e => e.textContent.includes("Backend 198.18.21.2 of 203.0.113.80:80/tcp is down"))`
	row := `[...document.querySelectorAll("#backends tr")].find(e => e.dataset.key === "198.18.21.2")`
	b.until("the backend is up", row+`?.querySelector(".state").textContent.includes("up")`)
	back := bed.silence(t, "b1")
	b.until("the backend is down", problem)
	b.until("its row", row+`.querySelector(".state").dataset.state === "bad" && `+row+`.textContent.includes("down")`)
	b.until("the worst is first", `document.querySelector("#problems li").textContent.includes("FAILS")`)
	if dir := os.Getenv("CULVERT_SCREENSHOTS"); dir != "" {
		wrongPicture(t, b, dir)
	}
	back()
	b.until("the backend is up again", row+`.querySelector(".state").dataset.state === "good" && !(`+problem+`)`)
	b.clean()
}

// silence ends the web server of a backend, until the function that it returns is called, or until the test ends.
func (w *world) silence(t *testing.T, ns string) (back func()) {
	t.Helper()
	if err := w.Stop(lab.WebProcess(ns), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	back = func() {
		once.Do(func() {
			if err := w.StartWebServer(ns); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(back)
	return back
}

// TestDropReason adds a rule that drops what came through. The page has the rule, its rate, and the reason with its sentence.
func TestDropReason(t *testing.T) {
	b := browse(t)
	b.live()
	row := func(panel, name string) string {
		return fmt.Sprintf(`[...document.querySelectorAll("#%s tbody tr")].find(e => e.querySelector(".name")?.textContent === %q)`, panel, name)
	}
	rule := row("filter", "no-pings")
	if eval[bool](b, "Boolean("+rule+")") {
		t.Fatal("the rule is there already")
	}
	bed.culvert(t, "filter", "add", "--name", "no-pings", "drop", "icmp6 and ip6[40] == 128")
	t.Cleanup(func() { _, _ = bed.Run(context.Background(), "rut", bed.Culvert, "filter", "del", "no-pings") })
	b.until("the rule counts", rule+`?.querySelector("td.number").textContent > "0" && !`+rule+`.hasAttribute("data-still")`)
	reason := `[...document.querySelectorAll("#reasons tbody tr")].find(e => e.dataset.key === "drop|filter")`
	b.until("the reason is explained", reason+`?.textContent.includes("dropped by a rule")`)
	bed.culvert(t, "filter", "del", "no-pings")
	b.until("the rule is gone", "!"+rule)
	b.clean()
}

// culvert runs the binary in rut.
func (w *world) culvert(t *testing.T, args ...string) {
	t.Helper()
	if out, err := w.Run(t.Context(), "rut", append([]string{w.Culvert}, args...)...); err != nil {
		t.Fatalf("culvert %q: %v: %s", args, err, out)
	}
}

// TestProcessGone has the page lose the process, and find it again without being loaded again.
func TestProcessGone(t *testing.T) {
	b := browse(t)
	b.live()
	eval[bool](b, `window.loadedOnce = true`)
	bed.deaf.Store(true)
	b.until("no answer", `/no answer since \d\d:\d\d:\d\d/.test(document.querySelector("#live").textContent) && document.body.dataset.silent === "true"`)
	b.until("it is what is wrong", `document.querySelector("#problems").textContent.includes("No answer since")`)
	if text := eval[string](b, `document.querySelector("#problems").textContent`); !strings.Contains(text, "If the machine is up, packets go on") || strings.Contains(text, "systemctl") {
		t.Errorf("the page says %q of a process that is no unit's", text)
	}
	if eval[string](b, `document.querySelector('[data-arrow="all>"]').textContent`) != "–" {
		t.Error("there is a rate without an answer")
	}
	bed.deaf.Store(false)
	b.until("an answer", `document.querySelector("#live").textContent.includes("live") && document.querySelector('[data-arrow="all>"]').dataset.rate`)
	if !eval[bool](b, `window.loadedOnce === true && document.body.dataset.silent === undefined`) {
		t.Error("the page was loaded again, or still says that there is no answer")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range b.wrong {
		if !strings.Contains(w, "ERR_") { // the browser itself notes requests that fail
			t.Errorf("the console has: %s", w)
		}
	}
}

// TestHidden wants a page that nobody sees to ask for nothing, and to go on when it is seen.
func TestHidden(t *testing.T) {
	b := browse(t)
	b.live()
	show := func(hidden bool) {
		eval[bool](b, fmt.Sprintf(`(() => {
			Object.defineProperty(document, "hidden", { value: %t, configurable: true });
			document.dispatchEvent(new Event("visibilitychange"));
			return true;
		})()`, hidden))
	}
	asked := func() int {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.requests)
	}
	show(true)
	time.Sleep(3 * time.Second) // what was asked for is answered
	before := asked()
	time.Sleep(4 * time.Second)
	if n := asked(); n != before {
		t.Errorf("%d requests while the page is hidden", n-before)
	}
	show(false)
	for end := time.Now().Add(patience); asked() == before; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no request once the page is seen again")
		}
	}
	b.clean()
}

// TestOtherOrigin has a page of another origin, and one at a name that leads to this machine, try to get at the page's answers in every
// way that a browser knows.
func TestOtherOrigin(t *testing.T) {
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, "<!DOCTYPE html><title>evil</title>")
	}))
	defer evil.Close()
	for _, from := range []string{evil.URL, strings.Replace(evil.URL, "127.0.0.1", "localhost", 1)} {
		b := browse(t)
		b.do(chromedp.Navigate(from))
		for what, expression := range map[string]string{
			"fetch":        `fetch(%q).then(async r => "read " + await r.text(), e => "refused")`,
			"opaque fetch": `fetch(%q, { mode: "no-cors" }).then(async r => r.type === "opaque" && !(await r.text()) ? "refused" : "read", e => "refused")`,
			"script":       `new Promise(done => { const s = document.createElement("script"); s.src = %q; s.onload = () => done("read"); s.onerror = () => done("refused"); document.head.append(s); })`,
			"style":        `new Promise(done => { const s = document.createElement("link"); s.rel = "stylesheet"; s.href = %q; s.onload = () => done("read"); s.onerror = () => done("refused"); document.head.append(s); })`,
			"picture":      `new Promise(done => { const s = new Image(); s.src = %q; s.onload = () => done("read"); s.onerror = () => done("refused"); })`,
			"frame": `new Promise(done => { const f = document.createElement("iframe"); f.src = %q; f.onload = () => {
				try { done(f.contentDocument && f.contentDocument.body.textContent ? "read" : "refused"); } catch (e) { done("refused"); } }; document.body.append(f); })`,
		} {
			for _, path := range []string{"", "main.js", "page.css", "icon.svg", "v1/status", "v1/version"} {
				if got := eval[string](b, fmt.Sprintf(expression, bed.url()+path)); got != "refused" {
					t.Errorf("%s from %s gets /%s: %.200s", what, from, path, got)
				}
			}
		}
	}
	_, port, err := net.SplitHostPort(bed.tunnel.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b := browse(t)
	b.do(chromedp.Navigate("http://rebound.example:" + port + "/"))
	if text := eval[string](b, "document.documentElement.textContent"); !strings.Contains(text, "is no address of this page") {
		t.Errorf("at another name the page is %.300s", text)
	}
	if got := eval[string](b, `fetch("/v1/status").then(r => String(r.status), e => "failed")`); got != "403" {
		t.Errorf("a rebound name has got %s", got)
	}
}

// TestHostileNames has every text of every answer be one that a careless page would run.
func TestHostileNames(t *testing.T) {
	b := browse(t)
	const hostile = `<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>`
	call(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: fmt.Sprintf(`{
		const json = Response.prototype.json;
		const keep = ["up", "mirror", "established", "active"];
		const change = (v, k) => typeof v === "string" ? (keep.includes(v) || k === "verdict" ? v : v + %q)
			: Array.isArray(v) ? v.map(x => change(x)) : v && typeof v === "object" ? Object.fromEntries(Object.entries(v).map(([k, x]) => [k, change(x, k)])) : v;
		Response.prototype.json = async function () { return change(await json.call(this)); };
	}`, hostile)})
	b.live()
	b.until("the text is there", `document.body.textContent.includes("<script>window.hacked=1")`)
	if eval[bool](b, `window.hacked !== undefined || document.images.length > 0 || document.querySelectorAll("script").length !== 1`) {
		t.Errorf("a text was taken as HTML: %.2000s", eval[string](b, "document.body.outerHTML"))
	}
	b.clean()
}

// TestKeyboard goes through the page by the tab key, and chooses an interface: the way is that of the interface then.
func TestKeyboard(t *testing.T) {
	b := browse(t)
	b.live()
	eval[bool](b, `(document.querySelector('input[value=""]').focus(), true)`)
	b.do(chromedp.KeyEvent(kb.ArrowDown))
	name := eval[string](b, `document.querySelector("input:checked").value`)
	if name == "" {
		t.Fatal("the arrow key has chosen no interface")
	}
	b.until("the reasons are those of the interface", fmt.Sprintf(`document.querySelector("#reasons .about").textContent === "of %s"`, name))
	a := eval[arrows](b, readArrows)
	if sum := a.Packets["all>out"] + a.Packets["all>slow"] + a.Packets["all>kernel"] + a.Packets["all>drop"]; sum != a.Packets[name+">"] {
		t.Errorf("%d packets leave, and %d came in by %s", sum, a.Packets[name+">"], name)
	}
	b.clean()
}

// TestStill wants nothing to move when figures grow: the places of all parts stay as they are, over some looks.
func TestStill(t *testing.T) {
	b := browse(t)
	b.live()
	const places = `[...document.querySelectorAll("section, .node, .exit, thead th")].map(e => { const r = e.getBoundingClientRect(); return [r.left, r.width].map(Math.round).join("+"); })`
	before := eval[[]string](b, places)
	time.Sleep(4 * time.Second)
	if after := eval[[]string](b, places); !slices.Equal(before, after) {
		t.Errorf("parts have moved:\n%v\n%v", before, after)
	}
}

// wrongPicture takes a picture of a page with something wrong.
func wrongPicture(t *testing.T, b *tab, dir string) {
	t.Helper()
	path := filepath.Join(bed.Dir, "culvert.d", "filter.toml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.WriteFile(path, text, 0o644) })
	b.until("the file differs", `document.querySelector("#problems").textContent.includes("differs")`)
	b.scheme("dark")
	b.do(chromedp.EmulateViewport(1440, 900))
	time.Sleep(1500 * time.Millisecond)
	writePicture(t, filepath.Join(dir, "web-dark-wrong.png"), get(b, chromedp.FullScreenshot(100)), 640)
}
