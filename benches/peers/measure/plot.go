package main

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A growth shows how one number of each contender's cold start grows with the objects in place.
type growth struct{ file, title, unit, metric string }

var growths = []growth{
	{"growth-memory.svg", "Cold start: peak resident memory", "MB", "peak_mb"},
	{"growth-cpu.svg", "Cold start: CPU time", "s", "cpu_s"},
	{"growth-time.svg", "Cold start: time until quiet", "s", "quiet_s"},
}

// least is what is drawn for 0, which a logarithmic axis does not have: one tick of CPU time.
const least = 0.01

// drawPlots draws and returns the plots that there are results for.
func drawPlots(all []result, folder string) (drawn []growth) {
	check(os.MkdirAll(folder, 0o755))
	for _, g := range growths {
		if svg := g.draw(all); svg != nil {
			check(os.WriteFile(filepath.Join(folder, g.file), svg, 0o644))
			drawn = append(drawn, g)
		}
	}
	return drawn
}

// points are a contender's medians by objects in place, half of them Foos.
func (g *growth) points(all []result, contender string) (points plotter.XYs) {
	values := map[int][]float64{}
	for _, r := range all {
		if (r.Part == "coldstart" || r.Part == "growth") && r.Contender == contender {
			values[r.Foos] = append(values[r.Foos], max(r.Metrics[g.metric], least))
		}
	}
	for _, foos := range slices.Sorted(maps.Keys(values)) {
		slices.Sort(values[foos])
		points = append(points, plotter.XY{X: 2 * float64(foos), Y: median(values[foos])})
	}
	return points
}

// draw returns an SVG file, or nothing without results. Both axes are logarithmic.
func (g *growth) draw(all []result) []byte {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = g.title, "objects (half Foos, half Deployments)", g.unit
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	var lines []any
	for _, name := range names {
		if points := g.points(all, name); len(points) > 0 {
			lines = append(lines, fmt.Sprintf("%s, in the end %.3g %s", name, points[len(points)-1].Y, g.unit), points)
		}
	}
	if len(lines) == 0 {
		return nil
	}
	check(plotutil.AddLinePoints(p, lines...))
	// Whole powers of ten, and a free one for the legend.
	p.Y.Min = math.Pow(10, math.Floor(math.Log10(p.Y.Min)))
	p.Y.Max = math.Pow(10, 1+math.Ceil(math.Log10(p.Y.Max)))
	p.X.Max = max(p.X.Max, 2*p.X.Min)
	canvas := vgsvg.New(17*vg.Centimeter, 11*vg.Centimeter)
	p.Draw(draw.New(canvas))
	var svg bytes.Buffer
	must(canvas.WriteTo(&svg))
	return svg.Bytes()
}
