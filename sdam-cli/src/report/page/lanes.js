
// The lanes: a canvas that is drawn at most once a frame.
const AXIS = 26, SET = 42, LANE = 84, BAND = 17, NAME = 17, RTT = 30, PAD = 9;
const view = { from: 0, width: Math.max(data.span, 1), selected: -1, hover: null };
const canvas = element('canvas'), context = canvas.getContext('2d'), plot = element('plot');
let colours = {}, hatch = null, scale = 1, wide = 1, drawn = 0, scheduled = false;

const top_ = row => AXIS + (row < 0 ? 0 : SET + row * LANE);
const x = at => PAD + (at - view.from) / view.width * (wide - 2 * PAD);
const at = x => view.from + (x - PAD) / Math.max(wide - 2 * PAD, 1) * view.width;

function schedule() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => { scheduled = false; draw(); });
}

/** Adapts to the size and the colours of the page. */
function adapt() {
  const style = getComputedStyle(root);
  for (const name of ['bg', 'fg', 'muted', 'line', 's1', 's2', 's3', 's4', 's5', 'on1', 'on2', 'curve', 'area', 'outage', 'clear', 'focus']) {
    colours[name] = style.getPropertyValue('--' + name).trim();
  }
  scale = devicePixelRatio || 1;
  wide = plot.clientWidth;
  const high = top_(shown.length) + 4;
  canvas.width = Math.round(wide * scale);
  canvas.height = Math.round(high * scale);
  canvas.style.height = high + 'px';
  const tile = document.createElement('canvas').getContext('2d');
  tile.canvas.width = tile.canvas.height = 8;
  tile.strokeStyle = colours.bg; tile.lineWidth = 2; tile.globalAlpha = 0.45;
  for (const shift of [-8, 0, 8]) { tile.beginPath(); tile.moveTo(shift, 8); tile.lineTo(shift + 8, 0); tile.stroke(); }
  hatch = context.createPattern(tile.canvas, 'repeat');
  schedule();
}

function draw() {
  const start = performance.now();
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, wide, canvas.height);
  context.font = '12px system-ui, "DejaVu Sans", sans-serif';
  const bottom = top_(shown.length);
  drawSpans(bottom);
  drawAxis(bottom);
  drawBands(set, null, top_(-1) + NAME);
  shown.forEach((lane, row) => drawLane(lane, top_(row)));
  if (view.hover !== null) line(view.hover, bottom, colours.muted, 1);
  if (view.selected >= 0) line(x(rows.at[view.selected]), bottom, colours.focus, 2);
  element('range').textContent = clock(view.from, view.width / 100) + ' \u2013 ' + clock(view.from + view.width, view.width / 100) + ' (' + duration(view.width) + ')';
  drawn++;
  root.dataset.drawn = String(drawn);
  root.dataset.frameMs = (performance.now() - start).toFixed(2);
}

function line(x, bottom, colour, width) {
  context.fillStyle = colour;
  context.fillRect(x - width / 2, AXIS - 6, width, bottom);
}

/** Draws times without a primary, and pauses of the recorder, behind the lanes. */
function drawSpans(bottom) {
  for (const [from, to, label] of data.changes) {
    const left = x(from), width = Math.max(x(to) - left, 1 / scale);
    if (left > wide || left + width < 0) continue;
    context.fillStyle = colours.outage;
    context.fillRect(left, AXIS, width, bottom - AXIS);
    context.fillStyle = colours.s5;
    context.fillRect(left, AXIS - 3, Math.max(width, 2), 3);
    if (context.measureText(label).width < width - 8 && left > 60) {
      context.fillText(label, left + 4, AXIS + 13);
    }
  }
  for (const [from, to] of data.gaps) {
    context.fillStyle = colours.line;
    context.fillRect(x(from), AXIS, x(to) - x(from), bottom - AXIS);
    context.fillStyle = hatch;
    context.fillRect(x(from), AXIS, x(to) - x(from), bottom - AXIS);
  }
}

