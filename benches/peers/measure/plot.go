package main

import (
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A plot shows how one number of each contender grows with a parameter.
type plot struct {
	file, title, x, y string
	logarithmic       bool // both axes
	pick              func(*result) bool
	at                func(*result) float64
	value             func(*result) float64
}

func parameter(name string) func(*result) float64 {
	return func(r *result) float64 { return float64(r.Parameters[name]) }
}

func plots() []plot {
	growth := with("coldstart", map[string]int{"skip_unchanged": 1})
	perSecond := func(r *result) float64 { return float64(r.Parameters["foos"]) / r.Metrics["span_s"] }
	objects := func(r *result) float64 { return 2 * float64(r.Parameters["foos"]) }
	return []plot{
		{"growth-memory.svg", "Cold start: peak resident memory", "objects (half Foos, half Deployments)", "MB", true, growth, objects, metric("peak_mb")},
		{"growth-cpu.svg", "Cold start: CPU time", "objects (half Foos, half Deployments)", "s", true, growth, objects, metric("cpu_s")},
		{"growth-time.svg", "Cold start: time until quiet", "objects (half Foos, half Deployments)", "s", true, growth, objects, metric("quiet_s")},
		{"workers.svg", "Throughput by number of workers", "workers", "Foos converged per second", false, with("workers", nil), parameter("workers"), perSecond},
		{"latency.svg", "Throughput by API latency", "latency put in, ms", "Foos converged per second", false, with("latency", nil), parameter("delay_ms"), perSecond},
	}
}

var colours = map[string]string{
	"ours": "#0b7a4b", "client-go": "#2f6fdb", "controller-runtime": "#c2571a", "kube-runtime": "#8a4fbf",
}

// writePlots draws those for which there are results.
func writePlots(all []result, folder string) ([]plot, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	var drawn []plot
	for _, p := range plots() {
		lines := p.lines(all)
		if len(lines) == 0 {
			continue
		}
		if err := os.WriteFile(filepath.Join(folder, p.file), []byte(p.svg(lines)), 0o644); err != nil {
			return nil, err
		}
		drawn = append(drawn, p)
	}
	return drawn, nil
}

// least is what is drawn for 0: processor time is accounted in ticks of a hundredth of a second,
// so 0 means less than one, and a logarithmic axis has no 0.
const least = 0.01

type point struct{ x, y float64 }

type line struct {
	name   string
	points []point
}

func (p *plot) lines(all []result) []line {
	var lines []line
	for _, name := range append([]string{"ours"}, peers...) {
		values := map[float64][]float64{}
		for i := range all {
			if r := &all[i]; r.Contender == name && p.pick(r) && !math.IsNaN(p.value(r)) {
				values[p.at(r)] = append(values[p.at(r)], max(p.value(r), least))
			}
		}
		var points []point
		for x, ys := range values {
			points = append(points, point{x, median(ys)})
		}
		slices.SortFunc(points, func(a, b point) int { return int(math.Copysign(1, a.x-b.x)) })
		if len(points) > 0 {
			lines = append(lines, line{name, points})
		}
	}
	return lines
}

// The drawing's size and the area between the axes.
const (
	width, height            = 680, 400
	left, right, top, bottom = 60, 490, 56, 340
)

func (p *plot) svg(lines []line) string {
	low, high := point{math.Inf(1), math.Inf(1)}, point{math.Inf(-1), math.Inf(-1)}
	for _, l := range lines {
		for _, q := range l.points {
			low = point{min(low.x, q.x), min(low.y, q.y)}
			high = point{max(high.x, q.x), max(high.y, q.y)}
		}
	}
	if p.logarithmic {
		low.y, high.y = math.Pow(10, math.Floor(math.Log10(low.y))), math.Pow(10, math.Ceil(math.Log10(high.y)))
	} else {
		low, high.y = point{0, 0}, high.y*1.05
	}
	x, y := p.scale(low.x, high.x, left, right), p.scale(low.y, high.y, bottom, top)

	var b strings.Builder
	text := func(x, y float64, anchor, colour, s string) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s">%s</text>`+"\n", x, y, anchor, colour, html.EscapeString(s))
	}
	stroke := func(x1, y1, x2, y2 float64, colour string) {
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`+"\n", x1, y1, x2, y2, colour)
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, "<title>%s</title>\n", html.EscapeString(p.title))
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	fmt.Fprintf(&b, `<text x="%d" y="26" font-size="15" font-weight="bold" fill="#222">%s</text>`+"\n", left, html.EscapeString(p.title))
	for _, tick := range p.ticks(low.y, high.y) {
		stroke(left, y(tick), right, y(tick), "#dddddd")
		text(left-8, y(tick)+4, "end", "#555", label(tick))
	}
	free := math.Inf(1)
	for _, q := range slices.Backward(widest(lines).points) {
		stroke(x(q.x), bottom, x(q.x), bottom+5, "#555555")
		if x(q.x) < free-45 { // else it would touch the one to its right
			text(x(q.x), bottom+20, "middle", "#555", label(q.x))
			free = x(q.x)
		}
	}
	stroke(left, bottom, right, bottom, "#555555")
	text((left+right)/2, bottom+42, "middle", "#222", p.x)
	text(left-8, 42, "start", "#555", p.y)
	p.draw(&b, lines, x, y, text)
	b.WriteString("</svg>\n")
	return b.String()
}

// draw adds the lines, and their names where they end, moved apart where they would overlap.
func (p *plot) draw(b *strings.Builder, lines []line, x, y func(float64) float64, text func(x, y float64, anchor, colour, s string)) {
	slices.SortFunc(lines, func(a, c line) int {
		return int(math.Copysign(1, y(a.points[len(a.points)-1].y)-y(c.points[len(c.points)-1].y)))
	})
	free := math.Inf(-1)
	for _, l := range lines {
		var path []string
		for _, q := range l.points {
			path = append(path, fmt.Sprintf("%.1f,%.1f", x(q.x), y(q.y)))
			fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", x(q.x), y(q.y), colours[l.name])
		}
		fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(path, " "), colours[l.name])
		end := l.points[len(l.points)-1]
		free = max(free+15, y(end.y))
		text(x(end.x)+10, free+4, "start", colours[l.name], fmt.Sprintf("%s %s", l.name, label(end.y)))
	}
}

func widest(lines []line) line {
	return slices.MaxFunc(lines, func(a, b line) int { return len(a.points) - len(b.points) })
}

func (p *plot) scale(low, high, from, to float64) func(float64) float64 {
	if p.logarithmic {
		low, high = math.Log(low), math.Log(high)
	}
	if high == low {
		high = low + 1
	}
	return func(v float64) float64 {
		if p.logarithmic {
			v = math.Log(v)
		}
		return from + (v-low)/(high-low)*(to-from)
	}
}

func (p *plot) ticks(low, high float64) []float64 {
	var ticks []float64
	if p.logarithmic {
		for v := low; v <= high*1.001; v *= 10 {
			ticks = append(ticks, v)
		}
		return ticks
	}
	step := math.Pow(10, math.Floor(math.Log10(high-low)))
	for (high-low)/step < 4 {
		step /= 2
	}
	for v := low; v <= high; v += step {
		ticks = append(ticks, v)
	}
	return ticks
}

func label(v float64) string {
	switch {
	case v >= 1000:
		return thousands(int(math.Round(v)))
	case v == math.Trunc(v) || v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2g", v)
	}
}
