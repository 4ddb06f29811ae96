package main

import (
	"context"
	"fmt"
	"reflect"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hazelcast/hazelcast-go-client"
	"github.com/hazelcast/hazelcast-go-client/aggregate"
	"github.com/hazelcast/hazelcast-go-client/cluster"
	"github.com/hazelcast/hazelcast-go-client/predicate"
	"github.com/hazelcast/hazelcast-go-client/types"
)

// A judge of calls: by the names of the protocol's messages, whether they work.
type judge struct {
	ctx   context.Context
	found map[string]string
}

// Whether the call answers this. One that did not once does not, whatever it did before.
func (j *judge) is(name string, wanted interface{}, call func() (interface{}, error)) {
	found, err := call()
	outcome := "works"
	switch {
	case err != nil && strings.Contains(err.Error(), "supported by Holdfast"):
		outcome = "refused"
	case err != nil:
		outcome = "failed: " + err.Error()
	case !reflect.DeepEqual(found, wanted):
		outcome = fmt.Sprintf("wrong: %v (%T), not %v", found, found, wanted)
	}
	if before, there := j.found[name]; !there || before == "works" {
		j.found[name] = outcome
	}
}

// The same of a call that answers nothing.
func (j *judge) does(name string, call func() error) {
	j.is(name, nil, func() (interface{}, error) { return nil, call() })
}

type entries map[interface{}]interface{}

func asMap(pairs []types.Entry) entries {
	found := entries{}
	for _, pair := range pairs {
		found[pair.Key] = pair.Value
	}
	return found
}

func sorted(values []interface{}) []string {
	found := []string{}
	for _, value := range values {
		found = append(found, fmt.Sprint(value))
	}
	sort.Strings(found)
	return found
}

func calls(ctx context.Context, client *hazelcast.Client, options Options) interface{} {
	j := &judge{ctx, map[string]string{}}
	j.found["Client.authentication"] = "works"
	m, err := client.GetMap(ctx, options.Map)
	if err != nil {
		return err.Error()
	}
	j.found["Client.createProxy"] = "works"
	j.found["Client.addClusterViewListener"] = "works"
	j.oneKey(m)
	j.conditions(m)
	j.wholeMaps(m)
	j.timed(m)
	j.listeners(client, m)
	j.locks(m)
	j.multimaps(client)
	j.refused(m)
	j.structures(client)
	return j.found
}

func (j *judge) oneKey(m *hazelcast.Map) {
	ctx := j.ctx
	j.is("Map.put", nil, func() (interface{}, error) { return m.Put(ctx, "k", 1) })
	j.is("Map.put", int64(1), func() (interface{}, error) { return m.Put(ctx, "k", int64(2)) })
	j.is("Map.get", int64(2), func() (interface{}, error) { return m.Get(ctx, "k") })
	j.is("Map.get", nil, func() (interface{}, error) { return m.Get(ctx, "none") })
	j.is("Map.containsKey", true, func() (interface{}, error) { return m.ContainsKey(ctx, "k") })
	j.is("Map.containsKey", false, func() (interface{}, error) { return m.ContainsKey(ctx, "none") })
	j.is("Map.containsValue", true, func() (interface{}, error) { return m.ContainsValue(ctx, int64(2)) })
	j.is("Map.isLocked", false, func() (interface{}, error) { return m.IsLocked(ctx, "k") })
	j.is("Map.remove", int64(2), func() (interface{}, error) { return m.Remove(ctx, "k") })
	j.is("Map.remove", nil, func() (interface{}, error) { return m.Remove(ctx, "k") })
	for _, value := range []interface{}{"text", 1.5, true, []byte{1, 2}, []int64{1, 2}, int32(7)} {
		value := value
		j.does("Map.set", func() error { return m.Set(ctx, "k", value) })
		j.is("Map.get", value, func() (interface{}, error) { return m.Get(ctx, "k") })
	}
	j.does("Map.putTransient", func() error { return m.PutTransient(ctx, "k", "t") })
	j.is("Map.get", "t", func() (interface{}, error) { return m.Get(ctx, "k") })
	j.does("Map.delete", func() error { return m.Delete(ctx, "k") })
	j.is("Map.get", nil, func() (interface{}, error) { return m.Get(ctx, "k") })
	j.does("Map.set", func() error { return m.Set(ctx, "k", 1) })
	j.is("Map.evict", true, func() (interface{}, error) { return m.Evict(ctx, "k") })
	j.is("Map.evict", false, func() (interface{}, error) { return m.Evict(ctx, "k") })
}

