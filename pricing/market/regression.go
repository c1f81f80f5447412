package market

import "math"

// regression is a Poisson regression: how often something happened, by features and exposure.
type regression struct {
	features [][]float64
	exposure []float64
	// happened is how often it did, which may be a part of once.
	happened []float64
}

func (r *regression) add(features []float64, exposure, happened float64) {
	r.features, r.exposure, r.happened = append(r.features, features), append(r.exposure, exposure), append(r.happened, happened)
}

// fit returns the weights of the greatest likelihood, less shrinkage, by Newton's method. The first feature is 1 everywhere.
func (r *regression) fit(size int) []float64 {
	const steps, longestStep, enough = 25, 2, 1e-5
	weights := make([]float64, size)
	for range steps {
		gradient, curvature := r.derivatives(weights)
		step := solve(curvature, gradient)
		longest := 0.0
		for _, s := range step {
			longest = max(longest, math.Abs(s))
		}
		scale := min(1, longestStep/max(longest, enough))
		for i, s := range step {
			weights[i] += scale * s
		}
		if longest < enough {
			break
		}
	}
	return weights
}

// derivatives returns the first of the logarithm of the likelihood, and the negative of the second.
func (r *regression) derivatives(weights []float64) (gradient []float64, curvature [][]float64) {
	gradient, curvature = make([]float64, len(weights)), make([][]float64, len(weights))
	for i, weight := range weights {
		curvature[i] = make([]float64, len(weights))
		curvature[i][i], gradient[i] = shrinkage, -shrinkage*weight
	}
	const barely = 1e-6 // the mean is drawn nowhere, but it is not undetermined without any data
	curvature[0][0], gradient[0] = barely, -barely*weights[0]
	for n, x := range r.features {
		expected := r.exposure[n] * math.Exp(min(dot(weights, x), maxLogRate))
		excess := r.happened[n] - expected
		for i, a := range x {
			if a == 0 {
				continue
			}
			gradient[i] += excess * a
			for j, b := range x {
				curvature[i][j] += expected * a * b
			}
		}
	}
	return gradient, curvature
}

func dot(a, b []float64) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// solve returns the x for which a·x = b, by the decomposition of Cholesky. It overwrites a, which has to be symmetric and positive
// definite.
func solve(a [][]float64, b []float64) []float64 {
	for j := range a {
		for k := range j {
			for i := j; i < len(a); i++ {
				a[i][j] -= a[i][k] * a[j][k]
			}
		}
		root := math.Sqrt(a[j][j])
		for i := j; i < len(a); i++ {
			a[i][j] /= root
		}
	}
	x := append([]float64(nil), b...)
	for i := range a {
		for k := range i {
			x[i] -= a[i][k] * x[k]
		}
		x[i] /= a[i][i]
	}
	for i := len(a) - 1; i >= 0; i-- {
		for k := i + 1; k < len(a); k++ {
			x[i] -= a[k][i] * x[k]
		}
		x[i] /= a[i][i]
	}
	return x
}
