// Nothing is built from this: its files have the kinds of the Prometheus Operator.
module tenantzone.io/hack/manifests/prometheus-operator

go 1.26.0

require github.com/prometheus-operator/prometheus-operator v0.85.0
