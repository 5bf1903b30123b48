// The official client for Go, behind questions of one JSON line each. See remote_client.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const (
	pollTime    = 200 * time.Millisecond
	patience    = 60 * time.Second
	maxQuestion = 64 << 20
)

type question struct {
	Call string
	On   int
	With []json.RawMessage
}

// What questions may be addressed to, by number; the first is the library itself.
type target interface {
	answer(call string, with []json.RawMessage) (any, error)
}

type missing struct{}

func (missing) Error() string { return "missing" }

var (
	objects  []target
	resolver primitive.NsResolver
	// Signs all requests; empty: they are not signed.
	key   primitive.Credentials
	names int
)

func newName(kind string) string {
	names++
	return kind + "-" + strconv.Itoa(names)
}

func read(raw json.RawMessage, into any) {
	if err := json.Unmarshal(raw, into); err != nil {
		panic(err)
	}
}

// ---- messages

type message struct {
	body, tags, keys string
	properties       map[string]string
	delayLevel       int
	queue            int
}

func (m *message) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&m.body, &m.tags, &m.keys, &m.properties, &m.delayLevel, &m.queue})
}

func (m *message) made(topic string) *primitive.Message {
	made := primitive.NewMessage(topic, []byte(m.body))
	// These take the place of all others.
	made.WithProperties(m.properties)
	if m.tags != "" {
		made.WithTag(m.tags)
	}
	if m.keys != "" {
		made.WithKeys([]string{m.keys})
	}
	if m.delayLevel > 0 {
		made.WithDelayTimeLevel(m.delayLevel)
	}
	if m.queue >= 0 {
		made.Queue = &primitive.MessageQueue{Topic: topic, QueueId: m.queue, BrokerName: "dragoman-1"}
	}
	return made
}

type library struct {
	producer, choosing rocketmq.Producer
	admin              admin.Admin
}

func newLibrary() *library {
	start := func(options ...producer.Option) rocketmq.Producer {
		options = append(options, producer.WithNsResolver(resolver), producer.WithCredentials(key),
			producer.WithInstanceName(newName("producer")))
		made, err := rocketmq.NewProducer(options...)
		if err == nil {
			err = made.Start()
		}
		if err != nil {
			panic(err)
		}
		return made
	}
	administers, err := admin.NewAdmin(admin.WithResolver(resolver), admin.WithCredentials(key))
	if err != nil {
		panic(err)
	}
	return &library{
		producer: start(producer.WithGroupName("interop")),
		choosing: start(
			producer.WithGroupName("chooses"), producer.WithQueueSelector(producer.NewManualQueueSelector())),
		admin: administers,
	}
}

func (l *library) answer(call string, with []json.RawMessage) (any, error) {
	switch call {
	case "send":
		return l.send(with)
	case "consumer":
		return l.consumer(with)
	case "transact":
		return nil, transact(with)
	case "create_topic", "delete_topic", "topics", "queues", "groups":
		return l.administer(call, with)
	}
	return nil, missing{}
}

func (l *library) send(with []json.RawMessage) (any, error) {
	var topic, way string
	var given []message
	read(with[0], &topic)
	read(with[1], &given)
	read(with[2], &way)
	var made []*primitive.Message
	for _, each := range given {
		made = append(made, each.made(topic))
	}
	if way == "batch" {
		_, err := l.producer.SendSync(context.Background(), made...)
		return nil, err
	}
	placed := [][]int64{}
	for i, each := range made {
		if way == "one-way" {
			if err := l.producer.SendOneWay(context.Background(), each); err != nil {
				return nil, err
			}
			continue
		}
		sent, err := l.sendOne(each, given[i].queue >= 0, way == "async")
		if err != nil {
			return nil, err
		}
		placed = append(placed, []int64{int64(sent.MessageQueue.QueueId), sent.QueueOffset})
	}
	return placed, nil
}