func (j *judge) conditions(m *hazelcast.Map) {
	ctx := j.ctx
	j.is("Map.replace", nil, func() (interface{}, error) { return m.Replace(ctx, "c", "1") })
	j.is("Map.putIfAbsent", nil, func() (interface{}, error) { return m.PutIfAbsent(ctx, "c", "1") })
	j.is("Map.putIfAbsent", "1", func() (interface{}, error) { return m.PutIfAbsent(ctx, "c", "2") })
	j.is("Map.replace", "1", func() (interface{}, error) { return m.Replace(ctx, "c", "3") })
	j.is("Map.replaceIfSame", false, func() (interface{}, error) { return m.ReplaceIfSame(ctx, "c", "1", "4") })
	j.is("Map.replaceIfSame", true, func() (interface{}, error) { return m.ReplaceIfSame(ctx, "c", "3", "4") })
	j.is("Map.removeIfSame", false, func() (interface{}, error) { return m.RemoveIfSame(ctx, "c", "3") })
	j.is("Map.removeIfSame", true, func() (interface{}, error) { return m.RemoveIfSame(ctx, "c", "4") })
	j.is("Map.tryPut", true, func() (interface{}, error) { return m.TryPut(ctx, "c", "5") })
	j.is("Map.tryRemove", true, func() (interface{}, error) { return m.TryRemove(ctx, "c") })
	j.is("Map.tryRemove", false, func() (interface{}, error) { return m.TryRemove(ctx, "c") })
}

func (j *judge) wholeMaps(m *hazelcast.Map) {
	ctx := j.ctx
	j.is("Map.isEmpty", true, func() (interface{}, error) { return m.IsEmpty(ctx) })
	all, pairs := entries{}, []types.Entry{}
	keys, values := []interface{}{}, []interface{}{}
	for number := 0; number < 300; number++ {
		key, value := fmt.Sprint("key ", number), fmt.Sprint("value ", number)
		all[key] = value
		keys, values = append(keys, key), append(values, value)
		pairs = append(pairs, types.NewEntry(key, value))
	}
	asked := func(found []types.Entry, err error) (interface{}, error) { return asMap(found), err }
	listed := func(found []interface{}, err error) (interface{}, error) { return sorted(found), err }
	j.does("Map.putAll", func() error { return m.PutAll(ctx, pairs...) })
	j.is("Map.size", 300, func() (interface{}, error) { return m.Size(ctx) })
	j.is("Map.getAll", entries{"key 1": "value 1", "key 2": "value 2"}, func() (interface{}, error) {
		return asked(m.GetAll(ctx, "key 1", "key 2", "none"))
	})
	j.is("Map.keySet", sorted(keys), func() (interface{}, error) { return listed(m.GetKeySet(ctx)) })
	j.is("Map.values", sorted(values), func() (interface{}, error) { return listed(m.GetValues(ctx)) })
	j.is("Map.entrySet", all, func() (interface{}, error) { return asked(m.GetEntrySet(ctx)) })
	j.is("Map.keySetWithPredicate", sorted(keys), func() (interface{}, error) {
		return listed(m.GetKeySetWithPredicate(ctx, predicate.True()))
	})
	j.is("Map.valuesWithPredicate", sorted(values), func() (interface{}, error) {
		return listed(m.GetValuesWithPredicate(ctx, predicate.True()))
	})
	j.is("Map.entriesWithPredicate", all, func() (interface{}, error) {
		return asked(m.GetEntrySetWithPredicate(ctx, predicate.True()))
	})
	j.does("Map.flush", func() error { return m.Flush(ctx) })
	j.does("Map.loadAll", func() error { return m.LoadAllReplacing(ctx) })
	j.does("Map.loadGivenKeys", func() error { return m.LoadAllReplacing(ctx, "key 1") })
	j.does("Map.removeAll", func() error { return m.RemoveAll(ctx, predicate.True()) })
	j.is("Map.size", 0, func() (interface{}, error) { return m.Size(ctx) })
	j.does("Map.putAll", func() error { return m.PutAll(ctx, pairs...) })
	j.does("Map.evictAll", func() error { return m.EvictAll(ctx) })
	j.is("Map.size", 0, func() (interface{}, error) { return m.Size(ctx) })
	j.does("Map.putAll", func() error { return m.PutAll(ctx, pairs...) })
	j.does("Map.clear", func() error { return m.Clear(ctx) })
	j.is("Map.isEmpty", true, func() (interface{}, error) { return m.IsEmpty(ctx) })
}

