'use strict';
// A judge of calls: by the names of the protocol's messages, whether they work.
const { Predicates, Aggregators } = require('hazelcast-client');
const { isDeepStrictEqual } = require('node:util');

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function until(question) {
    const deadline = Date.now() + 10000;
    while (Date.now() < deadline) {
        if (await question()) return true;
        await pause(10);
    }
    return false;
}

module.exports = async (client, name) => {
    const found = {};
    for (const one of ['authentication', 'createProxy', 'addClusterViewListener']) found[`Client.${one}`] = 'works';
    // Whether the call answers this. One that did not once does not, whatever it did before.
    const is = async (message, wanted, call) => {
        let outcome = 'works';
        try {
            const answer = await call();
            if (!isDeepStrictEqual(answer ?? null, wanted)) {
                outcome = `wrong: ${JSON.stringify(answer)}, not ${JSON.stringify(wanted)}`;
            }
        } catch (error) {
            outcome = `${error.message} ${error.cause?.message}`.includes('supported by Holdfast') ? 'refused' : `failed: ${error}`;
        }
        if ((found[message] ?? 'works') === 'works') found[message] = outcome;
    };
    const does = (message, call) => is(message, null, async () => { await call(); return null; });
    const map = await client.getMap(name);

    // One key.
    await is('Map.put', null, () => map.put('k', 1));
    await is('Map.put', 1, () => map.put('k', 2));
    await is('Map.get', 2, () => map.get('k'));
    await is('Map.get', null, () => map.get('none'));
    await is('Map.containsKey', true, () => map.containsKey('k'));
    await is('Map.containsKey', false, () => map.containsKey('none'));
    await is('Map.containsValue', true, () => map.containsValue(2));
    await is('Map.isLocked', false, () => map.isLocked('k'));
    await is('Map.remove', 2, () => map.remove('k'));
    await is('Map.remove', null, () => map.remove('k'));
    for (const value of ['text', 1.5, true, { an: 'object' }, Buffer.from('bytes'), ['a', 'b'], BigInt(7)]) {
        await does('Map.set', () => map.set('k', value));
        await is('Map.get', true, async () => isDeepStrictEqual(await map.get('k'), value));
    }
    await does('Map.putTransient', () => map.putTransient('k', 't'));
    await is('Map.get', 't', () => map.get('k'));
    await does('Map.delete', () => map.delete('k'));
    await is('Map.get', null, () => map.get('k'));
    await does('Map.set', () => map.set('k', 1));
    await is('Map.evict', true, () => map.evict('k'));
    await is('Map.evict', false, () => map.evict('k'));

    // Conditions.
    await is('Map.replace', null, () => map.replace('c', 1));
    await is('Map.putIfAbsent', null, () => map.putIfAbsent('c', 1));
    await is('Map.putIfAbsent', 1, () => map.putIfAbsent('c', 2));
    await is('Map.replace', 1, () => map.replace('c', 3));
    await is('Map.replaceIfSame', false, () => map.replaceIfSame('c', 1, 4));
    await is('Map.replaceIfSame', true, () => map.replaceIfSame('c', 3, 4));
    await is('Map.removeIfSame', false, () => map.remove('c', 3));
    await is('Map.removeIfSame', true, () => map.remove('c', 4));
    await is('Map.tryPut', true, () => map.tryPut('c', 5, 0));
    await is('Map.tryRemove', true, () => map.tryRemove('c', 0));
    await is('Map.tryRemove', false, () => map.tryRemove('c', 0));

    // Whole maps.
    const all = Array.from({ length: 300 }, (_, i) => [`key ${i}`, `value ${i}`]).sort();
    const keys = all.map(([key]) => key);
    const values = all.map(([, value]) => value).sort();
    const always = Predicates.alwaysTrue();
    await is('Map.isEmpty', true, () => map.isEmpty());
    await does('Map.putAll', () => map.putAll(all));
    await is('Map.size', 300, () => map.size());
    await is('Map.getAll', [['key 1', 'value 1']], () => map.getAll(['key 1', 'none']));
    await is('Map.keySet', keys, async () => [...await map.keySet()].sort());
    await is('Map.values', values, async () => [...await map.values()].sort());
    await is('Map.entrySet', all, async () => (await map.entrySet()).sort());
    await is('Map.keySetWithPredicate', keys, async () => [...await map.keySetWithPredicate(always)].sort());
    await is('Map.valuesWithPredicate', values, async () => [...await map.valuesWithPredicate(always)].sort());
    await is('Map.entriesWithPredicate', all, async () => (await map.entrySetWithPredicate(always)).sort());
    await does('Map.flush', () => map.flush());
    await does('Map.loadAll', () => map.loadAll());
    await does('Map.loadGivenKeys', () => map.loadAll(['key 1']));
    await does('Map.removeAll', () => map.removeAll(always));
    await is('Map.size', 0, () => map.size());
    await map.putAll(all);
    await does('Map.evictAll', () => map.evictAll());
    await is('Map.size', 0, () => map.size());
    await map.putAll(all);
    await does('Map.clear', () => map.clear());
    await is('Map.isEmpty', true, () => map.isEmpty());

    // Entries that end.
    await is('Map.put', null, () => map.put('t1', 1, 300));
    await does('Map.set', () => map.set('t2', 1, 300));
    await is('Map.putIfAbsent', null, () => map.putIfAbsent('t3', 1, 300));
    await is('Map.putWithMaxIdle', null, () => map.put('t4', 1, 60000, 300));
    await does('Map.setWithMaxIdle', () => map.set('t5', 1, 60000, 300));
    await is('Map.putIfAbsentWithMaxIdle', null, () => map.putIfAbsent('t6', 1, 60000, 300));
    await does('Map.putTransientWithMaxIdle', () => map.putTransient('t7', 1, 60000, 300));
    await is('Map.putWithMaxIdle', null, () => map.put('stays', 1, 60000, 30000));
    await is('Map.getEntryView', ['stays', 1, 60000, 30000], async () => {
        const view = await map.getEntryView('stays');
        return [view.key, view.value, view.ttl.toNumber(), view.maxIdle.toNumber()];
    });
    await is('Map.setTtl', true, () => map.setTtl('stays', 90000));
    await is('Map.size', true, () => until(async () => (await map.size()) === 1));
    await map.clear();

    // Listeners.
    const heard = [];
    const ears = {
        added: (event) => heard.push(`added ${event.key}`), updated: (event) => heard.push(`updated ${event.oldValue}`),
        removed: (event) => heard.push(`removed ${event.oldValue}`), mapCleared: () => heard.push('cleared'),
    };
    const write = async () => {
        await map.set('a', 1);
        await map.set('a', 2);
        await map.set('b', 3);
        await map.remove('a');
        await map.clear();
    };
    const ofA = ['added a', 'cleared', 'removed 2', 'updated 1'];
    const both = ['added a', 'added b', 'cleared', 'removed 2', 'updated 1'];
    for (const [message, wanted, add] of [
        ['Map.addEntryListener', both, () => map.addEntryListener(ears, undefined, true)],
        ['Map.addEntryListenerToKey', ofA, () => map.addEntryListener(ears, 'a', true)],
        ['Map.addEntryListenerWithPredicate', both, () => map.addEntryListenerWithPredicate(ears, always, undefined, true)],
        ['Map.addEntryListenerToKeyWithPredicate', ofA, () => map.addEntryListenerWithPredicate(ears, always, 'a', true)],
    ]) {
        let id;
        await does(message, async () => { id = await add(); });
        await write();
        await until(() => isDeepStrictEqual([...heard].sort(), wanted));
        await is(message, wanted, () => [...heard].sort());
        await is('Map.removeEntryListener', true, () => map.removeEntryListener(id));
        heard.length = 0;
    }
    await write();
    await is('Map.removeEntryListener', [], () => heard);

    // Objects.
    const own = `${name} of its own`;
    const events = [];
    const id = await client.addDistributedObjectListener((event) => {
        if (event.objectName === own) events.push(event.eventType);
    });
    const opened = await client.getMap(own);
    await is('Client.getDistributedObjects', true,
        async () => (await client.getDistributedObjects()).some((one) => one.getName() === own));
    await does('Client.destroyProxy', () => opened.destroy());
    await is('Client.addDistributedObjectListener', true,
        () => until(() => isDeepStrictEqual(events, ['created', 'destroyed'])));
    await is('Client.removeDistributedObjectListener', true, () => client.removeDistributedObjectListener(id));

    const ring = await client.getRingbuffer(`${name} ring`);
    await is('Ringbuffer.add', 0, async () => Number(await ring.add('a')));
    await is('Ringbuffer.addAll', 2, async () => Number(await ring.addAll(['b', 'c'])));
    await is('Ringbuffer.size', 3, async () => Number(await ring.size()));
    await is('Ringbuffer.headSequence', 0, async () => Number(await ring.headSequence()));
    await is('Ringbuffer.tailSequence', 2, async () => Number(await ring.tailSequence()));
    await is('Ringbuffer.capacity', 10000, async () => Number(await ring.capacity()));
    await is('Ringbuffer.remainingCapacity', 10000, async () => Number(await ring.remainingCapacity()));
    await is('Ringbuffer.readOne', 'b', () => ring.readOne(1));
    await is('Ringbuffer.readMany', ['b', 'c'], async () => {
        const found = await ring.readMany(1, 1, 10);
        return [found.get(0), found.get(1)];
    });
    const topic = await client.getReliableTopic(`${name} topic`);
    const news = [];
    const listening = topic.addMessageListener((message) => news.push(message.messageObject));
    await does('Ringbuffer.add', () => topic.publish('a'));
    await until(() => news.length === 1);
    await is('Ringbuffer.readMany', ['a'], () => news);
    await is('Ringbuffer.readMany', true, () => topic.removeMessageListener(listening));
    const everywhere = await client.getReplicatedMap(`${name} map`);
    await is('ReplicatedMap.put', null, () => everywhere.put('k', 1, 0));
    await is('ReplicatedMap.get', 1, () => everywhere.get('k'));
    await does('ReplicatedMap.putAll', () => everywhere.putAll([['l', 3]]));
    await is('ReplicatedMap.size', 2, () => everywhere.size());
    await is('ReplicatedMap.containsKey', true, () => everywhere.containsKey('l'));
    await is('ReplicatedMap.containsValue', false, () => everywhere.containsValue(7));
    await is('ReplicatedMap.keySet', ['k', 'l'], async () => (await everywhere.keySet()).sort());
    await is('ReplicatedMap.values', [1, 3], async () => [...(await everywhere.values())].sort());
    await is('ReplicatedMap.entrySet', 2, async () => (await everywhere.entrySet()).length);
    await is('ReplicatedMap.remove', 3, () => everywhere.remove('l'));
    await does('ReplicatedMap.clear', () => everywhere.clear());
    await is('ReplicatedMap.isEmpty', true, () => everywhere.isEmpty());
    const counter = await client.getPNCounter(`${name} counter`);
    await is('PNCounter.add', 5, async () => Number(await counter.addAndGet(5)));
    await is('PNCounter.get', 5, async () => Number(await counter.get()));
    const ids = await client.getFlakeIdGenerator(`${name} ids`);
    await is('FlakeIdGenerator.newIdBatch', true, async () => (await ids.newId()).lessThan(await ids.newId()));
    // Locks, and multimaps.
    const locks = async (kind, some) => {
        await does(`${kind}.lock`, () => some.lock('k'));
        await is(`${kind}.isLocked`, true, () => some.isLocked('k'));
        await is(`${kind}.tryLock`, true, () => some.tryLock('k'));
        await does(`${kind}.unlock`, () => some.unlock('k'));
        await is(`${kind}.isLocked`, true, () => some.isLocked('k'));
        await does(`${kind}.forceUnlock`, () => some.forceUnlock('k'));
        await is(`${kind}.isLocked`, false, () => some.isLocked('k'));
    };
    await locks('Map', map);
    const many = await client.getMultiMap('mm');
    await is('MultiMap.put', true, () => many.put('k', 'a'));
    await is('MultiMap.put', false, () => many.put('k', 'a'));
    await does('MultiMap.putAll', () => many.putAll([['k', ['b']], ['l', ['a']]]));
    await is('MultiMap.get', ['a', 'b'], async () => (await many.get('k')).toArray());
    await is('MultiMap.valueCount', 2, () => many.valueCount('k'));
    await is('MultiMap.size', 3, () => many.size());
    await is('MultiMap.keySet', ['k', 'l'], async () => (await many.keySet()).sort());
    await is('MultiMap.values', 3, async () => (await many.values()).size());
    await is('MultiMap.entrySet', 3, async () => (await many.entrySet()).length);
    await is('MultiMap.containsKey', false, () => many.containsKey('x'));
    await is('MultiMap.containsValue', true, () => many.containsValue('b'));
    await is('MultiMap.containsEntry', false, () => many.containsEntry('l', 'b'));
    await is('MultiMap.removeEntry', true, () => many.remove('k', 'a'));
    await is('MultiMap.remove', ['b'], async () => (await many.removeAll('k')).toArray());
    await does('MultiMap.clear', () => many.clear());
    await locks('MultiMap', many);
    await does('Client.destroyProxy', () => many.destroy());

    // What Holdfast has not got: the user sees why.
    await does('Map.addIndex', () => map.addIndex({ type: 'HASH', attributes: ['a'] }));
    await does('Map.executeOnKey, other objects', () => map.executeOnKey('k', 'code'));
    await does('Map.executeOnKeys, other objects', () => map.executeOnKeys(['k'], 'code'));
    await does('Map.executeOnAllKeys, other objects', () => map.executeOnEntries('code'));
    await does('Map.executeWithPredicate, other objects', () => map.executeOnEntries('code', always));
    await does('Map.aggregate', () => map.aggregate(Aggregators.count()));
    await does('Map.aggregateWithPredicate', () => map.aggregateWithPredicate(Aggregators.count(), always));
    const other = Predicates.sql('this > 1');
    await does('Map.keySetWithPredicate, other predicates', () => map.keySetWithPredicate(other));
    await does('Map.addEntryListenerWithPredicate, other predicates',
        () => map.addEntryListenerWithPredicate(ears, other, undefined, true));
    const paging = Predicates.paging(always, 3);
    await does('Map.keySetWithPagingPredicate', () => map.keySetWithPredicate(paging));
    await does('Map.valuesWithPagingPredicate', () => map.valuesWithPredicate(paging));
    await does('Map.entriesWithPagingPredicate', () => map.entrySetWithPredicate(paging));

    // Structures.
    const cp = client.getCPSubsystem();
    const long = await cp.getAtomicLong('n');
    await is('AtomicLong.addAndGet', '7', async () => String(await long.addAndGet(7)));
    await is('AtomicLong.get', '7', async () => String(await long.get()));
    await is('AtomicLong.compareAndSet', true, () => long.compareAndSet(7, 8));
    const reference = await cp.getAtomicReference('r');
    await is('AtomicRef.set', null, async () => { await reference.set('a'); return null; });
    await is('AtomicRef.get', 'a', () => reference.get());
    await is('AtomicRef.compareAndSet', true, () => reference.compareAndSet('a', 'b'));
    const latch = await cp.getCountDownLatch('l');
    await is('CountDownLatch.trySetCount', true, () => latch.trySetCount(1));
    await does('CountDownLatch.countDown', () => latch.countDown());
    await is('CountDownLatch.getCount', 0, () => latch.getCount());
    await is('CountDownLatch.await', true, () => latch.await(1000));
    const lock = await cp.getLock('f');
    let fence;
    await is('FencedLock.lock', true, async () => { fence = await lock.lock(); return fence !== undefined; });
    await is('FencedLock.getLockOwnership', true, () => lock.isLocked());
    await does('FencedLock.unlock', () => lock.unlock(fence));
    const semaphore = await cp.getSemaphore('s');
    await is('Semaphore.init', true, () => semaphore.init(2));
    await does('Semaphore.acquire', () => semaphore.acquire());
    await is('Semaphore.availablePermits', 1, () => semaphore.availablePermits());
    await does('Semaphore.release', () => semaphore.release());
    await does('Sql', () => client.getSql().execute('SELECT 1'));
    return found;
};
