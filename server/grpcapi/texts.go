package grpcapi

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/wire"
)

// limitText holds the parts of an answer that never change for one limit.
type limitText struct {
	decide.LimitText
	wire []byte // the same fields in wire form, as they begin a Decision
}

func newLimitText(l decide.LimitText) limitText {
	b := wire.AppendText(nil, decisionRule, l.Rule)
	b = wire.AppendText(b, decisionLimit, l.Limit)
	b = wire.AppendText(b, decisionAlgorithm, l.Algorithm)
	b = wire.AppendInt(b, decisionCapacity, l.Capacity)
	return limitText{l, wire.AppendInt(b, decisionPeriodMS, l.PeriodMS)}
}

// The fields of the messages that are written by hand.
const (
	decisionRule         protowire.Number = 1
	decisionLimit        protowire.Number = 2
	decisionAlgorithm    protowire.Number = 3
	decisionCapacity     protowire.Number = 4
	decisionPeriodMS     protowire.Number = 5
	decisionAllowed      protowire.Number = 6
	decisionRemaining    protowire.Number = 7
	decisionRetryAfterMS protowire.Number = 8
	decisionResetAfterMS protowire.Number = 9
	decisionShadow       protowire.Number = 10
	decisionSoft         protowire.Number = 11
	decisionSource       protowire.Number = 12

	verdictAllowed      protowire.Number = 1
	verdictDeniedBy     protowire.Number = 2
	verdictRetryAfterMS protowire.Number = 3
	verdictDelayMS      protowire.Number = 4
	verdictAt           protowire.Number = 5
	verdictDecisions    protowire.Number = 6
	verdictUnenforced   protowire.Number = 7

	deniedByRule  protowire.Number = 1
	deniedByLimit protowire.Number = 2
	deniedByList  protowire.Number = 3
)
