// of each plot: id, width, height, marks, labels, texts that stick out, length of the title, description
return [...document.querySelectorAll('svg.plot')].map(svg => {
  const box = svg.getBoundingClientRect();
  const marks = svg.querySelectorAll('rect, circle, path, polyline').length;
  const labels = [...svg.querySelectorAll('text.label')].map(e => e.textContent).filter(Boolean);
  const out = [...svg.querySelectorAll('text')].filter(e => {
    const b = e.getBoundingClientRect(); return b.left < box.left - 1 || b.right > box.right + 1; }).length;
  return [svg.closest('figure').id, box.width, box.height, marks, labels.length, out,
          svg.querySelector('title').textContent.length, svg.querySelector('desc').textContent];
})
