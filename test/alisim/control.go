package alisim

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The world's control panel, for those who are not in the same process:
//
//	GET    /_sim/state     everything there is: groups, instances, activities, number of requests by action
//	GET    /_sim/requests  the latest requests
//	GET    /_sim/faults    the faults that are on
//	POST   /_sim/faults    switch on {"action", "kind", "code", "status", "latency": "2s", "count", "times", "scalingGroupId"}
//	DELETE /_sim/faults    switch all off
//	POST   /_sim/reclaim   give notice {"instanceId"}
//	POST   /_sim/withdraw  take it back {"instanceId"}
//	POST   /_sim/stock     {"instanceType", "zone", "stock", "purchase": "spot" (default) or "on-demand"}
//	POST   /_sim/price     {"instanceType", "zone", "spot", "onDemand"}
//	POST   /_sim/groups    add or change a pool, as in a world file
//	DELETE /_sim/groups?id=<scaling-group-id>
func (s *Server) control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /_sim/state", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.State()) })
	mux.HandleFunc("GET /_sim/requests", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.Requests()) })
	mux.HandleFunc("GET /_sim/faults", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, s.Faults()) })
	mux.HandleFunc("DELETE /_sim/faults", func(w http.ResponseWriter, _ *http.Request) { s.ClearFaults(); answer(w, nil) })
	mux.HandleFunc("POST /_sim/faults", post(func(f faultJSON) error {
		f.Fault.Latency = f.Latency.Duration
		return s.Fault(f.Fault)
	}))
	mux.HandleFunc("POST /_sim/reclaim", post(func(b struct{ InstanceID string }) error { return s.Reclaim(b.InstanceID) }))
	mux.HandleFunc("POST /_sim/withdraw", post(func(b struct{ InstanceID string }) error { return s.Withdraw(b.InstanceID) }))
	mux.HandleFunc("POST /_sim/stock", post(s.postStock))
	mux.HandleFunc("POST /_sim/price", post(func(b priceBody) error {
		s.SetPrice(b.InstanceType, b.Zone, b.Spot, b.OnDemand)
		return nil
	}))
	mux.HandleFunc("POST /_sim/groups", post(s.PutGroup))
	mux.HandleFunc("DELETE /_sim/groups", func(w http.ResponseWriter, r *http.Request) {
		answer(w, s.DeleteGroup(r.URL.Query().Get("id")))
	})
	return mux
}

// faultJSON takes the latency as people write it.
type faultJSON struct {
	Fault
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

func (s *Server) postStock(b stockBody) error {
	switch b.Purchase {
	case "", "spot":
		s.SetStock(b.InstanceType, b.Zone, b.Stock)
	case "on-demand":
		s.SetOnDemandStock(b.InstanceType, b.Zone, b.Stock)
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

// State is everything there is.
type State struct {
	Time      time.Time      `json:"time"`
	Region    string         `json:"region"`
	Groups    []GroupView    `json:"groups"`
	Instances []InstanceView `json:"instances"`
	// Requests counts them by action.
	Requests map[string]int `json:"requests"`
}

// State returns everything there is.
func (s *Server) State() State {
	instances := s.Instances()
	c := s.cloud
	c.mu.Lock()
	defer c.mu.Unlock()
	state := State{Time: c.clock.Now(), Region: c.world.Region, Instances: instances, Requests: maps.Clone(c.log.counts)}
	for _, g := range c.groups.items {
		state.Groups = append(state.Groups, g.view())
	}
	return state
}
