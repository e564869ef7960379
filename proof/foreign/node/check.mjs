// Lets the Node.js driver discover, follow, write to and read from the simulated deployment.
//
// usage: node check.mjs PATH_OF_THE_SERVE_EXAMPLE
//
// There are no sleeps: every wait is for an event published by the driver, with a deadline.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { MongoClient } from 'mongodb';

const SDAM = process.argv[2];
const WIRE = { 4.4: 9, '5.0': 13, '6.0': 17, '7.0': 21, '8.0': 25 };
const DEADLINE = 15000;

/** A deployment in a separate process. */
class Serve {
  static async start(...args) {
    const serve = new Serve();
    serve.process = spawn(SDAM, ['serve', ...args], { stdio: ['pipe', 'pipe', 'inherit'] });
    serve.lines = createInterface({ input: serve.process.stdout })[Symbol.asyncIterator]();
    serve.uri = (await serve.lines.next()).value;
    return serve;
  }

  async do(command) {
    this.process.stdin.write(`${command}\n`);
    const answer = [];
    for (;;) {
      const { value, done } = await this.lines.next();
      assert(!done, `serve ended at ${command}`);
      assert(!value.startsWith('error'), `${command}: ${value}`);
      if (value === 'ok') return answer;
      answer.push(value);
    }
  }

  stop() {
    this.process.kill('SIGKILL');
  }
}

/** A client and its view of the deployment. */
class Watched {
  constructor(uri, options = {}) {
    this.client = new MongoClient(uri, {
      heartbeatFrequencyMS: 500,
      serverSelectionTimeoutMS: DEADLINE,
      connectTimeoutMS: 1000,
      ...options
    });
    this.waiting = [];
    this.client.on('topologyDescriptionChanged', event => {
      this.description = event.newDescription;
      this.waiting.forEach(test => test());
    });
    this.client.on('serverHeartbeatSucceeded', event => {
      this.awaited ||= event.awaited;
      this.waiting.forEach(test => test());
    });
  }

  ofType(type) {
    const servers = [...(this.description?.servers.values() ?? [])];
    return servers.filter(server => server.type === type).map(server => server.address);
  }

  get primary() {
    return this.ofType('RSPrimary')[0];
  }

  whole(secondaries = 2) {
    return this.primary !== undefined && this.ofType('RSSecondary').length === secondaries;
  }

  until(what, predicate) {
    return new Promise((resolve, reject) => {
      const test = () => {
        if (!predicate()) return;
        clearTimeout(timer);
        this.waiting = this.waiting.filter(other => other !== test);
        resolve();
      };
      const timer = setTimeout(
        () => reject(new Error(`the driver never saw ${what}; it sees ${JSON.stringify(this.description)}`)),
        DEADLINE
      );
      this.waiting.push(test);
      test();
    });
  }

  async writeAndRead(text) {
    const things = this.client.db('test').collection('things');
    const { insertedId } = await things.insertOne({ text });
    assert.equal((await things.findOne({ _id: insertedId })).text, text);
    const secondary = this.client.db('test').collection('things', { readPreference: 'secondaryPreferred' });
    assert.equal((await secondary.findOne({ _id: insertedId })).text, text);
  }
}

async function deployment(args, check, options) {
  const serve = await Serve.start(...args);
  const watched = new Watched(serve.uri, options);
  try {
    await watched.client.connect();
    await check(serve, watched);
  } finally {
    await watched.client.close();
    serve.stop();
  }
}

async function replicaSet(version) {
  await deployment(['--replica-set', '3', '--version', version], async (serve, watched) => {
    await watched.until('the whole set', () => watched.whole());
    assert.equal(watched.description.type, 'ReplicaSetWithPrimary');
    for (const server of watched.description.servers.values()) {
      assert.equal(server.maxWireVersion, WIRE[version]);
      assert(server.topologyVersion != null);
    }
    await watched.writeAndRead('before');
    const first = watched.primary;
    await serve.do('stepdown');
    await watched.until('another primary', () => watched.primary && watched.primary !== first);
    await watched.writeAndRead('after the step-down');
    await watched.until('the whole set again', () => watched.whole());
    const second = watched.primary;
    await serve.do('kill primary');
    // This driver does not retry a write to a socket that was just closed.
    await watched.until('no primary', () => watched.primary !== second);
    await watched.writeAndRead('during the failover');
    await watched.until('a third primary', () => watched.primary && watched.primary !== second);
    const dead = (await serve.do('status')).find(line => line.includes(' down ')).split(' ')[0];
    await serve.do(`restart ${dead}`);
    await watched.until('the dead member back', () => watched.whole());
    await watched.until('a streamed heartbeat', () => watched.awaited);
  });
}

