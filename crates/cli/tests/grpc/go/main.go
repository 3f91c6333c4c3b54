// Command peer is both ends of a gRPC call, made of grpc-go: `peer server` answers by the script in
// a call's metadata and keeps a journal, `peer client ADDRESS` makes the calls it reads from
// standard input. Messages are plain bytes, so nothing is generated.
package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// raw passes bytes as they are.
type raw struct{}

func (raw) Name() string                  { return "raw" }
func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = append([]byte{}, data...)
	return nil
}

// arrival is one call as it reached the server.
type arrival struct {
	AtMs        float64 `json:"at_ms"`
	RemainingMs float64 `json:"remaining_ms"`
	Previous    string  `json:"previous"`
	Messages    int     `json:"messages"`
	CancelledMs float64 `json:"cancelled_ms"`
}

type journal struct {
	mu    sync.Mutex
	began time.Time
	calls map[string][]*arrival
}

func (j *journal) since() float64 { return float64(time.Since(j.began).Microseconds()) / 1000 }

// begin notes a call and says how many came before it under the same id.
func (j *journal) begin(ctx context.Context, id string, previous string) (*arrival, int) {
	entry := &arrival{AtMs: j.since(), RemainingMs: -1, Previous: previous, CancelledMs: -1}
	if deadline, ok := ctx.Deadline(); ok {
		entry.RemainingMs = float64(time.Until(deadline).Microseconds()) / 1000
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.calls[id] = append(j.calls[id], entry)
	return entry, len(j.calls[id]) - 1
}

func (j *journal) note(change func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change()
}

func first(md metadata.MD, name string) string {
	if values := md.Get(name); len(values) > 0 {
		return values[0]
	}
	return ""
}

func number(md metadata.MD, name string, otherwise int) int {
	if value, err := strconv.Atoi(first(md, name)); err == nil {
		return value
	}
	return otherwise
}

func (j *journal) handle(_ any, stream grpc.ServerStream) error {
	ctx := stream.Context()
	method, _ := grpc.MethodFromServerStream(stream)
	md, _ := metadata.FromIncomingContext(ctx)
	if strings.HasSuffix(method, "/Journal") {
		return j.read(stream)
	}
	entry, earlier := j.begin(ctx, first(md, "x-call"), first(md, "grpc-previous-rpc-attempts"))
	if wait := number(md, "x-wait-ms", 0); wait > 0 {
		select {
		case <-time.After(time.Duration(wait) * time.Millisecond):
		case <-ctx.Done():
			j.note(func() { entry.CancelledMs = j.since() })
			return status.FromContextError(ctx.Err()).Err()
		}
	}
	stream.SetTrailer(metadata.Pairs("x-cost", "7", "proof-bin", "\x00\x01\xfe\xff"))
	if code := number(md, "x-fail", 0); code != 0 && earlier < number(md, "x-fail-times", 99) {
		if pushback := first(md, "x-pushback"); pushback != "" {
			stream.SetTrailer(metadata.Pairs("grpc-retry-pushback-ms", pushback))
		}
		if first(md, "x-read") != "" {
			// All of a message that is to be too large to be kept has to have come by.
			var message []byte
			if err := stream.RecvMsg(&message); err != nil {
				return err
			}
		}
		return failure(codes.Code(code))
	}
	return j.answer(method, md, entry, stream)
}

func failure(code codes.Code) error {
	plain := status.New(code, "100 % full ✓")
	detailed, err := plain.WithDetails(wrapperspb.String("why"))
	if err != nil {
		return plain.Err()
	}
	return detailed.Err()
}

// answer does what the method's name says.
func (j *journal) answer(method string, md metadata.MD, entry *arrival, stream grpc.ServerStream) error {
	shape := method[strings.LastIndex(method, "/")+1:]
	received := 0
	for {
		var message []byte
		err := stream.RecvMsg(&message)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			j.note(func() { entry.CancelledMs = j.since() })
			return err
		}
		received++
		j.note(func() { entry.Messages = received })
		if shape == "Chat" || shape == "Unary" {
			if err := stream.SendMsg(&message); err != nil {
				return err
			}
		}
		if shape == "Unary" || shape == "Watch" || shape == "Hang" {
			break
		}
	}
	switch shape {
	case "Watch":
		for n := range 3 {
			message := []byte(strconv.Itoa(n))
			if err := stream.SendMsg(&message); err != nil {
				return err
			}
		}
	case "Hang":
		message := []byte("begun")
		if err := stream.SendMsg(&message); err != nil {
			return err
		}
		<-stream.Context().Done()
		j.note(func() { entry.CancelledMs = j.since() })
		return status.FromContextError(stream.Context().Err()).Err()
	case "Collect":
		message := []byte(strconv.Itoa(received))
		if err := stream.SendMsg(&message); err != nil {
			return err
		}
	}
	if late := number(md, "x-late", 0); late != 0 {
		return failure(codes.Code(late))
	}
	return nil
}

