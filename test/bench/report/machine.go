package report

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// Machine is where a measurement was made.
type Machine struct {
	CPUs        int    `json:"cpus"`
	Model       string `json:"model,omitempty"`
	MemoryBytes int64  `json:"memory_bytes,omitempty"`
	Go          string `json:"go"`
	// Load is the load average over the last minute, as the measurement ended.
	Load float64 `json:"load"`
}

// ThisMachine describes the machine that this process runs on.
func ThisMachine() Machine {
	m := Machine{CPUs: runtime.NumCPU(), Go: runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH}
	m.Model, _ = procField("/proc/cpuinfo", "model name") // elsewhere than on Linux there is none
	m.MemoryBytes, _ = procBytes("/proc/meminfo", "MemTotal")
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(text), &m.Load)
	}
	return m
}

// CPUSeconds is how much processor time a process has taken, to the hundredth of a second.
func CPUSeconds(pid int) (float64, error) {
	const ticksPerSecond = 100 // USER_HZ, the same everywhere
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, afterName, _ := strings.Cut(string(stat), ") ") // state is the third field, utime the 14th, stime the 15th
	fields := strings.Fields(afterName)
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat is too short", pid)
	}
	user, userErr := strconv.ParseFloat(fields[11], 64)
	system, systemErr := strconv.ParseFloat(fields[12], 64)
	return (user + system) / ticksPerSecond, errors.Join(userErr, systemErr)
}

// ResidentBytes is how much memory a process has now, and had at most since it started.
func ResidentBytes(pid int) (now, peak int64, err error) {
	status := fmt.Sprintf("/proc/%d/status", pid)
	if now, err = procBytes(status, "VmRSS"); err != nil {
		return 0, 0, err
	}
	peak, err = procBytes(status, "VmHWM")
	return now, peak, err
}

// procBytes reads a field such as "VmRSS:    1234 kB".
func procBytes(path, name string) (int64, error) {
	text, err := procField(path, name)
	if err != nil {
		return 0, err
	}
	kib, err := strconv.ParseInt(strings.TrimSuffix(text, " kB"), 10, 64)
	return kib << 10, err
}

// procField reads the first line "name: value" of a file.
func procField(path, name string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("%s has no %s", path, name)
}

// Percentile returns the smallest value that is not below p percent of the values, which it sorts; 0 of none.
func Percentile(values []float64, p int) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[max(0, (len(values)*p+99)/100-1)]
}
