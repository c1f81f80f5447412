// Package deadline decides what is bought for jobs that have to be over in time, by what the memory of the market knows of the offerings that
// fit them: spot, on-demand, or either.
//
// The decision is that of package finish, whose tables take about a second to compute (BenchmarkLearningAtAThousandOfferings). So they are
// computed in the background, for jobs of about the same length and slack, and anew every LearnEvery. While there is none, or too little was seen of the
// market, a Guess decides.
package deadline
