package operators

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"
)

// RayDashboard is in the place of the dashboards of all Ray clusters, which simulated pods do not serve. KubeRay reaches
// them through it as through a proxy. What is submitted to one runs there until it is stopped, and is unknown to the
// others: a new cluster knows nothing of the jobs of an old one. It says nothing of how work ends.
type RayDashboard struct {
	URL string

	mu sync.Mutex
	// jobs are the statuses of the jobs of each cluster, by the host of its dashboard and by submission.
	jobs map[string]map[string]string
}

// RayDashboardForTest serves for the length of a test.
func RayDashboardForTest(t *testing.T) *RayDashboard {
	d := &RayDashboard{jobs: map[string]map[string]string{}}
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	d.URL = server.URL
	return d
}

// rayJob is as much of a job as KubeRay reads, by Ray's Jobs API.
type rayJob struct {
	SubmissionID string `json:"submission_id"`
	JobID        string `json:"job_id"`
	Status       string `json:"status"`
}

// ServeHTTP answers requests to submit, show and stop a job.
func (d *RayDashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	jobs := d.jobs[r.Host]
	if jobs == nil {
		jobs = map[string]string{}
		d.jobs[r.Host] = jobs
	}
	id, known := strings.CutPrefix(path.Clean(r.URL.Path), "/api/jobs/")
	switch {
	case path.Clean(r.URL.Path) == "/api/jobs" && r.Method == http.MethodPost:
		var request rayJob
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		jobs[request.SubmissionID] = "RUNNING"
		answerJob(w, request.SubmissionID, "RUNNING")
	case known && strings.HasSuffix(id, "/stop") && r.Method == http.MethodPost:
		jobs[strings.TrimSuffix(id, "/stop")] = "STOPPED"
		_, _ = w.Write([]byte(`{"stopped":true}`))
	case known && r.Method == http.MethodGet && jobs[id] != "":
		answerJob(w, id, jobs[id])
	default:
		http.NotFound(w, r)
	}
}

func answerJob(w http.ResponseWriter, id, status string) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(rayJob{SubmissionID: id, JobID: id, Status: status}) // the client may be gone
}