func (l *library) sendOne(message *primitive.Message, isChosen, isAsync bool) (*primitive.SendResult, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if isChosen {
		return l.choosing.SendSync(ctx, message)
	}
	if !isAsync {
		return l.producer.SendSync(ctx, message)
	}
	type outcome struct {
		sent *primitive.SendResult
		err  error
	}
	done := make(chan outcome, 1)
	err := l.producer.SendAsync(ctx, func(_ context.Context, sent *primitive.SendResult, err error) {
		done <- outcome{sent, err}
	}, message)
	if err != nil {
		return nil, err
	}
	select {
	case found := <-done:
		return found.sent, found.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// ---- transactions

type decider struct {
	first, later primitive.LocalTransactionState
	asked        chan struct{}
	once         sync.Once
}

func (d *decider) ExecuteLocalTransaction(*primitive.Message) primitive.LocalTransactionState {
	return d.first
}

func (d *decider) CheckLocalTransaction(*primitive.MessageExt) primitive.LocalTransactionState {
	d.once.Do(func() { close(d.asked) })
	return d.later
}

func transact(with []json.RawMessage) error {
	var topic, decision string
	var given message
	var byQuestion bool
	read(with[0], &topic)
	read(with[1], &given)
	read(with[2], &decision)
	read(with[3], &byQuestion)
	chosen := primitive.RollbackMessageState
	if decision == "commit" {
		chosen = primitive.CommitMessageState
	}
	decides := &decider{first: chosen, later: chosen, asked: make(chan struct{})}
	if byQuestion {
		decides.first = primitive.UnknowState
	}
	name := newName("transacts")
	transactor, err := rocketmq.NewTransactionProducer(decides, producer.WithNsResolver(resolver),
		producer.WithCredentials(key), producer.WithGroupName(name), producer.WithInstanceName(name))
	if err != nil {
		return err
	}
	if err := transactor.Start(); err != nil {
		return err
	}
	defer transactor.Shutdown()
	if _, err := transactor.SendMessageInTransaction(context.Background(), given.made(topic)); err != nil {
		return err
	}
	if byQuestion {
		select {
		case <-decides.asked:
			// The library tells the broker once the listener has returned, and does not say when.
			time.Sleep(500 * time.Millisecond)
		case <-time.After(patience):
			return fmt.Errorf("the broker did not ask")
		}
	}
	return nil
}

// ---- consumers

type options struct {
	Model, Style, Language, Expression string
	Orderly                            bool
	Refused                            int
	AttemptsMax                        int32 `json:"attempts_max"`
}

type pushed struct {
	consumer rocketmq.PushConsumer
	refused  int
	lock     sync.Mutex
	attempts map[string]int
	came     []any
}

func (l *library) consumer(with []json.RawMessage) (any, error) {
	var group, topic string
	var asked options
	read(with[0], &group)
	read(with[1], &topic)
	read(with[2], &asked)
	if asked.Style == "pull" {
		return newPulled(group, topic)
	}
	settings := []consumer.Option{
		consumer.WithNsResolver(resolver),
		consumer.WithCredentials(key),
		consumer.WithGroupName(group),
		consumer.WithInstance(newName("consumer")),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(asked.Orderly),
		consumer.WithMaxReconsumeTimes(asked.AttemptsMax),
	}
	if asked.Model == "broadcasting" {
		settings = append(settings, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	made, err := rocketmq.NewPushConsumer(settings...)
	if err != nil {
		return nil, err
	}
	kept := &pushed{consumer: made, refused: asked.Refused, attempts: map[string]int{}}
	later := consumer.ConsumeRetryLater
	if asked.Orderly {
		later = consumer.SuspendCurrentQueueAMoment
	}
	selector := consumer.MessageSelector{Type: consumer.ExpressionType(asked.Language), Expression: asked.Expression}
	err = made.Subscribe(topic, selector,
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			if kept.take(messages) {
				return consumer.ConsumeSuccess, nil
			}
			return later, nil
		})
	if err != nil {
		return nil, err
	}
	if err := made.Start(); err != nil {
		return nil, err
	}
	objects = append(objects, kept)
	return len(objects) - 1, nil
}

func (p *pushed) take(messages []*primitive.MessageExt) bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	isTaken := true
	for _, each := range messages {
		body := string(each.Body)
		p.came = append(p.came, delivery(each))
		p.attempts[body]++
		if strings.HasPrefix(body, "refuse") && p.attempts[body] <= p.refused {
			isTaken = false
		}
	}
	return isTaken
}

func delivery(m *primitive.MessageExt) []any {
	return []any{
		m.Topic, m.Queue.QueueId, m.QueueOffset, string(m.Body), m.GetTags(), m.GetKeys(), m.GetProperties(),
	}
}

func (p *pushed) answer(call string, _ []json.RawMessage) (any, error) {
	switch call {
	case "poll":
		deadline := time.Now().Add(pollTime)
		for {
			p.lock.Lock()
			came := p.came
			p.came = nil
			p.lock.Unlock()
			if len(came) > 0 || time.Now().After(deadline) {
				return append([]any{}, came...), nil
			}
			time.Sleep(pollTime / 20)
		}
	case "close":
		// A message counts as consumed a moment after its listener has returned; one that does not
		// yet when the consumer ends comes again.
		time.Sleep(100 * time.Millisecond)
		return nil, p.consumer.Shutdown()
	}
	return nil, missing{}
}

type pulled struct{ consumer rocketmq.PullConsumer }

func newPulled(group, topic string) (any, error) {
	made, err := rocketmq.NewPullConsumer(consumer.WithNsResolver(resolver), consumer.WithGroupName(group),
		consumer.WithCredentials(key), consumer.WithInstance(newName("pulls")), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset))
	if err != nil {
		return nil, err
	}
	if err := made.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}); err != nil {
		return nil, err
	}
	if err := made.Start(); err != nil {
		return nil, err
	}
	objects = append(objects, &pulled{made})
	return len(objects) - 1, nil
}

