package control

import (
	"encoding/json"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gpu-spot-autoscaler/test/alisim/protocol"
)

// Path is where Handler answers.
const Path = "/_sim/"

// maxBody bounds a request's body.
const maxBody = 1 << 20

// Handler is the panel for those who are not in the same process:
//
//	GET    /_sim/state     everything there is: groups, instances, activities, number of requests by action
//	GET    /_sim/requests  the latest requests
//	GET    /_sim/faults    the faults that are on
//	POST   /_sim/faults    switch on {"action", "kind", "code", "status", "latency": "2s", "count", "times", "scalingGroupId"}
//	DELETE /_sim/faults    switch all off
//	POST   /_sim/reclaim   give notice {"instanceId"}
//	POST   /_sim/withdraw  take it back {"instanceId"}
//	POST   /_sim/lifecycle {"instanceId", "state": "InService", "Protected", "Standby" or "Stopped"}
//	POST   /_sim/hang      keep from stopping {"instanceId"}
//	POST   /_sim/stay      let the next release fail {"instanceId"}
//	POST   /_sim/stock     {"instanceType", "zone", "stock", "purchase": "spot" (default) or "on-demand"}
//	POST   /_sim/price     {"instanceType", "zone", "spot", "onDemand"}
//	POST   /_sim/groups    add or change a pool, as in a world file
//	DELETE /_sim/groups?id=<scaling-group-id>
func (p *Panel) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /_sim/state", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, p.State()) })
	mux.HandleFunc("GET /_sim/requests", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, p.Requests()) })
	mux.HandleFunc("GET /_sim/faults", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, p.Faults()) })
	mux.HandleFunc("DELETE /_sim/faults", func(w http.ResponseWriter, _ *http.Request) { p.ClearFaults(); answer(w, nil) })
	mux.HandleFunc("POST /_sim/faults", post(func(f faultJSON) error {
		f.Fault.Latency = f.Latency.Duration
		return p.Fault(f.Fault)
	}))
	mux.HandleFunc("POST /_sim/reclaim", post(func(b struct{ InstanceID string }) error { return p.Reclaim(b.InstanceID) }))
	mux.HandleFunc("POST /_sim/withdraw", post(func(b struct{ InstanceID string }) error { return p.Withdraw(b.InstanceID) }))
	mux.HandleFunc("POST /_sim/lifecycle", post(func(b struct{ InstanceID, State string }) error {
		return p.SetLifecycle(b.InstanceID, b.State)
	}))
	mux.HandleFunc("POST /_sim/hang", post(func(b struct{ InstanceID string }) error { return p.Hang(b.InstanceID) }))
	mux.HandleFunc("POST /_sim/stay", post(func(b struct{ InstanceID string }) error { return p.Stay(b.InstanceID) }))
	mux.HandleFunc("POST /_sim/stock", post(p.postStock))
	mux.HandleFunc("POST /_sim/price", post(func(b priceBody) error {
		p.SetPrice(b.InstanceType, b.Zone, b.Spot, b.OnDemand)
		return nil
	}))
	mux.HandleFunc("POST /_sim/groups", post(p.PutGroup))
	mux.HandleFunc("DELETE /_sim/groups", func(w http.ResponseWriter, r *http.Request) {
		answer(w, p.DeleteGroup(r.URL.Query().Get("id")))
	})
	return mux
}

// faultJSON takes the latency as people write it.
type faultJSON struct {
	protocol.Fault
	Latency metav1.Duration `json:"latency,omitempty"`
}

type stockBody struct {
	InstanceType, Zone, Purchase string
	Stock                        int
}

type priceBody struct {
	InstanceType, Zone string
	Spot, OnDemand     float64
}

func (p *Panel) postStock(b stockBody) error {
	switch b.Purchase {
	case "", "spot":
		p.SetStock(b.InstanceType, b.Zone, b.Stock)
	case "on-demand":
		p.SetOnDemandStock(b.InstanceType, b.Zone, b.Stock)
	default:
		return fmt.Errorf("purchase is spot or on-demand, not %q", b.Purchase)
	}
	return nil
}

// post decodes the body strictly, so that a mistyped field is not a switch that silently stays off.
func post[T any](do func(T) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var body T
		decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&body); err != nil {
			answer(w, err)
			return
		}
		answer(w, do(body))
	}
}

func answer(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.Encode(value)
}
