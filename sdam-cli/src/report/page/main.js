
// Keys, pointers and the fragment: #t=START&w=WIDTH&sel=EVENT, in microseconds.
let wish = null;

/** Keeps the view in the fragment, after the last movement. */
function remember() {
  clearTimeout(wish);
  wish = setTimeout(() => {
    const all = view.from === 0 && view.width >= data.span, parts = [];
    if (!all) parts.push('t=' + Math.round(view.from), 'w=' + Math.round(view.width));
    if (view.selected >= 0) parts.push('sel=' + view.selected);
    history.replaceState(null, '', parts.length ? '#' + parts.join('&') : '#');
  }, 200);
}

function recall() {
  const wanted = new URLSearchParams(location.hash.slice(1)), number = name => Number(wanted.get(name));
  if (number('w') > 0) show(number('t') || 0, number('w'));
  if (wanted.has('sel') && number('sel') >= 0 && number('sel') < rows.count) pick(number('sel'));
}

/** Goes to the next problem in this direction. */
function problem(direction) {
  const here = view.selected >= 0 ? rows.at[view.selected] : direction > 0 ? view.from - 1 : view.from + view.width + 1;
  const after = search(problems.length, i => problems[i], here + 0.5), before = search(problems.length, i => problems[i], here) - 1;
  const time = problems[direction > 0 ? after : before];
  if (time === undefined) return;
  const row = search(rows.count, i => rows.at[i], time);
  let best = row;
  while (best < rows.count && rows.at[best] === time && !data.problems[rows.kind[best]]) best++;
  // An outage that is a sliver of the view fills a part of it.
  const outage = data.changes.find(([from, to]) => from <= time && time <= to), length = outage ? outage[1] - outage[0] : 0;
  if (outage && length < view.width / 20) show(outage[0] - Math.max(length, 1e5) * 2, Math.max(length, 1e5) * 5);
  pick(best < rows.count && rows.at[best] === time ? best : Math.min(row, rows.count - 1));
}

const actions = {
  ArrowLeft: () => show(view.from - view.width / 8, view.width),
  ArrowRight: () => show(view.from + view.width / 8, view.width),
  '+': () => zoom(0.5, view.from + view.width / 2), '=': () => zoom(0.5, view.from + view.width / 2),
  '-': () => zoom(2, view.from + view.width / 2),
  0: () => show(0, data.span), n: () => problem(1), p: () => problem(-1),
};
addEventListener('keydown', event => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target === filter) return;
  const action = actions[event.key];
  if (action) { action(); event.preventDefault(); }
});
for (const [id, key] of [['out', '-'], ['in', '+'], ['all', '0'], ['previous', 'p'], ['next', 'n']]) {
  element(id).addEventListener('click', actions[key]);
}

const tip = element('tip');
let drag = null, pointer = null;
const laneAt = y => y < AXIS + SET ? -1 : Math.min(Math.floor((y - AXIS - SET) / LANE), shown.length - 1);

/** Shows what is under the pointer; called at most once a frame. */
function hover() {
  if (!pointer) return;
  const { px, py } = pointer, lane = laneAt(py), time = at(px);
  pointer = null;
  view.hover = px;
  const { best, others } = nearest(lane, time, view.width / wide * 6), bands = (lane < 0 ? set : shown[lane]).bands;
  const band = Math.max(search(bands.state.length, i => bands.at[i], time + 1e-9) - 1, 0);
  const state = bands.state.length ? data.strings[bands.name[band]] || data.states[bands.state[band]] : '';
  const lines = [clock(time, view.width / wide), (lane < 0 ? 'set' : shown[lane].name) + ': ' + state];
  if (best >= 0) {
    lines.push(clock(rows.at[best], 1e3) + ' ' + data.kinds[rows.kind[best]] + ': ' + textOf(best));
    if (others > 0) lines.push('and ' + others + ' more here');
  }
  tip.textContent = lines.join('\n');
  tip.hidden = false;
  tip.style.left = Math.max(Math.min(px + 14, wide - tip.offsetWidth - 4), 0) + 'px';
  tip.style.top = Math.min(py + 14, canvas.clientHeight - tip.offsetHeight - 4) + 'px';
  schedule();
}

plot.addEventListener('pointermove', event => {
  const box = plot.getBoundingClientRect();
  const first = pointer === null;
  pointer = { px: event.clientX - box.left, py: event.clientY - box.top };
  if (drag && Math.abs(pointer.px - drag.x) > 3) drag.moved = true;
  if (drag && drag.moved) show(drag.from - (pointer.px - drag.x) / wide * view.width, view.width);
  if (first) requestAnimationFrame(hover);
});
plot.addEventListener('pointerdown', event => {
  drag = { x: event.clientX - plot.getBoundingClientRect().left, from: view.from, moved: false };
  plot.setPointerCapture(event.pointerId);
});
plot.addEventListener('pointerup', event => {
  const box = plot.getBoundingClientRect(), px = event.clientX - box.left;
  if (drag && !drag.moved) {
    const { best } = nearest(laneAt(event.clientY - box.top), at(px), view.width / wide * 8);
    if (best >= 0) pick(best);
  }
  drag = null;
});
plot.addEventListener('pointerleave', () => { view.hover = null; tip.hidden = true; schedule(); });
plot.addEventListener('wheel', event => {
  if (!event.ctrlKey && !event.shiftKey && Math.abs(event.deltaY) > Math.abs(event.deltaX) && document.activeElement !== plot) return;
  event.preventDefault();
  if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) show(view.from + event.deltaX / wide * view.width, view.width);
  else zoom(event.deltaY > 0 ? 1.2 : 1 / 1.2, at(event.clientX - plot.getBoundingClientRect().left));
}, { passive: false });

/** Names the lanes. */
function names() {
  ['primary'].concat(shown.map(lane => lane.name)).forEach((name, place) => {
    const box = document.createElement('div');
    box.textContent = name;
    box.style.top = top_(place - 1) + 1 + 'px';
    element('names').append(box);
  });
}

element('view').hidden = false;
element('events').hidden = false;
names();
adapt();
select();
recall();
draw();
new ResizeObserver(() => { if (plot.clientWidth !== wide) { adapt(); fill(); } }).observe(plot);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', adapt);
addEventListener('hashchange', recall);
root.dataset.rows = String(rows.count);
root.dataset.ready = 'true';
