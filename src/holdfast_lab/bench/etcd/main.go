// Loads an etcd cluster as `generator.c` loads a grid, through etcd's own client: so many connections, on each of which
// so many goroutines have one request under way. Keys and values are those of `frames.py`. Reads are linearizable, which
// is etcd's default.
//
//	load ENDPOINT,ENDPOINT,... get|set CONNECTIONS DEPTH SECONDS KEYS
//
// With SECONDS 0 each key is stored once. The result is one line of JSON on standard output, as the generator prints it.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const valueBytes = 100

func number(text string) int {
	found, err := strconv.Atoi(text)
	if err != nil {
		log.Fatal(err)
	}
	return found
}

func cpuSeconds() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		log.Fatal(err)
	}
	of := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return of(used.Utime) + of(used.Stime)
}

func main() {
	endpoints, kind := strings.Split(os.Args[1], ","), os.Args[2]
	connections, depth, keys := number(os.Args[3]), number(os.Args[4]), number(os.Args[6])
	seconds, err := strconv.ParseFloat(os.Args[5], 64)
	if err != nil {
		log.Fatal(err)
	}
	clients := make([]*clientv3.Client, connections)
	for at := range clients {
		own := []string{endpoints[at%len(endpoints)]}
		if clients[at], err = clientv3.New(clientv3.Config{Endpoints: own, DialTimeout: 10 * time.Second}); err != nil {
			log.Fatal(err)
		}
		defer clients[at].Close()
	}
	value := strings.Repeat("v", valueBytes)
	var next, answered atomic.Int64
	var all []float64
	var mutex sync.Mutex
	var workers sync.WaitGroup
	cpuBefore, begun := cpuSeconds(), time.Now()
	for _, client := range clients {
		for range depth {
			workers.Add(1)
			go func() {
				defer workers.Done()
				var waits []float64
				for {
					at := int(next.Add(1) - 1)
					if (seconds > 0 && time.Since(begun).Seconds() >= seconds) || (seconds == 0 && at >= keys) {
						break
					}
					key, sent := fmt.Sprintf("key:%012d", at*7919%keys), time.Now()
					if seconds == 0 {
						key = fmt.Sprintf("key:%012d", at)
					}
					var err error
					if kind == "get" {
						var found *clientv3.GetResponse
						found, err = client.Get(context.Background(), key)
						if err == nil && (len(found.Kvs) != 1 || len(found.Kvs[0].Value) != valueBytes) {
							err = fmt.Errorf("%s is not there", key)
						}
					} else {
						_, err = client.Put(context.Background(), key, value)
					}
					if err != nil {
						log.Fatal(err)
					}
					waits = append(waits, float64(time.Since(sent).Nanoseconds())/1e3)
					answered.Add(1)
				}
				mutex.Lock()
				defer mutex.Unlock()
				all = append(all, waits...)
			}()
		}
	}
	workers.Wait()
	took := time.Since(begun).Seconds()
	sort.Float64s(all)
	part := func(share float64) float64 { return all[int(share*float64(len(all)-1))] }
	said, err := json.Marshal(map[string]any{
		"requests": answered.Load(), "seconds": took, "cpu_seconds": cpuSeconds() - cpuBefore,
		"p50_us": part(0.5), "p99_us": part(0.99), "max_us": part(1),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(said))
}