func (j *judge) timed(m *hazelcast.Map) {
	ctx, short, long := j.ctx, 300*time.Millisecond, time.Minute
	j.is("Map.put", nil, func() (interface{}, error) { return m.PutWithTTL(ctx, "t1", "v", short) })
	j.does("Map.set", func() error { return m.SetWithTTL(ctx, "t2", "v", short) })
	j.is("Map.putIfAbsent", nil, func() (interface{}, error) { return m.PutIfAbsentWithTTL(ctx, "t3", "v", short) })
	j.is("Map.putWithMaxIdle", nil, func() (interface{}, error) { return m.PutWithMaxIdle(ctx, "t4", "v", short) })
	j.does("Map.setWithMaxIdle", func() error { return m.SetWithTTLAndMaxIdle(ctx, "t5", "v", long, short) })
	j.is("Map.putIfAbsentWithMaxIdle", nil, func() (interface{}, error) {
		return m.PutIfAbsentWithTTLAndMaxIdle(ctx, "t6", "v", long, short)
	})
	j.does("Map.putTransientWithMaxIdle", func() error { return m.PutTransientWithMaxIdle(ctx, "t7", "v", short) })
	j.is("Map.putWithMaxIdle", nil, func() (interface{}, error) {
		return m.PutWithTTLAndMaxIdle(ctx, "stays", "v", long, long)
	})
	j.is("Map.getEntryView", []interface{}{"stays", "v", int64(60_000), int64(60_000)}, func() (interface{}, error) {
		view, err := m.GetEntryView(ctx, "stays")
		if err != nil || view == nil {
			return nil, err
		}
		return []interface{}{view.Key, view.Value, view.TTL, view.MaxIdle}, nil
	})
	j.does("Map.setTtl", func() error { return m.SetTTL(ctx, "stays", 90*time.Second) })
	gone := until(func() bool { size, err := m.Size(ctx); return err == nil && size == 1 })
	j.is("Map.size", true, func() (interface{}, error) { return gone, nil })
}

