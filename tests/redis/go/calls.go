// The usual calls of go-redis, redigo and rueidis, on the gateway and on a Redis server. The replies have to be the same.
//
//	go run . CALLS.TXT GATEWAY_PORT REDIS_PORT
//
// Or go-redis, which increments a counter while the cluster has an outage, until a line comes on the standard input:
//
//	go run . outage GATEWAY_PORT
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

var ctx = context.Background()

// call is something that a program asks, with its name. Its result is printed to be compared.
type call struct {
	name string
	do   func() (any, error)
}

// connection is a client that is connected to one of the two servers: it sends words, and makes the calls of its own kind.
type connection struct {
	words func(words []string) (any, error)
	own   []call
	close func()
}

// client is a library, with one of its ways to connect.
type client struct {
	name    string
	connect func(address string) (*connection, error)
}

var clients = []client{
	{"go-redis", func(address string) (*connection, error) {
		return goRedis(&goredis.Options{Addr: address})
	}},
	{"go-redis, RESP2", func(address string) (*connection, error) {
		return goRedis(&goredis.Options{Addr: address, Protocol: 2})
	}},
	{"redigo", redigo},
	{"rueidis", func(address string) (*connection, error) {
		return ofRueidis(rueidis.ClientOption{InitAddress: []string{address}})
	}},
	{"rueidis, RESP2", func(address string) (*connection, error) {
		return ofRueidis(rueidis.ClientOption{InitAddress: []string{address}, AlwaysRESP2: true, DisableCache: true})
	}},
}

func goRedis(options *goredis.Options) (*connection, error) {
	r := goredis.NewClient(options)
	increase := func(tx *goredis.Tx) error {
		n, err := tx.Get(ctx, "watched").Int()
		if err != nil && err != goredis.Nil {
			return err
		}
		_, err = tx.TxPipelined(ctx, func(pipe goredis.Pipeliner) error {
			pipe.Set(ctx, "watched", n+1, 0)
			return nil
		})
		return err
	}
	type user struct {
		Name string `redis:"name"`
		Age  int    `redis:"age"`
	}
	own := []call{
		{"Set, Get", func() (any, error) {
			err := r.Set(ctx, "k", "v", time.Hour).Err()
			value, failed := r.Get(ctx, "k").Result()
			return value, errors.Join(err, failed)
		}},
		{"a key that is not there", func() (any, error) {
			_, err := r.Get(ctx, "none").Result()
			return err == goredis.Nil, nil
		}},
		{"SetNX with a time", func() (any, error) { return r.SetNX(ctx, "lock", "me", time.Minute).Result() }},
		{"TTL", func() (any, error) {
			left, err := r.TTL(ctx, "lock").Result()
			return left > 50*time.Second && left <= time.Minute, err
		}},
		{"a pipeline", func() (any, error) {
			got, err := r.Pipelined(ctx, func(pipe goredis.Pipeliner) error {
				pipe.Incr(ctx, "n")
				pipe.Expire(ctx, "n", time.Hour)
				pipe.Get(ctx, "n")
				return nil
			})
			return got, err
		}},
		{"a transaction", func() (any, error) {
			got, err := r.TxPipelined(ctx, func(pipe goredis.Pipeliner) error {
				pipe.Incr(ctx, "n")
				pipe.HSet(ctx, "h", "f", "v")
				return nil
			})
			return got, err
		}},
		{"Watch", func() (any, error) { return "", r.Watch(ctx, increase, "watched") }},
		{"what Watch has set", func() (any, error) { return r.Get(ctx, "watched").Int() }},
		{"a hash from and to a struct", func() (any, error) {
			var read user
			err := r.HSet(ctx, "user", user{"Ann", 30}).Err()
			return read, errors.Join(err, r.HGetAll(ctx, "user").Scan(&read))
		}},
		{"sets", func() (any, error) {
			err := r.SAdd(ctx, "s", "a", "b", "c").Err()
			members, failed := r.SMembersMap(ctx, "s").Result()
			return members, errors.Join(err, failed)
		}},
		{"lists", func() (any, error) {
			err := r.RPush(ctx, "l", 1, 2, 3).Err()
			items, failed := r.LRange(ctx, "l", 0, -1).Result()
			return items, errors.Join(err, failed)
		}},
		{"a Scan iterator", func() (any, error) {
			var keys []string
			found := r.Scan(ctx, 0, "*", 2).Iterator()
			for found.Next(ctx) {
				keys = append(keys, found.Val())
			}
			sort.Strings(keys)
			return keys, found.Err()
		}},
		{"an error", func() (any, error) { return r.Incr(ctx, "k").Result() }},
	}
	words := func(words []string) (any, error) {
		value, err := r.Do(ctx, anys(words)...).Result()
		if err == goredis.Nil {
			return nil, nil
		}
		return value, err
	}
	return &connection{words, own, func() { r.Close() }}, r.FlushAll(ctx).Err()
}

