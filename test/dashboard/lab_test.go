package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/lab"
)

// labTrace is a trace by chance, as Go and as JavaScript take it.
func labTrace(random *rand.Rand) (lab.Trace, string) {
	t := lab.Trace{Length: time.Minute, Every: 500 * time.Millisecond}
	requests, terms := [][]int64{}, [][]int64{}
	period := time.Duration(1+random.IntN(20)) * time.Second
	for at := time.Duration(0); at < t.Length && len(terms) < 4; at += time.Duration(1+random.IntN(30)) * time.Second {
		count, burst := 1+random.Int64N(30), 1+random.Int64N(30)
		t.Terms = append(t.Terms, lab.Terms{From: at, Count: count, Burst: burst, Period: period})
		terms = append(terms, []int64{at.Milliseconds(), count, burst, period.Milliseconds()})
	}
	for range random.IntN(200) {
		at, cost := time.Duration(random.IntN(60_000))*time.Millisecond, 1+random.Int64N(3)
		t.Requests = append(t.Requests, lab.Request{At: at, Cost: cost})
		requests = append(requests, []int64{at.Milliseconds(), cost})
	}
	text, err := json.Marshal(map[string]any{"requests": requests, "terms": terms, "length": t.Length.Milliseconds(), "every": t.Every.Milliseconds()})
	if err != nil {
		panic(err) // Numbers encode.
	}
	return t, string(text)
}

// labPage: the WebAssembly that is served decides as the code of this tree does, and the page
// plays, steps, and goes on with a limit that is changed meanwhile. The same page opens as a
// file.
func labPage(t *testing.T, c *chromium) {
	s := start(t)
	ctx := c.window(t)
	signIn(t, ctx, s)
	shown := `document.getElementById("main")?.dataset.shown === "/lab" && document.querySelector(".lane .figure b")?.textContent !== ""`
	// The link loads another document, which may run WebAssembly.
	click(t, ctx, `nav a[href="/lab"]`)
	do(t, ctx, chromedp.WaitVisible(".lane"))
	until(t, ctx, shown)

	// Each step of the lesson asks, and is answered by what the code decides.
	for i, step := range []struct{ answer, said string }{
		{"20", "Right: 20. The count begins at zero again at the boundary. A sliding window admits 10"},
		{"10", "Right: 10. The burst took the ten tokens, and then there is one for each second. A sliding window admits "},
		{"2", "It is 4. Two exports take 8."},
		{"3", "Right: 3. Both limits have to admit"},
		{"9", "Right: 9. 10 of them are admitted, and leave one by one."},
	} {
		until(t, ctx, fmt.Sprintf(`document.querySelector(".lesson h3").textContent.startsWith("%d of 5: ") && !document.querySelector(".lesson").innerText.includes("Choose")`, i+1))
		click(t, ctx, fmt.Sprintf(`.lesson [data-f="say%s"]`, step.answer))
		until(t, ctx, fmt.Sprintf(`document.querySelector(".lesson").innerText.includes(%q) && document.querySelector(".lesson").innerText.includes("Choose ")`, step.said))
		if i < 4 {
			click(t, ctx, `.lesson [data-f="Next"]`)
		}
	}

	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		trace, text := labTrace(random)
		lanes, err := lab.Run(trace)
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Error string
			Lanes []struct {
				Name             string
				Limits           []string
				Answers, Samples [][3]float64
			}
		}
		if err := json.Unmarshal([]byte(eval[string](t, ctx, "JSON.stringify(headgateLab("+text+"))")), &got); err != nil || len(got.Lanes) != len(lanes) {
			t.Fatalf("%v, %s: %s", err, got.Error, text)
		}
		for i, want := range lanes {
			l := got.Lanes[i]
			if l.Name != want.Name || fmt.Sprint(l.Limits) != fmt.Sprint(want.Limits) || len(l.Answers) != len(want.Answers) || len(l.Samples) != len(want.Samples) {
				t.Fatalf("%s: %+v", want.Name, l)
			}
			for n, a := range want.Answers {
				retry := a.RetryAfter.Seconds() * 1000
				if a.RetryAfter == headgate.Never {
					retry = -1
				}
				if g := l.Answers[n]; (g[0] == 1) != a.Allowed || g[1] != a.Delay.Seconds()*1000 || g[2] != retry {
					t.Fatalf("%s: the answer %d is %v in the browser and %+v here: make lab; %s", want.Name, n, g, a, text)
				}
			}
			for n, a := range want.Samples {
				if g := l.Samples[n]; int64(g[0]) != a.Used || int64(g[1]) != a.Capacity || (g[2] == 1) != a.Blocked {
					t.Fatalf("%s: the sample %d is %v in the browser and %+v here: make lab; %s", want.Name, n, g, a, text)
				}
			}
		}
	}

	use := func() {
		t.Helper()
		set := func(id, value, event string) {
			t.Helper()
			_ = eval[bool](t, ctx, fmt.Sprintf(`(() => { const e = document.getElementById(%q); e.value = %q; e.dispatchEvent(new Event(%q)); return true; })()`, id, value, event))
		}
		row := func(name string) string {
			return fmt.Sprintf(`[...document.querySelectorAll("tbody tr")].find((r) => r.cells[0].textContent === %q).innerText.split("\t").join(" ")`, name)
		}
		set("trace", "boundary", "change")
		until(t, ctx, row("Fixed window")+` === "Fixed window 20 0 20 –" && `+row("Sliding window")+` === "Sliding window 10 10 10 –"`)
		click(t, ctx, ".labplay button:nth-child(2)")
		until(t, ctx, `document.querySelector(".labclock").textContent === "19.1 s"`)
		click(t, ctx, ".labplay button:nth-child(1)")
		until(t, ctx, `parseFloat(document.querySelector(".labclock").textContent) > 19.3`)
		click(t, ctx, ".labplay button:nth-child(1)")
		set("cursor", "19980", "input")
		set("count", "15", "input")
		until(t, ctx, `document.body.innerText.includes("The limit was changed at 20.0 s. What was used stays used.") && `+row("Sliding window")+`.startsWith("Sliding window 15 ")`)
		set("trace", "pasted", "change")
		set("paste", "1\n2\nnonsense\n203.0.113.7 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 1\n", "input")
		until(t, ctx, row("Token bucket")+`.startsWith("Token bucket 2 0")`)
		set("paste", "203.0.113.7 - - [17/May/2015:10:05:03 +0000] x\n203.0.113.7 - - [17/May/2015:12:05:43 +0200] x\n", "input")
		until(t, ctx, row("Token bucket")+`.startsWith("Token bucket 2 0 1")`)
		set("trace", "drawn", "change")
		do(t, ctx, chromedp.SendKeys(".labtrace", kb.ArrowRight+kb.ArrowUp+kb.ArrowUp+kb.ArrowUp))
		until(t, ctx, row("Token bucket")+`.startsWith("Token bucket 3 0 3")`)
		drawWithMouse(t, ctx)
		if problem := eval[string](t, ctx, `document.querySelector(".note.bad:not([hidden])")?.textContent || ""`); problem != "" {
			t.Error(problem)
		}
	}
	use()
	// Away from the Lab, nothing may be compiled. The row of pages may have scrolled under the bar.
	_ = eval[bool](t, ctx, "scrollTo(0, 0), true")
	click(t, ctx, `nav a[href="/flow"]`)
	do(t, ctx, chromedp.WaitVisible(`nav a[href="/flow"][aria-current]`))
	if got := eval[string](t, ctx, `WebAssembly.compile(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0])).then(() => "compiled", (e) => e.name)`); got != "CompileError" {
		t.Errorf("a page compiles WebAssembly: %s", got)
	}
}

