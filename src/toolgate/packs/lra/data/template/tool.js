// This paper's own program. Claims and demos name its functions as paper.js#count: numbers in, a number (or a list) out.
// Below "lra-page:" is the released script, which verifiers know by its bytes.
window.lraTools = {
  "paper.js": (() => {
    // Points with whole coordinates within distance r of the origin, column by column; -1 outside 0..10000.
    function count(r) {
      if (!Number.isInteger(r) || r < 0 || r > 10000) return -1;
      let y = r, n = 0;
      for (let x = 0; x <= r; x++) {
        while (x * x + y * y > r * r) y--;
        n += (2 * y + 1) * (x ? 2 : 1);
      }
      return n;
    }

    const difference = (r) => count(r) - Math.PI * r * r;
    const inside = (r, x, y) => Number(x * x + y * y <= r * r);

    // How many whole radii from 1 to the limit miss the area by a quarter of Gauss's bound or more.
    function exceptions(limit) {
      let found = 0;
      for (let r = 1; r <= limit; r++) if (Math.abs(difference(r)) >= (Math.PI / Math.SQRT2) * r) found++;
      return found;
    }

    return { count, difference, inside, exceptions };
  })(),
};