func redigo(address string) (*connection, error) {
	pool := &redis.Pool{MaxIdle: 3, Dial: func() (redis.Conn, error) { return redis.Dial("tcp", address) }}
	do := func(words ...string) (any, error) {
		r := pool.Get()
		defer r.Close()
		return r.Do(words[0], anys(words[1:])...)
	}
	own := []call{
		{"String", func() (any, error) { return redis.String(do("SET", "k", "v")) }},
		{"Ints", func() (any, error) {
			_, err := do("MSET", "a", "1", "b", "2")
			values, failed := redis.Ints(do("MGET", "a", "b"))
			return values, errors.Join(err, failed)
		}},
		{"ErrNil", func() (any, error) {
			_, err := redis.String(do("GET", "none"))
			return err == redis.ErrNil, nil
		}},
		{"StringMap", func() (any, error) {
			_, err := do("HSET", "h", "f", "v", "g", "w")
			values, failed := redis.StringMap(do("HGETALL", "h"))
			return values, errors.Join(err, failed)
		}},
		{"Send, Flush, Receive", func() (any, error) {
			r := pool.Get()
			defer r.Close()
			var got []any
			err := errors.Join(r.Send("INCR", "n"), r.Send("GET", "n"), r.Flush())
			for range 2 {
				value, failed := r.Receive()
				got, err = append(got, value), errors.Join(err, failed)
			}
			return got, err
		}},
		{"a transaction", func() (any, error) {
			r := pool.Get()
			defer r.Close()
			err := errors.Join(r.Send("MULTI"), r.Send("INCR", "n"), r.Send("SET", "t", "1"))
			values, failed := redis.Values(r.Do("EXEC"))
			return values, errors.Join(err, failed)
		}},
		{"WATCH", func() (any, error) {
			r := pool.Get()
			defer r.Close()
			_, err := r.Do("WATCH", "t")
			_, failed := do("SET", "t", "2")
			err = errors.Join(err, failed, r.Send("MULTI"), r.Send("SET", "t", "3"))
			value, failed := r.Do("EXEC")
			return value, errors.Join(err, failed)
		}},
		{"a wrong type", func() (any, error) { return do("HGET", "k", "f") }},
	}
	_, err := do("FLUSHALL")
	return &connection{func(words []string) (any, error) { return do(words...) }, own, func() { pool.Close() }}, err
}

func ofRueidis(options rueidis.ClientOption) (*connection, error) {
	r, err := rueidis.NewClient(options)
	if err != nil {
		return nil, err
	}
	own := []call{
		{"Set, Get", func() (any, error) {
			err := r.Do(ctx, r.B().Set().Key("k").Value("v").Ex(time.Hour).Build()).Error()
			value, failed := r.Do(ctx, r.B().Get().Key("k").Build()).ToString()
			return value, errors.Join(err, failed)
		}},
		{"a key that is not there", func() (any, error) {
			return rueidis.IsRedisNil(r.Do(ctx, r.B().Get().Key("none").Build()).Error()), nil
		}},
		{"DoMulti", func() (any, error) {
			var got []any
			for _, reply := range r.DoMulti(ctx,
				r.B().Incr().Key("n").Build(),
				r.B().Hset().Key("h").FieldValue().FieldValue("f", "v").Build(),
				r.B().Get().Key("n").Build()) {
				value, err := reply.ToAny()
				got = append(got, value, first(err))
			}
			return got, nil
		}},
		{"AsStrMap", func() (any, error) { return r.Do(ctx, r.B().Hgetall().Key("h").Build()).AsStrMap() }},
		{"Dedicated, with a transaction", func() (any, error) {
			var got any
			err := r.Dedicated(func(d rueidis.DedicatedClient) error {
				var err error
				for _, reply := range d.DoMulti(ctx,
					d.B().Watch().Key("k").Build(),
					d.B().Multi().Build(),
					d.B().Append().Key("k").Value("!").Build(),
					d.B().Exec().Build()) {
					got, err = reply.ToAny()
				}
				return err
			})
			return got, err
		}},
		{"an error", func() (any, error) { return r.Do(ctx, r.B().Incr().Key("k").Build()).AsInt64() }},
	}
	if !options.DisableCache {
		// What is cached is true, however soon it changes.
		own = append(own, call{"DoCache while the key changes", func() (any, error) {
			cached := func() string {
				value, err := r.DoCache(ctx, r.B().Get().Key("changes").Cache(), time.Hour).ToString()
				return value + first(err)
			}
			got, err := []any{cached()}, error(nil)
			for _, value := range []string{"one", "two"} {
				err = errors.Join(err, r.Do(ctx, r.B().Set().Key("changes").Value(value).Build()).Error())
				// The client learns of a change soon, but not always before the reply to SET.
				for begin := time.Now(); cached() != value && time.Since(begin) < time.Minute; {
					time.Sleep(time.Millisecond)
				}
				got = append(got, cached())
			}
			return got, err
		}})
	}
	words := func(words []string) (any, error) {
		value, err := r.Do(ctx, r.B().Arbitrary(words...).Build()).ToAny()
		if rueidis.IsRedisNil(err) {
			return nil, nil
		}
		return value, err
	}
	return &connection{words, own, r.Close}, r.Do(ctx, r.B().Flushall().Build()).Error()
}

