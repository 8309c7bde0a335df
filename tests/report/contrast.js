// class, text and contrast of whatever is hard to read (WCAG AA)
const rgb = (c) => c.match(/[\d.]+/g).map(Number);
const lum = ([r, g, b]) => [r, g, b].map(v => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; })
  .reduce((sum, v, k) => sum + v * [.2126, .7152, .0722][k], 0);
const behind = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor);
  if (c.length === 3 || c[3] > .99) return c; } return [255, 255, 255]; };
return [...document.querySelectorAll('p, li, dt, dd, th, td, figcaption, summary, label, .badge, pre, h1, h2, h3, svg text')]
  .filter(e => e.textContent.trim() && e.getClientRects().length)
  .map(e => { const s = getComputedStyle(e); const a = lum(rgb(e.closest('svg') ? s.fill : s.color)), b = lum(behind(e));
    return [e.className.baseVal ?? e.className, e.textContent.slice(0, 30), (Math.max(a, b) + .05) / (Math.min(a, b) + .05)]; })
  .filter(found => found[2] < 4.5)
