'use strict';
// One scenario with the Node.js client: `node client.cjs SCENARIO OPTIONS`, where OPTIONS is a JSON object with at least
// `addresses`. What was seen goes to standard output as one JSON object; a line "now" says that the scenario waits for a
// line on standard input.
const { Aggregators, Client, Predicates } = require('hazelcast-client');
const { readFileSync } = require('node:fs');
const readline = require('node:readline');

const [scenario, text] = process.argv.slice(2);
const options = JSON.parse(text);

// INTEROP_TLS_CA, INTEROP_TLS_CERT and INTEROP_TLS_KEY name files; INTEROP_USER and INTEROP_PASSWORD say who it is.
function tls() {
    const file = (name) => process.env[name] && readFileSync(process.env[name]);
    const ca = file('INTEROP_TLS_CA');
    const own = { cert: file('INTEROP_TLS_CERT'), key: file('INTEROP_TLS_KEY') };
    return ca ? { ssl: { enabled: true, sslOptions: { ca, ...own, servername: 'localhost' } } } : {};
}

function connect() {
    return Client.newHazelcastClient({
        clusterName: options.clusterName ?? 'dev',
        network: { clusterMembers: options.addresses, smartRouting: options.smart ?? true, ...tls() },
        connectionStrategy: { connectionRetry: { clusterConnectTimeoutMillis: options.patience ?? 20000 } },
        security: options.security ?? (process.env.INTEROP_USER && {
            usernamePassword: { username: process.env.INTEROP_USER, password: process.env.INTEROP_PASSWORD },
        }),
        nearCaches: options.near ? { [options.map]: { invalidateOnChange: true } } : {},
        properties: { 'hazelcast.logging.level': 'OFF', 'hazelcast.invalidation.max.tolerated.miss.count': 0 },
    });
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
async function until(question, ms = 10000) {
    const deadline = Date.now() + ms;
    while (!(await question()) && Date.now() < deadline) await pause(20);
}
async function refusal(call) {
    try {
        await call();
        return null;
    } catch (error) {
        return { name: error.constructor.name, message: error.message };
    }
}

const scenarios = {
    table: (client) => require('./calls.cjs')(client, options.map),

    async calls(client) {
        const map = await client.getMap(options.map);
        const seen = {};
        seen.put = [await map.put('k', 1), await map.put('k', 2)];
        seen.get = [await map.get('k'), await map.get('none')];
        seen.contains = [await map.containsKey('k'), await map.containsKey('none'), await map.containsValue(2)];
        seen.remove = [await map.remove('k'), await map.remove('k')];
        await map.set('k', { delay: 11 });
        seen.object = await map.get('k');
        seen.delete = [await map.delete('k'), await map.get('k')];
        seen.conditions = [
            await map.replace('c', 1), await map.putIfAbsent('c', 1), await map.putIfAbsent('c', 2),
            await map.replace('c', 3), await map.replaceIfSame('c', 1, 4), await map.replaceIfSame('c', 3, 4),
            await map.tryPut('c', 5, 0), await map.tryRemove('c', 0), await map.tryRemove('c', 0),
        ];
        await map.set('e', 1);
        seen.evict = [await map.evict('e'), await map.evict('e')];
        seen.empty = [await map.isEmpty(), await map.size()];
        await map.putAll(Array.from({ length: 300 }, (_, i) => [i, `v${i}`]));
        seen.sizes = [
            await map.size(), (await map.getAll([1, 2, 3, 999])).length, [...(await map.keySet())].length,
            [...(await map.values())].length, (await map.entrySet()).length,
            [...(await map.keySetWithPredicate(Predicates.alwaysTrue()))].length,
        ];
        seen.all = (await map.getAll([1, 2])).sort();
        await map.put('timed', 1, 300);
        await map.put('kept', 1, 60000, 30000);
        const view = await map.getEntryView('kept');
        seen.view = [view.key, view.value, view.ttl.toNumber(), view.maxIdle.toNumber()];
        seen.setTtl = [await map.setTtl('kept', 90000), (await map.getEntryView('kept')).ttl.toNumber(),
            await map.getEntryView('none')];
        await pause(700);
        seen.timed = [await map.get('timed'), await map.get('kept')];
        await map.clear();
        seen.cleared = await map.size();
        seen.objects = (await client.getDistributedObjects()).map((object) => object.getName()).includes(options.map);
        await map.destroy();
        return seen;
    },

    async listeners(client) {
        const map = await client.getMap(options.map);
        const heard = [];
        const note = (kind) => (event) => heard.push([kind, event.key, event.value, event.oldValue]);
        const id = await map.addEntryListener({
            added: note('added'), updated: note('updated'), removed: note('removed'), evicted: note('evicted'),
            expired: note('expired'), mapCleared: (event) => heard.push(['cleared', event.numberOfAffectedEntries]),
        }, undefined, true);
        await map.put('a', 1);
        await map.put('a', 2);
        await map.remove('a');
        await map.put('b', 3, 300);
        await until(() => heard.length === 5);
        await map.putAll([[1, 1], [2, 2]]);
        await map.clear();
        await until(() => heard.length === 8);
        const removed = await map.removeEntryListener(id);
        await map.put('c', 1);
        await pause(100);
        await map.destroy();
        return { heard, removed };
    },

    async near(client) {
        const map = await client.getMap(options.map);
        options.near = false;
        const other = await connect();
        const plain = await other.getMap(options.map);
        const count = 200;
        const statistics = () => map.nearCache.getStatistics();
        const write = async (letter) => {
            for (let i = 0; i < count; i++) await plain.set(i, letter + i);
        };
        const read = async (letter) => {
            let right = 0;
            for (let i = 0; i < count; i++) right += (await map.get(i)) === letter + i ? 1 : 0;
            return right;
        };
        await write('a');
        await read('a');
        const before = statistics();
        const again = await read('a');
        const hits = statistics().hitCount - before.hitCount;
        await write('b');
        await until(() => statistics().entryCount === 0);
        const changed = await read('b');
        await plain.clear();
        await until(() => statistics().entryCount === 0);
        const cleared = await map.get(1);
        await other.shutdown();
        return { again, hits, changed, cleared };
    },

    async unsupported(client) {
        const map = await client.getMap(options.map);
        return [
            await refusal(() => map.addIndex({ type: 'HASH', attributes: ['a'] })),
            await refusal(() => map.aggregate(Aggregators.count())),
            await refusal(() => map.valuesWithPredicate(Predicates.sql('this > 1'))),
            await refusal(() => client.getSql().execute('SELECT 1')),
        ];
    },

    // Writes until told to stop, whatever happens to members, then reads everything back.
    async loss(client) {
        const map = await client.getMap(options.map);
        const acknowledged = {};
        const unknown = {};
        let stop = false;
        const lines = readline.createInterface({ input: process.stdin });
        lines.once('line', () => { stop = true; lines.close(); });
        let number = 0;
        for (; number < 200; number++) {
            await map.set(`key ${number % 97}`, number);
            acknowledged[`key ${number % 97}`] = number;
        }
        console.log('now');
        let after = 0;
        while (!stop || after < 300) {
            number++;
            const key = `key ${number % 97}`;
            try {
                await map.set(key, number);
                acknowledged[key] = number;
                delete unknown[key];
                if (stop) after++;
            } catch (error) {
                unknown[key] = number;
            }
        }
        const wrong = [];
        for (const [key, value] of Object.entries(acknowledged)) {
            const found = await map.get(key);
            if (found !== value && found !== unknown[key]) wrong.push([key, value, found]);
        }
        return { acknowledged: number, unknown: Object.keys(unknown).length, wrong };
    },

    // One write in each of the steps that the other side prepares, and what became of each.
    async outcomes(client) {
        const map = await client.getMap(options.map);
        const lines = readline.createInterface({ input: process.stdin })[Symbol.asyncIterator]();
        const seen = [];
        for (const value of ['first', 'second', 'third']) {
            console.log('now');
            await lines.next();
            seen.push(await refusal(() => map.put(options.key, value)));
            seen.push(await map.get(options.key));
        }
        return seen;
    },

    async login(client) {
        const map = await client.getMap('flights');
        await map.set('k', 'v');
        return await map.get('k');
    },
};

(async () => {
    let client;
    try {
        client = await connect();
    } catch (error) {
        console.log(JSON.stringify({ refused: error.message }));
        return;
    }
    const seen = await scenarios[scenario](client);
    await client.shutdown();
    console.log(JSON.stringify({ seen }));
})().catch((error) => {
    console.error(error);
    process.exit(1);
});