// drawWithMouse draws a hill of requests with the mouse, over whatever is there, and has the
// lanes follow while the button is down.
func drawWithMouse(t *testing.T, ctx context.Context) { //nolint:revive // The context is the tab.
	t.Helper()
	_ = eval[bool](t, ctx, `document.querySelector(".labtrace").scrollIntoView({ block: "center" }); true`)
	box := eval[[4]float64](t, ctx, `(() => { const r = document.querySelector(".labtrace").getBoundingClientRect(); return [r.left, r.top, r.width, r.height]; })()`)
	at := func(second, height float64) (x, y float64) {
		return box[0] + (second+0.5)/60*box[2], box[1] + (1-height)*(box[3]-16)
	}
	requests := `parseInt(document.querySelector(".labtrace").getAttribute("aria-label"), 10)`
	before := eval[int](t, ctx, requests)
	held := func(p *input.DispatchMouseEventParams) { p.Buttons = 1 }
	x, y := at(10, 0.9)
	do(t, ctx, chromedp.MouseEvent(input.DispatchMouseEventTypeMousePressed, x, y, chromedp.ButtonLeft, held))
	for second := 10.0; second <= 30; second++ {
		x, y = at(second, 0.9)
		do(t, ctx, chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, x, y, chromedp.ButtonLeft, held))
	}
	do(t, ctx, chromedp.MouseEvent(input.DispatchMouseEventTypeMouseReleased, x, y, chromedp.ButtonLeft))
	until(t, ctx, fmt.Sprintf("%s >= %d", requests, before+60))
	drawn := eval[int](t, ctx, requests)
	until(t, ctx, fmt.Sprintf(`[...document.querySelectorAll("tbody tr")].every((r) => +r.cells[1].textContent + +r.cells[2].textContent === %d)`, drawn))
	// Without the button, the mouse draws nothing.
	x, y = at(50, 0.9)
	do(t, ctx, chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, x, y))
	if got := eval[int](t, ctx, requests); got != drawn {
		t.Errorf("the mouse draws without a button: %d requests, and %d before", got, drawn)
	}
}

// labFile: the page in the docs opens as a file, with no server anywhere.
func labFile(t *testing.T, c *chromium) {
	file, err := filepath.Abs(filepath.Join("..", "..", "docs", "lab.html"))
	if err != nil {
		t.Fatal(err)
	}
	address := url.URL{Scheme: "file", Path: file}
	ctx := c.window(t)
	do(t, ctx, chromedp.Navigate(address.String()))
	until(t, ctx, `document.getElementById("main")?.dataset.shown === "/lab" && [...document.querySelectorAll("tbody tr")].some((r) => r.innerText.split("\t").join(" ").startsWith("Token bucket 28 19"))`)
}
