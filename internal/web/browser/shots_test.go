// SPDX-License-Identifier: Apache-2.0

//go:build browser

package browser

import (
	"bytes"
	"cmp"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// TestScreenshots looks at the page in light and dark, wide and narrow: nothing is wider than the window, and no text is cut off that
// has no other place. With CULVERT_SCREENSHOTS=DIR it writes pictures.
func TestScreenshots(t *testing.T) {
	b := browse(t)
	b.do(chromedp.EmulateViewport(1440, 900))
	b.live()
	time.Sleep(4 * time.Second) // for figures that are not those of the first moment
	for _, scheme := range []string{"light", "dark"} {
		for _, size := range []struct {
			name               string
			width, height, top int64
		}{{"wide", 1440, 900, 1060}, {"narrow", 390, 844, 1500}, {"middle", 900, 1000, 1600}, {"widest", 1920, 1080, 1500}} {
			name := fmt.Sprintf("web-%s-%s.png", scheme, size.name)
			b.scheme(scheme)
			b.do(chromedp.EmulateViewport(size.width, size.height))
			time.Sleep(1500 * time.Millisecond)
			if wide := eval[int64](b, "document.documentElement.scrollWidth"); wide > size.width {
				t.Errorf("%s: the page is %d pixels wide", name, wide)
			}
			if dir := os.Getenv("CULVERT_SCREENSHOTS"); dir != "" {
				b.until("nothing is wrong", `document.querySelector("#wrong").dataset.state === "good"`)
				writePicture(t, filepath.Join(dir, name), get(b, chromedp.FullScreenshot(100)), size.top)
			}
		}
	}
	b.clean()
}

// writePicture writes the top of a picture with few colors, so that it is small.
func writePicture(t *testing.T, path string, from []byte, top int64) {
	t.Helper()
	whole, err := png.Decode(bytes.NewReader(from))
	if err != nil {
		t.Fatal(err)
	}
	area := whole.Bounds().Intersect(image.Rect(0, 0, whole.Bounds().Dx(), int(top)))
	counts := make(map[color.RGBA]int)
	at := func(x, y int) color.RGBA {
		r, g, b, _ := whole.At(x, y).RGBA()
		return color.RGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), 255}
	}
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			counts[at(x, y)]++
		}
	}
	all := slices.SortedFunc(maps.Keys(counts), func(a, b color.RGBA) int { return cmp.Compare(counts[b], counts[a]) })
	palette := paletteOf(all)
	nearest := make(map[color.RGBA]uint8)
	for _, c := range all {
		nearest[c] = uint8(palette.Index(c))
	}
	small := image.NewPaletted(area, palette)
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			small.SetColorIndex(x, y, nearest[at(x, y)])
		}
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, small); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// paletteOf returns the colors that a picture has most of, the first of all, and those that differ most from them.
func paletteOf(all []color.RGBA) (palette color.Palette) {
	for _, c := range all[:min(len(all), 64)] {
		palette = append(palette, c)
	}
	distance := func(a, b color.RGBA) int {
		r, g, h := int(a.R)-int(b.R), int(a.G)-int(b.G), int(a.B)-int(b.B)
		return r*r + g*g + h*h
	}
	far := make([]int, len(all))
	for n, c := range all {
		far[n] = distance(c, palette[palette.Index(c)].(color.RGBA))
	}
	for len(palette) < 160 {
		most := 0
		for n := range all {
			if far[n] > far[most] {
				most = n
			}
		}
		if far[most] == 0 {
			break
		}
		palette = append(palette, all[most])
		for n, c := range all {
			far[n] = min(far[n], distance(c, all[most]))
		}
	}
	return palette
}