func anys(words []string) []any {
	all := make([]any, len(words))
	for i, word := range words {
		all[i] = word
	}
	return all
}

// first returns the first word of an error, which programs rely on.
func first(err error) string {
	if err == nil {
		return ""
	}
	return "error " + strings.Fields(err.Error())[0]
}

// text prints a reply. Without an order, its parts are sorted.
func text(value any, err error, ordered bool) string {
	if err != nil {
		return first(err)
	}
	switch value := value.(type) {
	case []byte:
		return fmt.Sprintf("%q", value)
	case []any:
		parts := make([]string, len(value))
		for i, item := range value {
			parts[i] = text(item, nil, true)
		}
		if !ordered {
			sort.Strings(parts)
		}
		return fmt.Sprint(parts)
	case []goredis.Cmder:
		return fmt.Sprint(value)
	default:
		return fmt.Sprintf("%T %v", value, value)
	}
}

// read returns the calls of a file, and which of them have replies without an order.
func read(path string) (calls [][]string, ordered []bool) {
	file, err := os.Open(path)
	check(err)
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		line, found := strings.CutPrefix(lines.Text(), "~")
		if line != "" && !strings.HasPrefix(line, "#") {
			calls, ordered = append(calls, strings.Fields(line)), append(ordered, !found)
		}
	}
	check(lines.Err())
	return calls, ordered
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// compare makes the calls of a client on both servers, and returns how many replies differ.
func compare(client client, lines [][]string, ordered []bool, ports []string) int {
	var said [2][]string
	var names []string
	for i, port := range ports {
		r, err := client.connect("127.0.0.1:" + port)
		check(err)
		names = nil
		for _, call := range r.own {
			value, err := call.do()
			names, said[i] = append(names, call.name), append(said[i], text(value, err, true))
		}
		_, err = r.words([]string{"FLUSHALL"})
		check(err)
		for j, words := range lines {
			value, err := r.words(words)
			names = append(names, strings.Join(words, " "))
			said[i] = append(said[i], text(value, err, ordered[j]))
		}
		r.close()
	}
	differ := 0
	for i, name := range names {
		if said[0][i] != said[1][i] {
			differ++
			fmt.Printf("%s, %s: %s, Redis: %s\n", client.name, name, said[0][i], said[1][i])
		}
	}
	fmt.Printf("%s: %d calls, %d differ\n", client.name, len(names), differ)
	return differ
}

// outage increments a counter with several routines and the settings that go-redis has by itself, until a line comes. Each
// increment that was not acknowledged, or was done twice, has to be among those that failed with an error.
func outage(port string) {
	r := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:" + port})
	defer r.Close()
	check(r.Del(ctx, "counter").Err())
	var acknowledged, failed atomic.Int64
	var ends atomic.Bool
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for !ends.Load() {
				if r.Incr(ctx, "counter").Err() == nil {
					acknowledged.Add(1)
				} else {
					failed.Add(1)
				}
			}
		})
	}
	_, err := bufio.NewReader(os.Stdin).ReadString('\n')
	check(err)
	ends.Store(true)
	all.Wait()
	counter, err := r.Get(ctx, "counter").Int64()
	check(err)
	fmt.Printf("go-redis in an outage: %d increments acknowledged, %d failed, the counter is %d\n",
		acknowledged.Load(), failed.Load(), counter)
	if failed.Load() == 0 || counter < acknowledged.Load() || counter > acknowledged.Load()+failed.Load() {
		check(errors.New("increments were lost, or done twice without an error; or there was no outage"))
	}
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "outage" {
		outage(os.Args[2])
		return
	}
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: calls CALLS.TXT GATEWAY_PORT REDIS_PORT, or calls outage GATEWAY_PORT")
		os.Exit(2)
	}
	lines, ordered := read(os.Args[1])
	differ := 0
	for _, client := range clients {
		differ += compare(client, lines, ordered, os.Args[2:])
	}
	if differ > 0 {
		os.Exit(1)
	}
}
