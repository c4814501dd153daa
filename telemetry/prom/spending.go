package prom

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/policy/models"
)

// maxModels bounds the models that [Spending] tells apart. A policy may have more.
const maxModels = 200

// Spending counts what calls to language models use and cost, and what is charged for them:
//
//	gen_ai_client_token_usage{gen_ai_request_model, gen_ai_token_type}          tokens that the provider has stated
//	gen_ai_client_operation_time_to_first_chunk_seconds{gen_ai_request_model}   of answers that are streams
//	headgate_llm_money_total{model}                    what the stated tokens cost, in the policy's currency
//	headgate_llm_charged_total{rule, counts, by}       what limits on tokens and money were charged
//
// A model is named as the policy's entry for it, never as the client has named it. Its Spent is told of
// each call. It is a [prometheus.Collector], to be registered, and safe for concurrent use.
type Spending struct {
	tokens  *prometheus.HistogramVec
	first   *prometheus.HistogramVec
	money   *prometheus.CounterVec
	charged *prometheus.CounterVec

	mu     sync.Mutex // guards what follows
	models map[string]bool
	rules  map[string]bool // with series
}

// NewSpending returns a collector of nothing yet. The buckets are those that OpenTelemetry's conventions
// for generative models name.
func NewSpending() *Spending {
	return &Spending{
		tokens: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "gen_ai_client_token_usage",
			Help:    "Tokens of calls to language models, as the provider has stated them. Input has what came from its cache, and output what it has reasoned.",
			Buckets: prometheus.ExponentialBuckets(1, 4, 14),
		}, []string{"gen_ai_request_model", "gen_ai_token_type"}),
		first: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "gen_ai_client_operation_time_to_first_chunk_seconds",
			Help:    "How long the first part of a streamed answer of a language model took, from when the call was sent on.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 14),
		}, []string{"gen_ai_request_model"}),
		money: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_llm_money_total",
			Help: "What the tokens that providers have stated cost by the policy's prices, in its currency. Models without a price are left out.",
		}, []string{"model"}),
		charged: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_llm_charged_total",
			Help: "What ended calls to language models were charged under a rule, in tokens, or in the currency if it counts money. By: usage (as the provider has stated it), estimate (it has not, so what was reserved or seen stays charged).",
		}, []string{"rule", "counts", "by"}),
		models: make(map[string]bool), rules: make(map[string]bool),
	}
}

// Spent counts a call that was settled.
func (p *Spending) Spent(_ context.Context, s *models.Spending) {
	model := p.label(s.Label())
	if s.Known {
		p.tokens.WithLabelValues(model, "input").Observe(float64(s.Used.Input))
		p.tokens.WithLabelValues(model, "output").Observe(float64(s.Used.Output))
		if micros, priced := s.Micros(); priced {
			p.money.WithLabelValues(model).Add(float64(micros) / models.MicroUnits)
		}
	}
	if s.FirstChunk > 0 {
		p.first.WithLabelValues(model).Observe(s.FirstChunk.Seconds())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range s.Charges {
		p.rules[c.Rule] = true
		p.charged.WithLabelValues(c.Rule, c.Counts.String(), s.By()).Add(s.Models.Amount(c.Counts, c.Units))
	}
}

// label bounds how many models there are over all policies of the process's life.
func (p *Spending) label(model string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.models[model] {
		if len(p.models) >= maxModels {
			return models.Other
		}
		p.models[model] = true
	}
	return model
}

// Keep ends the series of the rules for which in reports false: those that a new policy no longer has.
// A call that ends later may begin them anew, so call Keep before each scrape.
func (p *Spending) Keep(in func(rule string) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for rule := range p.rules {
		if !in(rule) {
			p.charged.DeletePartialMatch(prometheus.Labels{"rule": rule})
			delete(p.rules, rule)
		}
	}
}

// Describe implements [prometheus.Collector].
func (p *Spending) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range p.all() {
		c.Describe(ch)
	}
}

// Collect implements [prometheus.Collector].
func (p *Spending) Collect(ch chan<- prometheus.Metric) {
	for _, c := range p.all() {
		c.Collect(ch)
	}
}

func (p *Spending) all() [4]prometheus.Collector {
	return [...]prometheus.Collector{p.tokens, p.first, p.money, p.charged}
}
