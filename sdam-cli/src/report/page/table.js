
// The list of events: only the rows that can be seen are elements.
const list = element('rows'), pane = element('window'), filter = element('filter'), detail = element('detail');
const visible = new Set(data.kinds.map((_, kind) => kind).filter(kind => kind !== KIND.heartbeat));
let matching = [], rowHeight = 28;

/** Finds the rows of the filter and the kinds. */
function select() {
  const wanted = filter.value.trim().toLowerCase();
  const has = text => text.toLowerCase().includes(wanted);
  const texts = data.strings.map(has), servers = [false].concat(lanes.map(lane => has(lane.name)));
  matching = [];
  for (let i = 0; i < rows.count; i++) {
    if (visible.has(rows.kind[i]) && (!wanted || texts[rows.text[i]] || servers[rows.lane[i]])) matching.push(i);
  }
  element('count').textContent = matching.length.toLocaleString('en') + ' of ' + rows.count.toLocaleString('en') + ' events';
  fill();
}

const serverOf = row => rows.lane[row] ? lanes[rows.lane[row] - 1].name : 'set';

function textOf(row) {
  const time = rows.time[row] ? (rows.kind[row] === KIND.failed ? 'after ' : 'in ') + duration(rows.time[row] - 1) : '';
  const rtt = rows.rtt[row] ? ', RTT ' + duration(rows.rtt[row] - 1) : '', text = data.strings[rows.text[row]];
  return rows.kind[row] === KIND.failed ? time + ': ' + text : time ? text + ' ' + time + rtt : text;
}

/** Makes the elements of the rows in sight. */
function fill() {
  rowHeight = matchMedia('(max-width: 640px)').matches ? 46 : 28;
  element('height').style.height = matching.length * rowHeight + 'px';
  const first = Math.max(Math.floor(list.scrollTop / rowHeight) - 5, 0);
  const last = Math.min(first + Math.ceil(list.clientHeight / rowHeight) + 10, matching.length);
  pane.style.top = first * rowHeight + 'px';
  pane.replaceChildren();
  for (let i = first; i < last; i++) {
    const row = matching[i], box = document.createElement('div');
    box.className = 'row' + (data.problems[rows.kind[row]] ? ' problem' : '') + (row === view.selected ? ' selected' : '');
    box.dataset.row = String(row);
    box.setAttribute('role', 'row');
    for (const [name, text] of [['time', clock(rows.at[row], 1e3)], ['kind', data.kinds[rows.kind[row]]], ['server', serverOf(row)], ['text', textOf(row)]]) {
      const cell = document.createElement('span');
      cell.className = name; cell.textContent = text; cell.setAttribute('role', 'cell');
      box.append(cell);
    }
    pane.append(box);
  }
}

/** Selects an event in the lanes, in the list and in the detail. */
function pick(row) {
  view.selected = row;
  const time = rows.at[row];
  if (time < view.from || time > view.from + view.width) show(time - view.width / 2, view.width);
  const place = search(matching.length, i => matching[i], row);
  if (place < matching.length && (place * rowHeight < list.scrollTop || place * rowHeight > list.scrollTop + list.clientHeight - rowHeight)) {
    list.scrollTop = Math.max(place * rowHeight - list.clientHeight / 2, 0);
  }
  detail.textContent = clock(time, 1) + '  (' + duration(time) + ' after the start)\n' + data.kinds[rows.kind[row]] + '  ' + serverOf(row) + '\n' + textOf(row) + '\nline ' + rows.line[row] + ' of the recording';
  fill(); schedule(); remember();
}

/** Returns the event of a lane nearest to `at`, within `reach`; the topology has lane -1. */
function nearest(lane, at, reach) {
  const all = lane < 0 ? null : shown[lane].rows;
  const count = all ? all.length : rows.count, row = i => all ? all[i] : i;
  const place = search(count, i => rows.at[row(i)], at - reach);
  let best = -1, distance = Infinity, others = -1;
  for (let i = place; i < count && rows.at[row(i)] <= at + reach; i++) {
    if (lane < 0 && rows.lane[row(i)]) continue;
    others++;
    // Among events at the same place, one that is a problem or a change is preferred to a heartbeat.
    const far = Math.abs(rows.at[row(i)] - at) + (rows.kind[row(i)] === KIND.heartbeat ? reach : 0);
    if (far < distance) { distance = far; best = row(i); }
  }
  return { best, others };
}

list.addEventListener('scroll', () => requestAnimationFrame(fill), { passive: true });
filter.addEventListener('input', () => { list.scrollTop = 0; select(); });
pane.addEventListener('click', event => {
  const box = event.target.closest('.row');
  if (box) pick(Number(box.dataset.row));
});
data.kinds.forEach((name, kind) => {
  if (!rows.kind.includes(kind)) return;
  const label = document.createElement('label'), box = document.createElement('input');
  box.type = 'checkbox'; box.checked = visible.has(kind);
  box.addEventListener('change', () => { box.checked ? visible.add(kind) : visible.delete(kind); select(); });
  label.append(box, name);
  element('kinds').append(label);
});
