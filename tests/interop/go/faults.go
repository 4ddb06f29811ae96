package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hazelcast/hazelcast-go-client"
)

// Writes until told to stop, whatever happens to members, then reads everything back. Each line of standard input begins
// another stage; the errors of each are counted.
func faults(ctx context.Context, client *hazelcast.Client, options Options) interface{} {
	m, err := client.GetMap(ctx, options.Map)
	if err != nil {
		return err.Error()
	}
	heard := sync.Map{}
	m.AddListener(ctx, hazelcast.MapListener{
		EntryAdded: func(event *hazelcast.EntryNotified) { heard.Store(event.Key, true) },
	}, false)
	acknowledged, unknown := map[string]int64{}, map[string]int64{}
	errors, failures := []int{0}, []string{}
	var stages int32
	go func() {
		for {
			line, err := lines.ReadString('\n')
			atomic.AddInt32(&stages, 1)
			if err != nil || line == "stop\n" {
				atomic.StoreInt32(&stages, -1)
				return
			}
		}
	}()
	number, after := int64(0), 0
	for after < 300 {
		number++
		if number == 200 {
			fmt.Println("now")
		}
		for stage := int(atomic.LoadInt32(&stages)); len(errors) <= stage; {
			errors = append(errors, 0)
		}
		if atomic.LoadInt32(&stages) < 0 {
			after++
		}
		key := fmt.Sprint("key ", number%97)
		// This client may forget a request that is under way when its connection breaks: it waits as long as it may.
		patience, enough := context.WithTimeout(ctx, 3*time.Second)
		err := m.Set(patience, key, number)
		enough()
		if err != nil {
			unknown[key] = number
			errors[len(errors)-1]++
			failures = append(failures, err.Error())
		} else {
			acknowledged[key] = number
			delete(unknown, key)
		}
	}
	wrong := []string{}
	for key, value := range acknowledged {
		found, err := m.Get(ctx, key)
		if err != nil || (found != value && found != unknown[key]) {
			wrong = append(wrong, fmt.Sprint(key, " ", value, " ", found, " ", err))
		}
	}
	for late := 0; late < 50; late++ {
		m.Set(ctx, fmt.Sprint("late ", late), int64(late))
	}
	count := 0
	until(func() bool {
		count = 0
		heard.Range(func(interface{}, interface{}) bool { count++; return true })
		return count == 97+50
	})
	return map[string]interface{}{
		"acknowledged": number, "errors": errors, "failures": failures, "wrong": wrong, "heard": count,
	}
}

// A near cache, and another client that changes what it holds.
func near(ctx context.Context, client *hazelcast.Client, options Options) interface{} {
	m, err := client.GetMap(ctx, options.Map)
	if err != nil {
		return err.Error()
	}
	options.Near = false
	other, err := connect(ctx, options)
	if err != nil {
		return err.Error()
	}
	defer other.Shutdown(ctx)
	plain, err := other.GetMap(ctx, options.Map)
	if err != nil {
		return err.Error()
	}
	const count = 200
	write := func(letter string) {
		for number := 0; number < count; number++ {
			plain.Set(ctx, int64(number), fmt.Sprint(letter, number))
		}
	}
	read := func(letter string) int {
		right := 0
		for number := 0; number < count; number++ {
			if value, _ := m.Get(ctx, int64(number)); value == fmt.Sprint(letter, number) {
				right++
			}
		}
		return right
	}
	write("a")
	read("a")
	before := m.LocalMapStats().NearCacheStats.Hits
	again := read("a")
	hits := m.LocalMapStats().NearCacheStats.Hits - before
	write("b")
	changed := 0
	until(func() bool { changed = read("b"); return changed == count })
	plain.Clear(ctx)
	cleared := until(func() bool { value, err := m.Get(ctx, int64(1)); return err == nil && value == nil })
	return map[string]interface{}{"again": again, "hits": hits, "changed": changed, "cleared": cleared}
}