function drawAxis(bottom) {
  const wanted = view.width / Math.max(wide / 110, 1), power = 10 ** Math.floor(Math.log10(wanted));
  const clockSteps = [15e6, 30e6, 6e7, 12e7, 3e8, 6e8, 9e8, 18e8, 36e8, 72e8, 108e8, 216e8, 432e8, 864e8];
  const step = wanted > 1e7 ? clockSteps.find(step => step >= wanted) || power * 10
    : Math.max(1, [1, 2, 5, 10].map(factor => factor * power).find(step => step >= wanted));
  const origin = data.epoch === null ? 0 : data.epoch % 864e8;
  for (let tick = Math.ceil((view.from + origin) / step) * step - origin; tick <= view.from + view.width; tick += step) {
    context.fillStyle = colours.line;
    context.fillRect(x(tick), AXIS - 6, 1, bottom);
    context.fillStyle = colours.muted;
    if (x(tick) > 2 && x(tick) < wide - 60) context.fillText(clock(tick, step), x(tick) + 4, 14);
  }
}

/** Returns the level whose buckets are narrower than a pixel, if the lane has one. */
function levelFor(lane) {
  return lane.levels.find(level => data.span / 2 ** level.bits / view.width * wide * scale <= 1);
}

/** Draws the states; one that hurts is at least a pixel wide at every zoom, and drawn last. */
function drawBands(lane, level, top) {
  const pieces = [], hurting = [];
  const add = (from, to, state, name) => {
    const left = Math.max(x(from), 0), right = Math.min(x(to), wide);
    if (right < 0 || left > wide || state === 0) return;
    const piece = [left, Math.max(right - left, state >= UNDISCOVERED ? 1 : 0), state, name];
    const into = state >= UNDISCOVERED ? hurting : pieces, last = into[into.length - 1];
    // Neighbours of one state are one piece, without seams.
    if (last && last[2] === state && last[3] === name && left <= last[0] + last[1] + 0.01) {
      last[1] = Math.max(last[1], left + piece[1] - last[0]);
    } else into.push(piece);
  };
  if (level) {
    const bucket = data.span / 2 ** level.bits;
    let i = Math.max(search(level.count, k => level.index[k] * bucket, view.from) - 1, 0);
    for (; i < level.count && level.index[i] * bucket <= view.from + view.width; i++) {
      const from = level.index[i] * bucket, next = i + 1 < level.count ? level.index[i + 1] * bucket : data.span;
      if (level.worst[i] !== level.last[i]) add(from, from + bucket, level.worst[i]);
      add(from, next, level.last[i]);
    }
  } else {
    const { at, state, name } = lane.bands, count = state.length;
    for (let i = Math.max(search(count, k => at[k], view.from) - 1, 0); i < count && at[i] <= view.from + view.width; i++) {
      add(at[i], at[i + 1], state[i], name[i]);
    }
  }
  for (const [left, width, state, name] of pieces.concat(hurting)) {
    context.fillStyle = colours['s' + state];
    context.fillRect(left, top, width, BAND);
    if (state === LOST) { context.fillStyle = hatch; context.fillRect(left, top, width, BAND); }
    const label = name === undefined ? data.states[state] : lane === set && state === LOST ? 'none' : data.strings[name];
    if (width > 34 && context.measureText(label).width < width - 8) {
      if (state === LOST) { context.fillStyle = colours.s5; context.fillRect(left + 3, top + 1, context.measureText(label).width + 4, BAND - 2); }
      context.fillStyle = state === 2 || state === 4 ? colours.on2 : colours.on1;
      context.fillText(label, left + 5, top + 13);
    }
  }
}

function drawLane(lane, top) {
  const level = levelFor(lane), marks = marksOf(lane, level);
  context.fillStyle = colours.line;
  context.fillRect(0, top - 1, wide, 1);
  drawBands(lane, level, top + NAME);
  drawCurve(marks, top + NAME + BAND + 4);
  const base = top + LANE - 14;
  context.fillStyle = colours.muted;
  runs(marks.heartbeats, (left, width) => context.fillRect(left, base + 6, width, 4));
  context.fillStyle = colours.s5;
  runs(marks.failed, (left, width) => context.fillRect(left - 0.5, base, width + 1, 10));
  context.fillStyle = colours.clear;
  let last = -9;
  marks.clears.forEach((count, pixel) => {
    if (!count || pixel - last < 4) return;
    last = pixel;
    const middle = pixel / scale, y = top + NAME + BAND / 2;
    context.beginPath(); context.moveTo(middle, y - 8); context.lineTo(middle + 6, y); context.lineTo(middle, y + 8); context.lineTo(middle - 6, y);
    context.fill(); context.strokeStyle = colours.bg; context.stroke();
  });
}

