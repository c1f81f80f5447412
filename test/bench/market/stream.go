package main

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"

	"gpu-spot-autoscaler/test/bench/report"
)

// streamJob is a training without a deadline, in ticks. It runs on spot instances only.
type streamJob struct{ arrival, work int }

// Lengths of the jobs of a stream, in hours. A recording of arrivals does not say how long a step takes, so that of each kind of job the one with
// the fewest steps takes the shortest time, the one with the most the longest, and those in between times that grow by the same factor.
const shortestJob, longestJob = 2., 32.

// readStream reads a recording of arrivals (kind, steps, second of arrival, GPUs), and spreads it over the window so that the last job has time to
// end there.
func readStream(path string, w window, ticksPerHour float64) ([]streamJob, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	type arrival struct {
		kind          string
		steps, second float64
	}
	var arrivals []arrival
	byKind := map[string][]float64{}
	for _, row := range rows[min(1, len(rows)):] {
		if len(row) < 3 {
			return nil, fmt.Errorf("read %s: a line has %d fields, and not kind, steps, second and GPUs", path, len(row))
		}
		steps, stepsErr := strconv.ParseFloat(row[1], 64)
		second, secondErr := strconv.ParseFloat(row[2], 64)
		if stepsErr != nil || secondErr != nil {
			return nil, fmt.Errorf("read %s: steps %q or second %q is no number", path, row[1], row[2])
		}
		arrivals = append(arrivals, arrival{row[0], steps, second})
		byKind[row[0]] = append(byKind[row[0]], steps)
	}
	if len(arrivals) == 0 {
		return nil, fmt.Errorf("read %s: it has no jobs", path)
	}
	last := 0.
	for _, a := range arrivals {
		last = max(last, a.second)
	}
	length := float64(w.to-w.from) - 2*longestJob*ticksPerHour
	if length <= 0 {
		return nil, fmt.Errorf("--report: a stream of jobs of up to %.0f hours needs more than %d ticks", longestJob, w.to-w.from)
	}
	var jobs []streamJob
	for _, a := range arrivals {
		steps := byKind[a.kind]
		slices.Sort(steps)
		rank, _ := slices.BinarySearch(steps, a.steps)
		hours := shortestJob * math.Pow(longestJob/shortestJob, float64(rank)/float64(max(1, len(steps)-1)))
		jobs = append(jobs, streamJob{w.from + int(a.second/max(last, 1)*length), int(hours * ticksPerHour)})
	}
	slices.SortFunc(jobs, func(a, b streamJob) int { return a.arrival - b.arrival })
	return jobs, nil
}

// streamRow is what a policy made of a stream of jobs.
type streamRow struct {
	Zones  []string `json:"zones"`
	Policy string   `json:"policy"`
	// Cost is per hour of useful work. Total adds the value of the time by which jobs took longer than their work.
	Cost  float64 `json:"cost"`
	Total float64 `json:"cost_with_time"`
	// Completion times, in multiples of the work of each job.
	CompletionP50 float64 `json:"completion_p50"`
	CompletionP95 float64 `json:"completion_p95"`
	// Refused and Lost count purchases and instances, for each job.
	Refused float64 `json:"refused_per_job"`
	Lost    float64 `json:"lost_per_job"`
}

// chooser decides in which zone an instance is bought, by what all jobs have seen: nobody sees what is up. Prices are public.
type chooser interface {
	// choose returns a zone, or idle to wait for a tick.
	choose(tick int, price []float64) int
	// bought and refused tell what came of it.
	bought(zone, tick int)
	refused(zone, tick int)
	// observe is called at the end of each tick with the instances, by id, and with those that were lost at its start.
	observe(tick int, living, lost map[int]int)
}

// running is a job on its way.
type running struct {
	streamJob
	id, left, on, warmUp int
}

// runStream runs all jobs. A reclaimed instance is lost at the start of a tick, and another is bought in the same one; a purchase that is
// refused takes the tick.
func runStream(t *trace, jobs []streamJob, restart int, c chooser, row *streamRow, valueOfTime, tickHours float64) {
	var active []*running
	var stretches []float64
	cost, useful, late := 0., 0., 0.
	next, purchases := 0, 0
	for tick := 0; tick < t.ticks() && (next < len(jobs) || len(active) > 0); tick++ {
		for ; next < len(jobs) && jobs[next].arrival <= tick; next++ {
			active = append(active, &running{streamJob: jobs[next], left: jobs[next].work, on: idle})
		}
		sight := t.sight(tick)
		living, lost := map[int]int{}, map[int]int{}
		for _, j := range active {
			if j.on >= 0 && !sight.up[j.on] {
				lost[j.id] = j.on
				j.on = idle
				row.Lost++
			}
			if j.on == idle {
				switch zone := c.choose(tick, sight.price); {
				case zone == idle:
				case sight.up[zone]:
					purchases++
					j.on, j.warmUp, j.id = zone, restart, purchases
					c.bought(zone, tick)
				default:
					row.Refused++
					c.refused(zone, tick)
				}
			}
			if j.on == idle {
				continue
			}
			living[j.id] = j.on
			cost += sight.price[j.on] * tickHours
			if j.warmUp > 0 {
				j.warmUp--
			} else {
				j.left--
			}
		}
		c.observe(tick, living, lost)
		active = slices.DeleteFunc(active, func(j *running) bool {
			if j.left > 0 {
				return false
			}
			took := tick + 1 - j.arrival
			stretches = append(stretches, float64(took)/float64(j.work))
			useful += float64(j.work) * tickHours
			late += float64(took-j.work) * tickHours
			return true
		})
	}
	row.Cost, row.Total = cost/useful, (cost+valueOfTime*late)/useful
	row.CompletionP50, row.CompletionP95 = report.Percentile(stretches, 50), report.Percentile(stretches, 95)
	row.Refused /= float64(len(jobs))
	row.Lost /= float64(len(jobs))
}