func (j *judge) listeners(client *hazelcast.Client, m *hazelcast.Map) {
	ctx := j.ctx
	var lock sync.Mutex
	heard := []string{}
	hear := func(kind string) func(*hazelcast.EntryNotified) {
		return func(event *hazelcast.EntryNotified) {
			lock.Lock()
			defer lock.Unlock()
			heard = append(heard, fmt.Sprint(kind, " ", event.Key, " ", event.Value, " ", event.OldValue))
		}
	}
	listener := hazelcast.MapListener{
		EntryAdded: hear("added"), EntryUpdated: hear("updated"), EntryRemoved: hear("removed"),
		EntryExpired: hear("expired"), EntryEvicted: hear("evicted"), MapCleared: hear("cleared"),
	}
	told := func(wanted ...string) func() (interface{}, error) {
		sort.Strings(wanted)
		return func() (interface{}, error) {
			same := until(func() bool {
				lock.Lock()
				defer lock.Unlock()
				found := append([]string{}, heard...)
				sort.Strings(found)
				return reflect.DeepEqual(found, wanted)
			})
			if !same {
				return heard, nil
			}
			heard = []string{}
			return "heard", nil
		}
	}
	m.Clear(ctx)
	write := func() {
		m.Set(ctx, "a", "1")
		m.Set(ctx, "a", "2")
		m.Set(ctx, "b", "3")
		m.Remove(ctx, "a")
		m.Clear(ctx)
	}
	all := []string{"added a 1 <nil>", "updated a 2 1", "added b 3 <nil>", "removed a <nil> 2", "cleared <nil> <nil> <nil>"}
	ofA := []string{"added a 1 <nil>", "updated a 2 1", "removed a <nil> 2", "cleared <nil> <nil> <nil>"}
	one := func(name string, wanted []string, add func() (types.UUID, error)) {
		id, err := add()
		j.does(name, func() error { return err })
		write()
		j.is(name, "heard", told(append([]string{}, wanted...)...))
		j.does("Map.removeEntryListener", func() error { return m.RemoveListener(ctx, id) })
	}
	one("Map.addEntryListener", all, func() (types.UUID, error) { return m.AddListener(ctx, listener, true) })
	one("Map.addEntryListenerToKey", ofA, func() (types.UUID, error) {
		return m.AddListenerWithKey(ctx, listener, "a", true)
	})
	one("Map.addEntryListenerWithPredicate", all, func() (types.UUID, error) {
		return m.AddListenerWithPredicate(ctx, listener, predicate.True(), true)
	})
	one("Map.addEntryListenerToKeyWithPredicate", ofA, func() (types.UUID, error) {
		return m.AddListenerWithPredicateAndKey(ctx, listener, predicate.True(), "a", true)
	})
	write()
	j.is("Map.removeEntryListener", 0, func() (interface{}, error) { return len(heard), nil })
	j.objects(client, m.Name())
}

func (j *judge) objects(client *hazelcast.Client, name string) {
	ctx, name := j.ctx, name+" of its own"
	var created, destroyed int32
	id, err := client.AddDistributedObjectListener(ctx, func(event hazelcast.DistributedObjectNotified) {
		if event.ObjectName == name && event.EventType == hazelcast.DistributedObjectCreated {
			atomic.AddInt32(&created, 1)
		} else if event.ObjectName == name {
			atomic.AddInt32(&destroyed, 1)
		}
	})
	j.does("Client.addDistributedObjectListener", func() error { return err })
	m, err := client.GetMap(ctx, name)
	j.does("Client.createProxy", func() error { return err })
	j.is("Client.getDistributedObjects", true, func() (interface{}, error) {
		infos, err := client.GetDistributedObjectsInfo(ctx)
		for _, info := range infos {
			if info.Name == name && info.ServiceName == "hz:impl:mapService" {
				return true, err
			}
		}
		return false, err
	})
	j.does("Client.destroyProxy", func() error { return m.Destroy(ctx) })
	j.is("Client.addDistributedObjectListener", true, func() (interface{}, error) {
		return until(func() bool { return atomic.LoadInt32(&created) == 1 && atomic.LoadInt32(&destroyed) == 1 }), nil
	})
	j.does("Client.removeDistributedObjectListener", func() error {
		return client.RemoveDistributedObjectListener(ctx, id)
	})
	_, err = client.AddMembershipListener(func(cluster.MembershipStateChanged) {})
	j.does("Client.addClusterViewListener", func() error { return err })
}

func (j *judge) locks(m *hazelcast.Map) {
	ctx := j.ctx
	locked := m.NewLockContext(ctx)
	j.does("Map.lock", func() error { return m.Lock(locked, "k") })
	j.is("Map.isLocked", true, func() (interface{}, error) { return m.IsLocked(ctx, "k") })
	j.is("Map.tryLock", true, func() (interface{}, error) { return m.TryLock(locked, "k") })
	j.does("Map.unlock", func() error { return m.Unlock(locked, "k") })
	j.does("Map.forceUnlock", func() error { return m.ForceUnlock(ctx, "k") })
	j.is("Map.isLocked", false, func() (interface{}, error) { return m.IsLocked(ctx, "k") })
}

