/* Values below the pointer, and zoom: drag over a part of a plot, double-click to reset. The page reads the
   same without it. */
(() => {
    const NS = 'http://www.w3.org/2000/svg';
    const tip = document.createElement('div');
    tip.className = 'tip';
    tip.hidden = true;
    document.body.append(tip);

    const add = (parent, name, attributes) => {
        const node = document.createElementNS(NS, name);
        for (const key in attributes) node.setAttribute(key, attributes[key]);
        parent.append(node);
        return node;
    };
    const short = (v) => {
        const a = Math.abs(v);
        return a && (a < 1e-3 || a >= 1e6) ? v.toExponential(2) : String(+v.toPrecision(5));
    };
    /* About n round values between a and b. */
    const ticks = (a, b, n) => {
        const raw = (b - a) / n, unit = 10 ** Math.floor(Math.log10(raw));
        const step = unit * ([1, 2, 5].find((m) => m * unit >= raw) || 10), list = [];
        for (let v = Math.ceil(a / step) * step; v <= b + step / 1e6; v += step) list.push(+v.toPrecision(12));
        return list;
    };

    const zooms = {}; /* the visible range of each plot, by its id */
    let life = null, dragging = false;

    /* A figure has two versions of its plot; the style sheet shows one of them. */
    const start = (figure) => {
        const data = JSON.parse(figure.dataset.plot);
        figure.querySelectorAll('svg').forEach((svg, i) => enliven(svg, figure.id + (i ? '-narrow' : ''), data, data.views[i]));
    };
    const enliven = (svg, id, data, view) => {
        const [left, top, right, bottom] = view.box, [width, height] = view.size;
        const whole = [data.x.a, data.x.b, data.y.a, data.y.b];
        const curves = [...svg.querySelectorAll('.curves')];
        const dot = add(svg, 'circle', {r: 4, class: 'dot', visibility: 'hidden'});
        let range = whole, from = null, box = null, axes = null, clip = null;

        const share = (axis, v, a, b) => axis.log ? Math.log(v / a) / Math.log(b / a) : (v - a) / (b - a);
        const value = (axis, s, a, b) => axis.log ? a * (b / a) ** s : a + s * (b - a);
        const px = (v) => left + share(data.x, v, range[0], range[1]) * (right - left);
        const py = (v) => bottom - share(data.y, v, range[2], range[3]) * (bottom - top);
        const place = (event) => {
            const r = svg.getBoundingClientRect();
            return [(event.clientX - r.left) * width / r.width, (event.clientY - r.top) * height / r.height];
        };
        const inside = ([x, y]) => x >= left - 8 && x <= right + 8 && y >= top - 8 && y <= bottom + 8;

        const nearest = ([x, y]) => {
            let best = null;
            for (const s of data.s)
                s.x.forEach((v, i) => {
                    if (v < range[0] || v > range[1]) return;
                    const dx = px(v) - x, dy = (py(s.y[i]) - y), d = dx * dx + dy * dy / 4;
                    if (!best || d < best.d) best = {d, s, i};
                });
            return best && best.d < 60 * 60 ? best : null;
        };
        const show = (event) => {
            const at = place(event), found = inside(at) && nearest(at);
            tip.hidden = !found;
            dot.setAttribute('visibility', found ? 'visible' : 'hidden');
            if (!found) return;
            const {s, i} = found, spread = s.e && s.e[i] ? ' ± ' + short(s.e[i]) + data.y.u : '';
            const name = s.p ? s.p[i] : s.n;
            tip.textContent = `${name}${name ? ': ' : ''}${short(s.y[i])}${data.y.u}${spread} at ${short(s.x[i])}${data.x.u} ${data.x.n}`;
            tip.style.left = Math.min(event.pageX + 14, document.documentElement.clientWidth - tip.offsetWidth - 8) + 'px';
            tip.style.top = event.pageY + 16 + 'px';
            dot.setAttribute('cx', px(s.x[i]));
            dot.setAttribute('cy', py(s.y[i]));
        };

        /* Redraws the axes for the visible range and moves the curves. */
        const draw = () => {
            const zoomed = range !== whole;
            zooms[id] = zoomed ? range : null;
            svg.querySelectorAll('.gridline').forEach((g) => { g.style.display = zoomed ? 'none' : ''; });
            if (axes) axes.remove();
            axes = null;
            const sx = zoomed ? 1 / (share(data.x, range[1], whole[0], whole[1]) - share(data.x, range[0], whole[0], whole[1])) : 1;
            const sy = zoomed ? 1 / (share(data.y, range[3], whole[2], whole[3]) - share(data.y, range[2], whole[2], whole[3])) : 1;
            const ox = zoomed ? share(data.x, range[0], whole[0], whole[1]) : 0, oy = zoomed ? share(data.y, range[2], whole[2], whole[3]) : 0;
            curves.forEach((g) => {
                g.setAttribute('transform', zoomed ? `matrix(${sx} 0 0 ${sy} ${left - sx * (left + ox * (right - left))} ${bottom - sy * (bottom - oy * (bottom - top))})` : '');
                g.querySelectorAll('path').forEach((p) => p.setAttribute('vector-effect', 'non-scaling-stroke'));
            });
            if (!zoomed) return;
            if (!clip) {
                const name = id + '-area';
                add(add(svg, 'clipPath', {id: name}), 'rect', {x: left, y: top, width: right - left, height: bottom - top});
                clip = add(svg, 'g', {'clip-path': `url(#${name})`});
                clip.append(...curves);
                svg.append(dot);
            }
            axes = add(svg, 'g', {class: 'axes'});
            add(axes, 'path', {d: `M24 ${top - 8}H${left - 1}V${bottom + 1}H${right + 30}V${height}H24Z`, class: 'cover'});
            for (const v of data.x.log ? [] : ticks(range[0], range[1], 5))
                add(axes, 'text', {x: px(v), y: bottom + 20, 'text-anchor': 'middle'}).textContent = short(v) + data.x.u;
            for (const v of data.y.log ? [] : ticks(range[2], range[3], 5)) {
                add(axes, 'path', {d: `M${left} ${py(v)}H${right}`, class: 'grid'});
                add(axes, 'text', {x: left - 8, y: py(v) + 4, 'text-anchor': 'end'}).textContent = short(v) + data.y.u;
            }
            add(axes, 'text', {x: (left + right) / 2, y: bottom + 38, 'text-anchor': 'middle'}).textContent = data.x.n + ' (double-click: whole range)';
        };

        svg.addEventListener('pointermove', (event) => {
            if (!from) return show(event);
            const at = place(event), x = [from[0], at[0]].map((v) => Math.min(Math.max(v, left), right)).sort((a, b) => a - b);
            const y = [from[1], at[1]].map((v) => Math.min(Math.max(v, top), bottom)).sort((a, b) => a - b);
            if (!box) box = add(svg, 'rect', {class: 'select'});
            for (const [k, v] of Object.entries({x: x[0], y: y[0], width: x[1] - x[0], height: y[1] - y[0]})) box.setAttribute(k, v);
            box.range = [x, y];
        });
        /* What a finger has shown stays until the next touch. */
        const hide = (event) => {
            if (event.type === 'pointerleave' && event.pointerType === 'touch') return;
            tip.hidden = true;
            dot.setAttribute('visibility', 'hidden');
        };
        svg.addEventListener('pointerleave', hide);
        addEventListener('pointerdown', hide, {capture: true, signal: life.signal});
        svg.addEventListener('pointerdown', (event) => {
            if (event.pointerType === 'touch') return show(event);
            if (!inside(place(event))) return;
            from = place(event);
            dragging = true;
            tip.hidden = true;
            event.preventDefault();
        });
        addEventListener('pointerup', () => {
            if (box && box.range[0][1] - box.range[0][0] > 8 && box.range[1][1] - box.range[1][0] > 8) {
                const [x, y] = box.range, s = (v, a, b) => (v - a) / (b - a);
                range = [value(data.x, s(x[0], left, right), range[0], range[1]), value(data.x, s(x[1], left, right), range[0], range[1]),
                    value(data.y, s(y[1], bottom, top), range[2], range[3]), value(data.y, s(y[0], bottom, top), range[2], range[3])];
                draw();
            }
            if (box) box.remove();
            box = from = null;
        }, {signal: life.signal});
        svg.addEventListener('dblclick', () => {
            range = whole;
            draw();
        });
        if (zooms[id]) {
            range = zooms[id];
            draw();
        }
    };
    const begin = () => {
        if (life) life.abort();
        life = new AbortController();
        document.querySelectorAll('figure[data-plot]').forEach(start);
    };
    begin();

    /* A served page replaces its contents whenever a run has written something, but not during a drag. */
    if ('live' in document.body.dataset) {
        const events = new EventSource('events'), lost = document.createElement('p');
        let seen = new Date(), news = null;
        const replace = () => {
            const open = document.querySelector('details[open]');
            document.querySelector('main').outerHTML = news;
            if (open) document.querySelector('details').open = true;
            news = null;
            tip.hidden = true;
            begin();
        };
        events.onmessage = (event) => {
            seen = new Date();
            news = event.data;
            if (!dragging) replace();
        };
        addEventListener('pointerup', () => {
            dragging = false;
            if (news) replace();
        });
        lost.className = 'lost';
        lost.setAttribute('role', 'status');
        events.onopen = () => lost.remove();
        events.onerror = () => {
            lost.textContent = `No connection to the server. This page shows the runs as of ${seen.toLocaleTimeString()}.`;
            document.body.prepend(lost);
        };
    }
})();