async function splitBrain() {
  await deployment(['--replica-set', '3'], async (serve, watched) => {
    await watched.until('the whole set', () => watched.whole());
    const old = watched.primary;
    await serve.do('splitbrain');
    await watched.until('the newer primary', () => watched.primary && watched.primary !== old);
    await watched.writeAndRead('to the newer primary');
    await serve.do('heal');
    await watched.until('the whole set', () => watched.whole());
    assert.notEqual(watched.primary, old);
  });
}

async function roleChanges() {
  await deployment(['--replica-set', '3'], async (serve, watched) => {
    await watched.until('the whole set', () => watched.whole());
    await serve.do('reconfig 2 priority=0 hidden=on');
    await watched.until('the member hidden', () => watched.description.servers.size === 2);
    await serve.do('reconfig 2 hidden=off');
    await watched.until('the member shown', () => watched.whole());
    await serve.do('maintenance 1 on');
    await watched.until('the member in maintenance', () => watched.ofType('RSOther').length === 1);
    await serve.do('maintenance 1 off');
    await watched.until('the member back', () => watched.whole());
    await serve.do('shutdown 1');
    await watched.until('the member gone', () => watched.ofType('Unknown').length === 1);
    await watched.writeAndRead('after the shutdown');
  });
}

async function failPoints() {
  await deployment(['--replica-set', '3'], async (serve, watched) => {
    await watched.until('the whole set', () => watched.whole());
    await serve.do('failpoint primary commands=insert times=1 code=91');
    await watched.writeAndRead('retried after an error');
    await serve.do('failpoint primary commands=insert times=1 close');
    await watched.writeAndRead('retried after a closed connection');
  });
}

async function sharded() {
  await deployment(['--sharded', '2', '--version', '6.0'], async (serve, watched) => {
    await watched.until('both mongoses', () => watched.ofType('Mongos').length === 2);
    await watched.writeAndRead('through a mongos');
    await serve.do('kill 0');
    await watched.until('one mongos', () => watched.ofType('Mongos').length === 1);
    await watched.writeAndRead('through the other');
    await serve.do('restart 0');
    await watched.until('both mongoses', () => watched.ofType('Mongos').length === 2);
  });
}

async function standalone() {
  const options = { retryWrites: false };
  await deployment(['--standalone'], async (_, watched) => {
    assert.equal(watched.description.type, 'Single');
    await watched.writeAndRead('alone');
  }, options);
}

async function loadBalanced() {
  await deployment(['--load-balanced', '2'], async (_, watched) => {
    assert.equal(watched.description.type, 'LoadBalanced');
    await watched.writeAndRead('balanced');
  });
}

const checks = [
  ...Object.keys(WIRE)
    .sort()
    .map(version => [`replica set of ${version}`, () => replicaSet(version)]),
  ['split brain', splitBrain],
  ['role changes', roleChanges],
  ['fail points', failPoints],
  ['sharded', sharded],
  ['standalone', standalone],
  ['load balanced', loadBalanced]
];
const outcomes = await Promise.all(
  checks.map(async ([name, check]) => {
    const started = performance.now();
    try {
      await check();
      console.log(`ok      ${name} (${((performance.now() - started) / 1000).toFixed(2)} s)`);
      return true;
    } catch (error) {
      console.log(`FAILED  ${name}\n${error.stack}`);
      return false;
    }
  })
);
const passed = outcomes.filter(Boolean).length;
console.log(`Node.js driver: ${passed} of ${checks.length} checks passed`);
process.exit(passed === checks.length ? 0 : 1);
