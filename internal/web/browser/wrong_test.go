// SPDX-License-Identifier: Apache-2.0

//go:build browser

package browser

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// problem is an expression for the line of what is wrong now that has a text.
func problem(text string) string {
	return fmt.Sprintf(`[...document.querySelectorAll("#problems li")].find(e => e.textContent.includes(%q))`, text)
}

// answer has a member of the answers of a path be another one on each page that is opened from now on.
func (b *tab) answer(path, member, value string) {
	b.t.Helper()
	call(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: fmt.Sprintf(`{
		const json = Response.prototype.json;
		Response.prototype.json = async function () {
			const body = await json.call(this);
			if (new URL(this.url).pathname === %q) body[%q] = %s;
			return body;
		};
	}`, path, member, value)})
}

// TestOtherNamespace has a router in another network namespace without a data plane, which is not what this page is about, and one here.
func TestOtherNamespace(t *testing.T) {
	b := browse(t)
	b.answer("/v1/status", "slow_path_only", `[{ router: "far", netns: 1, here: false, pid: 7 }, { router: "near", netns: 2, here: true, pid: 8 }]`)
	b.live()
	b.until("the one here", problem("SCION router near runs without a data plane"))
	if eval[bool](b, "Boolean("+problem("router far")+")") {
		t.Error("a router of another network namespace is wrong here")
	}
	b.clean()
}

// TestSFlow exports samples to where nobody listens: the page says so, and shows what is sampled.
func TestSFlow(t *testing.T) {
	b := browse(t)
	b.live()
	if eval[bool](b, `!document.querySelector("#sflow").hidden`) {
		t.Fatal("there is sFlow already")
	}
	path := filepath.Join(bed.Dir, "culvert.d", "sflow.toml")
	if err := os.WriteFile(path, []byte("[sflow]\nrate = 10\ncollector = \"127.0.0.1:6343\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	back := func() {
		_ = os.Remove(path)
		if out, err := bed.Run(context.Background(), "rut", bed.Culvert, "reload"); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
	defer func() { back() }()
	bed.culvert(t, "reload")
	b.until("the collector gets nothing", problem("The sFlow collector 127.0.0.1:6343 gets nothing"))
	b.until("its row", `document.querySelector("#sflow tbody tr")?.querySelector(".state").dataset.state === "bad"`)
	b.until("samples are counted", `document.querySelector("#sflow tbody td.number").textContent > "0"`)
	back()
	back = func() {}
	b.until("no sFlow", `document.querySelector("#sflow").hidden && !(`+problem("sFlow")+`)`)
	b.clean()
}

// TestDrained drains a VIP as a whole, which is wrong, and gives a backend the weight 0, which is not called drained.
func TestDrained(t *testing.T) {
	const vip, addr = "203.0.113.80:80/tcp", "198.18.21.2"
	b := browse(t)
	b.live()
	back := func() {
		_, _ = bed.Run(context.Background(), "rut", bed.Culvert, "lb", "undrain", vip)
		_, _ = bed.Run(context.Background(), "rut", bed.Culvert, "lb", "backend", "set", vip, addr, "--weight", "1")
	}
	t.Cleanup(back)
	bed.culvert(t, "lb", "drain", vip)
	bed.culvert(t, "lb", "backend", "set", vip, addr, "--weight", "0")
	b.until("the VIP is drained", problem("VIP "+vip+" is drained")+`?.textContent.includes("culvert lb undrain `+vip+`")`)
	for verb, want := range map[string]string{
		"status": "DRAINED: " + vip + ": not announced because of it: culvert lb undrain " + vip, "doctor": "VIP " + vip + " is drained: it is not announced",
	} {
		if out, _ := bed.Run(t.Context(), "rut", bed.Culvert, verb); !strings.Contains(string(out), want) { // doctor fails for other reasons in a lab
			t.Errorf("%s does not say %q:\n%s", verb, want, out)
		}
	}
	row := fmt.Sprintf(`[...document.querySelectorAll("#backends tr")].find(e => e.dataset.key === %q)`, addr)
	b.until("the weight", row+`?.querySelector(".state").textContent.includes("weight 0")`)
	if eval[bool](b, row+`.textContent.includes("drained")`) {
		t.Error("a backend of weight 0 is called drained")
	}
	back()
	b.until("nothing is drained", "!("+problem("is drained")+")")
	if out, _ := bed.Run(t.Context(), "rut", bed.Culvert, "doctor"); strings.Contains(string(out), "lb-drained") {
		t.Errorf("doctor still says\n%s", out)
	}
	b.clean()
}

// TestHost wants the name of the machine where tabs of several machines are told apart.
func TestHost(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	b := browse(t)
	b.live()
	name := eval[string](b, `document.querySelector("#name").textContent`)
	if got := eval[string](b, "document.title"); got != host+": "+name+" – culvert" || name == "" {
		t.Errorf("the title is %q", got)
	}
	if got := eval[string](b, `document.querySelector("#host").textContent`); got != "on "+host {
		t.Errorf("the head has %q", got)
	}
	b.clean()
}

// crowded lists the labels of arrows that are cut off, and texts of arrows that lie on each other or out of their panel.
const crowded = `(() => {
	const found = [];
	const panel = document.querySelector("#way").getBoundingClientRect();
	const texts = [...document.querySelectorAll(".exit .end, .exit .number, .exit .bits")].filter(e => e.checkVisibility({ visibilityProperty: true }) && e.textContent);
	const boxes = texts.map(e => { const r = document.createRange(); r.selectNodeContents(e); return r.getBoundingClientRect(); });
	const name = e => e.closest(".stage").dataset.stage + " " + e.closest(".exit").dataset.end + " " + e.textContent;
	texts.forEach((e, n) => {
		if (e.matches(".end") && e.scrollWidth > e.clientWidth) found.push(name(e) + " is cut off");
		if (boxes[n].right > panel.right) found.push(name(e) + " is out of the panel");
		texts.forEach((o, m) => {
			if (m > n && boxes[n].right > boxes[m].left && boxes[m].right > boxes[n].left && boxes[n].bottom > boxes[m].top && boxes[m].bottom > boxes[n].top)
				found.push(name(e) + " lies on " + name(o));
		});
	});
	return found;
})()`

// TestWidths wants the way to be read in windows of every width, also when its figures are wide.
func TestWidths(t *testing.T) {
	b := browse(t)
	b.do(chromedp.EmulateViewport(1440, 900))
	b.live()
	eval[bool](b, `(() => {
		const wide = () => document.querySelectorAll(".exit .number").forEach(e => { if (e.textContent !== "12.3M") e.textContent = "12.3M"; });
		new MutationObserver(wide).observe(document.querySelector("#flow"), { subtree: true, childList: true, characterData: true });
		wide();
		return true;
	})()`)
	// A bar to scroll takes 15 pixels off the page, but not off the width that styles are chosen by.
	for _, bar := range []int64{0, 15} {
		eval[bool](b, fmt.Sprintf(`(document.documentElement.style.paddingRight = "%dpx", true)`, bar))
		for width := int64(320); width <= 1920; width += 20 {
			b.do(chromedp.EmulateViewport(width, 900))
			if wide := eval[int64](b, "document.documentElement.scrollWidth"); wide > width {
				t.Errorf("at %d the page is %d pixels wide", width, wide)
			}
			if found := eval[[]string](b, crowded); len(found) > 0 {
				t.Errorf("at %d with a bar of %d pixels: %q", width, bar, found)
			}
		}
	}
	b.clean()
}
