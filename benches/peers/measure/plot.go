package main

import (
	"cmp"
	"fmt"
	"html"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A plot shows how one number of each contender's cold start grows with the objects in place.
// Both axes are logarithmic.
type plot struct{ file, title, unit, metric string }

var plots = []plot{
	{"growth-memory.svg", "Cold start: peak resident memory", "MB", "peak_mb"},
	{"growth-cpu.svg", "Cold start: CPU time", "s", "cpu_s"},
	{"growth-time.svg", "Cold start: time until quiet", "s", "quiet_s"},
}

// colours of the contenders, in the order of their names.
var colours = []string{"#0b7a4b", "#2f6fdb", "#c2571a", "#8a4fbf"}

// least is what is drawn for 0, which a logarithmic axis does not have: one tick of CPU time.
const least = 0.01

type point struct{ x, y float64 }

type line struct {
	name, colour string
	points       []point
}

func (l line) end() point { return l.points[len(l.points)-1] }

// writePlots draws and returns the plots that there are results for.
func writePlots(all []result, folder string) (drawn []plot) {
	check(os.MkdirAll(folder, 0o755))
	for _, p := range plots {
		if lines := p.lines(all); len(lines) > 0 {
			check(os.WriteFile(filepath.Join(folder, p.file), []byte(p.svg(lines)), 0o644))
			drawn = append(drawn, p)
		}
	}
	return drawn
}

func (p *plot) lines(all []result) []line {
	var lines []line
	for i, name := range names {
		values := map[int][]float64{}
		for _, r := range all {
			if value, ok := r.Metrics[p.metric]; ok && r.Part == "coldstart" && r.Compares && r.Contender == name {
				values[r.Foos] = append(values[r.Foos], max(value, least))
			}
		}
		l := line{name: name, colour: colours[i]}
		for _, foos := range slices.Sorted(maps.Keys(values)) {
			slices.Sort(values[foos])
			l.points = append(l.points, point{2 * float64(foos), median(values[foos])})
		}
		if len(l.points) > 0 {
			lines = append(lines, l)
		}
	}
	return lines
}

// The drawing's size and the area between the axes.
const (
	width, height            = 680, 400
	left, right, top, bottom = 60, 490, 56, 340
)

// A drawing is an SVG file in the making.
type drawing struct{ strings.Builder }

func (d *drawing) add(format string, values ...any) { fmt.Fprintf(d, format+"\n", values...) }

func (d *drawing) text(x, y float64, anchor, colour, text string) {
	d.add(`<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s">%s</text>`, x, y, anchor, colour, html.EscapeString(text))
}

func (d *drawing) stroke(x1, y1, x2, y2 float64, colour string) {
	d.add(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s"/>`, x1, y1, x2, y2, colour)
}

func (p *plot) svg(lines []line) string {
	low, high := point{math.Inf(1), math.Inf(1)}, point{math.Inf(-1), math.Inf(-1)}
	for _, l := range lines {
		for _, q := range l.points {
			low = point{min(low.x, q.x), min(low.y, q.y)}
			high = point{max(high.x, q.x), max(high.y, q.y)}
		}
	}
	low.y, high.y = math.Pow(10, math.Floor(math.Log10(low.y))), math.Pow(10, math.Ceil(math.Log10(high.y)))
	x, y := scale(low.x, high.x, left, right), scale(low.y, high.y, bottom, top)

	var d drawing
	d.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`, width, height)
	d.add("<title>%s</title>", html.EscapeString(p.title))
	d.add(`<rect width="%d" height="%d" fill="#ffffff"/>`, width, height)
	d.add(`<text x="%d" y="26" font-size="15" font-weight="bold" fill="#222">%s</text>`, left, html.EscapeString(p.title))
	for v := low.y; v <= high.y*1.001; v *= 10 {
		d.stroke(left, y(v), right, y(v), "#dddddd")
		d.text(left-8, y(v)+4, "end", "#555", label(v))
	}
	widest := slices.MaxFunc(lines, func(a, b line) int { return len(a.points) - len(b.points) })
	free := math.Inf(1)
	for _, q := range slices.Backward(widest.points) {
		d.stroke(x(q.x), bottom, x(q.x), bottom+5, "#555555")
		if x(q.x) < free-45 { // Otherwise it would touch the one to its right.
			d.text(x(q.x), bottom+20, "middle", "#555", label(q.x))
			free = x(q.x)
		}
	}
	d.stroke(left, bottom, right, bottom, "#555555")
	d.text((left+right)/2, bottom+42, "middle", "#222", "objects (half Foos, half Deployments)")
	d.text(left-8, 42, "start", "#555", p.unit)
	d.lines(lines, x, y)
	d.add("</svg>")
	return d.String()
}

// lines adds the lines, and their names where they end, moved apart where they would overlap.
func (d *drawing) lines(lines []line, x, y func(float64) float64) {
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(y(a.end().y), y(b.end().y)) })
	free := math.Inf(-1)
	for _, l := range lines {
		var path []string
		for _, q := range l.points {
			path = append(path, fmt.Sprintf("%.1f,%.1f", x(q.x), y(q.y)))
			d.add(`<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`, x(q.x), y(q.y), l.colour)
		}
		d.add(`<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`, strings.Join(path, " "), l.colour)
		free = max(free+15, y(l.end().y))
		d.text(x(l.end().x)+10, free+4, "start", l.colour, l.name+" "+label(l.end().y))
	}
}

func scale(low, high, from, to float64) func(float64) float64 {
	low, high = math.Log(low), math.Log(high)
	if high == low {
		high = low + 1
	}
	return func(v float64) float64 { return from + (math.Log(v)-low)/(high-low)*(to-from) }
}

func label(v float64) string {
	if v >= 1000 {
		return thousands(int(math.Round(v)))
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