/** Calls `draw` with the left end and the width of each run of pixels in which something happens. */
function runs(marks, draw) {
  for (let pixel = 0; pixel < marks.length; pixel++) {
    if (!marks[pixel]) continue;
    const first = pixel;
    while (marks[pixel + 1]) pixel++;
    draw(first / scale, Math.max((pixel + 1 - first) / scale, 1));
  }
}

/** Counts what happens in each device pixel of a lane. */
function marksOf(lane, level) {
  const count = Math.ceil(wide * scale), array = () => new Float64Array(count);
  const marks = { heartbeats: array(), failed: array(), clears: array(), fastest: array(), slowest: array() };
  const add = (at, heartbeats, failed, clears, fastest, slowest) => {
    const pixel = Math.floor(x(at) * scale);
    if (pixel < 0 || pixel >= count) return;
    marks.heartbeats[pixel] += heartbeats; marks.failed[pixel] += failed; marks.clears[pixel] += clears;
    if (slowest) {
      marks.slowest[pixel] = Math.max(marks.slowest[pixel], slowest);
      marks.fastest[pixel] = marks.fastest[pixel] ? Math.min(marks.fastest[pixel], fastest) : fastest;
    }
  };
  const end = view.from + view.width;
  if (level) {
    const bucket = data.span / 2 ** level.bits;
    for (let i = search(level.count, k => level.index[k] * bucket, view.from); i < level.count && level.index[i] * bucket <= end; i++) {
      add(level.index[i] * bucket, level.heartbeats[i], level.failed[i], level.clears[i], level.fastest[i], level.slowest[i]);
    }
  } else {
    for (let i = search(lane.rows.length, k => rows.at[lane.rows[k]], view.from); i < lane.rows.length; i++) {
      const row = lane.rows[i], kind = rows.kind[row], rtt = Math.max(rows.rtt[row] - 1, 0);
      if (rows.at[row] > end) break;
      add(rows.at[row], kind === KIND.heartbeat, kind === KIND.failed, kind === KIND.cleared, rtt, rtt);
    }
  }
  return marks;
}

/** Draws the range of the round-trip times, and their middle as a curve that failures interrupt. */
function drawCurve(marks, top) {
  const highest = marks.slowest.reduce((a, b) => Math.max(a, b), 0);
  if (!highest) return;
  const y = rtt => top + RTT - rtt / highest * (RTT - 4);
  context.fillStyle = colours.area;
  let last = null;
  const curve = new Path2D();
  marks.slowest.forEach((slowest, pixel) => {
    if (marks.failed[pixel]) last = null;
    if (!slowest) return;
    const left = pixel / scale, middle = y((slowest + marks.fastest[pixel]) / 2);
    context.fillRect(left, y(slowest), 1 / scale, Math.max(y(marks.fastest[pixel]) - y(slowest), 1));
    if (last === null) { curve.rect(left, middle, 1, 1); curve.moveTo(left, middle); } else curve.lineTo(left, middle);
    last = pixel;
  });
  context.strokeStyle = colours.curve; context.lineWidth = 1.3; context.stroke(curve); context.lineWidth = 1;
  const label = 'RTT up to ' + duration(highest);
  context.fillStyle = colours.muted;
  context.fillText(label, wide - context.measureText(label).width - 6, top - BAND - 8);
}

/** Moves the view, within the span. */
function show(from, width) {
  view.width = Math.min(Math.max(width, 20), Math.max(data.span, 1));
  view.from = Math.min(Math.max(from, 0), Math.max(data.span, 1) - view.width);
  schedule();
  remember();
}

function zoom(factor, at) {
  const width = Math.min(Math.max(view.width * factor, 20), Math.max(data.span, 1));
  show(at - (at - view.from) * width / view.width, width);
}
