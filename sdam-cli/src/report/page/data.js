
'use strict';
// The data: columns of numbers, see columns.rs. Times are microseconds since the start.
const root = document.documentElement;
root.dataset.errors = '0';
addEventListener('error', () => { root.dataset.errors = String(Number(root.dataset.errors) + 1); });

const element = id => document.getElementById(id);
const data = JSON.parse(element('data').textContent);

/** Returns the numbers of a column. */
function numbers(text) {
  const bytes = atob(text), all = [];
  let value = 0, factor = 1;
  for (let i = 0; i < bytes.length; i++) {
    const byte = bytes.charCodeAt(i);
    value += (byte & 127) * factor;
    if (byte < 128) { all.push(value); value = 0; factor = 1; } else { factor *= 128; }
  }
  return all;
}

/** Replaces differences by sums. */
function sums(values) {
  let sum = 0;
  return Float64Array.from(values, value => sum += value);
}

/** Returns the bands of a lane: starts, states, names; a last start ends them. */
function bandsOf(text) {
  const flat = numbers(text), at = [], state = [], name = [];
  let from = 0;
  for (let i = 0; i < flat.length; i += 3) {
    from += flat[i];
    at.push(from); state.push(flat[i + 1]); name.push(flat[i + 2]);
  }
  at.push(data.span);
  return { at, state, name };
}

/** Returns a level: 8 arrays, see levels.rs. */
function levelOf({ bits, data: text }) {
  const flat = numbers(text), count = flat.length / 8;
  const [index, heartbeats, failed, clears, fastest, slowest, worst, last] =
    Array.from({ length: 8 }, (_, field) => Float64Array.from({ length: count }, (_, i) => flat[8 * i + field]));
  for (let i = 1; i < count; i++) index[i] += index[i - 1];
  return { bits, count, index, heartbeats, failed, clears, fastest, slowest, worst, last };
}

const rows = {
  count: data.rows.count,
  at: sums(numbers(data.rows.at)),
  line: sums(numbers(data.rows.line)),
  kind: Uint8Array.from(numbers(data.rows.kind)),
  lane: Uint16Array.from(numbers(data.rows.lane)),
  text: Uint32Array.from(numbers(data.rows.text)),
  // 0 is absent, otherwise one more than the microseconds.
  time: Float64Array.from(numbers(data.rows.time)),
  rtt: Float64Array.from(numbers(data.rows.rtt)),
};
const KIND = { heartbeat: 2, failed: 3, cleared: 5 };
const LOST = 5, UNDISCOVERED = 4;

const set = { name: '', bands: bandsOf(data.set) };
const lanes = data.lanes.map(lane => ({ name: lane.name, bands: bandsOf(lane.bands), levels: lane.levels.map(levelOf), rows: [] }));
for (let i = 0; i < rows.count; i++) {
  if (rows.lane[i]) lanes[rows.lane[i] - 1].rows.push(i);
}
const shown = data.order.map(index => lanes[index]);

/** The problems in order: losses of servers, times without a primary, failed operations. */
const problems = [];
for (const [from] of data.changes) problems.push(from);
for (let i = 0; i < rows.count; i++) if (data.problems[rows.kind[i]]) problems.push(rows.at[i]);
problems.sort((a, b) => a - b);

/** Returns the first index in 0..count whose value is not less than `wanted`. */
function search(count, value, wanted) {
  let low = 0, high = count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (value(middle) < wanted) low = middle + 1; else high = middle;
  }
  return low;
}

/** Returns microseconds as a duration, as duration.rs does. */
function duration(micros) {
  const ms = micros / 1000, s = ms / 1000, two = number => String(Math.floor(number)).padStart(2, '0');
  if (!ms) return '0 s';
  if (ms < 1) return ms.toFixed(2) + ' ms';
  if (ms < 100) return ms.toFixed(1) + ' ms';
  if (ms < 1000) return ms.toFixed(0) + ' ms';
  if (s < 10) return s.toFixed(3) + ' s';
  if (s < 120) return s.toFixed(1) + ' s';
  if (s < 7200) return Math.floor(s / 60) + ' min ' + two(s % 60) + ' s';
  return Math.floor(s / 3600) + ' h ' + two(s / 60 % 60) + ' min';
}

/** Returns a time of day with as many digits as `step` microseconds need; without one, from the start. */
function clock(at, step) {
  const digits = step >= 1e6 ? 0 : step >= 1e5 ? 1 : step >= 1e4 ? 2 : step >= 1e3 ? 3 : 6;
  if (data.epoch === null) return '+' + (at / 1e6).toFixed(digits) + ' s';
  const micros = data.epoch + Math.round(at), day = new Date(Math.floor(micros / 1000)).toISOString().slice(11, 19);
  return digits ? day + '.' + String(micros % 1e6).padStart(6, '0').slice(0, digits) : day;
}
