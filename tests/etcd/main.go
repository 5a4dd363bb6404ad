// Writes values to etcd or to a server with the Redis protocol, and measures the rate and the latency of the writes:
//
//	go run . etcd|redis VALUE_BYTES SECONDS ADDRESS,... CLIENTS...
//
// For each number of clients, a line has the writes a second, and the median and the 99th percentile of their latency in
// microseconds. A client waits for the reply to its write before it sends the next one.
package main

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	warmUp   = time.Second
	patience = 30 * time.Second // for a server that does not reply
	keys     = 10_000
)

// put writes one value.
type put func(key, value string) error

// toEtcd shares one connection to each member among the clients: etcd is faster so than with connections for each.
func toEtcd(addresses []string, clients int) ([]put, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: addresses, DialTimeout: patience})
	return slices.Repeat([]put{func(key, value string) error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_, err := client.Put(ctx, key, value)
		return err
	}}, clients), err
}

// toRedis gives each client a connection.
func toRedis(addresses []string, clients int) ([]put, error) {
	puts := make([]put, clients)
	for i := range puts {
		connection, err := redis.Dial("tcp", addresses[0], redis.DialReadTimeout(patience))
		if err != nil {
			return nil, err
		}
		puts[i] = func(key, value string) error {
			_, err := connection.Do("SET", key, value)
			return err
		}
	}
	return puts, nil
}

var systems = map[string]func([]string, int) ([]put, error){"etcd": toEtcd, "redis": toRedis}

func main() {
	if len(os.Args) < 6 || systems[os.Args[1]] == nil {
		fail("usage: etcd|redis VALUE_BYTES SECONDS ADDRESS,... CLIENTS...")
	}
	connect, addresses := systems[os.Args[1]], strings.Split(os.Args[4], ",")
	value, span := strings.Repeat("x", number(os.Args[2])), time.Duration(number(os.Args[3]))*time.Second
	for _, word := range os.Args[5:] {
		clients := number(word)
		puts, err := connect(addresses, clients)
		if err != nil {
			fail(err)
		}
		// A cluster that has just started may not take writes yet.
		for begin := time.Now(); puts[0]("first", value) != nil && time.Since(begin) < patience; {
			time.Sleep(100 * time.Millisecond)
		}
		took := measure(puts, value, span)
		if len(took) == 0 {
			fail("no write was done")
		}
		slices.Sort(took)
		at := func(percent int) int64 { return took[(len(took)-1)*percent/100].Microseconds() }
		fmt.Printf("clients %d ops/s %.0f p50_us %d p99_us %d\n",
			clients, float64(len(took))/span.Seconds(), at(50), at(99))
	}
}

// measure lets each client write, and returns the latencies of the writes that ended within `span` after the warm-up.
func measure(puts []put, value string, span time.Duration) []time.Duration {
	begin := time.Now().Add(warmUp)
	end := begin.Add(span)
	results := make(chan []time.Duration)
	for _, put := range puts {
		go func() {
			var took []time.Duration
			for {
				start := time.Now()
				if err := put(fmt.Sprintf("%08d", rand.Intn(keys)), value); err != nil {
					fail(err)
				}
				now := time.Now()
				if now.After(end) {
					break
				}
				if now.After(begin) {
					took = append(took, now.Sub(start))
				}
			}
			results <- took
		}()
	}
	var all []time.Duration
	for range puts {
		all = append(all, <-results...)
	}
	return all
}

func number(word string) int {
	n, err := strconv.Atoi(word)
	if err != nil {
		fail(err)
	}
	return n
}

func fail(what any) {
	fmt.Fprintln(os.Stderr, what)
	os.Exit(1)
}