func (j *judge) multimaps(client *hazelcast.Client) {
	ctx := j.ctx
	m, err := client.GetMultiMap(ctx, "mm")
	j.does("Client.createProxy", func() error { return err })
	j.is("MultiMap.put", true, func() (interface{}, error) { return m.Put(ctx, "k", "a") })
	j.is("MultiMap.put", false, func() (interface{}, error) { return m.Put(ctx, "k", "a") })
	j.is("MultiMap.valueCount", 1, func() (interface{}, error) { return m.ValueCount(ctx, "k") })
	j.is("MultiMap.size", 1, func() (interface{}, error) { return m.Size(ctx) })
	j.is("MultiMap.containsKey", true, func() (interface{}, error) { return m.ContainsKey(ctx, "k") })
	j.is("MultiMap.containsValue", true, func() (interface{}, error) { return m.ContainsValue(ctx, "a") })
	j.is("MultiMap.containsEntry", true, func() (interface{}, error) { return m.ContainsEntry(ctx, "k", "a") })
	j.is("MultiMap.get", []interface{}{"a"}, func() (interface{}, error) { return m.Get(ctx, "k") })
	j.is("MultiMap.keySet", []interface{}{"k"}, func() (interface{}, error) { return m.GetKeySet(ctx) })
	j.is("MultiMap.values", []interface{}{"a"}, func() (interface{}, error) { return m.GetValues(ctx) })
	j.does("MultiMap.delete", func() error { return m.Delete(ctx, "k") })
	j.does("MultiMap.clear", func() error { return m.Clear(ctx) })
}

// What Holdfast has not got: the user sees why.
func (j *judge) refused(m *hazelcast.Map) {
	ctx := j.ctx
	j.does("Map.addIndex", func() error {
		return m.AddIndex(ctx, types.IndexConfig{Type: types.IndexTypeHash, Attributes: []string{"a"}})
	})
	j.does("Map.addInterceptor", func() error { _, err := m.AddInterceptor(ctx, "code"); return err })
	j.does("Map.executeOnKey, other objects", func() error { _, err := m.ExecuteOnKey(ctx, "code", "k"); return err })
	j.does("Map.executeOnKeys, other objects", func() error { _, err := m.ExecuteOnKeys(ctx, "code", "k"); return err })
	j.does("Map.executeOnAllKeys, other objects", func() error { _, err := m.ExecuteOnEntries(ctx, "code"); return err })
	j.does("Map.executeWithPredicate, other objects", func() error {
		_, err := m.ExecuteOnEntriesWithPredicate(ctx, "code", predicate.True())
		return err
	})
	other := predicate.SQL("this > 1")
	j.does("Map.keySetWithPredicate, other predicates", func() error {
		_, err := m.GetKeySetWithPredicate(ctx, other)
		return err
	})
	j.does("Map.addEntryListenerWithPredicate, other predicates", func() error {
		_, err := m.AddListenerWithPredicate(ctx, hazelcast.MapListener{EntryAdded: func(*hazelcast.EntryNotified) {}}, other, true)
		return err
	})
	j.does("Map.aggregate", func() error { _, err := m.Aggregate(ctx, aggregate.Count("this")); return err })
	j.does("Map.aggregateWithPredicate", func() error {
		_, err := m.AggregateWithPredicate(ctx, aggregate.Count("this"), predicate.True())
		return err
	})
}

func (j *judge) structures(client *hazelcast.Client) {
	ctx, name := j.ctx, "s"
	j.does("Sql", func() error { _, err := client.SQL().Execute(ctx, "SELECT 1"); return err })
	long, err := client.CPSubsystem().GetAtomicLong(ctx, name)
	if err != nil {
		panic(err)
	}
	j.is("AtomicLong.addAndGet", int64(7), func() (interface{}, error) { return long.AddAndGet(ctx, 7) })
	j.is("AtomicLong.get", int64(7), func() (interface{}, error) { return long.Get(ctx) })
}