// read answers with the arrivals of the call that is named.
func (j *journal) read(stream grpc.ServerStream) error {
	var id []byte
	if err := stream.RecvMsg(&id); err != nil {
		return err
	}
	var text []byte
	j.note(func() { text, _ = json.Marshal(j.calls[string(id)]) })
	return stream.SendMsg(&text)
}

func server() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	j := &journal{began: time.Now(), calls: map[string][]*arrival{}}
	peer := grpc.NewServer(grpc.ForceServerCodec(raw{}), grpc.UnknownServiceHandler(j.handle))
	go func() {
		// It lives as long as the one that started it.
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Println(listener.Addr())
	return peer.Serve(listener)
}

// call is what a client is asked to do.
type call struct {
	Name      string            `json:"name"`
	Method    string            `json:"method"`
	Metadata  map[string]string `json:"metadata"`
	TimeoutMs int               `json:"timeout_ms"`
	Send      []int             `json:"send"`
	// CancelAfter messages were received; 0: never.
	CancelAfter int `json:"cancel_after"`
}

// outcome is what a client saw.
type outcome struct {
	Name     string            `json:"name"`
	Code     int               `json:"code"`
	Message  string            `json:"message"`
	Details  string            `json:"details"`
	Trailers map[string]string `json:"trailers"`
	Received []int             `json:"received"`
	TookMs   float64           `json:"took_ms"`
}

func makeCall(conn *grpc.ClientConn, c call) outcome {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if c.TimeoutMs > 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(c.TimeoutMs)*time.Millisecond)
		defer cancel()
	}
	ctx = metadata.NewOutgoingContext(ctx, metadata.New(c.Metadata))
	began := time.Now()
	seen := outcome{Name: c.Name, Trailers: map[string]string{}, Received: []int{}}
	var trailers metadata.MD
	var err error
	if strings.HasSuffix(c.Method, "/Unary") {
		request, reply := make([]byte, c.Send[0]), []byte{}
		err = conn.Invoke(ctx, c.Method, &request, &reply, grpc.Trailer(&trailers))
		if err == nil {
			seen.Received = append(seen.Received, len(reply))
		}
	} else {
		trailers, err = stream(ctx, cancel, conn, c, &seen)
	}
	seen.TookMs = float64(time.Since(began).Microseconds()) / 1000
	ended, _ := status.FromError(err)
	seen.Code, seen.Message = int(ended.Code()), ended.Message()
	for _, detail := range ended.Details() {
		if text, ok := detail.(*wrapperspb.StringValue); ok {
			seen.Details = text.GetValue()
		}
	}
	for _, name := range []string{"x-cost", "grpc-retry-pushback-ms", "seawall-problem"} {
		if value := first(trailers, name); value != "" {
			seen.Trailers[name] = value
		}
	}
	if proof := first(trailers, "proof-bin"); proof != "" {
		seen.Trailers["proof-bin"] = hex.EncodeToString([]byte(proof))
	}
	return seen
}

func stream(ctx context.Context, cancel func(), conn *grpc.ClientConn, c call, seen *outcome) (metadata.MD, error) {
	shape := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	flow, err := conn.NewStream(ctx, shape, c.Method)
	if err != nil {
		return nil, err
	}
	chats := strings.HasSuffix(c.Method, "/Chat")
	receive := func() error {
		var message []byte
		if err := flow.RecvMsg(&message); err != nil {
			return err
		}
		seen.Received = append(seen.Received, len(message))
		if len(seen.Received) == c.CancelAfter {
			cancel()
		}
		return nil
	}
	for _, size := range c.Send {
		message := make([]byte, size)
		if err := flow.SendMsg(&message); err != nil {
			break // RecvMsg says why.
		}
		if chats {
			if err := receive(); err != nil {
				return flow.Trailer(), err
			}
		}
	}
	_ = flow.CloseSend()
	for {
		err := receive()
		if errors.Is(err, io.EOF) {
			return flow.Trailer(), nil
		}
		if err != nil {
			return flow.Trailer(), err
		}
	}
}

func client(address string) error {
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{}), grpc.MaxCallRecvMsgSize(1<<23)))
	if err != nil {
		return err
	}
	defer conn.Close()
	var calls []call
	if err := json.NewDecoder(os.Stdin).Decode(&calls); err != nil {
		return err
	}
	for _, c := range calls {
		if err := json.NewEncoder(os.Stdout).Encode(makeCall(conn, c)); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	err := errors.New("usage: peer server | peer client ADDRESS")
	switch {
	case len(os.Args) == 2 && os.Args[1] == "server":
		err = server()
	case len(os.Args) == 3 && os.Args[1] == "client":
		err = client(os.Args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
