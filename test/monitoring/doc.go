// Package monitoring runs the alerts and the dashboards that are shipped in a real Prometheus.
package monitoring
