package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"gpu-spot-autoscaler/test/drill"
)

func TestEndOfAJobUnderARealOperator(t *testing.T) {
	const (
		doneJob = `{kind: Job, metadata: {name: a, uid: one}, status: {conditions: [{type: Complete, status: "True"}]}}`
		doneSet = `{kind: JobSet, metadata: {name: a}, status: {restarts: 0, conditions: [{type: Completed, status: "True"}]}}`
		itsOwn  = `{kind: Workload, metadata: {ownerReferences: [{uid: one, controller: true}]}, spec: {active: true}}`
	)
	for name, test := range map[string]struct {
		job, set, workload string
		restarts           int
		want               []string
	}{
		"queued job":           {job: doneJob, workload: itsOwn},
		"JobSet":               {set: doneSet},
		"queued job is gone":   {workload: itsOwn, want: []string{"is gone", "has 0 Workloads"}},
		"queued job goes on":   {job: `{metadata: {name: a, uid: one}}`, workload: itsOwn, want: []string{"did not complete"}},
		"queued job failed":    {job: `{metadata: {name: a, uid: one}, status: {failed: 1, conditions: [{type: Failed, status: "True"}]}}`, workload: itsOwn, restarts: 1, want: []string{"failed", "1 restarts were counted"}},
		"condition is not met": {job: `{metadata: {name: a, uid: one}, status: {conditions: [{type: Complete, status: "False"}]}}`, workload: itsOwn, want: []string{"did not complete"}},
		"held job": {
			job:      `{kind: Job, metadata: {name: a, uid: one, labels: {gpu-spot.autoscaling/held: suspended}}, status: {conditions: [{type: Complete, status: "True"}]}}`,
			workload: itsOwn, want: []string{"Job has gpu-spot.autoscaling/held left"},
		},
		"job that was told to stop": {
			job:      `{kind: Job, metadata: {name: a, uid: one, annotations: {gpu-spot.autoscaling/stop-requested: now}}, status: {conditions: [{type: Complete, status: "True"}]}}`,
			workload: itsOwn, want: []string{"Job has gpu-spot.autoscaling/stop-requested left"},
		},
		"Workload is another's": {job: doneJob, workload: `{metadata: {ownerReferences: [{uid: two, controller: true}]}}`, want: []string{"has 0 Workloads"}},
		"Workload is off": {
			job: doneJob, workload: `{metadata: {ownerReferences: [{uid: one, controller: true}]}, spec: {active: false}}`,
			want: []string{"its Workload is not active"},
		},
		"Workload was requeued": {
			job: doneJob, workload: `{metadata: {ownerReferences: [{uid: one, controller: true}]}, status: {requeueState: {count: 2}}}`,
			restarts: 2, want: []string{"2 restarts were counted"},
		},
		"Workload is marked": {
			job: doneJob, workload: `{kind: Workload, metadata: {annotations: {gpu-spot.autoscaling/held-since: now}, ownerReferences: [{uid: one, controller: true}]}}`,
			want: []string{"Workload has gpu-spot.autoscaling/held-since left"},
		},
		"JobSet is gone":        {set: `{metadata: {name: another}}`, want: []string{"is gone"}},
		"JobSet was restarted":  {set: `{metadata: {name: a}, status: {restarts: 1, conditions: [{type: Completed, status: "True"}]}}`, restarts: 1, want: []string{"1 restarts were counted"}},
		"JobSet failed":         {set: `{metadata: {name: a}, status: {conditions: [{type: Failed, status: "True"}]}}`, want: []string{"failed"}},
		"pod of JobSet failed":  {set: doneSet, job: `{metadata: {name: a-worker-0, labels: {jobset.sigs.k8s.io/jobset-name: a}}, status: {failed: 1}}`, restarts: 1, want: []string{"1 restarts were counted"}},
		"pod of another failed": {set: doneSet, job: `{metadata: {name: b-worker-0, labels: {jobset.sigs.k8s.io/jobset-name: b}}, status: {failed: 1}}`},
	} {
		t.Run(name, func(t *testing.T) {
			job := drill.Job{Name: "a", Kind: drill.Queued}
			if test.set != "" {
				job.Kind = drill.JobSet
			}
			ended := newOperated(objects(t, test.job), objects(t, test.set), objects(t, test.workload)).ends([]drill.Job{job})
			require.Len(t, ended, 1)
			assert.Equal(t, test.want, ended[0].faults)
			assert.Equal(t, test.restarts, ended[0].restarts)
		})
	}
}

// objects is the one of the YAML, if there is any.
func objects(t *testing.T, text string) (all []unstructured.Unstructured) {
	t.Helper()
	if text == "" {
		return nil
	}
	body, err := yaml.YAMLToJSON([]byte(text))
	require.NoError(t, err)
	object := unstructured.Unstructured{}
	require.NoError(t, utiljson.Unmarshal(body, &object.Object)) // whole numbers are int64, as a client reads them
	return append(all, object)
}

func TestJobsThatEndBadlyCountOnceAsBroken(t *testing.T) {
	v := verdict{JobsBroken: 1}
	v.addEnds([]end{
		{job: drill.Job{Name: "good", Kind: drill.JobSet}, complete: true},
		{job: drill.Job{Name: "suspended", Kind: drill.Queued}, faults: []string{"did not complete"}},
		{job: drill.Job{Name: "known", Kind: drill.Queued}, complete: true, restarts: 3, faults: []string{"3 restarts were counted"}},
	}, map[string]drill.State{"good": drill.Whole, "suspended": drill.Suspended, "known": drill.Lacking})
	assert.Equal(t, 2, v.JobsBroken)
	assert.Equal(t, map[drill.Kind]*ends{
		drill.JobSet: {Jobs: 1, Complete: 1}, drill.Queued: {Jobs: 2, Complete: 1, Restarts: 3, Broken: 2},
	}, v.Systems)
	assert.Error(t, v.failure())
}