func (p *pulled) answer(call string, _ []json.RawMessage) (any, error) {
	switch call {
	case "poll":
		found := []any{}
		request, err := p.consumer.Poll(context.Background(), pollTime)
		if consumer.IsNoNewMsgError(err) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		for _, each := range request.GetMsgList() {
			found = append(found, delivery(each))
		}
		p.consumer.ACK(context.Background(), request, consumer.ConsumeSuccess)
		return found, nil
	case "close":
		return nil, p.consumer.Shutdown()
	}
	return nil, missing{}
}

// ---- administration

func (l *library) administer(call string, with []json.RawMessage) (any, error) {
	ctx := context.Background()
	var name, broker string
	if len(with) > 0 {
		read(with[0], &name)
	}
	if len(with) > 1 {
		read(with[1], &broker)
	}
	switch call {
	case "create_topic":
		return nil, l.admin.CreateTopic(ctx, admin.WithTopicCreate(name), admin.WithBrokerAddrCreate(broker))
	case "delete_topic":
		return nil, l.admin.DeleteTopic(ctx, admin.WithTopicDelete(name), admin.WithBrokerAddrDelete(broker))
	case "queues":
		found, err := l.admin.FetchPublishMessageQueues(ctx, name)
		return len(found), err
	case "groups":
		found, err := l.admin.GetAllSubscriptionGroup(ctx, name, 3*time.Second)
		if err != nil {
			return nil, err
		}
		groups := []string{}
		for group := range found.SubscriptionGroupTable {
			groups = append(groups, group)
		}
		return groups, nil
	}
	found, err := l.admin.FetchAllTopicList(ctx)
	if err != nil {
		return nil, err
	}
	return found.TopicList, nil
}

// ---- questions and answers

func main() {
	rlog.SetLogLevel("fatal")
	resolver = primitive.NewPassthroughResolver([]string{os.Args[1]})
	if len(os.Args) > 2 {
		key = primitive.Credentials{AccessKey: os.Args[2], SecretKey: os.Args[3]}
	}
	objects = append(objects, newLibrary())
	questions := bufio.NewScanner(os.Stdin)
	questions.Buffer(nil, maxQuestion)
	for questions.Scan() {
		var asked question
		read(questions.Bytes(), &asked)
		result, err := objects[asked.On].answer(asked.Call, asked.With)
		answer := map[string]any{"result": result}
		if _, isMissing := err.(missing); isMissing {
			answer = map[string]any{"missing": asked.Call}
		} else if err != nil {
			answer = map[string]any{"error": err.Error()}
		}
		line, err := json.Marshal(answer)
		if err != nil {
			panic(err)
		}
		fmt.Println(string(line))
	}
}
